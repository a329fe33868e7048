"""Open contexts for adapters: one by name, or a pool of the contexts of one store; and the turn of an adapter."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from threading import RLock
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from quire import aio
from quire.adapters.sync_list import ListSync
from quire.aio.calls import CallQueue
from quire.context import Context, Options, check_open_options
from quire.context import open as open_context
from quire.conversation.turn import Turn, current_scope, scope
from quire.errors import Conflict, InvalidValue, NotInstalled, short_repr
from quire.library import Library
from quire.model.messages import Message
from quire.providers.tool_schemas import count_tools
from quire.storage.contract import Storage
from quire.storage.overlay import OverlayStorage
from quire.view.options import RenderOptions
from quire.view.view import View

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

    Every step of the turn runs in `inside()`, in any thread or task. With `in_thread`, the turn belongs to
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
        self._block: AbstractAsyncContextManager[Any] | None = None

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

    def __exit__(self, *error: Any) -> None:
        if self._manager is not None:
            with self.inside():
                self._manager.__exit__(*error)

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


Where: TypeAlias = "AnyContext | Storage | str | os.PathLike[str]"
"""An open context, or the place of one: a path, a URL or a storage."""


def to_context(where: Where, name: str = "default", **options: Unpack[Options]) -> Context:
    """Return the given context, or open the one of this name. If the context was opened here, the caller closes it.

    Raise `UnknownOption`, and `InvalidValue` for options with an open context, which would have no
    effect.
    """
    check_open_options(options)
    if not isinstance(where, AnyContext):
        return open_context(where, name, **options)
    if options:
        raise InvalidValue(f"{short_repr(where)} is open. Set {', '.join(sorted(options))} where it is opened.")
    return context_of(where)


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Import a framework in a block. Raise `NotInstalled` with the install line if it is missing."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, NotInstalled):
            raise
        fact = f"quire.adapters needs {error.name or extra} here ({error})"
        raise NotInstalled(fact, extra, name=error.name) from error


_OPEN = 128

Item = TypeVar("Item")


class SyncedContext(Generic[Item]):
    """A context that is synchronised with a list. Hold `lock` for several steps; `queue` runs them for async code."""

    def __init__(self, ctx: Context, sync: ListSync[Item]) -> None:
        self.ctx = ctx
        self.sync = sync
        self.lock = RLock()
        self.queue = CallQueue()

    def render(self, prompt: str, items: Sequence[Item], options: RenderOptions | None, *, whole: bool) -> View:
        """Set the prompt, synchronise the list and return the view. `whole`: the list has the whole conversation."""
        with self.lock:
            self.ctx.refresh()
            if prompt.strip():
                self.ctx.pages._engine.retry(lambda: self.ctx.system(prompt))
            self.sync.update(items, whole=whole)
            return self.ctx.render(options)

    def turn(self, *, in_thread: bool = False) -> TurnScope:
        """Return a turn for a request to the model, which keeps what was added."""
        return TurnScope(self.ctx, self.queue, in_thread=in_thread)

    def report_usage(self, view: View, model: str | None, tokens: int, cached: int, tools: int) -> None:
        """Report the input tokens of an answer to a view. A wrong report does not fail the turn."""
        report = {"input_tokens": tokens, "input_tokens_details": {"cached_tokens": cached}}
        with suppress(InvalidValue, Conflict):
            self.ctx.report_usage(report, model, tools=tools, view=view)


class ContextPool(Generic[Item]):
    """LRU pool of open contexts by name, each with the synchronisation of its list."""

    def __init__(
        self,
        where: Where,
        parse: Callable[[Item], Sequence[Message]],
        fingerprint: Callable[[Item, Sequence[Message]], bytes],
        **options: Unpack[Options],
    ) -> None:
        check_open_options(options)  # a misspelt option is an error here, not in the first turn
        self.context = to_context(where, **options) if isinstance(where, AnyContext) else None
        self._where = where
        self._options = options
        self._parse = parse
        self._fingerprint = fingerprint
        self._library: Library | None = None
        self._open: OrderedDict[str, SyncedContext[Item]] = OrderedDict()
        self._counted: tuple[list[Any], int] = ([], 0)
        self._lock = RLock()
        self._queue = CallQueue()

    async def get_async(self, name: str) -> SyncedContext[Item]:
        """Run `get` without blocking the event loop."""
        return await self._queue.run(self.get, name)

    def get(self, name: str) -> SyncedContext[Item]:
        """Return the context of this name, opened if needed. If a context was given, return that one for every name."""
        with self._lock:
            key = name if self.context is None else ""
            if key not in self._open:
                ctx = self._open_context(name)
                self._open[key] = SyncedContext(ctx, ListSync(ctx, self._parse, self._fingerprint))
            self._open.move_to_end(key)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)
            return self._open[key]

    def count_tools(self, tools: Sequence[Any], to_schema: Callable[[Any], dict[str, Any]]) -> int:
        """Return the tokens of the schemas of a request's tools. They are counted once for each list of tools."""
        counted = self._counted
        if counted[0] != tools:
            counted = self._counted = (list(tools), count_tools([to_schema(tool) for tool in tools]))
        return counted[1]

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        with self._lock:
            self._open.clear()
            if self._library is not None:
                self._library.close()
                self._library = None

    def _open_context(self, name: str) -> Context:
        if self.context is not None:
            return self.context
        if self._library is None:
            assert not isinstance(self._where, AnyContext)
            self._library = Library(self._where)
        return self._library.open(name, **self._options)
