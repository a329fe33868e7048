"""What a benchmark reports: a measured number, the limit it was held against, and how to show both."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured number. `limit` is the most it may be; None means it is shown for information."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "value": round(self.value, 3), "holds": self.holds}


def as_table(figures: Sequence[Figure]) -> str:
    """The figures for a terminal."""
    width = max(len(figure.name) for figure in figures)
    lines = []
    for figure in figures:
        mark = " " if figure.limit is None else "✓" if figure.holds else "✗"
        lines.append(
            f"{mark} {figure.name:<{width}}  {_value(figure):>14}  {_limit(figure):<12} {figure.note}".rstrip()
        )
    return "\n".join(lines)


def missed(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """The kept figures that are above their limits."""
    rows = [
        f"| {name} | {figure.name} | {_value(figure)} | {_limit(figure)} |"
        for name, results in kept.items()
        for figure in _figures(results)
        if not figure.holds
    ]
    return "\n".join(("| of | figure | measured | at most |", "|---|---|---|---|", *rows)) if rows else "None."


def as_markdown(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Kept results as a part of the page, topic by topic."""
    return _PREFACE + "\n".join(_topic(name, results) for name, results in kept.items())


_PREFACE = """## The figures of every part

What each part of quire costs, and the most it may cost. Here the raw floor is one apsw `INSERT` and commit of the same
bytes, on a file of its own, turn by turn with quire. Token counting is apart (a counter that counts nothing), as is the
search index, which catches up before it answers. The view's floor does a whole turn: it counts, inserts, commits and
slices a list; there tokens are counted.

"""


def _topic(name: str, results: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"| {figure.name} | {_value(figure)} | {_limit(figure)} | {figure.note} |" for figure in _figures(results)
    )
    where = ", ".join(f"{what} {value}" for what, value in results["machine"].items())
    return f"""### The {name}

Measured on: {where}.

| figure | measured | at most | |
|---|---|---|---|
{rows}
"""


def _figures(results: Mapping[str, Any]) -> list[Figure]:
    return [Figure(**{field: row[field] for field in _FIELDS}) for row in results["figures"]]


_FIELDS = ("name", "value", "unit", "limit", "note")


def _value(figure: Figure) -> str:
    digits = 2 if figure.value < 100 and figure.unit else 0
    return f"{figure.value:,.{digits}f} {figure.unit}".strip()


def _limit(figure: Figure) -> str:
    return "" if figure.limit is None else f"{figure.limit:,g} {figure.unit}".strip()
