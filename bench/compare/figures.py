"""The figures of a comparison: the ratio of paired rounds with its noise, the table, and the values to keep."""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import mean, median
from typing import NamedTuple

Rounds = Sequence[Sequence[float]]
_SAMPLES = 300
_NAME = 44


class Row(NamedTuple):
    """A figure of both sides. `noise` is half of the interval that holds 90 of 100 resampled ratios.

    `floor` is what the raw floor took in the same run, for figures in seconds.
    """

    group: str
    name: str
    unit: str
    old: float
    new: float
    ratio: float | None = None
    noise: float = 0.0
    floor: float = 0.0


def plain(group: str, name: str, unit: str, old: float, new: float) -> Row:
    """Return a row that has no noise."""
    return Row(group, name, unit, old, new, new / old if old else None)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def flat(rounds: Rounds) -> list[float]:
    """Return the values of all rounds."""
    return [value for each in rounds for value in each]


STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": mean,
    "p99": lambda values: percentile(values, 0.99),
    "worst": max,
}
"""What is made of the seconds of all rounds."""


def compare(statistic: str, old: Rounds, new: Rounds, processes: int = 1) -> tuple[float, float]:
    """Return the ratio of new to old, and its noise: processes and their rounds are drawn again at random, in pairs.

    The ratio of medians is the median of the ratios of all rounds, so that a slow minute hits both sides alike.
    """
    size, chance = len(old) // processes, Random(1)

    def ratio(places: Sequence[int]) -> float:
        if statistic == "median" and all(old) and all(new):
            return median(median(new[place]) / median(old[place]) for place in places)
        chosen = (flat([side[place] for place in places]) for side in (old, new))
        one, other = (STATISTICS[statistic](values) if values else 0.0 for values in chosen)
        return other / one if one else 0.0

    def draw() -> list[int]:
        starts = chance.choices(range(0, len(old), size), k=processes)
        return [start + chance.randrange(size) for start in starts for _ in range(size)]

    found = [ratio(draw()) for _ in range(_SAMPLES)]
    return ratio(range(len(old))), (percentile(found, 0.95) - percentile(found, 0.05)) / 2


def written(value: float, unit: str) -> str:
    """Return a value as a person reads it."""
    if unit == "s":
        size, name = (1.0, "s") if value >= 1 else (1e-3, "ms") if value >= 1e-3 else (1e-6, "µs")
        return f"{value / size:.3g} {name}"
    if unit:
        return f"{100 * value:.1f} %" if unit == "share" else f"{value / 1e6:,.2f} MB"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}"


def table(rows: Sequence[Row]) -> str:
    """Return the rows in groups, as a table of at most 100 columns."""
    lines = [f"{'':{_NAME}} {'old':>9} {'× floor':>8} {'new':>9} {'× floor':>8} {'ratio':>7} {'noise':>7}"]
    group = ""
    for row in rows:
        lines += [f"\n{row.group}"] if row.group != group else []
        group = row.group
        name = row.name if len(row.name) < _NAME else row.name[: _NAME - 2] + "…"
        times = (f"{value / row.floor:,.2f}" if row.floor else "" for value in (row.old, row.new))
        columns = zip((written(row.old, row.unit), written(row.new, row.unit)), times, strict=True)
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        noise = f"± {row.noise:.3f}" if row.noise else ""
        lines.append(
            " ".join([f" {name:{_NAME - 1}}", *(f"{a:>9} {b:>8}" for a, b in columns), f"{ratio:>7} {noise:>7}"])
        )
    return "\n".join(lines)


def baseline(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """Return the values of the old side, by group and name; times are multiples of the raw floor of the same run."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        value, unit = (row.old / row.floor, "× floor") if row.floor else (row.old, row.unit)
        found.setdefault(row.group, {})[row.name] = {"value": float(f"{value:.6g}"), "unit": unit}
    return found
