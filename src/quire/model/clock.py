"""Times: milliseconds since 1970, as quire stores them, and datetimes."""

from datetime import UTC, datetime, timedelta

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
