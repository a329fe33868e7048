"""The ways in: `open` and `Library`. They import little: what is behind them is imported by the thread that opens.

Importing all of quire takes a good part of a second, and a program may first use it while its loop is running.
"""

import os
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from quire.aio.faces import Faced, faced, finished
from quire.aio.lanes import Lane

if TYPE_CHECKING:
    from quire import library as many
    from quire.storage.base import Storage

T = TypeVar("T", bound="Closed")
_loaders: list[Callable[[], object]] = []


def loads(loader: Callable[[], object]) -> None:
    """Say what imports the faces."""
    _loaders.append(loader)


def load() -> None:
    """Import the faces, if that was not done before: in a lane, so that the loop does not wait."""
    for loader in _loaders:
        loader()


class Closed(Faced):
    """A face that can be closed, by hand or at the end of an `async with` block."""

    async def close(self) -> None:
        """Release what it opened, after everything that is in line."""
        await finished(self._lane, lambda: self._inner().close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Opening(Generic[T]):
    """Something that is being opened: await it, or use it in an `async with` block, which closes it."""

    def __init__(self, lane: Lane, call: Callable[[], Any]) -> None:
        self._lane = lane
        self._call = call
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> T:
        found: list[Any] = []

        def make() -> Any:
            load()
            found.append(self._call())
            return found[0]

        def close() -> None:  # whoever asked for it was cancelled
            if found:
                found[0].close()

        opened: T = faced(self._lane, await finished(self._lane, make, undo=close))
        return opened


class Library(Closed):
    """`quire.Library`, awaited. It opens its store when it is first used; its contexts have lanes of their own."""

    def __init__(self, where: "str | os.PathLike[str] | Storage", **options: Any) -> None:
        opened: list[many.Library] = []

        def inner() -> "many.Library":
            if not opened:
                load()
                from quire.library import Library as Plain

                opened.append(Plain(where, **options))
            return opened[0]

        super().__init__(Lane(), inner)

    async def __aenter__(self) -> Self:
        await self._lane.run(load)
        return self

    def __getattr__(self, name: str) -> Any:
        """A member that is not there yet, for want of an `async with` that would have had it imported elsewhere."""
        if name.startswith("_") or hasattr(type(self), "of"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        load()
        return getattr(self, name)

    def open(self, name: str = "default", **options: Any) -> "Opening[Any]":
        """Open a context, creating it if it is new: await it, or use it in an `async with` block."""
        return Opening(self._lane, lambda: self._inner().open(name, **options))

    def create(self, name: str, **options: Any) -> "Opening[Any]":
        """Make a new context and open it: await it, or use it in an `async with` block."""
        return Opening(self._lane, lambda: self._inner().create(name, **options))


def open(  # noqa: A001 - as quire.open
    where: "str | os.PathLike[str] | Storage", context: str = "default", **options: Any
) -> "Opening[Any]":
    """Open a context as `quire.open` does: await it, or use it in an `async with` block, which closes it."""

    def call() -> Any:
        from quire.context import open as plain

        return plain(where, context, **options)

    return Opening(Lane(), call)
