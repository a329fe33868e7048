"""The report of a replay: tables for people, values for programs, lines for single calls, and the plot."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from quire.cli.charts import Axis, Bar, Line, Panel, draw_bars, draw_lines, stack_panels
from quire.cli.commands.view import draw_bar
from quire.cli.replay.pricing import CallTotals, Rates, middle_and_slow
from quire.cli.replay.recordings import Reach, RecordedUsage, RecordingSet
from quire.cli.replay.simulation import MAX_FACTS, ModelCall, Simulation, StrategyRun
from quire.cli.replay.strategies import QUIRE, SUMMARY_TOKENS
from quire.cli.terminal import Narration, Values, count_of, cut, width
from quire.errors import InvalidValue

_HEAD = ("strategy", "input", "a call", "cached", "cost", "ms", "p95", "illegal", "over", "facts")
_OPTIONAL = ("p95", "a call", "ms")
"""Columns that are left out, in this order, if a table is too wide."""
_GAP = 2
_MONEY = 5
"""The position of the money column."""
CALL_HEAD = "call turn   tokens  cached  lines  F folded, E exchanges; CAPITALS: cached"
_CALL_COLUMNS = 37
"""The columns of a call's line before the bar and the reply."""
_BAR_CELLS = 32


def table_head(rates: Rates) -> list[str]:
    """Return the column names."""
    money = () if rates.million is None else ("money",)
    return [*_HEAD[:_MONEY], *money, *_HEAD[_MONEY:]]


def table_rows(runs: Sequence[StrategyRun]) -> Iterator[list[str]]:
    """Yield the rows of a table, one for each strategy."""
    for run in runs:
        totals = run.totals
        middle, slow = totals.latency()
        yield [
            run.kind.name,
            f"{totals.input_tokens:,}",
            f"{totals.mean:,}",
            f"{100 * totals.share:.0f} %",
            f"{totals.cost:,.0f}",
            *([] if totals.money is None else [f"{totals.money:,.2f}"]),
            f"{middle:.2f}",
            f"{slow:.2f}",
            f"{totals.openai_refusals:,}/{totals.anthropic_refusals:,}",
            f"{totals.over:,}",
            _format_facts(totals.facts),
        ]


