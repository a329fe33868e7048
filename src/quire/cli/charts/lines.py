"""A line chart whose lines are named at their ends, where no two names meet."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.cli.charts.scale import Axis, Scale, scale, scale_at
from quire.cli.charts.svg import COLOURS, WIDTH, Panel, element, escaped, measure, number, sentence, stacked, text
from quire.cli.width import cut
from quire.errors import InvalidValue

_TOP, _BOTTOM, _RIGHT = 74.0, 56.0, 18.0
_HEIGHT = 300.0
"""The height of the plot itself; more where many lines must be named."""
_GAP = 17.0
"""From one name to the next."""
_LEADER = 26.0
_SIZE = 12.0
_MOST_NAME = 34
_MOST_DOTS = 24
_DASHES = ("", "6 4", "1.5 4")
_TICKS_X, _TICKS_Y = 9, 6

Point = tuple[float, float]


class Line(NamedTuple):
    """A series: its name and its points by rising x; a strong one is emphasised."""

    name: str
    points: Sequence[Point]
    strong: bool = False


class _Drawn(NamedTuple):
    """A line with its place in the colours, and its points that the axes show."""

    line: Line
    colour: int
    dash: str
    points: list[Point]


def line_chart(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """A line chart as an SVG document. Raises `InvalidValue` if no line has a point to draw."""
    return stacked([draw_lines(title, lines, x, y)])


def draw_lines(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> Panel:
    """A line chart as a part of a document. Raises `InvalidValue` if no line has a point to draw."""
    drawn = [one for one in _coloured(lines, x, y) if one.points]
    if not drawn:
        raise InvalidValue(f"No point to draw in {title!r}: a line needs one that is a number, above 0 on a log axis.")
    height = max(_HEIGHT, _GAP * len(drawn))
    across, up = _scales(drawn, x, y, height)
    parts = [
        text(title, 20, 30, "title"),
        text(y.caption, 20, 52, "dim"),
        *_grid(across, up),
        text(x.caption, (across.start + across.end) / 2, up.start + 42, "dim middle"),
    ]
    quiet_first = sorted(drawn, key=lambda one: one.line.strong)
    marked = any(one.line.strong for one in drawn)
    parts += [_path(one, across, up, quiet=marked) for one in quiet_first]
    parts += _names(drawn, across, up)
    return Panel(title, _said(drawn, x, y), up.start + _BOTTOM, "\n".join(parts))


def _coloured(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[_Drawn]:
    """Each line with its colour; the strong ones have the first, which is theirs; others come again with a dash."""
    strong = sum(line.strong for line in lines)
    kept, repeated = min(strong, 1), COLOURS - min(strong, 1)
    first, later = iter(range(strong)), iter(range(strong, len(lines)))
    for line in lines:
        place = next(first) if line.strong else next(later)
        colour = place if place < COLOURS else kept + (place - kept) % repeated
        dash = _DASHES[min(max(0, place - kept) // repeated, len(_DASHES) - 1)]
        points = sorted(point for point in line.points if x.shows(point[0]) and y.shows(point[1]))
        yield _Drawn(line, colour, dash, points)


def _scales(drawn: Sequence[_Drawn], x: Axis, y: Axis, height: float) -> tuple[Scale, Scale]:
    up = scale(y, [point[1] for one in drawn for point in one.points], _TOP + height, _TOP, _TICKS_Y, zero=False)
    left = 30 + max(measure(mark, _SIZE) for _, mark in up.marks)
    right = WIDTH - _RIGHT - _LEADER - max(measure(_label(one, y), _SIZE) * 1.04 for one in drawn)
    xs = [point[0] for one in drawn for point in one.points]
    return scale_at(x, xs, left + 8, right - 8, _TICKS_X), up


def _grid(across: Scale, up: Scale) -> Iterator[str]:
    left, right = across.start - 8, across.end + 8
    for tick, mark in up.marks:
        at = up.at(tick)
        kind = "base" if tick == up.ticks[0] else "grid"
        yield element("line", x1=left, x2=right, y1=at, y2=at, class_=kind)
        yield text(mark, left - 8, at + 4, "dim end")
    for tick, mark in across.marks:
        at = across.at(tick)
        yield element("line", x1=at, x2=at, y1=up.start, y2=up.start + 5, class_="base")
        yield text(mark, at, up.start + 20, "dim middle")


def _path(one: _Drawn, across: Scale, up: Scale, *, quiet: bool) -> str:
    """The line itself, with a dot at each point where they are few."""
    places = [(across.at(x), up.at(y)) for x, y in one.points]
    weight = 3.2 if one.line.strong else 1.6 if quiet else 2.2
    way = " ".join(f"{number(x)},{number(y)}" for x, y in places)
    dashed = {"stroke_dasharray": one.dash} if one.dash else {}
    parts = [f"<title>{escaped(one.line.name)}</title>"]
    parts.append(element("polyline", points=way, class_=f"line c{one.colour}", stroke_width=weight, **dashed))
    if len(places) <= _MOST_DOTS:
        size = 4.4 if one.line.strong else 3.2
        parts += [element("circle", cx=x, cy=y, r=size, class_=f"dot f{one.colour}") for x, y in places]
    return element("g", "".join(parts))


def _names(drawn: Sequence[_Drawn], across: Scale, up: Scale) -> Iterator[str]:
    """The names beside the ends of the lines, each led to from its own."""
    ends = [up.at(one.points[-1][1]) for one in drawn]
    column = across.end + 8 + _LEADER
    for one, end, at in zip(drawn, ends, spread(ends, up.end, up.start), strict=True):
        from_x = across.at(one.points[-1][0]) + 6
        way = (
            f"{number(from_x)},{number(end)} {number(across.end + 10)},{number(end)} {number(column - 5)},{number(at)}"
        )
        early = {"stroke_dasharray": "1.5 4"} if from_x < across.end else {}
        yield element("polyline", points=way, class_=f"line c{one.colour}", stroke_width=1, opacity=0.55, **early)
        value = element("tspan", escaped(_value(one, up.axis)), class_="dim", dx=7)
        yield text(cut(one.line.name, _MOST_NAME), column, at + 4, "strong" if one.line.strong else "plain", value)


def spread(wanted: Sequence[float], low: float, high: float, gap: float = _GAP) -> list[float]:
    """Places near the wanted ones, in their order, between two edges and no two closer than the gap."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    groups: list[
        tuple[float, int]
    ] = []  # where the first of a group stands, and how many stand below it in steps of a gap
    for n in order:
        start, count = wanted[n], 1
        while groups and groups[-1][0] + gap * groups[-1][1] > start:
            before, members = groups.pop()
            total = before * members + (start - gap * members) * count
            start, count = total / (members + count), members + count
        last = high - gap * (count - 1)
        groups.append((max(low, min(start, last)), count))
    places = [start + gap * step for start, count in groups for step in range(count)]
    for step in range(len(places) - 1, 0, -1):  # the edges pushed groups together
        places[step - 1] = min(places[step - 1], places[step] - gap)
    found = [0.0] * len(wanted)
    for n, place in zip(order, places, strict=True):
        found[n] = place
    return found


def _label(one: _Drawn, y: Axis) -> str:
    return f"{cut(one.line.name, _MOST_NAME)}  {_value(one, y)}"


def _value(one: _Drawn, y: Axis) -> str:
    """What a line ends with."""
    return y.written(one.points[-1][1])


def _said(drawn: Sequence[_Drawn], x: Axis, y: Axis) -> str:
    """What the chart shows, for those who do not see it."""
    lines = (
        f"{one.line.name}: " + ", ".join(f"{y.said(py)} at {x.said(px)}" for px, py in _told(one.points))
        for one in drawn
    )
    return sentence([f"{y.caption} by {x.caption}", *lines])


def _told(points: Sequence[Point]) -> Sequence[Point]:
    return points if len(points) <= 8 else (points[0], points[len(points) // 2], points[-1])
