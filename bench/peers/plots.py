"""Draw the comparison as plots."""

from bench.peers.registry import OURS, Entry
from bench.peers.results import Cell, Measured
from quire.cli.charts import Axis, Bar, Line, draw_bars, draw_lines, stack_panels

BUDGETS = "bench-budgets.svg"
LIFE = "bench-life.svg"
RESUME = "bench-resume.svg"
TURN = "bench-turn.svg"


def plots(measured: Measured) -> dict[str, str]:
    """Return every plot by file name."""
    return {TURN: _turn(measured), RESUME: _resume(measured), LIFE: _life(measured), BUDGETS: _budgets(measured)}


def _turn(measured: Measured) -> str:
    """Plot only the peers that store their messages on disk."""
    lines = [
        Line(entry.name, points, entry.name == OURS)
        for entry in measured.entries("turn")
        if entry.durable and (points := _points(measured, "turn", entry, "ratio", by_budget=False))
    ]
    x, y = Axis("messages in the conversation", log=True), Axis("a durable turn at 8k, × raw floor", "×", log=True)
    return stack_panels(draw_lines("Append one message and make the list", lines, x, y))


def _resume(measured: Measured) -> str:
    (case,) = measured.cases("resume")
    found = [
        (entry, cell) for entry in measured.entries("resume") if (cell := measured.get("resume", entry.name, case))
    ]
    least = min(cell["milliseconds"] for _, cell in found)
    bars = [Bar(entry.name, cell["milliseconds"] / least, strong=entry.name == OURS) for entry, cell in found]
    return stack_panels(
        draw_bars(f"Go on with {int(case):,} messages in a fresh process", bars, Axis("× the quickest", "×", log=True))
    )


def _life(measured: Measured) -> str:
    case = _middle(measured)
    found = [(entry, cell) for entry in measured.entries("life") if (cell := measured.get("life", entry.name, case))]
    bars = [Bar(entry.name, cell["billed"] / cell["calls"], _note(cell), entry.name == OURS) for entry, cell in found]
    title = f"What a call costs in long conversations at {int(case.split('/')[1]) // 1_000}k"
    return stack_panels(draw_bars(title, bars, Axis("billed tokens a call; a cached one counts a tenth")))


def _note(cell: Cell) -> str:
    told = [(cell["over"], "over the budget"), (cell["refused"], "refused")]
    return ", ".join(f"{_share(count / cell['calls'])} {what}" for count, what in told if count)


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.01 else "under 1%"


def _budgets(measured: Measured) -> str:
    lines = [
        Line(entry.name, points, entry.name == OURS)
        for entry in measured.entries("life")
        if (points := _points(measured, "life", entry, "billed", by_budget=True))
    ]
    x, y = Axis("budget", "tokens", log=True), Axis("billed tokens a call; a cached one counts a tenth", log=True)
    return stack_panels(draw_lines("What a call costs in long conversations, budget by budget", lines, x, y))


def _middle(measured: Measured) -> str:
    """Return the long conversations at 8k, or the measured case."""
    cases = [case for case in measured.cases("life") if case.startswith("long/")]
    return "long/8000" if "long/8000" in cases else cases[0]


def _points(measured: Measured, work: str, entry: Entry, field: str, *, by_budget: bool) -> list[tuple[float, float]]:
    points = []
    for case in measured.cases(work):
        first, _, budget = case.partition("/")
        cell = measured.get(work, entry.name, case)
        if cell is None or (first != "long" if by_budget else budget != "8000"):
            continue
        points.append((float(budget if by_budget else first), cell[field] / (cell["calls"] if by_budget else 1)))
    return points
