"""Items of the Responses API as frameworks hand them over: read as messages, compared with those that are stored."""

import json
from collections.abc import Sequence
from typing import Any

from quire.messages import Message
from quire.providers.envelopes import Entry
from quire.providers.items import runs
from quire.providers.plain import plain, refused
from quire.providers.responses import parse_run

Item = dict[str, Any]

_PASSING = frozenset({"id", "status", "created_by", "provider_data"})  # what a runner may drop or add on the way


def messages_of(items: Sequence[Any]) -> list[Message]:
    """The messages that the items are; they go back as the same items. Raises `InvalidValue` naming a bad one."""
    return [parse_run(run) for run in runs(_entry(item, f"items[{n}]") for n, item in enumerate(items))]


def prints_of(items: Sequence[Any]) -> list[str]:
    """A text for each item that is equal for items that say the same."""
    return [_print(item) for item in items]


def unsaved(given: Sequence[str], stored: Sequence[str]) -> int:
    """How many items at the end of a list are not stored yet, by the prints of both.

    The list goes on where what is stored ends: the place where most items before it agree. If the end of what is
    stored is not in the list at all (somebody else wrote meanwhile), it is what stands after the last known item.
    """
    found, most = None, 0
    for fresh in range(len(given) + 1):
        same = _same_end(given, len(given) - fresh, stored)
        if same > most:
            found, most = fresh, same
    if found is not None:
        return found
    known = set(stored)
    last = next((place for place in range(len(given) - 1, -1, -1) if given[place] in known), -1)
    return len(given) - 1 - last


def _same_end(given: Sequence[str], end: int, stored: Sequence[str]) -> int:
    same = 0
    while same < min(end, len(stored)) and given[end - 1 - same] == stored[len(stored) - 1 - same]:
        same += 1
    return same


def _entry(item: Any, place: str) -> Entry:
    value = plain(item, place)
    if not isinstance(value, dict):
        raise refused(place, item, "an item is a dict")
    return Entry(place, value, {}, "responses")


def _print(item: Any) -> str:
    value = item if isinstance(item, dict) else plain(item, "item")
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key not in _PASSING and inner is not None}
        if "role" in value:
            value.pop("type", None)
    return json.dumps(value, sort_keys=True, default=repr)
