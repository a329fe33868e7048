"""The summary: what quire and a sliding window sent over the same calls, and what each can still reach."""

from collections.abc import Iterator

from quire.cli.demo.replay import Replay
from quire.cli.paint import Paint
from quire.cli.replaying.facts import Reach
from quire.cli.replaying.table import compared, draw_rows


def draw_table(done: Replay, paint: Paint) -> Iterator[str]:
    """The lines of the table."""
    return draw_rows([*compared(done.ours, done.theirs), *_rows(done)], paint)


def _rows(done: Replay) -> Iterator[tuple[str, str, str]]:
    ours, theirs = done.ours, done.theirs
    yield "late questions: answer in view", _shown(ours.answers), _shown(theirs.answers)
    yield "  or found by find()", _reached(ours.answers), _reached(theirs.answers)
    yield (
        f"ids and numbers of messages 1 to {done.beginning}: in view",
        _shown(done.our_facts),
        _shown(done.their_facts),
    )
    yield "  or found by find()", _reached(done.our_facts), _reached(done.their_facts)


def _shown(reach: Reach) -> str:
    return f"{reach.shown} of {reach.total}"


def _reached(reach: Reach) -> str:
    return f"{reach.shown + reach.found} of {reach.total}"
