"""quire for asyncio: the same classes with `async` methods.

    async with quire.aio.open("agent.db", "support-42", budget=8_000) as ctx:
        await ctx.user("I want to fly to Seattle on May 20.")
        view = await ctx.render()
        async for entry in ctx.history():
            ...

Each class below wraps the synchronous class of the same name. A thread pool makes the calls, so the event loop never
waits for the storage. The calls of one context run one after another, in the order in which they were requested. A
cancelled call was either completed or not started.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Self, cast

from quire.aio.calls import (
    Attribute,
    CallQueue,
    Closable,
    Opening,
    Stream,
    Wrapper,
    awaits,
    awaits_wrapped,
    block,
    read_now,
    returns,
    turn,
)
from quire.errors import names_options

if TYPE_CHECKING:
    from typing import Unpack

    from quire.agent import AgentContext as SyncAgentContext
    from quire.agent.tools import Tools as SyncTools
    from quire.context import Context as SyncContext
    from quire.context import Options, PlainOptions
    from quire.conversation import Conversation as SyncConversation
    from quire.conversation.message_handle import MessageHandle as SyncMessageHandle
    from quire.conversation.turn import TurnState
    from quire.core.context_copy import Progress, ProgressCallback
    from quire.library import Library as SyncLibrary
    from quire.model.tokens import TokenCounter
    from quire.storage.base import Durability
    from quire.storage.contract import Storage
    from quire.storage.urls import StoreLocation
    from quire.system import ContextSystem as SyncContextSystem
    from quire.system.handle import ContextHandle as SyncContextHandle
    from quire.view.fold.summary_worker import SummaryWorker
    from quire.view.options import Summariser
    from quire.windows.windows import Windows as SyncWindows
else:

    class _Names:
        """Replaces a synchronous class at run time: an attribute is the name of the method instead of the method.

        Importing the synchronous classes takes a good part of a second, and a program may first use this module while
        its event loop runs. So they are imported by the thread that makes the first call.
        """

        def __getattr__(self, name: str) -> str:
            return name

    SyncAgentContext = SyncContext = SyncContextSystem = SyncConversation = _Names()
    SyncContextHandle = SyncLibrary = SyncMessageHandle = SyncTools = SyncWindows = _Names()

__all__ = [
    "AgentContext",
    "Context",
    "ContextSystem",
    "Conversation",
    "Library",
    "Opening",
    "Stream",
    "Tools",
    "Windows",
    "open",
]


# The members that only make a call are written by `python -m tests.twins` from the synchronous classes.


class ContextHandle(Wrapper):
    """What `Context` and `ContextSystem` have in common."""

    audit = awaits(SyncContextHandle.audit)
    check = awaits(SyncContextHandle.check)
    checkpoint = awaits(SyncContextHandle.checkpoint)
    find = awaits(SyncContextHandle.find)
    history = returns(SyncContextHandle.history, Stream)
    pin = awaits(SyncContextHandle.pin)
    refresh = awaits(SyncContextHandle.refresh)
    undo = awaits(SyncContextHandle.undo)
    unpin = awaits(SyncContextHandle.unpin)
    seq: Attribute[Awaitable[int]] = Attribute(CallQueue.run)


class MessageHandle(Wrapper):
    """What `Context` and `Conversation` have in common."""

    add = awaits(SyncMessageHandle.add)
    assistant = awaits(SyncMessageHandle.assistant)
    close_calls = awaits(SyncMessageHandle.close_calls)
    compress = awaits(SyncMessageHandle.compress)
    delete = awaits(SyncMessageHandle.delete)
    import_messages = awaits(SyncMessageHandle.import_messages)
    items = returns(SyncMessageHandle.items, Stream)
    messages = returns(SyncMessageHandle.messages, Stream)
    pending_calls = awaits(SyncMessageHandle.pending_calls)
    replace = awaits(SyncMessageHandle.replace)
    system = awaits(SyncMessageHandle.system)
    temporary = returns(SyncMessageHandle.temporary, block)
    tool_result = awaits(SyncMessageHandle.tool_result)
    turns = returns(SyncMessageHandle.turns, Stream)
    user = awaits(SyncMessageHandle.user)


class ContextSystem(ContextHandle):
    """`quire.ContextSystem` with async methods."""

    acting_as = awaits_wrapped(SyncContextSystem.acting_as, lambda: ContextSystem)
    add_page = awaits(SyncContextSystem.add_page)
    add_segment = awaits(SyncContextSystem.add_segment)
    ancestors = awaits(SyncContextSystem.ancestors)
    archive = awaits(SyncContextSystem.archive)
    as_of = awaits_wrapped(SyncContextSystem.as_of, lambda: ContextSystem)
    checkpoints = awaits(SyncContextSystem.checkpoints)
    child_count = awaits(SyncContextSystem.child_count)
    children = awaits(SyncContextSystem.children)
    create_contents_page = awaits(SyncContextSystem.create_contents_page)
    create_detail_page = awaits(SyncContextSystem.create_detail_page)
    detail = awaits(SyncContextSystem.detail)
    evict_lru = awaits(SyncContextSystem.evict_lru)
    evict_page = awaits(SyncContextSystem.evict_page)
    expand = awaits(SyncContextSystem.expand)
    fork = awaits(SyncContextSystem.fork)
    generate_index = awaits(SyncContextSystem.generate_index)
    get_page = awaits(SyncContextSystem.get_page)
    get_segment = awaits(SyncContextSystem.get_segment)
    has_child = awaits(SyncContextSystem.has_child)
    hide = awaits(SyncContextSystem.hide)
    list_pages = returns(SyncContextSystem.list_pages, Stream)
    list_segments = awaits(SyncContextSystem.list_segments)
    load = awaits(SyncContextSystem.load)
    load_page = awaits(SyncContextSystem.load_page)
    marshal = awaits(SyncContextSystem.marshal)
    migrate = awaits(SyncContextSystem.migrate)
    move_page = awaits(SyncContextSystem.move_page)
    names = awaits(SyncContextSystem.names)
    parent = awaits(SyncContextSystem.parent)
    purge = awaits(SyncContextSystem.purge)
    recall = awaits(SyncContextSystem.recall)
    remove_page = awaits(SyncContextSystem.remove_page)
    remove_segment = awaits(SyncContextSystem.remove_segment)
    restore = awaits(SyncContextSystem.restore)
    rollback = awaits(SyncContextSystem.rollback)
    save = awaits(SyncContextSystem.save)
    scrub = awaits(SyncContextSystem.scrub)
    segment_of = awaits(SyncContextSystem.segment_of)
    set_detail = awaits(SyncContextSystem.set_detail)
    set_segment_permission = awaits(SyncContextSystem.set_segment_permission)
    set_storage = awaits(SyncContextSystem.set_storage)
    unmarshal = awaits(SyncContextSystem.unmarshal)
    update_page = awaits(SyncContextSystem.update_page)
    update_segment = awaits(SyncContextSystem.update_segment)
    walk = returns(SyncContextSystem.walk, Stream)
    context: Attribute[str] = Attribute(read_now)
    storage: "Attribute[Awaitable[Storage]]" = Attribute(CallQueue.run)
    counter: "Attribute[Awaitable[TokenCounter]]" = Attribute(CallQueue.run)
    cached_pages: Attribute[Awaitable[int]] = Attribute(CallQueue.run)


class Conversation(MessageHandle):
    """`quire.Conversation` with async methods."""

    acting_as = awaits_wrapped(SyncConversation.acting_as, lambda: Conversation)
    batch_commit = awaits(SyncConversation.batch_commit)
    batch_end = awaits(SyncConversation.batch_end)
    batch_start = awaits(SyncConversation.batch_start)
    cleanup = awaits(SyncConversation.cleanup)
    date_messages = awaits(SyncConversation.date_messages)
    entry_before = awaits(SyncConversation.entry_before)
    insert = awaits(SyncConversation.insert)
    is_modified = awaits(SyncConversation.is_modified)
    mark_map = awaits(SyncConversation.mark_map)
    mark_of = awaits(SyncConversation.mark_of)
    message = awaits(SyncConversation.message)
    messages_after = awaits(SyncConversation.messages_after)
    messages_on = awaits(SyncConversation.messages_on)
    modify = awaits(SyncConversation.modify)
    newest = awaits(SyncConversation.newest)
    page_of = awaits(SyncConversation.page_of)
    prelude = awaits(SyncConversation.prelude)
    context: Attribute[str] = Attribute(read_now)


class AgentContext(Wrapper):
    """`quire.AgentContext` with async methods."""

    add_segment = awaits(SyncAgentContext.add_segment)
    ancestors = awaits(SyncAgentContext.ancestors)
    archive = awaits(SyncAgentContext.archive)
    budget = awaits(SyncAgentContext.budget)
    check_permission = awaits(SyncAgentContext.check_permission)
    children = awaits(SyncAgentContext.children)
    create_contents_page = awaits(SyncAgentContext.create_contents_page)
    create_detail_page = awaits(SyncAgentContext.create_detail_page)
    expand_details = awaits(SyncAgentContext.expand_details)
    find = awaits(SyncAgentContext.find)
    get_page = awaits(SyncAgentContext.get_page)
    get_segment = awaits(SyncAgentContext.get_segment)
    hide_details = awaits(SyncAgentContext.hide_details)
    length = awaits(SyncAgentContext.length)
    list_pages = awaits(SyncAgentContext.list_pages)
    list_segments = awaits(SyncAgentContext.list_segments)
    move_page = awaits(SyncAgentContext.move_page)
    originals = awaits(SyncAgentContext.originals)
    parent = awaits(SyncAgentContext.parent)
    read_page = awaits(SyncAgentContext.read_page)
    recall = awaits(SyncAgentContext.recall)
    refresh = awaits(SyncAgentContext.refresh)
    remove_page = awaits(SyncAgentContext.remove_page)
    remove_segment = awaits(SyncAgentContext.remove_segment)
    rewrite = awaits(SyncAgentContext.rewrite)
    set_detail = awaits(SyncAgentContext.set_detail)
    set_permission = awaits(SyncAgentContext.set_permission)
    update_page = awaits(SyncAgentContext.update_page)
    view = awaits(SyncAgentContext.view)
    manages: Attribute[Awaitable[bool]] = Attribute(CallQueue.run)


class Tools(Wrapper):
    """`quire.Tools` with async methods."""

    answer = awaits(SyncTools.answer)
    anthropic = awaits(SyncTools.anthropic)
    call = awaits(SyncTools.call)
    mcp = awaits(SyncTools.mcp)
    names = awaits(SyncTools.names)
    only = awaits_wrapped(SyncTools.only, lambda: Tools)
    openai = awaits(SyncTools.openai)
    prefixed = awaits_wrapped(SyncTools.prefixed, lambda: Tools)
    reading = awaits_wrapped(SyncTools.reading, lambda: Tools)
    responses = awaits(SyncTools.responses)
    has = awaits(SyncTools.__contains__)  # `name in tools`


class Windows(Wrapper):
    """`quire.Windows` with async methods. Apps run in their own threads, as in the synchronous class."""

    act = awaits(SyncWindows.act)
    acting_as = awaits_wrapped(SyncWindows.acting_as, lambda: Windows)
    app_of = awaits(SyncWindows.app_of)
    apps = awaits(SyncWindows.apps)
    close = awaits(SyncWindows.close)
    get = awaits(SyncWindows.get)
    launcher = awaits(SyncWindows.launcher)
    list = awaits(SyncWindows.list)
    on = awaits(SyncWindows.on)
    open = awaits(SyncWindows.open)
    page_of = awaits(SyncWindows.page_of)
    place = awaits(SyncWindows.place)
    refresh = awaits(SyncWindows.refresh)
    register = awaits(SyncWindows.register)
    set_limits = awaits(SyncWindows.set_limits)
    context: Attribute[str] = Attribute(read_now)


@names_options
class Context(Closable, MessageHandle, ContextHandle):
    """`quire.Context` with async methods. `name`, `budget` and `turn_state` are plain; other properties are awaited."""

    _shares_queue = False

    as_agent = awaits_wrapped(SyncContext.as_agent, lambda: AgentContext)
    as_of = awaits_wrapped(SyncContext.as_of, lambda: Context)
    document = awaits(SyncContext.document)
    dump = awaits(SyncContext.dump)
    fork = awaits_wrapped(SyncContext.fork, lambda: Context)
    last_sent = awaits(SyncContext.last_sent)
    on_fold = awaits(SyncContext.on_fold)
    render = awaits(SyncContext.render)
    report_usage = awaits(SyncContext.report_usage)
    rollback = awaits(SyncContext.rollback)
    stats = awaits(SyncContext.stats)
    why = awaits(SyncContext.why)
    write = awaits(SyncContext.write)
    name: Attribute[str] = Attribute(read_now)
    actor: Attribute[str] = Attribute(read_now)
    budget: Attribute[int] = Attribute(read_now)
    pages = Attribute(ContextSystem)
    conversation = Attribute(Conversation)
    agent = Attribute(AgentContext)
    tools = Attribute(Tools)
    windows = Attribute(Windows)
    turn_state: "Attribute[TurnState | None]" = Attribute(read_now)
    summarising: "Attribute[Awaitable[SummaryWorker | None]]" = Attribute(CallQueue.run)

    @asynccontextmanager
    async def turn(self, key: str | None = None, *, wait: float = 30.0, keep: bool = False) -> AsyncIterator[Self]:
        """Run an `async with` block as a turn. See `quire.Context.turn`."""
        async with turn(self, wait, {"key": key, "keep": keep}):
            yield self

    async def tools_of(self, agent: AgentContext, *, beside: bool = False) -> Tools:
        """Return the tools of an agent that `as_agent` returned. See `quire.Context.tools_of`."""
        return await Tools._wrap_result(self._calls, lambda: self._get().tools_of(agent._get(), beside=beside))


@names_options
class Library(Closable):
    """`quire.Library` with async methods. The first call opens the store. Each context has its own call queue."""

    def __init__(
        self,
        where: "StoreLocation",
        *,
        durability: "Durability" = "normal",
        create: bool = True,
        redact: Callable[[str], str] | None = None,
        summariser: "Summariser | None" = None,
    ) -> None:
        @cache
        def get() -> "SyncLibrary":
            from quire import library

            return library.Library(where, durability=durability, create=create, redact=redact, summariser=summariser)

        super().__init__(CallQueue(), get)

    create = returns(SyncLibrary.create, partial(Opening, Context))
    delete = awaits(SyncLibrary.delete)
    erase = awaits(SyncLibrary.erase)
    exists = awaits(SyncLibrary.exists)
    expire = awaits(SyncLibrary.expire)
    export = awaits(SyncLibrary.export)
    fork = awaits(SyncLibrary.fork)
    import_ = awaits(SyncLibrary.import_)
    info = awaits(SyncLibrary.info)
    list = returns(SyncLibrary.list, Stream)
    open = returns(SyncLibrary.open, partial(Opening, Context))
    scrub = awaits(SyncLibrary.scrub)
    usage = awaits(SyncLibrary.usage)
    summarise = awaits(SyncLibrary.summarise, in_queue=False)  # other calls do not wait for it

    @asynccontextmanager
    async def turn(
        self,
        name: str = "default",
        *,
        key: str | None = None,
        wait: float = 30.0,
        keep: bool = False,
        **options: "Unpack[PlainOptions]",
    ) -> AsyncIterator[Context]:
        """Open a context, run an `async with` block as a turn of it, and close the context. See `Context.turn`."""
        async with self.open(name, **options) as context, context.turn(key, wait=wait, keep=keep):
            yield context

    async def migrate(
        self,
        target: "StoreLocation | Library",
        *,
        replace: bool = False,
        progress: "ProgressCallback | None" = None,
    ) -> "Progress":
        """Copy every context to another store. See `quire.Library.migrate`."""

        def copy() -> "Progress":
            to = target._get() if isinstance(target, Library) else target
            return cast("SyncLibrary", self._get()).migrate(to, replace=replace, progress=progress)

        return await self._calls.run(copy)


def open(
    where: "StoreLocation",
    context: str = "default",
    *,
    durability: "Durability" = "normal",
    create: bool = True,
    **options: "Unpack[Options]",
) -> Opening[Context]:
    """Open a context as `quire.open` does. Await the result, or use it in an `async with` block, which closes it."""

    def open_context() -> "SyncContext":
        from quire.context import open as open_sync

        return open_sync(where, context, durability=durability, create=create, **options)

    return Opening(Context, CallQueue(), open_context)
