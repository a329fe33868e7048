"""The awaited faces, each filled from the plain one, and the ways in: `open` and `Library`."""

import os
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from quire import context as one
from quire import library as many
from quire.agent import AgentContext as PlainAgentContext
from quire.agent.tools import Tools as PlainTools
from quire.aio.faces import Faced, awaited, faced, finished
from quire.aio.lanes import Lane
from quire.conversation import Conversation as PlainConversation
from quire.storage.base import Storage
from quire.system import ContextSystem as PlainContextSystem
from quire.windows.facade import Windows as PlainWindows

T = TypeVar("T", bound="Closed")


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
            found.append(self._call())
            return found[0]

        def close() -> None:  # whoever asked for it was cancelled
            if found:
                found[0].close()

        opened: T = faced(self._lane, await finished(self._lane, make, undo=close))
        return opened


@awaited(PlainContextSystem)
class ContextSystem(Faced):
    """`quire.ContextSystem`, awaited."""


@awaited(PlainConversation)
class Conversation(Faced):
    """`quire.Conversation`, awaited."""


@awaited(PlainAgentContext)
class AgentContext(Faced):
    """`quire.AgentContext`, awaited."""


@awaited(PlainTools)
class Tools(Faced):
    """`quire.Tools`, awaited."""

    async def has(self, name: str) -> bool:
        """Whether there is a tool of this name; `name in tools`, awaited."""
        return await self._lane.run(lambda: name in self._inner())


@awaited(PlainWindows)
class Windows(Faced):
    """`quire.Windows`, awaited. Apps run in threads of their own, as ever."""


@awaited(
    one.Context,
    alone=True,
    beside={
        "pages": PlainContextSystem,
        "conversation": PlainConversation,
        "agent": PlainAgentContext,
        "tools": PlainTools,
        "windows": PlainWindows,
    },
)
class Context(Closed):
    """`quire.Context`, awaited. `name` and `budget` are at hand; other properties are awaited."""

    @property
    def budget(self) -> int:
        """The tokens that a view may take; it can be set."""
        found: int = self._inner().budget
        return found

    @budget.setter
    def budget(self, budget: int) -> None:
        self._inner().budget = budget


@awaited(many.Library)
class Library(Closed):
    """`quire.Library`, awaited. It opens its store when it is first used; its contexts have lanes of their own."""

    def __init__(self, where: str | os.PathLike[str] | Storage, **options: Any) -> None:
        opened: list[many.Library] = []

        def inner() -> many.Library:
            if not opened:
                opened.append(many.Library(where, **options))
            return opened[0]

        super().__init__(Lane(), inner)

    def open(self, name: str = "default", **options: Any) -> "Opening[Context]":
        """Open a context, creating it if it is new: await it, or use it in an `async with` block."""
        return Opening(self._lane, lambda: self._inner().open(name, **options))

    def create(self, name: str, **options: Any) -> "Opening[Context]":
        """Make a new context and open it: await it, or use it in an `async with` block."""
        return Opening(self._lane, lambda: self._inner().create(name, **options))


def open(  # noqa: A001 - as quire.open
    where: str | os.PathLike[str] | Storage, context: str = "default", **options: Any
) -> "Opening[Context]":
    """Open a context as `quire.open` does: await it, or use it in an `async with` block, which closes it."""
    return Opening(Lane(), lambda: one.open(where, context, **options))
