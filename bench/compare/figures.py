"""The figures of a comparison: the ratio of paired rounds with its noise, the table, and the stored values."""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import mean, median
from typing import NamedTuple

Rounds = Sequence[Sequence[float]]
Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]
_SAMPLES = 300
_NAME = 54


class Row(NamedTuple):
    """A figure of both sides. `noise` is half of the interval that holds 90 of 100 resampled ratios.

    `floor` is what the raw floor took in the same run, for figures in seconds. A figure that one side does not have is
    None.
    """

    group: str
    name: str
    unit: str
    old: float | None
    new: float | None
    ratio: float | None = None
    noise: float = 0.0
    floor: float | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _flat(rounds: Rounds) -> list[float]:
    return [value for each in rounds for value in each]


STATISTICS: dict[str, Callable[[Rounds], float]] = {
    "median": lambda rounds: median(_flat(rounds)),
    "mean": lambda rounds: mean(_flat(rounds)),
    "p99": lambda rounds: percentile(_flat(rounds), 0.99),
    "worst": lambda rounds: max(_flat(rounds)),
    "typical": lambda rounds: median(_flat(rounds)),
}
"""What is made of the seconds of all rounds. A typical value is a median of things that do not come in pairs."""


def compare(statistic: str, old: Rounds, new: Rounds) -> tuple[float, float]:
    """Return the ratio of new to old, and its noise: the rounds are drawn again at random, in pairs.

    The ratio of medians is the median of the ratios of each round, so that a slow minute hits both sides alike.
    """
    pairs = list(zip(old, new, strict=True))
    ratio = _paired if statistic == "median" else _total(STATISTICS[statistic])
    chance = Random(1)
    found = sorted(filter(None, (ratio(chance.choices(pairs, k=len(pairs))) for _ in range(_SAMPLES))))
    spread = (percentile(found, 0.95) - percentile(found, 0.05)) / 2 if found else 0.0
    return ratio(pairs), spread


def _paired(pairs: Pairs) -> float:
    ratios = [median(new) / median(old) for old, new in pairs if old and new]
    return median(ratios) if ratios else 0.0


def _total(statistic: Callable[[Rounds], float]) -> Callable[[Pairs], float]:
    def ratio(pairs: Pairs) -> float:
        old, new = ([pair[place] for pair in pairs] for place in (0, 1))
        return statistic(new) / statistic(old) if any(old) and any(new) else 0.0

    return ratio


def plain(group: str, name: str, unit: str, old: float | None, new: float | None) -> Row:
    """Return a row that has no noise."""
    ratio = new / old if old and new is not None else None
    return Row(group, name, unit, old, new, ratio)


def written(value: float | None, unit: str) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "–"
    if unit == "s":
        for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value * 1e6:.2f} µs"
    if unit == "bytes":
        return f"{value / 1e6:,.2f} MB"
    if unit in ("share", "×"):
        return f"{100 * value:.1f} %" if unit == "share" else f"{value:.2f} ×"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}"


def table(rows: Sequence[Row]) -> str:
    """Return the rows in groups, as a table of at most 100 columns."""
    lines = [f"{'':{_NAME}} {'old':>11} {'new':>11} {'ratio':>8} {'noise':>8}"]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(f"\n{group}")
        name = row.name if len(row.name) <= _NAME - 2 else row.name[: _NAME - 3] + "…"
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        noise = f"± {row.noise:.3f}" if row.noise else ""
        old, new = (written(value, row.unit) for value in (row.old, row.new))
        lines.append(f"  {name:{_NAME - 2}} {old:>11} {new:>11} {ratio:>8} {noise:>8}")
        if row.floor and row.old and row.new:
            times = [written(value / row.floor, "×") for value in (row.old, row.new)]
            lines.append(f"  {'    against the raw floor':{_NAME - 2}} {times[0]:>11} {times[1]:>11}")
    return "\n".join(lines)


def baseline(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """Return the values of the old side, by group and name; times are multiples of the raw floor of the same run."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        if row.old is None or (row.unit == "s" and not row.floor):
            continue
        value = row.old / row.floor if row.floor else row.old
        unit = "× floor" if row.floor else row.unit
        found.setdefault(row.group, {})[row.name] = {"value": float(f"{value:.6g}"), "unit": unit}
    return found
