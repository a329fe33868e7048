"""quire for asyncio: the same classes with `async` methods.

    async with quire.aio.open("agent.db", "support-42", budget=8_000) as ctx:
        await ctx.user("I want to fly to Seattle on May 20.")
        view = await ctx.render()
        async for entry in ctx.history():
            ...

Each class below wraps the synchronous class of the same name and lists its members, one per line. A thread pool makes
the calls, so the event loop never waits for the storage. The calls of one context run one after another, in the order
in which they were requested. A cancelled call was either completed or not started.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from typing import Unpack

    from quire.agent import AgentContext as SyncAgentContext
    from quire.agent.tools import Tools as SyncTools
    from quire.context import Context as SyncContext
    from quire.context import Options, PlainOptions
    from quire.conversation import Conversation as SyncConversation
    from quire.conversation.turn import TurnState
    from quire.core.context_copy import Progress, ProgressCallback
    from quire.library import Library as SyncLibrary
    from quire.model.tokens import TokenCounter
    from quire.storage.base import Durability, Storage
    from quire.system import ContextSystem as SyncContextSystem
    from quire.view.fold.summaries import SummaryWorker
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
    SyncLibrary = SyncTools = SyncWindows = _Names()

__all__ = [
    "AgentContext",
    "Block",
    "Context",
    "ContextSystem",
    "Conversation",
    "Library",
    "Opening",
    "Stream",
    "Tools",
    "TurnBlock",
    "Windows",
    "open",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
W = TypeVar("W", bound="Wrapper")
C = TypeVar("C", bound="Closable")
THREADS = 16
_CHUNK = 256


class CallQueue:
    """An ordered queue of calls, run by a thread pool that all queues share.

    At most one call of a queue runs at a time, so many contexts need few threads and no thread waits for a lock that
    another one holds. A call that has not started can be cancelled; a call that has started runs to its end.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = Lock()
        self._running = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call when its turn comes, and return its result.

        If the awaiting task is cancelled before that, the call is not made. If it is cancelled later, the call runs to
        its end; the calls behind it wait for that.
        """
        return await asyncio.wrap_future(self.submit(partial(call, *args, **kwargs)))

    async def finish(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Make a call even if the awaiting task is cancelled. In that case `undo` is called with its result."""
        future = self.submit(call)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            if undo is not None:
                self.submit(lambda: undo(future.result()))
            raise

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Append a call to the queue and return its future."""
        future = Future[T]()
        with self._lock:
            self._waiting.append((future, partial(copy_context().run, call)))
            if not self._running:
                self._running = True
                _thread_pool().submit(self._run_next)
        return future

    def _run_next(self) -> None:
        """Make the first call, then submit the next one to the pool, behind the calls of other queues."""
        with self._lock:
            future, call = self._waiting.popleft()
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:  # the awaiting task receives every error
                future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
            else:
                future.set_result(result)
        with self._lock:
            self._running = bool(self._waiting)
            if self._running:
                _thread_pool().submit(self._run_next)


@cache
def _thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="quire-aio")


# Results that are not plain values


class Stream(Generic[T]):
    """Items that are read when they are needed: `async for item in stream`. `await stream` returns all as a list."""

    def __init__(self, calls: CallQueue, start: Callable[[], Iterable[T]]) -> None:
        self._calls = calls
        self._start = start

    async def __aiter__(self) -> AsyncIterator[T]:
        items: Iterator[T] | None = None

        def read_chunk() -> list[T]:
            nonlocal items
            if items is None:
                items = iter(self._start())
            return list(islice(items, _CHUNK))

        while chunk := await self._calls.run(read_chunk):
            for item in chunk:
                yield item
            if len(chunk) < _CHUNK:
                return

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._calls.run(lambda: list(self._start())).__await__()


class Block:
    """A context manager of the synchronous class, for `async with`."""

    def __init__(self, calls: CallQueue, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._calls = calls
        self._make = make

    async def __aenter__(self) -> None:
        def enter() -> AbstractContextManager[Any]:
            manager = self._make()
            manager.__enter__()
            return manager

        self._manager = await self._calls.finish(enter, undo=lambda manager: manager.__exit__(None, None, None))

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._calls.finish(lambda: self._manager.__exit__(*error))


class TurnBlock(Generic[C]):
    """A turn, for `async with`. It waits for other workers without a thread of the pool.

    `get` returns the context of the turn; with `close`, it is closed at the end.
    """

    def __init__(self, get: "Callable[[], Awaitable[C]]", wait: float, options: dict[str, Any], *, close: bool) -> None:
        self._get = get
        self._wait = wait
        self._options = options
        self._close = close

    async def __aenter__(self) -> C:
        self._context = await self._get()
        try:
            scope = await self._context._calls.run(_turn_scope)
            self._token = None if scope.get(None) else (scope, scope.set(object()))
            try:
                await self._enter()
            except BaseException:
                self._leave_scope()
                raise
        except BaseException:
            await self._end()
            raise
        return self._context

    async def __aexit__(self, *error: Any) -> bool | None:
        try:
            return await self._block.__aexit__(*error)
        finally:
            self._leave_scope()
            await self._end()

    async def _enter(self) -> None:
        from quire.errors import Busy

        deadline, pause = asyncio.get_running_loop().time() + self._wait, 0.005
        while True:
            self._block = Block(self._context._calls, self._context._prepare("turn", wait=0, **self._options))
            try:
                return await self._block.__aenter__()
            except Busy:
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    raise
                await asyncio.sleep(min(left, pause))
                pause = min(0.1, pause * 1.5)

    def _leave_scope(self) -> None:
        if self._token is not None:
            scope, token = self._token
            scope.reset(token)

    async def _end(self) -> None:
        if self._close:
            await self._context.close()


def _turn_scope() -> "ContextVar[object]":
    from quire.conversation.turn import scope

    return scope


class Wrapper:
    """Base of the classes below: makes the calls of a synchronous object in a `CallQueue`."""

    _shares_queue: ClassVar[bool] = True
    """True if an object that a call returns uses the queue of that call."""

    def __init__(self, calls: CallQueue, get: Callable[[], Any]) -> None:
        """`get` returns the synchronous object. It is called in the queue, because it may import or open something."""
        self._calls = calls
        self._get = get

    def __repr__(self) -> str:
        return f"<quire.aio.{type(self).__name__}>"

    @classmethod
    async def _wrap_result(cls, calls: CallQueue, call: Callable[[], Any]) -> Self:
        result = await calls.run(call)
        return cls(calls if cls._shares_queue else CallQueue(), lambda: result)

    def _prepare(self, name: str, *args: Any, **options: Any) -> Callable[[], Any]:
        return lambda: getattr(self._get(), name)(*args, **options)


class Closable(Wrapper):
    """A wrapper that can be closed with `close` or by an `async with` block."""

    async def close(self) -> None:
        """Release what it opened, after all calls that are in the queue."""
        await self._calls.finish(self._prepare("close"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Opening(Generic[C]):
    """An object that is being opened: await it, or use it in an `async with` block, which closes it."""

    def __init__(self, calls: CallQueue, open: Callable[[], Any], kind: type[C]) -> None:  # noqa: A002
        self._calls = calls
        self._open = open
        self._kind = kind

    def __await__(self) -> Generator[Any, None, C]:
        return self._wait().__await__()

    async def __aenter__(self) -> C:
        self._opened = await self._wait()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        await self._opened.close()

    async def _wait(self) -> C:
        opened = await self._calls.finish(self._open, undo=lambda unused: unused.close())
        return self._kind(CallQueue(), lambda: opened)


# Members. Type checkers derive the signature from the synchronous method; at run time `method` is only its name.


def awaits(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, T]]:
    """Return an async method that makes the call and returns its result."""
    return _coroutine_function(returns(method, CallQueue.run))


def awaits_wrapped(
    method: Callable[Concatenate[Any, P], object], kind: Callable[[], type[W]]
) -> Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, W]]:
    """Return an async method that makes the call and wraps its result in the class that `kind` returns."""
    return _coroutine_function(returns(method, lambda calls, call: kind()._wrap_result(calls, call)))


def _coroutine_function(
    method: Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, T]]:
    """Return the method as an `async def`: frameworks ask `inspect.iscoroutinefunction` how to call it."""

    async def member(self: Wrapper, /, *args: P.args, **options: P.kwargs) -> T:
        return await method(self, *args, **options)

    member.__name__ = method.__name__
    return member


def returns(
    method: Callable[Concatenate[Any, P], R], kind: Callable[[CallQueue, Callable[[], R]], T]
) -> Callable[Concatenate[Wrapper, P], T]:
    """Return a method that prepares the call and returns an object which makes it later: a `Stream` or a `Block`."""
    name = cast(str, method)

    def member(self: Wrapper, /, *args: P.args, **options: P.kwargs) -> T:
        return kind(self._calls, self._prepare(name, *args, **options))

    member.__name__ = name
    return member


class Attribute(Generic[T]):
    """An attribute of the synchronous object. `kind` gets the queue and a function that reads the attribute."""

    def __init__(self, kind: Callable[[CallQueue, Callable[[], Any]], T]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: Wrapper | None, owner: type) -> T:
        if wrapper is None:  # read from the class, as by `help` or a mock
            return cast(T, self)
        return self._kind(wrapper._calls, lambda: getattr(wrapper._get(), self._name))

    def __set__(self, wrapper: Wrapper, value: object) -> None:
        raise AttributeError(f"{self._name!r} of {wrapper!r} cannot be set.")


def _read_now(_calls: CallQueue, read: Callable[[], Any]) -> Any:
    """Read an attribute that never waits for the storage."""
    return read()


class ContextSystem(Wrapper):
    """`quire.ContextSystem` with async methods."""

    acting_as = awaits_wrapped(SyncContextSystem.acting_as, lambda: ContextSystem)
    add_page = awaits(SyncContextSystem.add_page)
    add_segment = awaits(SyncContextSystem.add_segment)
    ancestors = awaits(SyncContextSystem.ancestors)
    archive = awaits(SyncContextSystem.archive)
    as_of = awaits_wrapped(SyncContextSystem.as_of, lambda: ContextSystem)
    audit = awaits(SyncContextSystem.audit)
    check = awaits(SyncContextSystem.check)
    checkpoint = awaits(SyncContextSystem.checkpoint)
    checkpoints = awaits(SyncContextSystem.checkpoints)
    child_count = awaits(SyncContextSystem.child_count)
    children = awaits(SyncContextSystem.children)
    create_contents_page = awaits(SyncContextSystem.create_contents_page)
    create_detail_page = awaits(SyncContextSystem.create_detail_page)
    detail = awaits(SyncContextSystem.detail)
    evict_lru = awaits(SyncContextSystem.evict_lru)
    evict_page = awaits(SyncContextSystem.evict_page)
    expand = awaits(SyncContextSystem.expand)
    find = awaits(SyncContextSystem.find)
    fork = awaits(SyncContextSystem.fork)
    generate_index = awaits(SyncContextSystem.generate_index)
    get_page = awaits(SyncContextSystem.get_page)
    get_segment = awaits(SyncContextSystem.get_segment)
    has_child = awaits(SyncContextSystem.has_child)
    hide = awaits(SyncContextSystem.hide)
    history = returns(SyncContextSystem.history, Stream)
    list_pages = returns(SyncContextSystem.list_pages, Stream)
    list_segments = awaits(SyncContextSystem.list_segments)
    load = awaits(SyncContextSystem.load)
    load_page = awaits(SyncContextSystem.load_page)
    marshal = awaits(SyncContextSystem.marshal)
    migrate = awaits(SyncContextSystem.migrate)
    move_page = awaits(SyncContextSystem.move_page)
    names = awaits(SyncContextSystem.names)
    parent = awaits(SyncContextSystem.parent)
    pin = awaits(SyncContextSystem.pin)
    purge = awaits(SyncContextSystem.purge)
    recall = awaits(SyncContextSystem.recall)
    refresh = awaits(SyncContextSystem.refresh)
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
    undo = awaits(SyncContextSystem.undo)
    unmarshal = awaits(SyncContextSystem.unmarshal)
    unpin = awaits(SyncContextSystem.unpin)
    update_page = awaits(SyncContextSystem.update_page)
    update_segment = awaits(SyncContextSystem.update_segment)
    walk = returns(SyncContextSystem.walk, Stream)
    context: Attribute[str] = Attribute(_read_now)
    seq: Attribute[Awaitable[int]] = Attribute(CallQueue.run)
    storage: "Attribute[Awaitable[Storage]]" = Attribute(CallQueue.run)
    counter: "Attribute[Awaitable[TokenCounter]]" = Attribute(CallQueue.run)
    cached_pages: Attribute[Awaitable[int]] = Attribute(CallQueue.run)


class Conversation(Wrapper):
    """`quire.Conversation` with async methods."""

    acting_as = awaits_wrapped(SyncConversation.acting_as, lambda: Conversation)
    add = awaits(SyncConversation.add)
    assistant = awaits(SyncConversation.assistant)
    batch_commit = awaits(SyncConversation.batch_commit)
    batch_end = awaits(SyncConversation.batch_end)
    batch_start = awaits(SyncConversation.batch_start)
    cleanup = awaits(SyncConversation.cleanup)
    close_calls = awaits(SyncConversation.close_calls)
    compress = awaits(SyncConversation.compress)
    delete = awaits(SyncConversation.delete)
    import_messages = awaits(SyncConversation.import_messages)
    insert = awaits(SyncConversation.insert)
    is_modified = awaits(SyncConversation.is_modified)
    items = returns(SyncConversation.items, Stream)
    mark_map = awaits(SyncConversation.mark_map)
    mark_of = awaits(SyncConversation.mark_of)
    message = awaits(SyncConversation.message)
    messages = returns(SyncConversation.messages, Stream)
    messages_after = awaits(SyncConversation.messages_after)
    messages_on = awaits(SyncConversation.messages_on)
    modify = awaits(SyncConversation.modify)
    newest = awaits(SyncConversation.newest)
    page_of = awaits(SyncConversation.page_of)
    pending_calls = awaits(SyncConversation.pending_calls)
    prelude = awaits(SyncConversation.prelude)
    replace = awaits(SyncConversation.replace)
    system = awaits(SyncConversation.system)
    temporary = returns(SyncConversation.temporary, Block)
    tool_result = awaits(SyncConversation.tool_result)
    user = awaits(SyncConversation.user)
    context: Attribute[str] = Attribute(_read_now)


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
    has = awaits(SyncTools.__contains__)  # `name in tools`
    mcp = awaits(SyncTools.mcp)
    names = awaits(SyncTools.names)
    only = awaits_wrapped(SyncTools.only, lambda: Tools)
    openai = awaits(SyncTools.openai)
    prefixed = awaits_wrapped(SyncTools.prefixed, lambda: Tools)
    reading = awaits_wrapped(SyncTools.reading, lambda: Tools)
    responses = awaits(SyncTools.responses)


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
    context: Attribute[str] = Attribute(_read_now)


class Context(Closable):
    """`quire.Context` with async methods. `name` and `budget` are plain attributes; other properties are awaited."""

    _shares_queue = False

    as_agent = awaits_wrapped(SyncContext.as_agent, lambda: AgentContext)
    add = awaits(SyncContext.add)
    as_of = awaits_wrapped(SyncContext.as_of, lambda: Context)
    assistant = awaits(SyncContext.assistant)
    audit = awaits(SyncContext.audit)
    check = awaits(SyncContext.check)
    checkpoint = awaits(SyncContext.checkpoint)
    close_calls = awaits(SyncContext.close_calls)
    dump = awaits(SyncContext.dump)
    find = awaits(SyncContext.find)
    fork = awaits_wrapped(SyncContext.fork, lambda: Context)
    history = returns(SyncContext.history, Stream)
    import_messages = awaits(SyncContext.import_messages)
    items = returns(SyncContext.items, Stream)
    messages = returns(SyncContext.messages, Stream)
    on_fold = awaits(SyncContext.on_fold)
    pending_calls = awaits(SyncContext.pending_calls)
    refresh = awaits(SyncContext.refresh)
    render = awaits(SyncContext.render)
    report_usage = awaits(SyncContext.report_usage)
    rollback = awaits(SyncContext.rollback)
    stats = awaits(SyncContext.stats)
    system = awaits(SyncContext.system)
    temporary = returns(SyncContext.temporary, Block)
    tool_result = awaits(SyncContext.tool_result)
    undo = awaits(SyncContext.undo)
    user = awaits(SyncContext.user)
    why = awaits(SyncContext.why)
    name: Attribute[str] = Attribute(_read_now)
    pages = Attribute(ContextSystem)
    conversation = Attribute(Conversation)
    agent = Attribute(AgentContext)
    tools = Attribute(Tools)
    windows = Attribute(Windows)
    seq: Attribute[Awaitable[int]] = Attribute(CallQueue.run)
    turn_state: "Attribute[TurnState | None]" = Attribute(_read_now)
    summarising: "Attribute[Awaitable[SummaryWorker | None]]" = Attribute(CallQueue.run)

    @property
    def budget(self) -> int:
        """The tokens that a view may take. It can be set."""
        return cast(int, self._get().budget)

    @budget.setter
    def budget(self, budget: int) -> None:
        self._get().budget = budget

    def turn(self, key: str | None = None, *, wait: float = 30.0, keep: bool = False) -> "TurnBlock[Context]":
        """Run an `async with` block as a turn. See `quire.Context.turn`."""

        async def get() -> Context:
            return self

        return TurnBlock(get, wait, {"key": key, "keep": keep}, close=False)

    async def tools_of(self, agent: AgentContext, *, beside: bool = False) -> Tools:
        """Return the tools of an agent that `as_agent` returned. See `quire.Context.tools_of`."""
        return await Tools._wrap_result(self._calls, lambda: self._get().tools_of(agent._get(), beside=beside))


class Library(Closable):
    """`quire.Library` with async methods. The first call opens the store. Each context has its own call queue."""

    delete = awaits(SyncLibrary.delete)
    erase = awaits(SyncLibrary.erase)
    exists = awaits(SyncLibrary.exists)
    expire = awaits(SyncLibrary.expire)
    export = awaits(SyncLibrary.export)
    fork = awaits(SyncLibrary.fork)
    import_ = awaits(SyncLibrary.import_)
    info = awaits(SyncLibrary.info)
    list = returns(SyncLibrary.list, Stream)
    scrub = awaits(SyncLibrary.scrub)
    usage = awaits(SyncLibrary.usage)

    def __init__(
        self,
        where: "str | os.PathLike[str] | Storage",
        *,
        durability: "Durability" = "normal",
        create: bool = True,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        @cache
        def get() -> "SyncLibrary":
            from quire import library

            return library.Library(where, durability=durability, create=create, redact=redact)

        super().__init__(CallQueue(), get)

    def open(self, name: str = "default", *, create: bool = True, **options: "Unpack[Options]") -> Opening[Context]:
        """Open a context; create it if it is new. Await the result, or use it in an `async with` block."""
        return Opening(self._calls, self._prepare("open", name, create=create, **options), Context)

    def create(self, name: str, **options: "Unpack[Options]") -> Opening[Context]:
        """Create a context and open it. Await the result, or use it in an `async with` block."""
        return Opening(self._calls, self._prepare("create", name, **options), Context)

    def turn(
        self,
        name: str = "default",
        *,
        key: str | None = None,
        wait: float = 30.0,
        keep: bool = False,
        **options: "Unpack[PlainOptions]",
    ) -> TurnBlock[Context]:
        """Open a context, run an `async with` block as a turn of it, and close the context. See `Context.turn`."""

        async def get() -> Context:
            return await self.open(name, **options)

        return TurnBlock(get, wait, {"key": key, "keep": keep}, close=True)

    async def migrate(
        self,
        target: "str | os.PathLike[str] | Storage | Library",
        *,
        replace: bool = False,
        progress: "ProgressCallback | None" = None,
    ) -> "Progress":
        """Copy every context to another store. See `quire.Library.migrate`."""

        def copy() -> Any:
            to = target._get() if isinstance(target, Library) else target
            return self._get().migrate(to, replace=replace, progress=progress)

        return cast("Progress", await self._calls.run(copy))


def open(  # noqa: A001 - the same name as quire.open
    where: "str | os.PathLike[str] | Storage",
    context: str = "default",
    *,
    durability: "Durability" = "normal",
    create: bool = True,
    **options: "Unpack[Options]",
) -> Opening[Context]:
    """Open a context as `quire.open` does. Await the result, or use it in an `async with` block, which closes it."""

    def open_context() -> Any:
        from quire.context import open as open_sync

        return open_sync(where, context, durability=durability, create=create, **options)

    return Opening(CallQueue(), open_context, Context)
