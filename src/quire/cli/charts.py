"""Charts as SVG documents: self-contained, for light and dark backgrounds, with a label at every line and bar.

They are written by hand, because a plotting library would be a large dependency for two kinds of chart.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import NamedTuple
from zlib import crc32

from quire.cli.terminal import cut, width
from quire.errors import InvalidValue

_WIDTH = 760
_TOP = 74.0
_FONT_SIZE = 12.0
_COLUMN = 0.545
"""The width of a column of text as a share of the font size."""
_PALETTE = ("paper", "edge", "grid", "ink", "dim", "bar")
_LIGHT_PALETTE = ("ffffff", "d8dee4", "e7ebef", "1f2328", "59636e", "aab4c0")
_DARK_PALETTE = ("0d1117", "30363d", "21262d", "e6edf3", "9aa4ae", "4d5866")
_LIGHT = ("0b62d0", "c2410c", "0f766e", "9a6700", "8b3fa0", "5b6b2b", "b0305c", "59636e")
_DARK = ("6cb6ff", "ff9e64", "4fd1c5", "e3b341", "d2a8ff", "b5cc6a", "ff8fab", "a8b3be")
_COLOURS = len(_LIGHT)
"""The first colour is for emphasised lines and bars."""
_FONTS = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','PingFang SC','Hiragino Sans GB',"
    "'Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Micro Hei',sans-serif"
)
_INVALID_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")

_STEPS = (1.0, 2.0, 5.0, 10.0)
_ATTACHED_UNITS = ("%", "×")
"""Units that follow every number; other units are part of the label of the axis."""
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_THOUSAND, _LARGE = 999.5, 9_999.5
_MAX_DECADES = 3.0
"""On a log axis with more powers of ten, only powers of ten are marked."""
_MAX_POWERS = 8

_BAR_ROW, _BAR_HEIGHT, _BAR_BOTTOM = 27.0, 16.0, 38.0
_BAR_NAME, _BAR_NOTE = 42, 40
_BAR_TICKS = 6
_MIN_BARS = 180.0
"""The minimum width of the bars in pixels."""

_LINE_BOTTOM, _LINE_RIGHT = 56.0, 18.0
_LINE_HEIGHT = 300.0
"""The height of the plot in pixels; more if many lines need labels."""
_LABEL_GAP = 17.0
_LEADER = 26.0
_LINE_NAME = 34
_MAX_DOTS = 24
_DASHES = ("", "6 4", "1.5 4")
_TICKS_X, _TICKS_Y = 9, 6

Point = tuple[float, float]


class Axis(NamedTuple):
    """The quantity of an axis, its unit, and whether the axis is logarithmic."""

    label: str
    unit: str = ""
    log: bool = False

    @property
    def caption(self) -> str:
        """The label, with the unit unless it follows every number."""
        return self.label if not self.unit or self.unit in _ATTACHED_UNITS else f"{self.label} ({self.unit})"

    def format(self, value: float) -> str:
        """Return a value as the label of a line or bar."""
        return self._attach_unit(short_number(value))

    def describe(self, value: float) -> str:
        """Return a value with its unit."""
        return self.format(value) if self.unit in ("", *_ATTACHED_UNITS) else f"{short_number(value)} {self.unit}"

    def format_ticks(self, ticks: Sequence[float]) -> list[str]:
        """Return the labels of ticks, all in one notation: 4k and 16k."""
        large = max(map(abs, ticks)) >= _LARGE
        return [self._attach_unit(short_number(tick, _THOUSAND if large else _LARGE)) for tick in ticks]

    def _attach_unit(self, digits: str) -> str:
        return f"{digits} %" if self.unit == "%" else f"{digits}{self.unit if self.unit == '×' else ''}"

    def shows(self, value: float) -> bool:
        """Return whether the axis can show a value."""
        return isfinite(value) and (value > 0 or not self.log)


class Scale(NamedTuple):
    """The range of an axis, the pixels that it covers, and its ticks."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The ticks with their labels."""
        return list(zip(self.ticks, self.axis.format_ticks(self.ticks), strict=True))

    def ending_at(self, high: float) -> "Scale":
        """Return the scale that ends at a value instead of at the round number above it."""
        ticks = tuple(tick for tick in self.ticks if tick <= high)
        return self._replace(high=high, ticks=ticks) if self.low < high and len(ticks) > 1 else self

    def at(self, value: float) -> float:
        """Return the pixel of a value; a value outside the range is at the edge."""
        low, high, value = (_power(v) if self.axis.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def make_scale(axis: Axis, values: Iterable[float], start: float, end: float, limit: int, *, zero: bool) -> Scale:
    """Return a scale with round ends and about `limit` ticks at most; with `zero` a linear scale includes 0."""
    shown = [value for value in values if axis.shows(value)] or [1.0]
    low, high = min(shown), max(shown)
    if axis.log:
        ticks = _log_ticks(low, high)
    elif zero:
        ticks = _linear_ticks(min(0.0, low), max(0.0, high), limit)
    else:
        ticks = _linear_ticks(0.0 if 0 <= low < high / 2 else low, high, limit)
    return Scale(axis, ticks[0], ticks[-1], start, end, ticks)


def make_scale_at(axis: Axis, values: Sequence[float], start: float, end: float, limit: int) -> Scale:
    """Return a scale with a tick at each value if they are few and far apart, else with round ticks."""
    own = sorted({value for value in values if axis.shows(value)})
    if not 1 <= len(own) <= limit:
        return make_scale(axis, own, start, end, limit, zero=False)
    scale = Scale(axis, own[0], own[-1], start, end, tuple(own))
    near = any(abs(scale.at(one) - scale.at(more)) < abs(end - start) / (limit + 4) for one, more in pairwise(own))
    return make_scale(axis, own, start, end, limit, zero=False) if near else scale


def short_number(value: float, large: float = _LARGE) -> str:
    """Return a number in few characters: 0.25, 1,500, 12k, 3.4M. Numbers from `large` on get a unit."""
    size = abs(value)
    if not isfinite(value):
        return f"{value}"
    if size >= large:
        unit, sign = next((unit, sign) for unit, sign in _UNITS if size >= 0.9995 * unit)
        return f"{_three_digits(value / unit)}{sign}"
    return f"{value:,.0f}" if size >= _THOUSAND else _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    places = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:,.{min(places, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _linear_ticks(low: float, high: float, limit: int) -> tuple[float, ...]:
    if high <= low:
        low, high = (min(0.0, low), max(0.0, high)) if low else (0.0, 1.0)
    rough = (high - low) / max(1, limit)
    power = 10.0 ** floor(log10(rough))
    step = next(power * step for step in _STEPS if power * step >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    if _power(high) - _power(low) > _MAX_DECADES:
        first, last = floor(_power(low) + 1e-9), ceil(_power(high) - 1e-9)
        jump = ceil((last - first) / _MAX_POWERS)
        return tuple(10.0**power for power in range(first, last + jump, jump))
    powers = range(floor(_power(low)) - 1, ceil(_power(high)) + 1)
    round_numbers = [step * 10.0**power for power in powers for step in _STEPS[:3]]
    first = max(n for n, tick in enumerate(round_numbers) if tick <= low * 1.0001)
    last = min(n for n, tick in enumerate(round_numbers) if tick >= high * 0.9999 and n > first)
    return tuple(round_numbers[first : last + 1])


def _power(value: float) -> float:
    return log10(max(value, 1e-300))


# Documents


class Panel(NamedTuple):
    """One chart as a part of a document: its title, a description in words, its height, and its elements."""

    title: str
    description: str
    height: float
    body: str

    def with_note(self, words: str) -> "Panel":
        """Return the panel with a line of text below it."""
        note = _text(words, 20, self.height + 8, "dim")
        return Panel(self.title, f"{self.description} {words}", self.height + 26, f"{self.body}\n{note}")


def stack_panels(*panels: Panel) -> str:
    """Return an SVG document of panels, one below the other."""
    title = _escape("; ".join(panel.title for panel in panels))
    description = _escape(" ".join(panel.description for panel in panels))
    height = sum(panel.height for panel in panels)
    name = f"chart-{crc32(f'{title}{description}'.encode()):08x}"
    parts, top = [], 0.0
    for panel in panels:
        parts.append(f'<g transform="translate(0 {_number(top)})">{panel.body}</g>')
        top += panel.height
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" role="img" aria-labelledby="{name}-title {name}-desc"'
        f' viewBox="0 0 {_WIDTH} {_number(height)}" width="{_WIDTH}" height="{_number(height)}">\n'
        f'<title id="{name}-title">{title}</title>\n<desc id="{name}-desc">{description}</desc>\n'
        f"<style>{_style(name)}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_number(height - 1)}" rx="8"/>\n'
        f"{body}\n</svg>\n"
    )


def _element(name: str, inner: str = "", **attributes: float | str) -> str:
    """Return one element; `class_` is its class, and `_` in a name becomes `-`."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_number(value) if isinstance(value, int | float) else _escape(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>"


def _text(words: str, x: float, y: float, class_: str, more: str = "") -> str:
    """Return a text element; `more` are elements after the words."""
    return _element("text", f"{_escape(words)}{more}", x=x, y=y, class_=class_)


def _escape(words: str) -> str:
    """Return words for XML; a character that XML does not allow becomes a question mark."""
    legal = _INVALID_XML.sub("?", words)
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _number(value: float) -> str:
    """Return pixels with one decimal place at most."""
    return f"{value:.1f}".removesuffix(".0")


def _text_width(words: str) -> float:
    """Return the approximate width of words in pixels."""
    return width(words) * _FONT_SIZE * _COLUMN


def _style(name: str) -> str:
    rules = (
        f"text{{font:12px {_FONTS};font-variant-numeric:tabular-nums;fill:var(--ink)}}",
        "text.title{font-size:16px;font-weight:650}",
        "text.dim,tspan.dim{fill:var(--dim);font-weight:400}",
        "text.strong{font-weight:700}",
        "text.end{text-anchor:end}",
        "text.middle{text-anchor:middle}",
        ".paper{fill:var(--paper);stroke:var(--edge)}",
        ".grid{stroke:var(--grid)}",
        ".base{stroke:var(--dim)}",
        ".line{fill:none;stroke-linejoin:round;stroke-linecap:round}",
        ".dot{stroke:var(--paper);stroke-width:1}",
        ".quiet{fill:var(--bar)}",
        *(f".c{n}{{stroke:var(--c{n})}}.f{n}{{fill:var(--c{n})}}" for n in range(_COLOURS)),
    )
    names = (*_PALETTE, *(f"c{n}" for n in range(_COLOURS)))
    light, dark = (
        ";".join(f"--{key}:#{value}" for key, value in zip(names, colours, strict=True))
        for colours in ((*_LIGHT_PALETTE, *_LIGHT), (*_DARK_PALETTE, *_DARK))
    )
    inside = "".join(f".{name} {rule}}}" for rule in "".join(rules).split("}") if rule)
    return f".{name}{{{light}}}@media(prefers-color-scheme:dark){{.{name}{{{dark}}}}}{inside}"


# Bars


class Bar(NamedTuple):
    """A value with its name and a note; a strong bar is emphasised."""

    name: str
    value: float
    note: str = ""
    strong: bool = False


def draw_bars(title: str, bars: Sequence[Bar], axis: Axis) -> Panel:
    """Return a bar chart as a panel, in the given order. Raises `InvalidValue` without bars."""
    if not bars:
        raise InvalidValue(f"No bar to draw in {title!r}.")
    bottom = _TOP + _BAR_ROW * len(bars)
    along = _bar_scale(bars, axis)
    parts = [_text(title, 20, 30, "title"), _text(axis.caption, 20, 52, "dim")]
    for tick, mark in along.marks:
        at = along.at(tick)
        parts.append(_element("line", x1=at, x2=at, y1=_TOP - 6, y2=bottom, class_="grid"))
        parts.append(_text(mark, at, bottom + 17, "dim middle"))
    origin = along.at(along.low if axis.log else 0.0)
    parts += [_bar(bar, _TOP + _BAR_ROW * row, along, origin) for row, bar in enumerate(bars)]
    parts.append(_element("line", x1=origin, x2=origin, y1=_TOP - 6, y2=bottom, class_="base"))
    values = (f"{bar.name}: {axis.describe(bar.value)}{f' ({bar.note})' if bar.note else ''}" for bar in bars)
    description = f"{'; '.join([axis.caption, *values])}."
    return Panel(title, description, bottom + _BAR_BOTTOM, "\n".join(parts))


def _bar_scale(bars: Sequence[Bar], axis: Axis) -> Scale:
    """Return the scale between the names and the labels after the bars."""
    left = 32 + max(_text_width(cut(bar.name, _BAR_NAME)) * (1.06 if bar.strong else 1) for bar in bars)
    labels = (f"{axis.format(bar.value)}  {cut(bar.note, _BAR_NOTE)}" for bar in bars)
    after = max(map(_text_width, labels)) + 26
    right = max(left + _MIN_BARS, _WIDTH - after)
    values = [bar.value for bar in bars if axis.shows(bar.value)]
    return make_scale(axis, values, left, right, _BAR_TICKS, zero=True).ending_at(max([0.0, *values]))


def _bar(bar: Bar, top: float, along: Scale, origin: float) -> str:
    middle = top + _BAR_ROW / 2
    end = along.at(bar.value) if along.axis.shows(bar.value) else origin
    left, long = min(origin, end), abs(end - origin)
    weight = "strong" if bar.strong else "plain"
    note = _element("tspan", _escape(cut(bar.note, _BAR_NOTE)), class_="dim", dx=8) if bar.note else ""
    parts = [
        _text(cut(bar.name, _BAR_NAME), along.start - 10, middle + 4, f"end {weight}"),
        _element(
            "rect",
            f"<title>{_escape(bar.name)}</title>",
            x=left,
            y=middle - _BAR_HEIGHT / 2,
            width=max(long, 1.5),
            height=_BAR_HEIGHT,
            rx=2,
            class_="f0" if bar.strong else "quiet",
        ),
        _text(along.axis.format(bar.value), max(origin, end) + 7, middle + 4, weight, note),
    ]
    return _element("g", "".join(parts))


# Lines


class Line(NamedTuple):
    """A series: its name and its points by rising x; a strong line is emphasised."""

    name: str
    points: Sequence[Point]
    strong: bool = False


class _StyledLine(NamedTuple):
    """A line with its colour and dash, and the points that the axes can show."""

    line: Line
    colour: int
    dash: str
    points: list[Point]

    def last_value(self, y: Axis) -> str:
        return y.format(self.points[-1][1])


def draw_lines(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> Panel:
    """Return a line chart as a panel. Raises `InvalidValue` if no line has a point to draw."""
    styled = [one for one in _style_lines(lines, x, y) if one.points]
    if not styled:
        raise InvalidValue(f"No point to draw in {title!r}: a line needs a number, above 0 on a log axis.")
    height = max(_LINE_HEIGHT, _LABEL_GAP * len(styled))
    across, up = _line_scales(styled, x, y, height)
    parts = [
        _text(title, 20, 30, "title"),
        _text(y.caption, 20, 52, "dim"),
        *_grid(across, up),
        _text(x.caption, (across.start + across.end) / 2, up.start + 42, "dim middle"),
    ]
    strong_last = sorted(styled, key=lambda one: one.line.strong)
    has_strong = any(one.line.strong for one in styled)
    parts += [_path(one, across, up, quiet=has_strong) for one in strong_last]
    parts += _line_labels(styled, across, up)
    return Panel(title, _describe_lines(styled, x, y), up.start + _LINE_BOTTOM, "\n".join(parts))


def _style_lines(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[_StyledLine]:
    """Yield the lines with colours. Strong lines have the first colour alone; the others repeat with dashes."""
    strong = sum(line.strong for line in lines)
    reserved, repeated = min(strong, 1), _COLOURS - min(strong, 1)
    first, later = iter(range(strong)), iter(range(strong, len(lines)))
    for line in lines:
        place = next(first) if line.strong else next(later)
        colour = place if place < _COLOURS else reserved + (place - reserved) % repeated
        dash = _DASHES[min(max(0, place - reserved) // repeated, len(_DASHES) - 1)]
        points = sorted(point for point in line.points if x.shows(point[0]) and y.shows(point[1]))
        yield _StyledLine(line, colour, dash, points)


def _line_scales(lines: Sequence[_StyledLine], x: Axis, y: Axis, height: float) -> tuple[Scale, Scale]:
    ys = [point[1] for one in lines for point in one.points]
    up = make_scale(y, ys, _TOP + height, _TOP, _TICKS_Y, zero=False)
    left = 30 + max(_text_width(mark) for _, mark in up.marks)
    labels = (f"{cut(one.line.name, _LINE_NAME)}  {one.last_value(y)}" for one in lines)
    right = _WIDTH - _LINE_RIGHT - _LEADER - max(_text_width(label) * 1.04 for label in labels)
    xs = [point[0] for one in lines for point in one.points]
    return make_scale_at(x, xs, left + 8, right - 8, _TICKS_X), up


def _grid(across: Scale, up: Scale) -> Iterator[str]:
    left, right = across.start - 8, across.end + 8
    for tick, mark in up.marks:
        at = up.at(tick)
        kind = "base" if tick == up.ticks[0] else "grid"
        yield _element("line", x1=left, x2=right, y1=at, y2=at, class_=kind)
        yield _text(mark, left - 8, at + 4, "dim end")
    for tick, mark in across.marks:
        at = across.at(tick)
        yield _element("line", x1=at, x2=at, y1=up.start, y2=up.start + 5, class_="base")
        yield _text(mark, at, up.start + 20, "dim middle")


def _path(one: _StyledLine, across: Scale, up: Scale, *, quiet: bool) -> str:
    """Return the line, with a dot at each point if there are few."""
    places = [(across.at(x), up.at(y)) for x, y in one.points]
    weight = 3.2 if one.line.strong else 1.6 if quiet else 2.2
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in places)
    dashed = {"stroke_dasharray": one.dash} if one.dash else {}
    parts = [f"<title>{_escape(one.line.name)}</title>"]
    parts.append(_element("polyline", points=points, class_=f"line c{one.colour}", stroke_width=weight, **dashed))
    if len(places) <= _MAX_DOTS:
        size = 4.4 if one.line.strong else 3.2
        parts += [_element("circle", cx=x, cy=y, r=size, class_=f"dot f{one.colour}") for x, y in places]
    return _element("g", "".join(parts))


def _line_labels(lines: Sequence[_StyledLine], across: Scale, up: Scale) -> Iterator[str]:
    """Yield the names at the ends of the lines, each with a leader from its line."""
    ends = [up.at(one.points[-1][1]) for one in lines]
    column = across.end + 8 + _LEADER
    for one, end, at in zip(lines, ends, spread_labels(ends, up.end, up.start), strict=True):
        start = across.at(one.points[-1][0]) + 6
        corners = ((start, end), (across.end + 10, end), (column - 5, at))
        points = " ".join(f"{_number(x)},{_number(y)}" for x, y in corners)
        early = {"stroke_dasharray": "1.5 4"} if start < across.end else {}
        yield _element("polyline", points=points, class_=f"line c{one.colour}", stroke_width=1, opacity=0.55, **early)
        value = _element("tspan", _escape(one.last_value(up.axis)), class_="dim", dx=7)
        weight = "strong" if one.line.strong else "plain"
        yield _text(cut(one.line.name, _LINE_NAME), column, at + 4, weight, value)


def spread_labels(wanted: Sequence[float], low: float, high: float, gap: float = _LABEL_GAP) -> list[float]:
    """Return places near the wanted ones, in their order, between two edges and at least `gap` apart."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    groups: list[tuple[float, int]] = []  # the place of the first member, and the number of members, `gap` apart
    for n in order:
        start, count = wanted[n], 1
        while groups and groups[-1][0] + gap * groups[-1][1] > start:
            before, members = groups.pop()
            total = before * members + (start - gap * members) * count
            start, count = total / (members + count), members + count
        last = high - gap * (count - 1)
        groups.append((max(low, min(start, last)), count))
    places = [start + gap * step for start, count in groups for step in range(count)]
    for step in range(len(places) - 1, 0, -1):  # groups may overlap after they were moved inside the edges
        places[step - 1] = min(places[step - 1], places[step] - gap)
    result = [0.0] * len(wanted)
    for n, place in zip(order, places, strict=True):
        result[n] = place
    return result


def _describe_lines(lines: Sequence[_StyledLine], x: Axis, y: Axis) -> str:
    """Return the content of the chart in words, for screen readers."""
    described = (
        f"{one.line.name}: " + ", ".join(f"{y.describe(py)} at {x.describe(px)}" for px, py in _sample(one.points))
        for one in lines
    )
    return f"{'; '.join([f'{y.caption} by {x.caption}', *described])}."


def _sample(points: Sequence[Point]) -> Sequence[Point]:
    return points if len(points) <= 8 else (points[0], points[len(points) // 2], points[-1])
