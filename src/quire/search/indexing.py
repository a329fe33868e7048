"""Keeping indexes up to date, and asking them.

An index catches up by reading the journal from the version that it reflects, and reading the pages again whose text
changed. Without a journal to follow (a new handle, a new fork), it is built from all pages, batch by batch. The index
of a context is in this process. Changes that are not committed yet (`temporary`) are searched as a thin layer over it.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from quire.core.codec import decode_head, decode_touched
from quire.core.entries import PURGE
from quire.core.records import PAGE_CODE, Gone, PageRecord
from quire.core.state import State, deleted_context
from quire.core.stored import Stored
from quire.errors import Corrupt
from quire.search.index import LayeredIndex, MemoryIndex, PerStorageCache
from quire.search.index_protocol import Document, Index, IndexLost, IndexState
from quire.search.page_text import build_document, is_searchable, text_fields
from quire.search.tokenizer import TOKENIZER_VERSION
from quire.storage.contract import MAX_KEY, Loaded, Storage
from quire.storage.overlay import OverlayStorage

_OMITTING = (PURGE, "cleanup")
"""The operations whose entries do not contain the earlier text of pages."""
_BATCH = 4_096
"""The pages of one update of an index."""
_TRIES = 5
T = TypeVar("T")
_indexes: PerStorageCache[MemoryIndex] = PerStorageCache()


class _Source(Stored):
    """A context as it is stored now."""

    def __init__(self, storage: Storage, context: str, found: Loaded) -> None:
        super().__init__(storage, context, found.id)
        self.version = found.seq
        self.identity = decode_head(found.seq, found.head).identity + TOKENIZER_VERSION


def query_index(state: State, question: Callable[[Index], T], tries: int = _TRIES) -> T:
    """Return the answer of a context's up-to-date index to a question. Raises `NoSuchContext` if it was deleted.

    The question is asked again if the index was emptied meanwhile, or if another writer deleted a record.
    """
    try:
        index = _current_index(state.storage, state.context)
        if index is None:
            raise deleted_context(state.context)
        return question(index)
    except (IndexLost, Corrupt):
        if tries == 1:
            raise
        return query_index(state, question, tries - 1)


def changed_pages(source: Stored, since: int, until: int) -> list[int] | None:
    """Return the keys of pages whose text changed after entry `since`; None if entries are missing.

    Texts in between count too: an index that was written meanwhile may know one of them.
    """
    texts: dict[int, set[object]] = {}
    entries = 0
    for _, entry in source.entries(since + 1, until):
        entries += 1
        for touched in entry.touched:
            if touched.family == PAGE_CODE:
                before = decode_touched(touched)
                page = before if isinstance(before, PageRecord | Gone) else None
                texts.setdefault(touched.key, set()).add(text_fields(page))
                if entry.operation in _OMITTING:  # the earlier text is in no entry
                    texts[touched.key].add(PURGE)
    if entries != until - since:
        return None
    return [key for key, earlier in texts.items() if len(earlier) > 1 or text_fields(source.page(key)) not in earlier]


def scan_pages(source: Stored, first: int = 0) -> Iterator[PageRecord]:
    """Yield the searchable pages from a key on."""
    for _, page in source.pages(first):
        if isinstance(page, PageRecord) and is_searchable(page):
            yield page


def _current_index(storage: Storage, context: str) -> Index | None:
    found = storage.load(context)
    if found is None:
        return None
    source = _Source(storage, context, found)
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _overlay_index(storage, source)
    index = _indexes.get(storage, found.id, MemoryIndex)
    _catch_up(index, source)
    return index


def _overlay_index(storage: OverlayStorage, source: _Source) -> Index:
    start = storage.start
    below = _current_index(storage.below, storage.context)
    if below is None or start is None:
        index = _indexes.get(storage, "whole", MemoryIndex)
        _catch_up(index, source)
        return index
    above = _indexes.get(storage, "changes", MemoryIndex)
    if above.state() is None:
        above.update(None, IndexState(start.seq, source.identity), ())
    touched = changed_pages(source, start.seq, source.version)
    _catch_up(above, source)
    return LayeredIndex(below, above, touched or ())


def _catch_up(index: MemoryIndex, source: _Source) -> None:
    """Bring an index to the version of its source. If several callers do this, the work is done once."""
    while True:
        state = index.state()
        if state is None or state.identity != source.identity or state.version > source.version:
            index.clear()
            index.update(None, IndexState(source.version, source.identity, -1), ())
        elif state.reached < MAX_KEY:
            _build(index, state, source)
        elif state.version < source.version:
            _follow(index, state, source)
        else:
            return


def _build(index: MemoryIndex, state: IndexState, source: _Source) -> None:
    """Index the next pages."""
    pages = list(islice(scan_pages(source, state.reached + 1), _BATCH))
    documents = [build_document(source, page) for page in pages]
    reached = MAX_KEY if len(pages) < _BATCH else pages[-1].key
    index.update(state, IndexState(state.version, state.identity, reached), documents)


def _follow(index: MemoryIndex, state: IndexState, source: _Source) -> None:
    """Index the changes since a version."""
    keys = changed_pages(source, state.version, source.version)
    if keys is None:
        index.clear()
        return
    documents: list[Document] = []
    gone: list[int] = []
    for key in keys:
        page = source.page(key)
        if isinstance(page, PageRecord) and is_searchable(page):
            documents.append(build_document(source, page))
        else:
            gone.append(key)
    index.update(state, IndexState(source.version, state.identity), documents, gone)