def prefill_table(runs: Sequence[StrategyRun]) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of the table of times to the first token, one row for each strategy."""
    models = list(runs[0].totals.first_token)
    head = ["to the first token", *(name for model in models for name in (f"{model}: s", "p50 ms", "p95 ms"))]
    rows: list[list[str]] = []
    for run in runs:
        row = [run.kind.name]
        for times in run.totals.first_token.values():
            middle, slow = middle_and_slow(times)
            row += f"{sum(times) / 1_000:,.1f}", f"{middle:,.0f}", f"{slow:,.0f}"
        rows.append(row)
    return head, rows


def fit_columns(head: Sequence[str], tables: Sequence[Sequence[Sequence[str]]], columns: int) -> list[int]:
    """Return the positions of the columns that fit the terminal, the same for all tables."""
    lines = [head, *(line for table in tables for line in table)]
    widths = [max(width(line[place]) for line in lines) for place in range(len(head))]
    places = list(range(len(head)))
    for name in _OPTIONAL:
        if sum(widths[place] + _GAP for place in places) - _GAP > columns:
            places.remove(head.index(name))
    return places


def describe_recordings(recordings: RecordingSet) -> str:
    """Return the number of messages, conversations and model calls."""
    silent = f" ({recordings.silent:,} more without any)" if recordings.silent else ""
    unread = f"; {count_of(recordings.unread, 'file')} without a conversation" if recordings.unread else ""
    return (
        f"{count_of(recordings.messages, 'message')} in {count_of(len(recordings.conversations), 'conversation')},"
        f" {count_of(recordings.calls, 'model call')}{silent}{unread}"
    )


def describe_usage(usage: RecordedUsage, rates: Rates) -> str:
    """Return the usage that the client recorded, with its cost."""
    cost = rates.cost(usage.tokens - usage.cached, usage.cached, usage.written)
    price = "" if rates.million is None else f", ${cost * rates.million / 1e6:,.2f}"
    return (
        f"recorded by the client: {count_of(usage.calls, 'model call')}, {usage.tokens:,} input tokens,"
        f" {100 * usage.cached / max(1, usage.tokens):.0f} % from the cache, {usage.written:,} output tokens;"
        f" cost {cost:,.0f}{price}"
    )


def legend(rates: Rates, simulation: Simulation, device: str = "") -> Iterator[str]:
    """Yield the explanation of the columns."""
    if any(run.totals.first_token for run in simulation.runs):
        yield (
            f"to the first token: prefill times{device and ' on '}{device}, of all calls and of one; a summariser's own"
            " calls delay the request; the time to write a summary is not counted"
        )
    yield (
        f"cost: in plain input tokens; a cached token costs {rates.price.read:.3g}, an output token of a summariser"
        f" {rates.output:.3g}"
    )
    yield (
        "ms, p95: time to add messages and build a request; illegal: requests that OpenAI/Anthropic would refuse;"
        " over: requests above the budget"
    )
    if simulation.facts:
        yield (
            "facts: ids, numbers and dates in the last request → or found by a search, which only quire has here;"
            f" a sample of {count_of(simulation.facts, 'fact')}, at most {MAX_FACTS} per conversation"
        )
    if simulation.has_summaries:
        yield f"a summary is a placeholder of {SUMMARY_TOKENS} tokens: facts in a real summary are not counted"


def run_values(run: StrategyRun) -> Values:
    """Return a strategy at a budget for `--json`."""
    totals = run.totals
    middle, slow = totals.latency()
    return {
        "budget": run.budget,
        "strategy": run.kind.name,
        "calls": totals.calls,
        "tokens": totals.tokens,
        "cached": totals.shared,
        "share": totals.share,
        "cost": totals.cost,
        "money": totals.money,
        "latency_ms": {"median": middle, "p95": slow},
        "prefill_ms": {
            model: dict(zip(("total", "median", "p95"), (sum(times), *middle_and_slow(times)), strict=True))
            for model, times in totals.first_token.items()
        },
        "illegal": {"openai": totals.openai_refusals, "anthropic": totals.anthropic_refusals},
        "over_budget": totals.over,
        "facts": totals.facts._asdict(),
        "summaries": {
            "calls": totals.summary_calls,
            "tokens": totals.summary_tokens,
            "cached": totals.summary_shared,
            "written": totals.written,
        },
    }


def totals_values(totals: CallTotals) -> Values:
    """Return the totals of one side for `--json`."""
    return {
        "calls": totals.calls,
        "tokens": totals.tokens,
        "cached": totals.shared,
        "cost": totals.cost,
        "illegal": totals.openai_refusals,
    }


def call_values(call: ModelCall, rates: Rates) -> Values:
    """Return one model call for `--json`."""
    view, fold = call.view, call.view.fold
    return {
        "call": call.number,
        "turn": call.turn,
        "tokens": view.tokens,
        "budget": view.budget,
        "cached": view.shared_prefix,
        "cost": view.cost(rates.price),
        "why": view.bill().why,
        "folded": None if fold is None else {"exchanges": fold.exchanges, "saved": fold.saved},
        "sliding_window": {"tokens": call.window.tokens, "cached": call.window.shared},
    }


def print_call(narration: Narration, call: ModelCall) -> None:
    """Print the fold before a call, if there was one, and one line for the call: its view and the reply."""
    paint, view, fold = narration.paint, call.view, call.view.fold
    if fold is not None:
        facts = fold.account
        text = (
            f"── folded {fold.exchanges} exchanges, saved {fold.saved:,};"
            f" facts: {facts.kept} kept, {facts.reachable} reachable, {facts.lost} lost"
        )
        narration.slow_line(paint.bold(paint.blue(cut(text, narration.columns))))
    lines = sum(page.granularity == "line" for page in view.pages)
    share = f"{100 * view.shared_prefix // max(1, view.tokens):>3} %"
    room = max(2, narration.columns - _CALL_COLUMNS)
    cells = min(_BAR_CELLS, room // 2)
    bar = draw_bar(view, cells, paint)
    reply = ", ".join(f"{made.name}()" for made in call.reply.tool_calls) or " ".join(call.reply.text.split())
    reply = paint.dim(cut(reply, room - cells))
    narration.slow_line(f"{call.number:>4} {call.turn:>4}  {view.tokens:>7,} {share:>7} {lines:>6}  {bar}  {reply}")


def _format_facts(facts: Reach) -> str:
    if not facts.total:
        return "-"
    shown = f"{100 * facts.shown / facts.total:.0f}"
    return f"{shown} → {100 * (facts.shown + facts.found) / facts.total:.0f} %" if facts.found else f"{shown} %"


_BUDGET = Axis("budget", "tokens", log=True)
_COST = Axis("billed cost", "plain input tokens")
_CACHED = Axis("share of the input from the prompt cache", "%")
_REACHED = Axis("facts in the last request or found by a search", "%")
_PLACEHOLDER = "A summary is a placeholder: facts in a real summary are not counted."
_SEARCH = "Only quire has a search here."
_MAX_TITLE = 80
_LOG_RATIO = 12
"""If the highest cost is this many times the lowest, the cost axis is logarithmic."""


def draw_plot(simulation: Simulation, title: str) -> str:
    """Return the plot as an SVG document: lines over the budgets, or bars for a single budget."""
    costs = [run.totals.cost for run in simulation.runs]
    cost = _COST._replace(log=min(costs) > 0 and max(costs) / min(costs) > _LOG_RATIO)
    panels = [
        _panel(simulation, cut(title, _MAX_TITLE), cost, lambda totals: totals.cost),
        _panel(simulation, "From the prompt cache", _CACHED, lambda totals: 100 * totals.share),
    ]
    if simulation.facts:
        axis = _REACHED._replace(label=f"{_REACHED.label}, of {simulation.facts:,} sampled")
        note = f"{_PLACEHOLDER} {_SEARCH}" if simulation.has_summaries else _SEARCH
        panels.append(_panel(simulation, "Facts still reachable at the end", axis, _reached_share).with_note(note))
    return stack_panels(*panels)


def check_plot_path(path: Path) -> None:
    """Raise `InvalidValue` if the plot cannot be written to `path`, or if another file would be overwritten."""
    try:
        if path.is_dir():
            raise InvalidValue(f"Cannot write the plot to {str(path)!r}: it is a folder.")
        if path.exists() and not _is_svg(path):
            raise InvalidValue(f"{str(path)!r} exists and is not an SVG file; choose another name for the plot.")
        if not path.absolute().parent.is_dir():
            raise InvalidValue(f"Cannot write the plot to {str(path)!r}: its folder does not exist.")
    except OSError as error:
        raise _unwritable(path, error) from None


def write_plot(path: Path, picture: str) -> None:
    """Write the plot. Raises `InvalidValue` if that fails."""
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _is_svg(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(1_024).lstrip()
    return start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start)


def _panel(simulation: Simulation, title: str, axis: Axis, value: Callable[[CallTotals], float]) -> Panel:
    points: dict[str, list[tuple[float, float]]] = {}
    for run in simulation.runs:
        points.setdefault(run.kind.name, []).append((run.budget, value(run.totals)))
    if len({run.budget for run in simulation.runs}) > 1:
        lines = [Line(name, places, name == QUIRE) for name, places in points.items()]
        return draw_lines(title, lines, _BUDGET, axis)
    bars = [Bar(name, places[0][1], strong=name == QUIRE) for name, places in points.items()]
    return draw_bars(title, bars, axis._replace(log=False))


def _reached_share(totals: CallTotals) -> float:
    return 100 * (totals.facts.shown + totals.facts.found) / max(1, totals.facts.total)


def _unwritable(path: Path, error: OSError) -> InvalidValue:
    return InvalidValue(f"Cannot write the plot to {str(path)!r}: {error.strerror or error}.")
