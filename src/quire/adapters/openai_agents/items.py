"""The conversation of a context as a list of items of the Responses API."""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from quire.adapters.stored_list import read_newest, replace_stored
from quire.context import Context
from quire.conversation.importing import UNREADABLE
from quire.errors import InvalidValue
from quire.model.messages import Message
from quire.model.pages import SegmentType
from quire.providers import format_messages, responses
from quire.providers.detection import Entry
from quire.providers.originals import keep_original
from quire.providers.plain_json import dumps, invalid_value, to_plain_json
from quire.view.options import RenderOptions
from quire.view.view import View

Item = dict[str, Any]

_SESSION = "session"
_PASSING = frozenset({"id", "status", "created_by", "provider_data"})  # fields that a runner may drop or add


def messages_of(items: Sequence[Any]) -> list[Message]:
    """Return the messages of items; they convert back to the same items. Raise `InvalidValue` for other than dicts.

    A dict that is not an item of the Responses API becomes a message that no model gets.
    """
    entries = [_entry(item, f"items[{n}]") for n, item in enumerate(items)]
    reasons = [_why_unreadable(entry) for entry in entries]
    messages: list[Message] = []
    for why, run in groupby(zip(reasons, entries, strict=True), key=itemgetter(0)):
        found = [entry for _, entry in run]
        messages += responses.parse(found) if why is None else (_raw_message(entry, why) for entry in found)
    return messages


def _why_unreadable(entry: Entry) -> str | None:
    """Return why a dict is not an item; None if it is one."""
    value = entry.value
    if "role" not in value and value.get("type", None if "id" in value else "message") == "message":
        return "It has no role, and no type or id of an item."
    try:
        list(responses.parse([entry]))
    except InvalidValue as error:
        return str(error)
    return None


def _raw_message(entry: Entry, why: str) -> Message:
    message = Message(role="user", content=dumps(entry.value), origin="responses", meta={UNREADABLE: why[:500]})
    return keep_original(message, [entry.value], None)


def count_unsaved(given: Sequence[str], stored: Sequence[str]) -> int:
    """Return how many items at the end of a list are not stored yet, by the fingerprints of both.

    The new items start where the most items before them equal the end of the stored ones. If the end of the stored
    items is not in the list (another writer added to them), they start after the last known item.
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
    value = to_plain_json(item, place)
    if not isinstance(value, dict):
        raise invalid_value(place, item, "an item is a dict")
    return Entry(place, value, {}, "responses")


def fingerprint(item: Any) -> str:
    """Return a text that is equal for items with the same content."""
    value = item if isinstance(item, dict) else to_plain_json(item, "item")
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key not in _PASSING and inner is not None}
        if "role" in value:
            value.pop("type", None)
    return json.dumps(value, sort_keys=True, default=repr)


# The conversation of a context as a list of items


def newest_items(ctx: Context, limit: int | None) -> list[Item]:
    """Return the newest items in order; without a limit all of them."""
    if limit is None:
        return format_messages(session_messages(ctx), "responses")
    wanted = max(0, limit)
    while wanted:
        messages = read_newest(ctx, wanted)
        is_all = len(messages) < wanted
        first = next((n for n, message in enumerate(messages) if is_all or message.role != "tool"), len(messages))
        items = format_messages([message for message in messages[first:] if _is_item(ctx, message)], "responses")
        if is_all or len(items) >= limit:  # a result is formatted with its call, so it is not read alone
            return items[-limit:]
        wanted *= 2
    return []


def session_messages(ctx: Context) -> list[Message]:
    """Return the messages of the session."""
    return [message for message in read_newest(ctx) if _is_item(ctx, message)]


def _is_item(ctx: Context, message: Message) -> bool:
    """Return whether a message is an item of the session. A prompt of the developer is not."""
    return message.role != "system" or _SESSION in message.meta or not _is_prompt(ctx, message)


def _is_prompt(ctx: Context, message: Message) -> bool:
    page = ctx.conversation.page_of(message.index)
    return page is not None and ctx.pages.segment_of(page).type is SegmentType.SYSTEM


def mark_session(message: Message) -> Message:
    """Mark a system message as an item of the session, because it may become the prompt of the context."""
    return replace(message, meta={**message.meta, _SESSION: True}) if message.role == "system" else message


def pop_newest(ctx: Context) -> Item | None:
    """Remove and return the newest item. The rest of its exchange, and what follows it, is added again."""
    last = next(iter(read_newest(ctx, 1)), None)
    page = None if last is None or not _is_item(ctx, last) else ctx.conversation.page_of(last.index)
    if page is None:
        return None
    first = ctx.conversation.messages_on(page)[0].index
    together, wanted = list[Message](), 1
    while first not in [message.index for message in together]:
        together, wanted = read_newest(ctx, wanted), wanted * 2
    together = together[[message.index for message in together].index(first) :]
    items = format_messages(together, "responses")
    replace_stored(ctx, "pop_item", together, [mark_session(message) for message in messages_of(items[:-1])])
    return items[-1] if items else pop_newest(ctx)


def view_with(ctx: Context, items: Iterable[Item], options: RenderOptions) -> View:
    """Return the view with these items added, from a copy in memory."""
    past = ctx.as_of(ctx.seq)
    replace_stored(past, "add", [], messages_of(list(items)))
    return past.render(options)
