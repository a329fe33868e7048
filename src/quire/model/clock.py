"""Clocks: the time in milliseconds since 1970, from a source that tests can replace.

The journal's seq defines the order of changes, so a clock that jumps only affects the times that are shown.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from quire.errors import InvalidValue, short_repr

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Clock = Callable[[], int]
"""Returns the time in milliseconds since 1970."""


def system_clock() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def to_datetime(milliseconds: int) -> datetime:
    """Return the time as an aware UTC datetime."""
    seconds, rest = divmod(milliseconds, 1_000)
    return _EPOCH + timedelta(0, seconds, 1_000 * rest)  # keyword arguments take twice as long


def to_milliseconds(moment: datetime) -> int:
    """Return the milliseconds since 1970 of an aware datetime."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def check_moment(value: object, field: str) -> int | None:
    """Return the milliseconds since 1970 of an aware datetime, None for None. Raise `InvalidValue` for other values."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidValue(f"is {short_repr(value)}; a datetime with a time zone is needed.", argument=field)
    return to_milliseconds(value)
