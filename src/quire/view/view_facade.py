"""Drawing: the face of a context that shows it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from quire.core.engine import Engine
from quire.errors import Conflict, InvalidOperation, InvalidValue, short_repr
from quire.model.pages import PageIndex
from quire.model.text import check_text
from quire.providers.usage import read_usage
from quire.system.rules import check_whole_number
from quire.view.billing_factor import Reports, Usage, check_report, is_worth_storing, to_usage
from quire.view.explain import Stats, Why, dump, stats, why
from quire.view.options import DEFAULT_BUDGET, CompressionConfig, RenderOptions, check_config, check_options
from quire.view.parts import Folded
from quire.view.renderer import Outlook, Renderer
from quire.view.tail import Volatile
from quire.view.view import View

if TYPE_CHECKING:
    from quire.view.summariser import Summarising

_USUAL = RenderOptions()
Pieces = Callable[[RenderOptions], Sequence[Volatile]]
"""What stands in the tail of a view with these options. It is asked without the lock, for it may run anybody's code."""


class Drawing:
    """The views of one context, and explanations of them.

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
        self.budget = DEFAULT_BUDGET
        self.preamble = None if preamble is None else check_text(preamble)
        self._engine = engine
        self._listeners: list[Callable[[Folded], None]] = []
        self._pieces = pieces
        self._reports = Reports()
        self._renderer = Renderer(engine, self.config, self._tell, self.preamble)

    def render(self, options: RenderOptions | None, changes: Mapping[str, Any]) -> View:
        """A view with these options."""
        if options is None and not changes:  # the everyday case needs no look at each of them
            return self._renderer.render(_USUAL, self.budget, self._pieces(_USUAL))
        if options is not None and not isinstance(options, RenderOptions):
            raise InvalidValue(f"options is {short_repr(options)}; RenderOptions are needed.")
        fields = {} if options is None else asdict(options)
        wanted = check_options(RenderOptions(**{**fields, **changes}))
        return self._renderer.render(wanted, self.budget, self._pieces(wanted))

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Why a page is shown as it is, or not at all, in a view or in the last one at the context's own budget."""
        _check_view(view)
        with self._engine.lock:
            parts = self._renderer.seen() if view is None else view.parts
            return why(self._engine.current(), parts, index)

    def outlook(self) -> Outlook:
        """Return how full a view at the context's budget is, by what, and what a fold would take next."""
        return self._renderer.outlook(self.budget)

    def room(self) -> int:
        """Return the budget without the tokens that the last view kept in reserve. Draws and plans nothing."""
        return max(0, self.budget - self._renderer.reserved)

    def stats(self) -> Stats:
        """What the context holds."""
        with self._engine.lock:
            found, known = self._engine.read(stats), self._engine.read(self._reports.known)
            return replace(found, usage={name: to_usage(billing) for name, billing in known.items()})

    def report_usage(self, usage: object, model: str | None, tools: int, view: View | None) -> Usage:
        """Learn what a model bills for what was counted."""
        if model is not None and not (isinstance(model, str) and model):
            raise InvalidValue(f"model is {short_repr(model)}; the name of a model as text is needed.")
        _check_view(view)
        used = read_usage(usage)
        extra = check_whole_number(tools, "tools")
        with self._engine.lock:
            counted = self._renderer.sent() if view is None else view.tokens
            if not counted:
                raise InvalidOperation(
                    "There is no view to compare it with: call render() first, or give the one that was sent as view=."
                )
            check_report(used, counted, extra)
            state = self._engine.current()
            billing = self._reports.add(state, used, model, counted + extra)
            if is_worth_storing(state, billing):
                self._store_reports()
            return to_usage(billing)

    def _store_reports(self) -> None:
        """Commit what is known; another writer who was first is no reason to fail, the next report comes soon."""
        plan = self._engine.begin(self.actor)
        self._reports.store(plan)
        try:
            self._engine.commit(plan, "report_usage")
        except Conflict:
            return
        self._reports.stored(plan)

    def dump(self) -> str:
        """One line for every item."""
        return self._engine.read(dump)

    @property
    def summarising(self) -> "Summarising | None":
        """The work of the summariser, if there is one."""
        return self._renderer.summarising

    def on_fold(self, listener: Callable[[Folded], None]) -> Callable[[], None]:
        """Have a function called after every fold; what is returned ends that."""
        if not callable(listener):
            raise InvalidValue(f"listener is {short_repr(listener)}; a function is needed.")
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _tell(self, folded: Folded) -> None:
        for listener in list(self._listeners):
            try:
                listener(folded)
            except Exception:  # the fold is made, and the view is more than what anybody thinks of it
                import logging

                logging.getLogger("quire").exception("A listener of on_fold failed")


def _check_view(view: object) -> None:
    if view is not None and not isinstance(view, View):
        raise InvalidValue(f"view is {short_repr(view)}; a View is needed.")
