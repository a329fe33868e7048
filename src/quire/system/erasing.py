"""The operation that really removes a page: with every trace, from this context, its forks and the store's bytes."""

from typing import TYPE_CHECKING, Any

from quire.pages import PageIndex
from quire.system.face import Face
from quire.system.rules import yes_or_no

if TYPE_CHECKING:
    from quire.system.forgetting import Purged


class Erasing(Face):
    """Removing for good."""

    def purge(self, *indices: PageIndex, forks: bool = True) -> "Purged":
        """Remove pages and every trace of them, those below them too: for secrets, and for the right to be forgotten.

        It cannot be undone, and nothing before it can be: what they said is taken out of texts, messages, history,
        search, vectors and anchors, summaries above them are made anew, and the store is rewritten so that none of
        their bytes is left. Pages that were removed, moved or marked before are purged by the index they had. With
        `forks`, they leave every context of this store that was forked from the same one, too. The numbers of purged
        messages stay in use. Raises `NoSuchPage`; `InvalidOperation` for a root, a pinned page, an open window, an
        open exchange, and while a batch or a temporary block is open, here or in a fork.
        """
        yes_or_no(forks, "forks")
        from quire.system.forgetting import purge_pages  # late: it is rarely needed

        with self._engine.lock:
            return purge_pages(self._engine, self.actor, indices, forks=forks)

    def scrub(self) -> None:
        """Clear the store of bytes that were deleted or overwritten in this context. `purge` does it by itself.

        Raises `Busy` if others keep the store from being rewritten.
        """
        with self._engine.lock:
            state = self._engine.current()
            clear: Any = getattr(state.storage, "scrub", None)
            if clear is not None:
                clear([state.context])
