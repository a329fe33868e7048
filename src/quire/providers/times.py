"""Times in the records of a source: ISO texts, Unix seconds or milliseconds, and datetimes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

TIME_KEYS = ("at", "timestamp", "created_at", "created", "time")
"""The keys under which sources store the time of a message. No provider has them in a message that it accepts."""
_MILLISECONDS = 1e11
"""A larger number counts milliseconds: in seconds it would be after the year 5000."""


def read_time(value: object) -> datetime | None:
    """Return a time of a source as an aware datetime; None if it is not a time. Without a zone it is in UTC."""
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
