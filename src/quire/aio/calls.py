"""The machinery of `quire.aio`: a queue of calls, and members that make the calls of a synchronous object in it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

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

        def leave(manager: AbstractContextManager[Any]) -> None:
            cancelled = asyncio.CancelledError()
            manager.__exit__(type(cancelled), cancelled, None)  # an error, so that a turn does not count as finished

        self._manager = await self._calls.finish(enter, undo=leave)

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
        from quire.conversation.turn import check_wait
        from quire.errors import Busy

        deadline, pause = asyncio.get_running_loop().time() + check_wait(self._wait), 0.005
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


def read_now(_calls: CallQueue, read: Callable[[], Any]) -> Any:
    """Read an attribute that never waits for the storage."""
    return read()
