"""Every recorded conversation against the strict provider: refused requests, and views above a limit.

Every reply thinks, a window is open, recall is on, and the model writes notes. The calls whose floor exceeds the budget
are counted apart: quire raises `IrreducibleFloor` there. It uses recorded conversations; without them this topic has no
figures.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path

from bench.figures import Figure
from bench.recall import DIALOGUES
from bench.traces import TRACES, Values, conversation, traces, with_distinct_calls
from tests.strict_provider.driver import APIS, Outcome, drive
from tests.strict_provider.requests import Api

BUDGETS = (2_000, 4_000, 8_000, 32_000)
CODING = TRACES.parent / "swe_agent.jsonl.gz"
JOINED = 800
"""Messages of the long conversation: recorded runs one after the other."""


def run(_: Path, size: int) -> list[Figure]:
    """Return all figures. A small size means every tenth conversation."""
    if not TRACES.exists():
        return []
    step = 1 if size >= 1_000_000 else 10
    with ProcessPoolExecutor() as processes:
        pairs = [(api, budget, step) for api in APIS for budget in BUDGETS]
        return [figure for figures in processes.map(measure, *zip(*pairs, strict=True)) for figure in figures]


def measure(api: Api, budget: int, step: int) -> list[Figure]:
    """Replay every `step`-th conversation with one API and one budget."""
    talks = list(recorded())[::step]
    found = Outcome()
    for number, talk in enumerate(talks):
        outcome = drive(talk, api, budget, capacity=budget // 8)
        report(f"{api} at {budget:,}, conversation {number}", outcome)
        found += outcome
    where = f"{api} at {budget // 1_000}k"
    note = f"{found.calls:,} calls, {found.folds:,} folds, {found.thinking:,} thinking blocks sent back"
    note += f", {found.in_loop:,} in a tool loop without thinking" if found.in_loop else ""
    return [
        Figure(f"requests refused, {where}", len(found.refused), "", 0, note),
        Figure(f"views above the budget or a capacity, {where}", len(found.too_large), "", 0),
        Figure(f"calls with a floor above the budget, {where}", len(found.floors), ""),
    ]


def report(where: str, outcome: Outcome) -> None:
    """Print the first problem of each kind."""
    known: set[str] = set()
    for call, api, problem in outcome.refused:
        if problem.rule not in known:
            known.add(problem.rule)
            sys.stderr.write(f"{where}, call {call}: {api}, {problem.rule}: {problem.message}\n")
    for large in outcome.too_large[:1]:
        sys.stderr.write(f"{where}: {large}\n")
    for call, text in outcome.floors[:1]:
        sys.stderr.write(f"{where}, call {call}, and {len(outcome.floors) - 1} more: {text}\n")


def recorded() -> Iterator[list[Values]]:
    """Yield all recorded conversations: customer service, one of it that is long, coding, and dialogues."""
    yield from map(with_distinct_calls, traces())
    yield [traces()[0][0], *conversation(JOINED)]
    with gzip.open(CODING) as lines:
        yield from (with_distinct_calls(json.loads(line)["messages"]) for line in lines)
    with gzip.open(DIALOGUES) as lines:
        yield from map(_dialogue, map(json.loads, lines))


def _dialogue(row: Values) -> list[Values]:
    """Return a dialogue of two persons; the second one is the assistant. Turns in a row are one message."""
    roles = dict(zip(row["speakers"], ("user", "assistant"), strict=True))
    turns = [turn for session in row["sessions"] for turn in session["turns"] if turn["text"].strip()]
    return [
        {"role": role, "content": "\n".join(turn["text"] for turn in group)}
        for role, group in groupby(turns, lambda turn: roles[turn["speaker"]])
    ]
