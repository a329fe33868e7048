"""The conversation of a context as a list of items of the Responses API."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from quire.context import Context
from quire.conversation import arrivals, edits
from quire.core.plan import Plan
from quire.errors import InvalidOperation
from quire.model.messages import Message
from quire.model.pages import SegmentType
from quire.providers import format_messages, responses
from quire.providers.detection import Entry
from quire.providers.plain_json import invalid_value, to_plain_json
from quire.system import lifecycle, tree
from quire.view.options import RenderOptions
from quire.view.view import View

Item = dict[str, Any]

_SESSION = "session"
_PASSING = frozenset({"id", "status", "created_by", "provider_data"})  # fields that a runner may drop or add


def messages_of(items: Sequence[Any]) -> list[Message]:
    """Return the messages of items; they convert back to the same items. Raise `InvalidValue` for a wrong item."""
    return list(responses.parse(_entry(item, f"items[{n}]") for n, item in enumerate(items)))


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
        messages = ctx.conversation.newest(wanted)
        is_all = len(messages) < wanted
        first = next((n for n, message in enumerate(messages) if is_all or message.role != "tool"), len(messages))
        items = format_messages([message for message in messages[first:] if _is_item(ctx, message)], "responses")
        if is_all or len(items) >= limit:  # a result is formatted with its call, so it is not read alone
            return items[-limit:]
        wanted *= 2
    return []


def session_messages(ctx: Context) -> list[Message]:
    """Return the messages of the session."""
    return [message for message in ctx.messages() if _is_item(ctx, message)]


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
    """Remove and return the newest item. The rest of its exchange is added again."""
    last = next(iter(ctx.conversation.newest(1)), None)
    page = None if last is None or not _is_item(ctx, last) else ctx.conversation.page_of(last.index)
    if page is None:
        return None
    together = ctx.conversation.messages_on(page)
    items = format_messages(together, "responses")
    replace_messages(ctx, "pop_item", together, [mark_session(message) for message in messages_of(items[:-1])])
    return items[-1] if items else pop_newest(ctx)


def replace_messages(ctx: Context, operation: str, gone: Sequence[Message], fresh: Sequence[Message]) -> None:
    """Delete messages and add others in one commit."""
    spoken = [message.index for message in gone if message.role != "system" or not _is_prompt(ctx, message)]
    prompts = {message.index for message in gone}.difference(spoken)
    pages = [page for index in prompts if (page := ctx.conversation.page_of(index)) is not None]

    def planner(plan: Plan) -> None:
        if spoken:
            arrivals.close_calls(plan)  # an exchange that waits for results cannot be deleted
            edits.delete(plan, spoken)
        for page in pages:
            lifecycle.unpin(plan, page)
            tree.remove_page(plan, page)
        if fresh:
            edits.insert(plan, fresh)

    ctx.pages._engine.run(ctx.pages.actor, operation, planner)


def view_with(ctx: Context, items: Iterable[Item], options: RenderOptions) -> View:
    """Return the view with these items added, from a copy in memory."""
    past = ctx.as_of(ctx.seq)
    fresh = messages_of(list(items))
    try:
        past.add(fresh)
    except InvalidOperation:
        past.import_messages(fresh)
    return past.render(options)
