"""The machinery of `quire.aio`: a queue of calls, and members that make the calls of a synchronous object in it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from functools import cache, partial
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from quire.errors import Busy

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
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
        items = (item for start in (self._start,) for item in start())  # the thread that reads calls `start`
        while chunk := await self._calls.run(lambda: list(islice(items, _CHUNK))):
            for item in chunk:
                yield item

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._calls.run(lambda: list(self._start())).__await__()


class Opening(Generic[C]):
    """An object that is being opened: await it, or use it in an `async with` block, which closes it."""

    def __init__(self, kind: type[C], calls: CallQueue, open: Callable[[], Any]) -> None:
        self._kind = kind
        self._calls = calls
        self._open = open

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


@asynccontextmanager
async def block(calls: CallQueue, make: Callable[[], AbstractContextManager[object]]) -> AsyncIterator[None]:
    """Run an `async with` block in a context manager of the synchronous class."""

    def enter() -> AbstractContextManager[object]:
        manager = make()
        manager.__enter__()
        return manager

    cancelled = asyncio.CancelledError()  # an error, so that a turn does not count as finished
    manager = await calls.finish(enter, undo=lambda manager: manager.__exit__(type(cancelled), cancelled, None))
    try:
        yield
    except BaseException as error:
        if not await calls.finish(partial(manager.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await calls.finish(partial(manager.__exit__, None, None, None))


@asynccontextmanager
async def turn(context: "Wrapper", wait: float, options: dict[str, Any]) -> AsyncIterator[None]:
    """Run an `async with` block as a turn of a context. It waits for other workers without a thread of the pool."""

    def import_turn() -> Any:
        from quire.conversation import turn

        return turn

    turns = await context._calls.run(import_turn)
    token = None if turns.scope.get(None) else turns.scope.set(object())
    try:
        now = asyncio.get_running_loop().time
        deadline, pause = now() + turns.check_wait(wait), 0.005
        async with AsyncExitStack() as stack:
            while True:
                try:
                    await stack.enter_async_context(block(context._calls, context._prepare("turn", wait=0, **options)))
                    break
                except Busy:
                    if now() >= deadline:
                        raise
                await asyncio.sleep(min(max(0, deadline - now()), pause))
                pause = min(0.1, pause * 1.5)
            yield
    finally:
        if token is not None:
            turns.scope.reset(token)


# The classes and their members. Type checkers derive the signature of a member from the synchronous `method`, of which
# only the name is needed at run time.


class Wrapper:
    """Base of all async classes of `quire.aio`: makes the calls of a synchronous object in a `CallQueue`."""

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
        """Close the synchronous object after all calls that are already in the queue."""
        await self._calls.finish(self._prepare("close"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def awaits(
    method: Callable[Concatenate[Any, P], T], *, in_queue: bool = True
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return an `async def` that makes the call, after and before other calls or beside them; it returns the result."""

    async def member(self: Wrapper, /, *args: P.args, **options: P.kwargs) -> Any:
        calls = self._calls if in_queue else CallQueue()
        return await calls.run(self._prepare(member.__name__, *args, **options))

    return _named(method, member)


def awaits_wrapped(
    method: Callable[Concatenate[Any, P], object], kind: Callable[[], type[W]]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, W]]:
    """Return an `async def` that makes the call and wraps its result in the class that `kind` returns."""

    async def member(self: Wrapper, /, *args: P.args, **options: P.kwargs) -> W:
        return await kind()._wrap_result(self._calls, self._prepare(member.__name__, *args, **options))

    return _named(method, member)


def returns(
    method: Callable[Concatenate[Any, P], R], kind: Callable[[CallQueue, Callable[[], R]], T]
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that prepares the call and returns an object which makes it later, such as a `Stream`."""

    def member(self: Wrapper, /, *args: P.args, **options: P.kwargs) -> T:
        return kind(self._calls, self._prepare(member.__name__, *args, **options))

    return _named(method, member)


def _named(method: object, member: F) -> F:
    member.__name__ = cast(str, method)
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

    def __set__(self, wrapper: Wrapper, value: T) -> None:
        if self._kind is not read_now:
            raise AttributeError(f"{self._name!r} of {wrapper!r} cannot be set.")
        setattr(wrapper._get(), self._name, value)


def read_now(_calls: CallQueue, read: Callable[[], Any]) -> Any:
    """Read an attribute that never waits for the storage."""
    return read()
