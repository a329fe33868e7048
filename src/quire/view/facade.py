"""The interface of a context to its views: it checks options, holds the budget, and explains views."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from quire.core.engine import Engine
from quire.core.records import NoteRecord, SentView
from quire.core.state import State
from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import PageIndex
from quire.model.text import check_text
from quire.view.cost import Outlook, Usage, UsageReports, to_usage
from quire.view.explain import Stats, Why, dump_items, explain_page, read_stats
from quire.view.options import CompressionConfig, RenderOptions, check_budget, check_config, check_options
from quire.view.parts import FoldResult
from quire.view.renderer import DEFAULT_OPTIONS, Renderer
from quire.view.tail import TailPiece
from quire.view.view import View

if TYPE_CHECKING:
    from quire.view.fold.summary_worker import SummaryWorker

Pieces = Callable[[RenderOptions], Sequence[TailPiece]]
"""Returns the pieces of a view's tail. It is called without the lock, because it may run code of an app."""


class ViewFacade:
    """The views of one context at its budget, and explanations of them.

    `pieces` returns the tail of a view. `preamble` replaces the text that explains how to read a view.
    """

    def __init__(
        self,
        engine: Engine,
        actor: str,
        config: CompressionConfig | None = None,
        pieces: Pieces = lambda options: (),
        preamble: str | None = None,
    ) -> None:
        self.actor = actor
        self.config = check_config(CompressionConfig() if config is None else config)
        self.preamble = None if preamble is None else check_text(preamble)
        self._engine = engine
        self._listeners: list[Callable[[FoldResult], None]] = []
        self._pieces = pieces
        self._reports = UsageReports()
        self._renderer = Renderer(engine, self.config, self._notify, self.preamble)

    @property
    def budget(self) -> int:
        """The most tokens of a view of this context. A new value is committed with the next write."""
        return self._engine.budget

    @budget.setter
    def budget(self, budget: int) -> None:
        self._engine.budget = check_budget(budget)

    def answer(
        self, state: State, number: int, message: Message, view: object | None
    ) -> tuple[SentView | None, NoteRecord | None]:
        """Return the values to store with a reply: the record of the view that it answers, and a note of the tools.

        The record has the tail of the view and what the thinking of the reply is bound to. The note has the tools that
        were sent with the view; it is None if they are not new. Without a `view`, the reply answers the last view of
        this handle, if no message came since. Nothing is stored for a preview.
        """
        _check_view(view)
        given = view if isinstance(view, View) else None
        answered = given or self._renderer.sent
        request = None if answered is None else answered.request
        if answered is None or request is None or (given is None and request.messages != number):
            return None, None
        if request.identity != state.head.identity:
            if given is None:
                return None, None
            raise InvalidValue("belongs to another context.", argument="view")
        from quire.view.sent import record_sent  # late: only replies need it

        return record_sent(state, answered, request, message)

    def render(self, options: RenderOptions | None, changes: Mapping[str, Any]) -> View:
        """Return a view with these options. Raises `InvalidValue` or `IrreducibleFloor`."""
        if options is None and not changes:  # the usual case needs no checks
            return self._renderer.render(DEFAULT_OPTIONS, self._pieces(DEFAULT_OPTIONS))
        if options is not None and not isinstance(options, RenderOptions):
            raise InvalidValue(f"is {short_repr(options)}; RenderOptions are needed.", argument="options")
        fields = {} if options is None else asdict(options)
        checked = check_options(RenderOptions(**{**fields, **changes}))
        return self._renderer.render(checked, self._pieces(checked))

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Explain how a page is shown in a view, or in the last one at the context's own budget."""
        _check_view(view)
        with self._engine.lock:
            parts = self._renderer.last_parts() if view is None else view.parts
            budget = self.budget if view is None else view.budget
            return explain_page(self._engine.current(), parts, index, budget)

    def outlook(self) -> Outlook:
        """Return how full a view at the context's budget is, and what a fold would take next. This plans a fold."""
        return self._renderer.outlook()

    def room(self) -> int:
        """Return the budget without the tokens that the last view kept in reserve. This draws no view."""
        return max(0, self.budget - self._renderer.reserved)

    def stats(self) -> Stats:
        """Return the numbers of items and tokens, and the usage of every model."""
        with self._engine.lock:
            stats, billings = self._engine.read(read_stats), self._engine.read(self._reports.by_model)
            return replace(stats, usage={name: to_usage(billing) for name, billing in billings.items()})

    def report_usage(self, usage: object, model: str | None, tools: int, view: View | None) -> Usage:
        """Learn from a provider's report how much a model bills for counted tokens."""
        _check_view(view)
        with self._engine.lock:
            counted = self._renderer.sent_tokens if view is None else view.tokens
            return self._reports.learn(self._engine, self.actor, usage, model, tools, counted)

    def dump(self) -> str:
        """Return one line for every item."""
        return self._engine.read(dump_items)

    @property
    def summaries(self) -> "SummaryWorker | None":
        """The worker that runs the summariser, if there is one."""
        return self._renderer.summaries

    def on_fold(self, listener: Callable[[FoldResult], None]) -> Callable[[], None]:
        """Call `listener` after every fold; return a function that removes it again."""
        if not callable(listener):
            raise InvalidValue(f"is {short_repr(listener)}; a function is needed.", argument="listener")
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _notify(self, result: FoldResult) -> None:
        for listener in list(self._listeners):
            try:
                listener(result)
            except Exception:  # the fold is committed, and the view must not fail because of a listener
                import logging

                logging.getLogger("quire").exception("A listener of on_fold failed")


def _check_view(view: object) -> None:
    if view is not None and not isinstance(view, View):
        raise InvalidValue(f"is {short_repr(view)}; a View is needed.", argument="view")
