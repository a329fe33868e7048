"""The plot of a replay: cost, cached share and reachable facts of each strategy over the budgets."""

from collections.abc import Callable
from pathlib import Path

from quire.cli.charts import Axis, Bar, Line, Panel, draw_bars, draw_lines, stack_panels
from quire.cli.replay.pricing import CallTotals
from quire.cli.replay.simulation import Simulation
from quire.cli.replay.strategies import QUIRE
from quire.cli.terminal import cut
from quire.errors import InvalidValue

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
