"""Items of the Responses API as frameworks hand them over: a context's conversation as a list of them."""

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
from quire.providers import format_messages
from quire.providers.common import Entry, invalid_value, to_plain_json
from quire.providers.responses import group_items, parse_run
from quire.system import lifecycle, tree
from quire.view.options import RenderOptions
from quire.view.view import View

Item = dict[str, Any]

_SESSION = "session"
_PASSING = frozenset({"id", "status", "created_by", "provider_data"})  # what a runner may drop or add on the way


def messages_of(items: Sequence[Any]) -> list[Message]:
    """The messages that the items are; they go back as the same items. Raises `InvalidValue` naming a bad one."""
    return [parse_run(run) for run in group_items(_entry(item, f"items[{n}]") for n, item in enumerate(items))]


def fingerprints(items: Sequence[Any]) -> list[str]:
    """A text for each item that is equal for items that say the same."""
    return [_print(item) for item in items]


def count_unsaved(given: Sequence[str], stored: Sequence[str]) -> int:
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
    value = to_plain_json(item, place)
    if not isinstance(value, dict):
        raise invalid_value(place, item, "an item is a dict")
    return Entry(place, value, {}, "responses")


def _print(item: Any) -> str:
    value = item if isinstance(item, dict) else to_plain_json(item, "item")
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key not in _PASSING and inner is not None}
        if "role" in value:
            value.pop("type", None)
    return json.dumps(value, sort_keys=True, default=repr)


# The conversation of a context as a list of items


def newest_items(ctx: Context, limit: int | None) -> list[Item]:
    """The newest items in order; without a limit all of them."""
    if limit is None:
        return format_messages(session_messages(ctx), "responses")
    wanted = max(0, limit)
    while wanted:
        messages = ctx.conversation.newest(wanted)
        is_all = len(messages) < wanted
        first = next((n for n, message in enumerate(messages) if is_all or message.role != "tool"), len(messages))
        items = format_messages([message for message in messages[first:] if _is_item(ctx, message)], "responses")
        if is_all or len(items) >= limit:  # a result is written as its call asks for, so it is not read alone
            return items[-limit:]
        wanted *= 2
    return []


def session_messages(ctx: Context) -> list[Message]:
    """The messages whose items the list has."""
    return [message for message in ctx.messages() if _is_item(ctx, message)]


def _is_item(ctx: Context, message: Message) -> bool:
    """Whether a message is an item of the session: a prompt that the developer set is none."""
    return message.role != "system" or _SESSION in message.meta or not _is_prompt(ctx, message)


def _is_prompt(ctx: Context, message: Message) -> bool:
    page = ctx.conversation.page_of(message.index)
    return page is not None and ctx.pages.segment_of(page).type is SegmentType.SYSTEM


def mark_session(message: Message) -> Message:
    """A system message remembers that it came as an item: it may become the prompt, and is to go back all the same."""
    return replace(message, meta={**message.meta, _SESSION: True}) if message.role == "system" else message


def pop_newest(ctx: Context) -> Item | None:
    """Take out the newest item: the rest of its exchange comes in again without it."""
    last = next(iter(ctx.conversation.newest(1)), None)
    page = None if last is None or not _is_item(ctx, last) else ctx.conversation.page_of(last.index)
    if page is None:
        return None
    together = ctx.conversation.messages_on(page)
    items = format_messages(together, "responses")
    replace_messages(ctx, "pop_item", together, [mark_session(message) for message in messages_of(items[:-1])])
    return items[-1] if items else pop_newest(ctx)


def replace_messages(ctx: Context, operation: str, gone: Sequence[Message], fresh: Sequence[Message]) -> None:
    """Take messages out and others in, in one commit."""
    spoken = [message.index for message in gone if message.role != "system" or not _is_prompt(ctx, message)]
    prompts = {message.index for message in gone}.difference(spoken)
    pages = [page for index in prompts if (page := ctx.conversation.page_of(index)) is not None]

    def planner(plan: Plan) -> None:
        if spoken:
            arrivals.close_calls(plan)  # what waits for results could not be taken out
            edits.delete(plan, spoken)
        for page in pages:
            lifecycle.unpin(plan, page)
            tree.remove_page(plan, page)
        if fresh:
            edits.insert(plan, fresh)

    ctx.pages._engine.run(ctx.pages.actor, operation, planner)


def view_with(ctx: Context, items: Iterable[Item], options: RenderOptions) -> View:
    """The view as it will be when these items are stored: drawn over a copy that reaches nobody."""
    past = ctx.as_of(ctx.seq)
    fresh = messages_of(list(items))
    try:
        past.add(fresh)
    except InvalidOperation:
        past.import_messages(fresh)
    return past.render(options)
