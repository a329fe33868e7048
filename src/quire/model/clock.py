"""Times: milliseconds since 1970, as quire stores them, datetimes, and the forms in imported records."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from quire.errors import InvalidValue, short_repr

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


TIME_KEYS = ("at", "timestamp", "created_at", "created", "time")
"""The keys under which sources store the time of a message. No provider has them in a message that it accepts."""
_MILLISECONDS = 1e11
"""A larger number counts milliseconds: in seconds it would be after the year 5000."""


def read_time(value: object) -> datetime | None:
    """Return the time in an imported record as an aware datetime; None if it is no time. The default zone is UTC."""
    try:
        if isinstance(value, datetime):
            moment = value
        elif isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
        elif isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            moment = datetime.fromtimestamp(value / 1_000 if value > _MILLISECONDS else value, UTC)
        else:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def take_time(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], datetime | None]:
    """Return a record without the time that it has under one of `TIME_KEYS`, and the time; None if it has none."""
    for key in TIME_KEYS:
        if key in value and (moment := read_time(value[key])) is not None:
            return {name: inner for name, inner in value.items() if name != key}, moment
    return value, None
