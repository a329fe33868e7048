"""Axes: where a value stands, which round values are marked, and how numbers are written."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

_STEPS = (1.0, 2.0, 5.0, 10.0)
_ATTACHED = ("%", "×")
"""Units that follow every number; others stand once, beside the axis' label."""
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_THOUSAND, _LARGE = 999.5, 9_999.5
_WIDE = 3.0
"""From so many powers of ten on, only powers of ten are marked."""
_MOST_POWERS = 8


class Axis(NamedTuple):
    """What is measured along an axis, in which unit, and whether by powers of ten."""

    label: str
    unit: str = ""
    log: bool = False

    @property
    def caption(self) -> str:
        """The label, with the unit where numbers do not carry it."""
        return self.label if not self.unit or self.unit in _ATTACHED else f"{self.label} ({self.unit})"

    def written(self, value: float) -> str:
        """A value as it stands beside its line or bar."""
        return self._attached(short(value))

    def said(self, value: float) -> str:
        """A value with its unit, whatever it is."""
        return self.written(value) if self.unit in ("", *_ATTACHED) else f"{short(value)} {self.unit}"

    def marked(self, ticks: Sequence[float]) -> list[str]:
        """Values as they stand at ticks, all in one manner: 4k beside 16k."""
        large = max(map(abs, ticks)) >= _LARGE
        return [self._attached(short(tick, _THOUSAND if large else _LARGE)) for tick in ticks]

    def _attached(self, digits: str) -> str:
        return f"{digits} %" if self.unit == "%" else f"{digits}{self.unit if self.unit == '×' else ''}"

    def shows(self, value: float) -> bool:
        """Whether a value has a place on this axis."""
        return isfinite(value) and (value > 0 or not self.log)


class Scale(NamedTuple):
    """The part of an axis that is drawn, from which pixel to which."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The ticks, each with what is written at it."""
        return list(zip(self.ticks, self.axis.marked(self.ticks), strict=True))

    def ending_at(self, high: float) -> "Scale":
        """The same scale with its end at a value, not at the round one above it."""
        ticks = tuple(tick for tick in self.ticks if tick <= high)
        return self._replace(high=high, ticks=ticks) if self.low < high and len(ticks) > 1 else self

    def at(self, value: float) -> float:
        """The pixel of a value; what lies outside stands at the edge."""
        low, high, value = (_power(v) if self.axis.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def scale(axis: Axis, values: Iterable[float], start: float, end: float, most: int, *, zero: bool) -> Scale:
    """A scale with round ends and at most about so many ticks; with `zero` a linear one has that in it."""
    shown = [value for value in values if axis.shows(value)] or [1.0]
    low, high = min(shown), max(shown)
    if axis.log:
        ticks = _log_ticks(low, high)
    elif zero:
        ticks = _linear_ticks(min(0.0, low), max(0.0, high), most)
    else:
        ticks = _linear_ticks(0.0 if 0 <= low < high / 2 else low, high, most)
    return Scale(axis, ticks[0], ticks[-1], start, end, ticks)


def scale_at(axis: Axis, values: Sequence[float], start: float, end: float, most: int) -> Scale:
    """A scale marked at the values themselves where they are few, at round ones otherwise."""
    own = sorted({value for value in values if axis.shows(value)})
    if not 1 <= len(own) <= most:
        return scale(axis, own, start, end, most, zero=False)
    kept = Scale(axis, own[0], own[-1], start, end, tuple(own))
    near = any(abs(kept.at(one) - kept.at(more)) < abs(end - start) / (most + 4) for one, more in pairwise(own))
    return scale(axis, own, start, end, most, zero=False) if near else kept


def short(value: float, large: float = _LARGE) -> str:
    """A number in few characters: 0.25, 1,500, 12k, 3.4M; from `large` on by its size."""
    size = abs(value)
    if not isfinite(value):
        return f"{value}"
    if size >= large:
        unit, sign = next((unit, sign) for unit, sign in _SIZES if size >= 0.9995 * unit)
        return f"{_three(value / unit)}{sign}"
    return f"{value:,.0f}" if size >= _THOUSAND else _three(value)


def _three(value: float) -> str:
    """Three digits that matter, without zeros at the end."""
    if value == 0:
        return "0"
    places = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:,.{min(places, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _linear_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    if high <= low:
        low, high = (min(0.0, low), max(0.0, high)) if low else (0.0, 1.0)
    rough = (high - low) / max(1, most)
    power = 10.0 ** floor(log10(rough))
    step = next(power * step for step in _STEPS if power * step >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return tuple(round(step * number, 12) for number in range(first, last + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    if _power(high) - _power(low) > _WIDE:
        first, last = floor(_power(low) + 1e-9), ceil(_power(high) - 1e-9)
        jump = ceil((last - first) / _MOST_POWERS)
        return tuple(10.0**power for power in range(first, last + jump, jump))
    round_ones = [
        step * 10.0**power for power in range(floor(_power(low)) - 1, ceil(_power(high)) + 1) for step in _STEPS[:3]
    ]
    first = max(n for n, tick in enumerate(round_ones) if tick <= low * 1.0001)
    last = min(n for n, tick in enumerate(round_ones) if tick >= high * 0.9999 and n > first)
    return tuple(round_ones[first : last + 1])


def _power(value: float) -> float:
    return log10(max(value, 1e-300))
