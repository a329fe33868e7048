"""Run `quire replay` on recorded sessions, each played as one long conversation."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.corpora import PREFILL, SWE, are_here
from bench.traces import TRACES
from quire.cli.replay.strategies import STRATEGIES

TOPIC = "lives"
OURS = "quire"
RUNS = {
    "airline": (TRACES, "100 recorded customer-service runs with tool calls (τ-bench airline), one after the other"),
    "coding": (SWE, "10 recorded coding runs with long observations (SWE-agent), one after the other"),
}
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
_QUICK = ("--budget", "4000,16000")

Row = Mapping[str, Any]


def run(*, quick: bool) -> dict[str, Any]:
    """Replay every recording and return the results. A full run also draws the plots."""
    if not are_here():
        return {}
    return {"recordings": {name: _replayed(name, path, quick=quick) for name, (path, _) in RUNS.items()}}


def _replayed(name: str, path: Path, *, quick: bool) -> list[Row]:
    title = f"{name.capitalize()} runs as one conversation"
    more = _QUICK if quick else ("--plot", str(IMAGES / f"life-{name}.svg"), "--title", title)
    command = [
        sys.executable,
        "-m",
        "quire",
        "replay",
        str(path),
        "--joined",
        "--json",
        "--prefill",
        str(PREFILL),
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [row for line in done.stdout.splitlines() if "strategy" in (row := json.loads(line))]


def as_markdown(kept: Mapping[str, Any]) -> str:
    """Return the section of the page as Markdown."""
    parts = (_recording(name, rows) for name, rows in kept["recordings"].items())
    machine = ", ".join(f"{what} {value}" for what, value in kept["machine"].items())
    return _PREFACE.format(machine=machine, strategies=_strategies()) + "\n".join(parts)


def _recording(name: str, rows: Sequence[Row]) -> str:
    budgets = sorted({row["budget"] for row in rows})
    table = {(row["strategy"], row["budget"]): row for row in rows}
    ours = {budget: table[OURS, budget] for budget in budgets}
    costs = _table(table, budgets, lambda row: f"{row['cost'] / ours[row['budget']]['cost']:.2f}×")
    return f"""#### {name.capitalize()}

{RUNS[name][1][0].upper()}{RUNS[name][1][1:]}: {ours[budgets[0]]["calls"]:,} model calls.

![Cost, cached share, and facts that can be reached at the end](images/life-{name}.svg)

| billed, × quire |{costs}

| facts reached at the end |{_table(table, budgets, _reached)}

| requests refused (OpenAI / Anthropic), over the budget |{_table(table, budgets, _wrong)}

| time per call, median, × quire |{_table(table, budgets, lambda row: _slower(row, ours))}

| seconds to the first token, all calls, model of 8B / 32B |{_table(table, budgets, _waited)}
"""


def _table(table: Mapping[tuple[str, int], Row], budgets: Sequence[int], cell: Callable[[Row], str]) -> str:
    names = dict.fromkeys(name for name, _ in table)
    lines = [" | ".join(f" {budget // 1_000}k" for budget in budgets) + " |", f"|{'---|' * (1 + len(budgets))}"]
    for name in names:
        cells = " | ".join(cell(table[name, budget]) for budget in budgets)
        lines.append(f"| {f'**{name}**' if name == OURS else name} | {cells} |")
    return "\n".join(lines)


def _waited(row: Row) -> str:
    return " / ".join(f"{row['prefill_ms'][model]['total'] / 1_000:,.0f}" for model in ("8B", "32B"))


def _reached(row: Row) -> str:
    facts = row["facts"]
    share = (facts["shown"] + facts["found"]) / facts["total"]
    return f"{share:.0%}" + (f" ({facts['shown'] / facts['total']:.0%} shown)" if facts["found"] else "")


def _wrong(row: Row) -> str:
    return f"{row['illegal']['openai']:,} / {row['illegal']['anthropic']:,}, {row['over_budget']:,}"


def _slower(row: Row, ours: Mapping[int, Row]) -> str:
    return f"{row['latency_ms']['median'] / ours[row['budget']]['latency_ms']['median']:.3f}×"


def _strategies() -> str:
    rows = (f"| {kind.name} | {kind.description} | {kind.source} |" for kind in STRATEGIES.values())
    return "\n".join(("| strategy | method | source |", "|---|---|---|", *rows))


_PREFACE = """### Replayed sessions

The output of `quire replay` on recorded files. The strategies imitate the peers: they are short reimplementations of
their documentation and code. [The guide](howto/replay.md) lists the assumptions. A summary has a fixed size, and its
facts do not count. Measured on: {machine}.

{strategies}

"""
