"""Examining search indexes: whether each holds what its context's pages say, no more and no less.

An index that stands at an older state is left alone: it catches up before it answers. One that cannot be read here is
left to those who can, and one that cannot be written is told as it is.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from quire.errors import Corrupt
from quire.search.indexing import Ahead, known_as, pages_from
from quire.search.page_text import document
from quire.storage.base import Head, Storage, Symptom
from quire.storage.search_protocol import Document, IndexSealed, SearchCheck, SearchIndex, Standing

_BATCH = 256
_REPAIRS = "repair=True empties it; the next search fills it again."


class _Moved(Exception):
    """Another writer changed the context while its pages were read."""


class Indexes:
    """The examination of the indexes of a store: one context after the other, and then all together."""

    def __init__(self, storage: Storage, *, repair: bool) -> None:
        self._storage: Any = storage
        self._repair = repair
        self._searches = callable(getattr(storage, "search", None))
        offered: Any = getattr(storage, "search_check", None)
        self._check: SearchCheck | None = offered() if callable(offered) else None

    def look(self, context: str, head: Head) -> Iterator[Symptom]:
        """What is wrong with the index of a context that is there now."""
        if not self._searches:
            return
        at = Standing(head.version, known_as(head))
        documents = self._documents(context, head)
        try:
            if self._check is None:
                found = _pages_differ(self._storage.search(context), at, documents)
            else:
                found = self._check.differs(context, at, documents)
        except (_Moved, Corrupt, IndexSealed):  # a record that is damaged is told where records are
            return
        if found:
            repaired = self._repair and _may(self._storage.search(context).clear)
            yield _symptom("search_outdated", found, context, repaired=repaired)

    def rest(self) -> Iterator[Symptom]:
        """What is wrong with them together."""
        if self._check is not None and (found := self._check.rest()):
            repaired = self._repair and _may(self._check.make_anew)
            yield _symptom("search_damaged", found, repaired=repaired)

    def _documents(self, context: str, head: Head) -> Iterator[Document]:
        """What the index should hold. Raises `_Moved` if it cannot be said."""
        pages = pages_from(self._storage, context)
        while batch := list(islice(pages, _BATCH)):
            ahead = Ahead(self._storage, context, batch)
            yield from (document(ahead, context, page) for page in batch)
        if self._storage.head(context) != head:
            raise _Moved


def _may(repair: Callable[[], None]) -> bool:
    """Repair an index; whether that could be done: who may only read leaves it as it is."""
    try:
        repair()
    except IndexSealed:
        return False
    return True


def _symptom(code: str, found: str, context: str = "", *, repaired: bool) -> Symptom:
    return Symptom(
        code=code,
        severity="warning",
        where="search index",
        text=f"{found[0].upper()}{found[1:]}. Searches may miss pages; the pages themselves are not touched by it.",
        remedy=_REPAIRS,
        context=context,
        repaired=repaired,
    )


def _pages_differ(index: SearchIndex, at: Standing, documents: Iterator[Document]) -> str:
    """Whether an index of unknown kind holds other pages than there are."""
    if index.standing() != at:
        return ""
    there = {document.key for document in documents}
    kept = {number << 9 | place for number, block in index.sizes().items() for place, size in enumerate(block) if size}
    if kept == there or index.standing() != at:
        return ""
    return f"it holds {len(kept):,} pages where {len(there):,} can be found"
