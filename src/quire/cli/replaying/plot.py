"""A life as a picture: what it costs, what the prompt cache has of it, what can be reached, budget by budget."""

from collections.abc import Callable
from pathlib import Path

from quire.cli.charts import Axis, Bar, Line, Panel, draw_bars, draw_lines, noted, stacked
from quire.cli.replaying.life import Life
from quire.cli.replaying.report import has_stand_ins
from quire.cli.replaying.strategies.table import OURS
from quire.cli.replaying.tally import Tally
from quire.cli.width import cut
from quire.errors import InvalidValue

_BUDGET = Axis("budget", "tokens", log=True)
_COST = Axis("billed cost", "plain input tokens")
_CACHED = Axis("share of the input that the prompt cache has", "%")
_REACHED = Axis("facts that the last request holds or a search finds", "%")
_STAND_IN = "A summary is a stand-in: facts that a model would keep in one are not counted."
_SEARCH = "Only quire has a search here."
_MOST_TITLE = 80
_WIDE = 12
"""Where the dearest is so many times the cheapest, the scale goes by powers of ten."""


def draw_life(life: Life, title: str) -> str:
    """The picture, as an SVG document: lines over the budgets, or bars where there is one."""
    costs = [one.tally.cost for one in life.lived]
    cost = _COST._replace(log=min(costs) > 0 and max(costs) / min(costs) > _WIDE)
    panels = [
        _panel(life, cut(title, _MOST_TITLE), cost, lambda tally: tally.cost),
        _panel(life, "From the prompt cache", _CACHED, lambda tally: 100 * tally.share),
    ]
    if life.facts:
        axis = _REACHED._replace(label=f"{_REACHED.label}, of {life.facts:,} sampled")
        counted = f"{_STAND_IN} " if has_stand_ins(life) else ""
        panel = _panel(life, "What can still be reached at the end", axis, _reached)
        panels.append(noted(panel, f"{counted}{_SEARCH}"))
    return stacked(panels)


def check_plot(path: Path) -> None:
    """Refuse a place where no picture can be written, or where something else stands. Raises `InvalidValue`."""
    try:
        if path.is_dir():
            raise InvalidValue(f"Cannot write the plot to {str(path)!r}: it is a folder.")
        if path.exists() and not _is_svg(path):
            raise InvalidValue(f"{str(path)!r} is there and is no SVG; choose another name for the plot.")
        if not path.absolute().parent.is_dir():
            raise InvalidValue(f"Cannot write the plot to {str(path)!r}: there is no such folder.")
    except OSError as error:
        raise _unwritable(path, error) from None


def write_plot(path: Path, picture: str) -> None:
    """Write the picture. Raises `InvalidValue` where that cannot be."""
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _is_svg(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(1_024).lstrip()
    return start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start)


def _panel(life: Life, title: str, axis: Axis, value: Callable[[Tally], float]) -> Panel:
    names = list(dict.fromkeys(one.kind.name for one in life.lived))
    points = {name: [(one.budget, value(one.tally)) for one in life.lived if one.kind.name == name] for name in names}
    if len({one.budget for one in life.lived}) > 1:
        return draw_lines(title, [Line(name, points[name], name == OURS) for name in names], _BUDGET, axis)
    bars = [Bar(name, points[name][0][1], strong=name == OURS) for name in names]
    return draw_bars(title, bars, axis._replace(log=False))


def _reached(tally: Tally) -> float:
    return 100 * (tally.facts.shown + tally.facts.found) / max(1, tally.facts.total)


def _unwritable(path: Path, error: OSError) -> InvalidValue:
    return InvalidValue(f"Cannot write the plot to {str(path)!r}: {error.strerror or error}.")
