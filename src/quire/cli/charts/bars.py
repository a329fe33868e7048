"""A bar chart: one bar a line, its name before it, its value and a note after it."""

from collections.abc import Sequence
from typing import NamedTuple

from quire.cli.charts.scale import Axis, Scale, scale
from quire.cli.charts.svg import WIDTH, Panel, element, escaped, measure, sentence, stacked, text
from quire.cli.width import cut
from quire.errors import InvalidValue

_TOP, _ROW, _THICK, _BOTTOM = 74.0, 27.0, 16.0, 38.0
_SIZE = 12.0
_MOST_NAME, _MOST_NOTE = 42, 40
_TICKS = 6
_LEAST = 180.0
"""The pixels that bars have at least, whatever names and notes take."""


class Bar(NamedTuple):
    """A value with its name and a note; a strong one is emphasised."""

    name: str
    value: float
    note: str = ""
    strong: bool = False


def bar_chart(title: str, bars: Sequence[Bar], axis: Axis) -> str:
    """A bar chart as an SVG document, in the order given. Raises `InvalidValue` if there is no bar."""
    return stacked([draw_bars(title, bars, axis)])


def draw_bars(title: str, bars: Sequence[Bar], axis: Axis) -> Panel:
    """A bar chart as a part of a document, in the order given. Raises `InvalidValue` if there is no bar."""
    if not bars:
        raise InvalidValue(f"No bar to draw in {title!r}.")
    bottom = _TOP + _ROW * len(bars)
    along = _along(bars, axis)
    parts = [text(title, 20, 30, "title"), text(axis.caption, 20, 52, "dim")]
    for tick, mark in along.marks:
        at = along.at(tick)
        parts.append(element("line", x1=at, x2=at, y1=_TOP - 6, y2=bottom, class_="grid"))
        parts.append(text(mark, at, bottom + 17, "dim middle"))
    origin = along.at(along.low if axis.log else 0.0)
    parts += [_bar(bar, _TOP + _ROW * row, along, origin) for row, bar in enumerate(bars)]
    parts.append(element("line", x1=origin, x2=origin, y1=_TOP - 6, y2=bottom, class_="base"))
    said = (f"{bar.name}: {axis.said(bar.value)}{f' ({bar.note})' if bar.note else ''}" for bar in bars)
    return Panel(title, sentence([axis.caption, *said]), bottom + _BOTTOM, "\n".join(parts))


def _along(bars: Sequence[Bar], axis: Axis) -> Scale:
    """The scale between the names and what stands after the bars."""
    left = 32 + max(measure(cut(bar.name, _MOST_NAME), _SIZE) * (1.06 if bar.strong else 1) for bar in bars)
    after = max(measure(_after(bar, axis), _SIZE) for bar in bars) + 26
    right = max(left + _LEAST, WIDTH - after)
    values = [bar.value for bar in bars if axis.shows(bar.value)]
    return scale(axis, values, left, right, _TICKS, zero=True).ending_at(max([0.0, *values]))


def _bar(bar: Bar, top: float, along: Scale, origin: float) -> str:
    middle = top + _ROW / 2
    end = along.at(bar.value) if along.axis.shows(bar.value) else origin
    left, long = min(origin, end), abs(end - origin)
    weight = "strong" if bar.strong else "plain"
    note = element("tspan", escaped(cut(bar.note, _MOST_NOTE)), class_="dim", dx=8) if bar.note else ""
    parts = [
        text(cut(bar.name, _MOST_NAME), along.start - 10, middle + 4, f"end {weight}"),
        element(
            "rect",
            f"<title>{escaped(bar.name)}</title>",
            x=left,
            y=middle - _THICK / 2,
            width=max(long, 1.5),
            height=_THICK,
            rx=2,
            class_="f0" if bar.strong else "quiet",
        ),
        text(along.axis.written(bar.value), max(origin, end) + 7, middle + 4, weight, note),
    ]
    return element("g", "".join(parts))


def _after(bar: Bar, axis: Axis) -> str:
    return f"{axis.written(bar.value)}  {cut(bar.note, _MOST_NOTE)}"
