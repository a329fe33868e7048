"""OpenAI Agents SDK: a session without a limit of length, and a filter that sends the model what fits.

    session = QuireSession("support-42", "agents.db", budget=8_000)
    config = RunConfig(call_model_input_filter=session.model_input_filter)
    result = await Runner.run(agent, "Hello!", session=session, run_config=config)

The session's list is the conversation of a context: items are returned as they were added.
"""

import json
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from msgspec.structs import replace

from quire.adapters.context_pool import AnyContext, Where, context_of, requires_extra, to_context
from quire.adapters.stored_list import read_newest, replace_stored
from quire.aio.calls import CallQueue
from quire.context import Context, Options, check_open_options, open_in
from quire.conversation.importing import UNREADABLE
from quire.errors import InvalidValue
from quire.model.messages import Message
from quire.model.pages import SegmentType
from quire.providers import format_messages, responses
from quire.providers.detection import Entry
from quire.providers.originals import keep_original
from quire.providers.plain_json import dumps, invalid_value, to_plain_json
from quire.storage.base import check_context_name
from quire.storage.contract import Storage
from quire.storage.urls import storage_at
from quire.view.options import RenderOptions

with requires_extra("openai-agents"):
    from agents import FunctionTool, RunConfig, Tool
    from agents.memory import SessionSettings
    from agents.memory.session_settings import coerce_session_settings
    from agents.run_config import CallModelData, ModelInputData

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.run_config import CallModelInputFilter
    from agents.tool_context import ToolContext

    from quire.agent.tools import Tools

__all__ = ["QuireSession", "function_tools"]


Item = dict[str, Any]

_SESSION = "session"
_PASSING = frozenset({"id", "status", "created_by", "provider_data"})  # fields that a runner may drop or add


def messages_of(items: Sequence[Any]) -> list[Message]:
    """Return the messages of items; they convert back to the same items. Raise `InvalidValue` if one is not a dict.

    A dict that is not an item of the Responses API becomes a message that no model gets.
    """
    entries = [_entry(item, f"items[{n}]") for n, item in enumerate(items)]
    if not any(_lacks_role(entry.value) for entry in entries):
        with suppress(InvalidValue):
            return list(responses.parse(entries))  # the usual case: all of them are items
    reasons = [_why_unreadable(entry) for entry in entries]
    messages: list[Message] = []
    for why, run in groupby(zip(reasons, entries, strict=True), key=itemgetter(0)):
        found = [entry for _, entry in run]
        messages += responses.parse(found) if why is None else (_raw_message(entry, why) for entry in found)
    return messages


def _why_unreadable(entry: Entry) -> str | None:
    """Return why a dict is not an item; None if it is one."""
    if _lacks_role(entry.value):
        return "It has no role, and no type or id of an item."
    try:
        list(responses.parse([entry]))
    except InvalidValue as error:
        return str(error)
    return None


def _lacks_role(value: Item) -> bool:
    return "role" not in value and value.get("type", None if "id" in value else "message") == "message"


def _raw_message(entry: Entry, why: str) -> Message:
    message = Message(role="user", content=dumps(entry.value), origin="responses", meta={UNREADABLE: why[:500]})
    return keep_original(message, [entry.value], None)


def count_unsaved(given: Sequence[str], stored: Sequence[str]) -> int:
    """Return how many items at the end of a list are not stored yet, by the fingerprints of both.

    The new items start at the position before which the most items equal the end of the stored items. If the end of the
    stored items is not in the list (another writer added items), the new items start after the last known item.
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
    """Remove and return the newest item. The other items of its exchange and the items after it are added again."""
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


class _Shared:
    """An open storage and its number of users."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.users = 0


_open: dict[tuple[int, str], _Shared] = {}
_lock = Lock()


def borrow(where: Storage | str | os.PathLike[str]) -> tuple[Storage, Callable[[], None]]:
    """Return the storage of a place, shared by all its users, and a function that releases it.

    The caller closes a storage that it gave. Every `memory:` is a separate storage.
    """
    if not isinstance(where, str | os.PathLike):
        return storage_at(where)[0], lambda: None
    key = (os.getpid(), _place(where))  # a connection is not for the child of a fork
    if key[1] == "memory:":
        storage, _ = storage_at(where)
        return storage, storage.close
    with _lock:
        shared = _open.get(key)
        if shared is None:
            shared = _open[key] = _Shared(storage_at(where)[0])
        shared.users += 1
    return shared.storage, lambda: _give_back(key, shared)


def _give_back(key: tuple[int, str], shared: _Shared) -> None:
    with _lock:
        shared.users -= 1
        if shared.users or key[0] != os.getpid():
            return
        del _open[key]
    shared.storage.close()


def _place(where: str | os.PathLike[str]) -> str:
    """Return the absolute form of a path; a URL unchanged."""
    text = os.fspath(where)
    is_address = isinstance(where, str) and ":" in where and not os.path.splitdrive(where)[0]
    return text if is_address else os.path.abspath(text)


T = TypeVar("T")
_WINDOW = 12


