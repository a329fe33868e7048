"""The turn that an adapter holds while it asks a model: one worker at a time, and what was added is kept."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

from quire import aio
from quire.aio.calls import CallQueue
from quire.context import Context
from quire.conversation.turn import Turn, current_scope, scope
from quire.errors import InvalidValue, short_repr
from quire.storage.overlay import OverlayStorage

AnyContext = Context | aio.Context
"""A context that the functions of an adapter take."""


def context_of(given: object) -> Context:
    """Return the synchronous context. Raise `InvalidValue` if it is not a context."""
    if isinstance(given, aio.Context):
        found = given._get()
        assert isinstance(found, Context)
        return found
    if not isinstance(given, Context):
        raise InvalidValue(f"is {short_repr(given)}; a quire.Context or a quire.aio.Context is needed.", argument="ctx")
    return given


class TurnScope:
    """A turn of a context with `keep=True`, for `with` and `async with`. It joins a turn that is open.

    The steps of the turn run in `inside()`, whatever thread or task they run in. With `in_thread`, the turn belongs to
    the current thread, as that of a plain `with` block does. A temporary block has no turn.
    """

    def __init__(self, ctx: Context, queue: CallQueue, wait: float = 30.0, *, in_thread: bool = False) -> None:
        turn = ctx.pages._engine.turn
        self._joins = isinstance(turn, Turn) and turn.is_current
        self._scope = current_scope() if self._joins or in_thread else scope.get(None) or object()
        self._ctx = ctx
        self._queue = queue
        self._wait = wait
        self._manager: AbstractContextManager[Any] | None = None
        self._block: aio.TurnBlock[Any] | None = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run a block as a part of the turn."""
        token = scope.set(self._scope)
        try:
            yield
        finally:
            scope.reset(token)

    def __enter__(self) -> None:
        if self._needs_turn():
            with self.inside():
                manager = self._ctx.turn(keep=True, wait=self._wait)
                manager.__enter__()
                self._manager = manager

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is not None:
            with self.inside():
                self._manager.__exit__(kind, error, trace)

    async def __aenter__(self) -> None:
        if self._needs_turn():
            with self.inside():
                block = aio.Context(self._queue, lambda: self._ctx).turn(keep=True, wait=self._wait)
                await block.__aenter__()
                self._block = block

    async def __aexit__(self, *error: Any) -> None:
        if self._block is not None:
            with self.inside():
                await self._block.__aexit__(*error)

    def _needs_turn(self) -> bool:
        return not self._joins and not isinstance(self._ctx.pages._engine.state.storage, OverlayStorage)
