"""Two sides beside each other: what quire and a sliding window sent over the same calls."""

from collections.abc import Iterator, Sequence

from quire import Price
from quire.cli.paint import Paint
from quire.cli.replaying.tally import Tally
from quire.cli.width import pad, width

Row = tuple[str, str, str]


def draw_rows(rows: Sequence[Row], paint: Paint) -> Iterator[str]:
    """The rows under the names of the two."""
    named = [("", "quire", "sliding window"), *rows]
    first = max(width(row[0]) for row in named)
    others = max(width(cell) for row in named for cell in row[1:])
    for number, (name, ours, theirs) in enumerate(named):
        line = f"{pad(name, first)}  {pad(ours, others, right=True)}  {pad(theirs, others, right=True)}"
        yield paint.dim(line) if not number else line


def compared(ours: Tally, theirs: Tally) -> Iterator[Row]:
    """What the two sent, and what that costs."""
    yield "model calls", f"{ours.calls:,}", f"{theirs.calls:,}"
    yield "input tokens", f"{ours.tokens:,}", f"{theirs.tokens:,}"
    yield "  a call", f"{ours.tokens // max(1, ours.calls):,}", f"{theirs.tokens // max(1, theirs.calls):,}"
    yield "  from the prompt cache", f"{100 * ours.share:.0f} %", f"{100 * theirs.share:.0f} %"
    yield f"cost (cached tokens at {Price().read:g})", f"{ours.cost:,.0f}", f"{theirs.cost:,.0f}"
    yield "requests that break a rule", f"{ours.broken}", f"{theirs.broken}"
