"""ViewHandle: draws and explains views, and holds the budget, for `quire.Context` and `quire.AgentContext`."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import asdict, replace

from quire.conversation.message_handle import Answered
from quire.core.engine import Engine
from quire.core.state import State
from quire.errors import InvalidValue, names_options, short_repr
from quire.model.messages import Message
from quire.model.pages import PageIndex
from quire.model.text import check_text
from quire.system.handle import Handle
from quire.view.cost import Usage, UsageReports, to_usage
from quire.view.explain import Stats, Why, dump_items, explain_page, read_stats
from quire.view.options import CompressionConfig, RenderFields, RenderOptions, check_budget, check_config, check_options
from quire.view.parts import FoldResult
from quire.view.renderer import DEFAULT_OPTIONS, Renderer
from quire.view.tail import TailPiece
from quire.view.view import View

if TYPE_CHECKING:
    from quire.view.fold.summary_worker import SummaryWorker


@names_options
class ViewHandle(Handle):
    """The views of a context, with explanations. `preamble` replaces the text that explains how to read a view."""

    def __init__(
        self, engine: Engine, actor: str, config: CompressionConfig | None = None, preamble: str | None = None
    ) -> None:
        super().__init__(engine, actor)
        self._config = check_config(CompressionConfig() if config is None else config)
        self._preamble = None if preamble is None else check_text(preamble)
        self._listeners: list[Callable[[FoldResult], None]] = []
        self._reports = UsageReports()
        self._renderer = Renderer(engine, self._config, self._notify, self._preamble)

    @property
    def budget(self) -> int:
        """The most tokens of a view, for all handles of this context. A new value is stored with the next write."""
        return self._engine.budget

    @budget.setter
    def budget(self, budget: int) -> None:
        self._engine.budget = check_budget(budget)

    def render(self, /, options: RenderOptions | None = None, **changes: Unpack[RenderFields]) -> View:
        """Return the view for the model: within the budget, legal for its provider, the same bytes for the same state.

        Give `RenderOptions`, or its fields by name. At the budget of the context, this may commit one fold first. With
        `preview` or another `max_tokens` it writes nothing. Raise `InvalidValue`, or `IrreducibleFloor` if the pages
        that must be shown do not fit.
        """
        if options is not None and not isinstance(options, RenderOptions):
            raise InvalidValue(f"is {short_repr(options)}; RenderOptions are needed.", argument="options")
        chosen = DEFAULT_OPTIONS
        if options is not None or changes:
            fields: dict[str, Any] = {} if options is None else asdict(options)
            chosen = check_options(RenderOptions(**{**fields, **changes}))
        return self._renderer.render(chosen, self._pieces(chosen))

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Explain how a page is shown, or why it is not, and name the call that would show it.

        The answer is about `view`. Without one, it is about the last view at the budget of the context, drawn again if
        the context has changed since.
        """
        _check_view(view)
        with self._engine.lock:
            parts = self._renderer.last_parts() if view is None else view.parts
            budget = self.budget if view is None else view.budget
            return explain_page(self._engine.current(), parts, index, budget)

    def stats(self) -> Stats:
        """Return the number of items, their tokens, the same for each segment, and the usage of every model."""
        with self._engine.lock:
            stats, billings = self._engine.read(read_stats), self._engine.read(self._reports.by_model)
            return replace(stats, usage={name: to_usage(billing) for name, billing in billings.items()})

    def report_usage(
        self, usage: object, model: str | None = None, *, tools: int = 0, view: View | None = None
    ) -> Usage:
        """Learn from the usage of a response, or the whole response, how many tokens its model bills per counted token.

        The billed tokens are compared with the tokens of `view` (default: the last view at the budget of the context)
        plus the tokens of the `tools` that were sent with it (`count_tools`). `reserve` is not part of this. The
        context keeps one factor for each model; `stats()` returns it and `render(model=…)` applies it. Raise
        `InvalidValue` if `usage` is not a usage report.
        """
        _check_view(view)
        with self._engine.lock:
            counted = self._renderer.sent_tokens if view is None else view.tokens
            return self._reports.learn(self._engine, self.actor, usage, model, tools, counted)

    def dump(self) -> str:
        """Return one line for every item: whether it is active, its seq, its type and the start of its text."""
        return self._engine.read(dump_items)

    def on_fold(self, listener: Callable[[FoldResult], None]) -> Callable[[], None]:
        """Call a function after every fold. Return a function that removes this listener."""
        if not callable(listener):
            raise InvalidValue(f"is {short_repr(listener)}; a function is needed.", argument="listener")
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    @property
    def summarising(self) -> "SummaryWorker | None":
        """The state of the summariser of `CompressionConfig`: its errors, and `wait`. None without a summariser."""
        return self._renderer.summaries

    def _pieces(self, options: RenderOptions) -> Sequence[TailPiece]:
        """Return the pieces of a view's tail. It is called without the lock, because it may run code of an app."""
        return ()

    def _record_answer(self, state: State, number: int, message: Message, view: object | None) -> Answered:
        """Return the values to store with a reply: the record of the view that it answers, and a note of the tools.

        The note is None if the tools are not new. Without a `view`, the reply answers the last view of this handle, if
        no message came since. Nothing is stored for a preview.
        """
        _check_view(view)
        answered = view if isinstance(view, View) else self._renderer.sent
        request = None if answered is None else answered.request
        if answered is None or request is None:
            return None, None
        if view is None and (request.messages, request.identity) != (number, state.head.identity):
            return None, None
        if request.identity != state.head.identity:
            raise InvalidValue("belongs to another context.", argument="view")
        from quire.view.sent import record_sent  # late: only replies need it

        return record_sent(state, answered, request, message)

    def _notify(self, result: FoldResult) -> None:
        for listener in list(self._listeners):
            try:
                listener(result)
            except Exception:  # the fold is committed, and the view must not fail because of a listener
                logging.getLogger("quire").exception("A listener of on_fold failed")


def _check_view(view: object) -> None:
    if view is not None and not isinstance(view, View):
        raise InvalidValue(f"is {short_repr(view)}; a View is needed.", argument="view")
