"""The summary: what quire and a sliding window sent over the same calls, and what each can still reach."""

from collections.abc import Iterator

from quire import Price
from quire.cli.demo.measure import Reach, Side
from quire.cli.demo.replay import Replay
from quire.cli.paint import Paint
from quire.cli.width import pad, width


def draw_table(done: Replay, paint: Paint) -> Iterator[str]:
    """The lines of the table."""
    rows = [("", "quire", "sliding window"), *_rows(done)]
    first = max(width(row[0]) for row in rows)
    others = max(width(cell) for row in rows for cell in row[1:])
    for number, (name, ours, theirs) in enumerate(rows):
        line = f"{pad(name, first)}  {pad(ours, others, right=True)}  {pad(theirs, others, right=True)}"
        yield paint.dim(line) if not number else line


def _rows(done: Replay) -> Iterator[tuple[str, str, str]]:
    ours, theirs = done.ours, done.theirs
    yield "model calls", f"{ours.calls:,}", f"{theirs.calls:,}"
    yield "input tokens", f"{ours.tokens:,}", f"{theirs.tokens:,}"
    yield "  a call", f"{ours.tokens // ours.calls:,}", f"{theirs.tokens // theirs.calls:,}"
    yield "  from the prompt cache", _share(ours), _share(theirs)
    yield f"cost (cached tokens at {Price().read:g})", f"{ours.cost:,.0f}", f"{theirs.cost:,.0f}"
    yield "requests that break a rule", f"{ours.broken}", f"{theirs.broken}"
    yield "late questions: answer in view", _shown(ours.answers), _shown(theirs.answers)
    yield "  or found by find()", _reached(ours.answers), _reached(theirs.answers)
    yield (
        f"ids and numbers of messages 1 to {done.beginning}: in view",
        _shown(done.our_facts),
        _shown(done.their_facts),
    )
    yield "  or found by find()", _reached(done.our_facts), _reached(done.their_facts)


def _share(side: Side) -> str:
    return f"{100 * side.shared / max(1, side.tokens):.0f} %"


def _shown(reach: Reach) -> str:
    return f"{reach.shown} of {reach.total}"


def _reached(reach: Reach) -> str:
    return f"{reach.shown + reach.found} of {reach.total}"
