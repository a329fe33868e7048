"""Keeping indexes up to date, and asking them.

An index catches up by reading the journal from the version it reflects, and reading the pages again whose text changed.
Without a journal to follow (a new fork, a lost index), it is built from all pages, batch by batch. An interrupted build
continues where it stopped.

The index of a context is the storage's own, or one in this process if the storage has none. Changes that are not
committed yet (`temporary`) are searched as a thin layer over the index below.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast

from quire.core.entries import PURGE
from quire.core.missing import check_pages
from quire.core.records import PAGE_CODE, ContextMark, PageRecord, decode_entry, decode_head, decode_page, mark_of
from quire.errors import Corrupt, Hint, StorageFailure, short_repr
from quire.search.index import LayeredIndex, MemoryIndex, PerStorageCache
from quire.search.page_text import build_document, is_searchable, text_fields
from quire.search.tokenizer import TOKENIZER_VERSION, split_terms
from quire.storage.base import BODY, JOURNAL, MAX_KEY, MESSAGE, PAGE, Family, Head, Record, Storage
from quire.storage.overlay import OverlayStorage
from quire.storage.search_protocol import (
    Document,
    Index,
    IndexLost,
    IndexReadOnly,
    IndexState,
    Phrase,
    SearchIndex,
    SupportsReset,
    SupportsSearch,
)

_OMITTING = (PURGE, "cleanup")
"""The operations whose entries do not contain the earlier text of pages."""
_BATCH = 4_096
_BATCH_TERMS = 1 << 19
"""The limits of one update of an index: its pages, and about how many terms they have. Larger updates take less time in
all, because FTS5 merges fewer segments, but other writers wait for the end of an update."""
_ENTRIES = 1_024
_AHEAD_BYTES = 8 << 20
_CHECKED = 2
_CHECKED_AMONG = 16
"""The check looks up `_CHECKED` pages, by `_CHECKED` words each, among `_CHECKED_AMONG` records at either end."""


def index_identity(head: Head) -> bytes:
    """Return the identity of an index: the identity of its context, and the version of the tokenizer."""
    return decode_head(head.value).identity + TOKENIZER_VERSION


def _mark_of(head: Head) -> ContextMark:
    return mark_of(decode_head(head.value))


def catch_up(index: SearchIndex, storage: Storage, context: str) -> IndexState | None:
    """Bring the index to the version that is stored now, and return its state; None if the context does not exist.

    If several callers do this at the same time, the work is done once.
    """
    while head := storage.head(context):
        identity = index_identity(head)
        state = index.state()
        if state is None or state.identity != identity or state.version > head.version:
            if storage.head(context) == head:  # otherwise another writer has advanced the context and the index
                index.clear()
                index.update(None, IndexState(head.version, identity, -1), ())
        elif state.reached < MAX_KEY:
            _build(index, state, storage, context, _mark_of(head))
        elif state.version < head.version:
            _follow(index, state, storage, context, head)
        else:
            return state
    return None


def is_sound(index: SearchIndex, storage: Storage, context: str, mark: ContextMark) -> bool:
    """Return whether some pages are found by words of their names. This is checked after a search without any hit.

    A damaged index can answer every query with nothing, and the database engine reports no error.
    """
    for reverse in (False, True):
        for page in islice(_named_pages(storage, context, mark, reverse=reverse), _CHECKED):
            words = split_terms(page.header.name)
            if not all(index.count(Phrase((word,)), [(page.key, page.key)], 1) for word in words[:_CHECKED]):
                return False
    return True


def _named_pages(storage: Storage, context: str, mark: ContextMark, *, reverse: bool) -> Iterator[PageRecord]:
    for record in islice(storage.scan(context, PAGE, reverse=reverse), _CHECKED_AMONG):
        page = decode_page(record, mark)
        if isinstance(page, PageRecord) and is_searchable(page) and split_terms(page.header.name):
            yield page


def changed_pages(storage: Storage, context: str, mark: ContextMark, since: int, until: int) -> list[int] | None:
    """Return the keys of pages whose text changed after entry `since`; None if entries are missing.

    Texts in between count too: an index that was written meanwhile may know one of them.
    """
    texts: dict[int, set[object]] = {}
    entries = 0
    for record in storage.scan(context, JOURNAL, since + 1, until):
        entries += 1
        entry = decode_entry(record.key, record.value, mark)
        for touched in entry.touched:
            if touched.family == PAGE_CODE:
                before = touched.before
                page = (
                    None if before is None else decode_page(Record(touched.key, before, touched.group, touched.order))
                )
                texts.setdefault(touched.key, set()).add(text_fields(page))
                if entry.operation in _OMITTING:  # the earlier text is in no entry
                    texts[touched.key].add(PURGE)
    if entries != until - since:
        return None
    return [
        key
        for key, earlier in texts.items()
        if len(earlier) > 1 or text_fields(read_page(storage, context, mark, key)) not in earlier
    ]


def _build(index: SearchIndex, state: IndexState, storage: Storage, context: str, mark: ContextMark) -> None:
    """Index the next pages."""
    if state.reached < 0:
        check_pages(storage, context)
    pages = list(islice(scan_pages(storage, context, mark, state.reached + 1), _BATCH))
    ahead = PrefetchedRecords(storage, context, pages)
    documents: list[Document] = []
    terms = 0
    for page in pages:
        documents.append(build_document(ahead, context, mark, page))
        terms += documents[-1].size
        if terms > _BATCH_TERMS:
            break
    is_last = len(documents) == len(pages) < _BATCH
    reached = MAX_KEY if is_last else documents[-1].key
    index.update(state, IndexState(state.version, state.identity, reached), documents)


def _follow(index: SearchIndex, state: IndexState, storage: Storage, context: str, head: Head) -> None:
    """Index the changes of the next entries."""
    until = min(head.version, state.version + _ENTRIES)
    mark = _mark_of(head)
    keys = changed_pages(storage, context, mark, state.version, until)
    if keys is None:
        index.clear()
        return
    documents: list[Document] = []
    gone: list[int] = []
    terms = 0
    for key in keys:
        page = read_page(storage, context, mark, key)
        if page is None or not is_searchable(page):
            gone.append(key)
            continue
        documents.append(build_document(storage, context, mark, page))
        terms += documents[-1].size
        if len(documents) >= _BATCH or terms > _BATCH_TERMS:
            if not index.update(state, state, documents, gone):
                return
            documents, gone, terms = [], [], 0
    index.update(state, IndexState(until, state.identity), documents, gone)


class PrefetchedRecords:
    """Reads the texts of pages with one scan where they are close together: a third of the time of single reads."""

    def __init__(self, storage: Storage, context: str, pages: Sequence[PageRecord]) -> None:
        self._storage = storage
        self._context = context
        self._read: dict[Family, dict[int, Record]] = {
            BODY: self._within(BODY, [page.header.body for page in pages if page.header.body]),
            MESSAGE: self._within(MESSAGE, [number for page in pages for number in page.header.numbers]),
        }

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """Return one record, prefetched or read now."""
        found = self._read[family].get(key) if family in self._read else None
        return self._storage.get(context, family, key) if found is None else found

    def _within(self, family: Family, keys: Sequence[int]) -> dict[int, Record]:
        found: dict[int, Record] = {}
        if len(keys) > 1 and max(keys) - min(keys) < 2 * len(keys):
            size = 0
            for record in self._storage.scan(self._context, family, min(keys), max(keys)):
                found[record.key] = record
                size += len(record.value)
                if size > _AHEAD_BYTES:
                    break
        return found


def read_page(storage: Storage, context: str, mark: ContextMark, key: int) -> PageRecord | None:
    """Return a page that an index or an entry names, as it is stored now; None if it was removed."""
    record = storage.get(context, PAGE, key)
    if record is None and storage.head(context) is not None:
        raise Corrupt(f"Context {short_repr(context)}: page record {key} is missing.")
    page = decode_page(record, mark) if record else None
    return page if isinstance(page, PageRecord) else None


def scan_pages(storage: Storage, context: str, mark: ContextMark, first: int = 0) -> Iterator[PageRecord]:
    """Yield the searchable pages from a key on."""
    for record in storage.scan(context, PAGE, first):
        page = decode_page(record, mark)
        if isinstance(page, PageRecord) and is_searchable(page):
            yield page


_TRIES = 5
T = TypeVar("T")
_CHECK_INTERVAL = 64
_indexes: PerStorageCache[MemoryIndex] = PerStorageCache()
_has_index: PerStorageCache[bool] = PerStorageCache()
_missed: PerStorageCache[list[int]] = PerStorageCache()
"""The number of searches in a context that found nothing."""


def refresh_index(storage: Storage, context: str) -> None:
    """Remove deleted texts from the stored index of a context. An index that was never filled stays empty."""
    index = _stored_index(storage, context)
    try:
        if index is not None and index.state() is not None:
            catch_up(index, storage, context)
    except IndexLost:
        return  # it is empty now
    except IndexReadOnly as error:
        raise StorageFailure(f"The search index of {context!r} may hold deleted words. {error}") from error
    except Corrupt:
        if index is not None:
            index.clear()


def query_index(storage: Storage, context: str, question: Callable[[Index], T], tries: int = _TRIES) -> T:
    """Return the answer of a context's up-to-date index to a question.

    The question is asked again if the index was emptied meanwhile, or if another writer deleted a record. If the index
    cannot be read (one of its tables is missing), an index in memory answers.
    """
    try:
        try:
            answer = question(_current_index(storage, context))
            if not answer:
                _check_index(storage, context)
            return answer
        except IndexReadOnly:
            return question(_whole_index(storage, context))
    except (IndexLost, Corrupt):
        if tries == 1:
            raise
        return query_index(storage, context, question, tries - 1)


def _current_index(storage: Storage, context: str) -> Index:
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _overlay_index(storage, context)
    index = _stored_index(storage, context) or _indexes.get(storage, context, MemoryIndex)
    try:
        catch_up(index, storage, context)
    except IndexReadOnly:
        return _layer_over(index, storage, context)
    return index


def _stored_index(storage: Storage, context: str) -> SearchIndex | None:
    """Return the index of the storage itself, if it has one."""
    has_index = _has_index.get(storage, "", lambda: isinstance(storage, SupportsSearch))  # the check itself is slow
    return cast(SupportsSearch, storage).search(context) if has_index else None


def _check_index(storage: Storage, context: str) -> None:
    """Check an index that found nothing; if it is damaged, empty it and raise `IndexLost`.

    The check runs the first time a handle finds nothing, and then every 64th time, so that searches stay fast.
    """
    index = None if isinstance(storage, OverlayStorage) else _stored_index(storage, context)
    if index is None:
        return
    missed = _missed.get(storage, context, lambda: [0])
    missed[0] += 1
    if missed[0] % _CHECK_INTERVAL != 1:
        return
    head, state = storage.head(context), index.state()
    if head is None or state != IndexState(head.version, index_identity(head)):
        return
    if is_sound(index, storage, context, _mark_of(head)):
        return
    if index.state() != state or storage.head(context) != head:
        return  # another writer changed it
    try:
        if isinstance(index, SupportsReset):
            index.reset()
        else:
            index.clear()
    except IndexReadOnly as error:
        repair = Hint("doctor", arguments="repair=True", purpose="where the store can be written")
        raise StorageFailure(f"The search index is damaged. {error}", repair) from error
    raise IndexLost("The search index did not contain pages that it should contain. It is rebuilt.")


def _layer_over(index: SearchIndex, storage: Storage, context: str) -> Index:
    """Return a read-only index with later changes layered over it, or an index of everything in memory."""
    head = storage.head(context)
    try:
        state = index.state()
    except IndexReadOnly:
        state = None
    if (
        head is not None
        and state is not None
        and (state.identity, state.reached) == (index_identity(head), MAX_KEY)
        and state.version <= head.version
    ):
        touched = changed_pages(storage, context, _mark_of(head), state.version, head.version)
        if touched is not None:
            above = _indexes.get(storage, (context, state), MemoryIndex)
            if above.state() is None:
                above.update(None, state, ())
            catch_up(above, storage, context)
            return LayeredIndex(index, above, touched)
    return _whole_index(storage, context)


def _whole_index(storage: Storage, context: str) -> Index:
    """Return an index in memory of the whole context, uncommitted changes included."""
    key = (context, "whole") if isinstance(storage, OverlayStorage) else context
    whole = _indexes.get(storage, key, MemoryIndex)
    catch_up(whole, storage, context)
    return whole


def _overlay_index(storage: OverlayStorage, context: str) -> Index:
    below = _current_index(storage.below, context)
    start, head = storage.start, storage.head(context)
    if head is None or head == start:
        return below
    above = _indexes.get(storage, context, MemoryIndex)
    identity = index_identity(head)
    since = start.version if start else 0
    if above.state() is None:
        above.update(None, IndexState(since, identity), ())
    touched = changed_pages(storage, context, _mark_of(head), since, head.version)
    catch_up(above, storage, context)
    return LayeredIndex(below, above, touched or ())
