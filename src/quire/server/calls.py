"""What the model saw when it last spoke: the view to measure a provider's prompt cache against."""

from itertools import islice

from quire.context import Context
from quire.view.view import View

_LOOKED_AT = 1_000
"""Entries that are looked through for an answer of a model."""
_KEPT = 8


class Calls:
    """The view that the newest answer of a model was given to, at any budget, drawn once."""

    def __init__(self) -> None:
        self._looked: tuple[int, int | None] = (-1, None)
        self._views: dict[tuple[int, int], View] = {}

    def last(self, context: Context, budget: int) -> View | None:
        """The view just before the newest message of an assistant; None if nobody answered lately."""
        seq = self._before_answer(context)
        if seq is None:
            return None
        view = self._views.get((seq, budget))
        if view is None:
            view = context.as_of(seq).render(max_tokens=budget, preview=True)
            while len(self._views) >= _KEPT:
                del self._views[next(iter(self._views))]
            self._views[seq, budget] = view
        return view

    def _before_answer(self, context: Context) -> int | None:
        if self._looked[0] != context.seq:
            entries = islice(context.history(reverse=True), _LOOKED_AT)
            found = next((entry.seq for entry in entries if entry.operation == "assistant"), None)
            self._looked = (context.seq, found - 1 if found else None)
        return self._looked[1]
