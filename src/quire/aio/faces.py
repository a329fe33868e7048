"""Faces whose calls are awaited: made from the faces there are, member by member, with nothing implemented twice.

A method becomes a coroutine that makes the call in its context's lane. One that gives an iterator becomes a `Stream`,
one that gives a block an `async with` block, and a property is awaited. What is itself such a face comes back as one.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, wraps
from itertools import islice
from types import TracebackType
from typing import Any, Generic, TypeVar

from quire.aio.lanes import Lane

T = TypeVar("T")
F = TypeVar("F", bound="Faced")
_CHUNK = 256
AT_HAND = frozenset({"name", "context"})
"""Properties that are read without a look at the storage, and without waiting."""


class Stream(Generic[T]):
    """Items that are read as they are needed: `async for item in stream`, or `await stream` for a list of them all."""

    def __init__(self, lane: Lane, start: Callable[[], Iterable[T]]) -> None:
        self._lane = lane
        self._start = start

    async def __aiter__(self) -> AsyncIterator[T]:
        items: Iterator[T] | None = None

        def take() -> list[T]:
            nonlocal items
            if items is None:
                items = iter(self._start())
            return list(islice(items, _CHUNK))

        while chunk := await self._lane.run(take):
            for item in chunk:
                yield item
            if len(chunk) < _CHUNK:
                return

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._lane.run(lambda: list(self._start())).__await__()


class Block:
    """A block of calls that belong together: `async with`."""

    def __init__(self, lane: Lane, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._lane = lane
        self._make = make
        self._inner: AbstractContextManager[Any] | None = None

    async def __aenter__(self) -> None:
        def enter() -> None:
            inner = self._make()
            inner.__enter__()
            self._inner = inner

        await finished(self._lane, enter, undo=self._leave)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await finished(self._lane, lambda: self._leave(kind, error, trace))

    def _leave(self, *error: Any) -> bool | None:
        inner, self._inner = self._inner, None
        return None if inner is None else inner.__exit__(*(error or (None, None, None)))


async def finished(lane: Lane, call: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
    """Make a call that is made even if whoever awaits it is cancelled; what is to `undo` it then is called after it."""
    work = lane.submit(call)
    try:
        return await asyncio.shield(asyncio.wrap_future(work))
    except asyncio.CancelledError:
        if undo is not None:
            lane.submit(undo)
        raise


class Faced:
    """An object whose calls are made in a lane; `inner` gives the object, in that lane."""

    of: type
    """What is behind it."""
    alone = False
    """Whether each has a lane of its own."""

    def __init__(self, lane: Lane, inner: Callable[[], Any]) -> None:
        self._lane = lane
        self._inner = inner

    def __repr__(self) -> str:
        return f"<awaited {type(self).__name__}>"


FACES: dict[type, type[Faced]] = {}
"""The awaited face of each kind of object that has one."""


def bare(value: Any) -> Any:
    """What stands behind an awaited face; anything else as it is."""
    return value._inner() if isinstance(value, Faced) else value


def faced(lane: Lane, found: Any) -> Any:
    """What a call gave: as an awaited face if there is one for it, else as it is."""
    kind = FACES.get(type(found))
    return found if kind is None else kind(Lane() if kind.alone else lane, lambda: found)


def awaited(of: type, *, alone: bool = False, beside: Mapping[str, type] | None = None) -> Callable[[type[F]], type[F]]:
    """Give a class a member for every public one of another, unless it has one itself.

    `beside` are the properties that give faces themselves: those need not be awaited.
    """

    def fill(cls: type[F]) -> type[F]:
        cls.of, cls.alone = of, alone
        FACES[of] = cls
        for name, kind in (beside or {}).items():
            setattr(cls, name, property(_face_beside(name, kind)))
        for name in dir(of):
            if not name.startswith("_") and not hasattr(cls, name):
                member = _member(name, inspect.getattr_static(of, name))
                if member is not None:
                    setattr(cls, name, member)
        return cls

    return fill


def _member(name: str, theirs: Any) -> Any:
    if isinstance(theirs, classmethod | staticmethod):
        return None
    if isinstance(theirs, property | cached_property):
        return property(_at_hand(name) if name in AT_HAND else _looked_up(name), doc=theirs.__doc__)
    if not inspect.isfunction(theirs):
        return None
    make = {"block": _block, "stream": _stream, "call": _call}[kind_of(theirs)]
    return wraps(theirs)(make(name))


def kind_of(method: Callable[..., Any]) -> str:
    """What a method gives: a block, a stream, or (`call`) a value."""
    given = str(inspect.signature(method).return_annotation)
    if inspect.isgeneratorfunction(inspect.unwrap(method)) and hasattr(method, "__wrapped__"):
        return "block"
    if "AbstractContextManager" in given:
        return "block"
    stream = "Iterator[" in given.split("|")[0] or given.strip("'\"").endswith(("Messages", "Messages'>"))
    return "stream" if stream else "call"


def _made(self: Faced, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        given = {key: bare(value) for key, value in options.items()}
        return getattr(self._inner(), name)(*map(bare, args), **given)

    return make


def _call(name: str) -> Callable[..., Any]:
    async def call(self: Faced, /, *args: Any, **options: Any) -> Any:
        return faced(self._lane, await self._lane.run(_made(self, name, args, options)))

    return call


def _stream(name: str) -> Callable[..., Any]:
    def stream(self: Faced, /, *args: Any, **options: Any) -> Stream[Any]:
        return Stream(self._lane, _made(self, name, args, options))

    return stream


def _block(name: str) -> Callable[..., Any]:
    def block(self: Faced, /, *args: Any, **options: Any) -> Block:
        return Block(self._lane, _made(self, name, args, options))

    return block


def _looked_up(name: str) -> Callable[[Faced], Any]:
    async def look(self: Faced) -> Any:
        return faced(self._lane, await self._lane.run(lambda: getattr(self._inner(), name)))

    return look


def _at_hand(name: str) -> Callable[[Faced], Any]:
    return lambda self: getattr(self._inner(), name)


def _face_beside(name: str, kind: type) -> Callable[[Faced], Faced]:
    return lambda self: FACES[kind](self._lane, lambda: getattr(self._inner(), name))
