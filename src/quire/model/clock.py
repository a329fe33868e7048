"""Time as quire sees it: milliseconds since 1970, from a source that tests can replace.

Order never comes from here (that is the journal's seq), so a clock that jumps changes nothing but the shown times.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Anything that tells the time in milliseconds since 1970."""

    def __call__(self) -> int: ...


def system_clock() -> int:
    """Now, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SteppingClock:
    """A clock for tests: starts where it is told and moves on by one step a call."""

    def __init__(self, start: int = 1_700_000_000_000, step: int = 1_000) -> None:
        self._now = start
        self._step = step

    def __call__(self) -> int:
        self._now += self._step
        return self._now


def to_datetime(milliseconds: int) -> datetime:
    """The moment as an aware UTC datetime."""
    seconds, rest = divmod(milliseconds, 1_000)
    return _EPOCH + timedelta(0, seconds, 1_000 * rest)  # given by name, they would take twice as long


def to_milliseconds(moment: datetime) -> int:
    """The inverse of `as_datetime`."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