class QuireSession:
    """A session of the Agents SDK that stores its items in the conversation of a context.

    `where` is a path, a URL, a storage or an open context; the options are those of `quire.open`. Sessions at one place
    share its connection. The event loop is never blocked: calls run in threads, one after the other. The context is
    opened at the first call; `context` returns it.
    """

    def __init__(
        self,
        session_id: str,
        where: Where,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.session_id = check_context_name(session_id)
        given = SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        self.session_settings: SessionSettings | None = given
        self._where = where
        self._setup = check_open_options(options)
        self._queue = CallQueue()
        self._opening = RLock()
        self._context = to_context(where, **options) if isinstance(where, AnyContext) else None
        self._is_given = self._context is not None
        self._release: Callable[[], object] = lambda: None

    def __repr__(self) -> str:
        return f"<QuireSession {self.session_id!r}>"

    @property
    def context(self) -> Context:
        """The context that stores the items of the session."""
        with self._opening:
            if self._context is None:
                self._context = self._open_context(self._where)
            return self._context

    def _open_context(self, where: Any) -> Context:
        storage, release = borrow(where)
        try:
            opened = open_in(storage, self.session_id, self._setup)
        except BaseException:
            release()
            raise
        self._release = weakref.finalize(self, release)
        return opened

    def close(self) -> None:
        """Release the storage, if the session opened it. Another call opens it again."""
        with self._opening:
            if self._context is not None and not self._is_given:
                self._context.close()
                self._context = None
                self._release()

    # The session protocol

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """Return the items in order, or the newest `limit` of them. The session's settings have the default limit.

        As in the SDK's session, a negative limit returns all items.
        """
        settings = self.session_settings
        most = settings.limit if limit is None and settings is not None else limit
        most = None if most is not None and most < 0 else most
        return cast("list[TResponseInputItem]", await self._queue.run(self._items, most))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Add items at the end in one commit. Invalid items are stored too, but no model gets them."""
        await self._queue.run(self._add, cast(list[Item], items))

    async def pop_item(self) -> "TResponseInputItem | None":
        """Remove and return the newest item; None if there is none."""
        return cast("TResponseInputItem | None", await self._queue.run(self._pop))

    async def clear_session(self) -> None:
        """Remove all items in one commit. They stay in the store, and `context.undo` restores them."""
        await self._queue.run(self._replace, "clear_session", [])

    async def _atomic_replace_items(self, items: "list[TResponseInputItem]") -> bool:
        """Replace all items in one commit; the SDK's compaction calls this instead of clear and add."""
        await self._queue.run(self._replace, "replace_items", cast(list[Item], items))
        return True

    # What the model is sent

    async def model_input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """The filter for `RunConfig.call_model_input_filter`: it sends the view instead of the whole history."""
        return await self._queue.run(self._show_view, data.model_data, RenderOptions())

    def view_filter(self, **options: Any) -> "CallModelInputFilter":
        """Return the filter with options of `Context.render`, such as `recall=True` or `reserve=` for tool schemas."""
        chosen = RenderOptions(**options)

        async def filter_input(data: CallModelData[Any]) -> ModelInputData:
            return await self._queue.run(self._show_view, data.model_data, chosen)

        return filter_input

    def run_config(self, **options: Any) -> RunConfig:
        """Return a `RunConfig` with the filter; the options are those of `RunConfig`."""
        return RunConfig(call_model_input_filter=self.model_input_filter, **options)

    def tools(self, *names: str) -> list[Tool]:
        """Return the context's tools for a model, or those of these names, as tools of the SDK."""
        tools = self.context.tools
        return _function_tools(tools.only(*names) if names else tools, self._queue)

    # The same, in a thread

    def _items(self, limit: int | None) -> list[Item]:
        self.context.refresh()
        return newest_items(self.context, limit)

    def _add(self, items: list[Item]) -> None:
        fresh = [mark_session(message) for message in messages_of(items)]
        self._retry(lambda ctx: replace_stored(ctx, "add", [], fresh))

    def _replace(self, operation: str, items: list[Item]) -> None:
        fresh = [mark_session(message) for message in messages_of(items)]
        self.context.refresh()
        self._retry(lambda ctx: replace_stored(ctx, operation, session_messages(ctx), fresh))

    def _pop(self) -> Item | None:
        self.context.refresh()
        return self._retry(pop_newest)

    def _show_view(self, data: ModelInputData, options: RenderOptions) -> ModelInputData:
        ctx = self.context
        ctx.refresh()
        beside = ctx.pages.counter.count(data.instructions) + 4 if data.instructions else 0
        options = replace(options, reserve=options.reserve + beside)
        view = ctx.render(options)
        fresh = self._not_stored(cast(list[Item], data.input))
        if fresh:  # a copy in memory has them too
            past = ctx.as_of(ctx.seq)
            replace_stored(past, "add", [], messages_of(fresh))
            view = past.render(options)
        return ModelInputData(input=cast("list[TResponseInputItem]", view.responses()), instructions=data.instructions)

    def _not_stored(self, items: list[Item]) -> list[Item]:
        """Return the items that the runner sends before it stores them: the user's message in a streamed run."""
        for most in (_WINDOW, len(items)):
            given, stored = items[-most:], newest_items(self.context, most)
            fresh = count_unsaved([*map(fingerprint, given)], [*map(fingerprint, stored)])
            if fresh < len(given):
                break
        return items[len(items) - fresh :]

    def _retry(self, change: Callable[[Context], T]) -> T:
        """Change the context; retry if another writer was first."""
        ctx = self.context
        return ctx.pages._engine.retry(lambda: change(ctx))


def function_tools(ctx: AnyContext, *names: str) -> list[Tool]:
    """Return the context's tools for a model, or those of these names, as tools of the Agents SDK."""
    tools = context_of(ctx).tools
    return _function_tools(tools.only(*names) if names else tools, CallQueue())


def _function_tools(tools: "Tools", queue: CallQueue) -> list[Tool]:
    async def invoke(name: str, _: "ToolContext[Any]", arguments: str) -> str:
        return await queue.run(tools.call, name, arguments)

    return [
        FunctionTool(
            name=schema["name"],
            description=schema["description"],
            params_json_schema=schema["parameters"],
            on_invoke_tool=partial(invoke, schema["name"]),
            strict_json_schema=False,
        )
        for schema in tools.responses()
    ]
