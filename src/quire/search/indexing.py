"""How an index catches up: it reads the journal from where it stands and looks again at the pages that say something
else. Without a journal to follow (a new fork, an index that was lost) it is built from all pages, batch by batch, and
an interrupted build goes on where it stopped.

The index of a context, brought up to date: the storage's own, or one in this process where it keeps none.

Work that is held back (`temporary`) is searched as a thin layer over the index below it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast

from quire.core.records import PAGE_CODE, Gone, PageRecord, decode_entry, decode_head, decode_page
from quire.errors import Corrupt, StorageFailure
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

PURGE = "purge"
"""The operation whose entries do not tell what pages said before."""
_BATCH = 1_024
_BATCH_TERMS = 1 << 18
_ENTRIES = 1_024
_AHEAD_BYTES = 8 << 20
_ASKED = 2
_LOOKED_AT = 16
"""How many pages, and words of each, and among how many records, are looked for to see whether an index is sound."""


def index_identity(head: Head) -> bytes:
    """By what an index knows its context: the identity of that, and the rules by which text is cut into terms."""
    return decode_head(head.value).identity + TOKENIZER_VERSION


def catch_up(index: SearchIndex, storage: Storage, context: str) -> IndexState | None:
    """Bring the index to the state that is stored now, and say which; None if there is no such context.

    If others do it at the same time, it is done once.
    """
    while head := storage.head(context):
        identity = index_identity(head)
        stands = index.state()
        if stands is None or stands.identity != identity or stands.version > head.version:
            if storage.head(context) == head:  # else others went on meanwhile, and the index with them
                index.clear()
                index.update(None, IndexState(head.version, identity, -1), ())
        elif stands.reached < MAX_KEY:
            _build(index, stands, storage, context)
        elif stands.version < head.version:
            _follow(index, stands, storage, context, head)
        else:
            return stands
    return None


def is_sound(index: SearchIndex, storage: Storage, context: str) -> bool:
    """Whether some pages are found by words of their own names: asked when a search found nothing at all.

    An index can be so damaged that it answers every question with nothing, and the engine sees nothing wrong in it.
    """
    for reverse in (False, True):
        for page in islice(_named(storage, context, reverse=reverse), _ASKED):
            words = split_terms(page.header.name)
            if not all(index.count(Phrase((word,)), [(page.key, page.key)], 1) for word in words[:_ASKED]):
                return False
    return True


def _named(storage: Storage, context: str, *, reverse: bool) -> Iterator[PageRecord]:
    for record in islice(storage.scan(context, PAGE, reverse=reverse), _LOOKED_AT):
        page = decode_page(record)
        if isinstance(page, PageRecord) and is_searchable(page) and split_terms(page.header.name):
            yield page


def changed_pages(storage: Storage, context: str, since: int, until: int) -> list[int] | None:
    """The keys of pages that say something else than before, by the entries after `since`; None if entries are missing.

    What a page said in between counts too: an index that was written meanwhile may know it as it was then.
    """
    said: dict[int, set[object]] = {}
    entries = 0
    for record in storage.scan(context, JOURNAL, since + 1, until):
        entries += 1
        entry = decode_entry(record.key, record.value)
        for touched in entry.touched:
            if touched.family == PAGE_CODE:
                said.setdefault(touched.key, set()).add(_said(touched.key, touched.before, touched.group))
                if entry.operation == PURGE:  # what the page said before is in no entry any more
                    said[touched.key].add(PURGE)
    if entries != until - since:
        return None
    return [key for key, before in said.items() if len(before) > 1 or _says(storage, context, key) not in before]


def _build(index: SearchIndex, stands: IndexState, storage: Storage, context: str) -> None:
    """Take in the next pages."""
    pages = list(islice(scan_pages(storage, context, stands.reached + 1), _BATCH))
    ahead = PrefetchedRecords(storage, context, pages)
    documents: list[Document] = []
    terms = 0
    for page in pages:
        documents.append(build_document(ahead, context, page))
        terms += len(documents[-1].body)
        if terms > _BATCH_TERMS:
            break
    is_last = len(documents) == len(pages) < _BATCH
    reached = MAX_KEY if is_last else documents[-1].key
    index.update(stands, IndexState(stands.version, stands.identity, reached), documents)


def _follow(index: SearchIndex, stands: IndexState, storage: Storage, context: str, head: Head) -> None:
    """Take in what the next entries changed."""
    until = min(head.version, stands.version + _ENTRIES)
    keys = changed_pages(storage, context, stands.version, until)
    if keys is None:
        index.clear()
        return
    documents: list[Document] = []
    gone: list[int] = []
    terms = 0
    for key in keys:
        page = read_page(storage, context, key)
        if page is None or not is_searchable(page):
            gone.append(key)
            continue
        documents.append(build_document(storage, context, page))
        terms += len(documents[-1].body)
        if len(documents) >= _BATCH or terms > _BATCH_TERMS:
            if not index.update(stands, stands, documents, gone):
                return
            documents, gone, terms = [], [], 0
    index.update(stands, IndexState(until, stands.identity), documents, gone)


class PrefetchedRecords:
    """Reads what pages say in one go where it lies close together: a third of what reading it one by one takes."""

    def __init__(self, storage: Storage, context: str, pages: Sequence[PageRecord]) -> None:
        self._storage = storage
        self._context = context
        self._read: dict[Family, dict[int, Record]] = {
            BODY: self._within(BODY, [page.header.body for page in pages if page.header.body]),
            MESSAGE: self._within(MESSAGE, [number for page in pages for number in page.header.numbers]),
        }

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """One record, read ahead or now."""
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


def read_page(storage: Storage, context: str, key: int) -> PageRecord | None:
    """A page as stored now, or None if there is none."""
    record = storage.get(context, PAGE, key)
    page = decode_page(record) if record else None
    return page if isinstance(page, PageRecord) else None


def scan_pages(storage: Storage, context: str, first: int = 0, last: int = MAX_KEY) -> Iterator[PageRecord]:
    """The pages with these keys that can be found. Streams."""
    for record in storage.scan(context, PAGE, first, last):
        page = decode_page(record)
        if isinstance(page, PageRecord) and is_searchable(page):
            yield page


def _said(key: int, before: bytes | None, group: int | None) -> object:
    page = None if before is None else decode_page(Record(key, before, group))
    return None if page is None or isinstance(page, Gone) else text_fields(page.header)


def _says(storage: Storage, context: str, key: int) -> object:
    page = read_page(storage, context, key)
    return None if page is None else text_fields(page.header)


_TRIES = 5
T = TypeVar("T")
_SELDOM = 64
_indexes: PerStorageCache[MemoryIndex] = PerStorageCache()
_has_index: PerStorageCache[bool] = PerStorageCache()
_missed: PerStorageCache[list[int]] = PerStorageCache()
"""How often nothing was found in a context."""


def get_index(storage: Storage, context: str) -> Index:
    """The index of a context as it is stored now."""
    return query_index(storage, context, lambda index: index)


def query_index(storage: Storage, context: str, question: Callable[[Index], T], tries: int = _TRIES) -> T:
    """What the index of a context as it is stored now answers to a question.

    It is asked again if the index was emptied meanwhile, or if another writer took away a record between two looks.
    One that says where it stands and cannot be asked (a table of it is missing) gives way to one in memory.
    """
    try:
        try:
            answer = question(_caught_up(storage, context))
            if not answer:
                _look_at(storage, context)
            return answer
        except IndexReadOnly:
            return question(_whole(storage, context))
    except (IndexLost, Corrupt):
        if tries == 1:
            raise
        return query_index(storage, context, question, tries - 1)


def _caught_up(storage: Storage, context: str) -> Index:
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _layered(storage, context)
    index = _own(storage, context)
    if index is None:
        index = _in_memory(storage, context)
    try:
        catch_up(index, storage, context)
    except IndexReadOnly:
        return _beside(index, storage, context)
    return index


def _own(storage: Storage, context: str) -> SearchIndex | None:
    """The index that a storage keeps itself."""
    has_index = _has_index.get(storage, "", lambda: isinstance(storage, SupportsSearch))  # the check itself is slow
    return cast(SupportsSearch, storage).search(context) if has_index else None


def _in_memory(storage: Storage, context: str) -> MemoryIndex:
    """The index kept here for a context."""
    return _indexes.get(storage, context, MemoryIndex)


def _look_at(storage: Storage, context: str) -> None:
    """See whether an index that found nothing finds anything; if not, empty it and raise `IndexLost`.

    It is looked at when a handle first finds nothing, and then every so many times: a search must not wait for it.
    """
    index = None if isinstance(storage, OverlayStorage) else _own(storage, context)
    if index is None:
        return
    missed = _missed.get(storage, context, lambda: [0])
    missed[0] += 1
    if missed[0] % _SELDOM != 1:
        return
    head, stands = storage.head(context), index.state()
    if head is None or stands != IndexState(head.version, index_identity(head)) or is_sound(index, storage, context):
        return
    if index.state() == stands and storage.head(context) == head:  # else others changed it meanwhile
        _empty(index)
        raise IndexLost("The search index did not hold the pages it should: it is made anew.")


def _empty(index: SearchIndex) -> None:
    try:
        if isinstance(index, SupportsReset):
            index.reset()
        else:
            index.clear()
    except IndexReadOnly as error:
        raise StorageFailure(
            f"The search index is damaged: run doctor(repair=True) where it can be written. {error}"
        ) from error


def _beside(index: SearchIndex, storage: Storage, context: str) -> Index:
    """An index that cannot be written, as it stands, and in memory what was changed since; or all of it in memory."""
    head = storage.head(context)
    try:
        stands = index.state()
    except IndexReadOnly:
        stands = None
    if head is not None and stands is not None and _can_follow(stands, head):
        touched = changed_pages(storage, context, stands.version, head.version)
        if touched is not None:
            above = _indexes.get(storage, (context, stands), MemoryIndex)
            if above.state() is None:
                above.update(None, stands, ())
            catch_up(above, storage, context)
            return LayeredIndex(index, above, touched)
    return _whole(storage, context)


def _whole(storage: Storage, context: str) -> Index:
    """All of a context in memory, what is held back of it too."""
    is_held = isinstance(storage, OverlayStorage)
    whole = _indexes.get(storage, (context, "whole"), MemoryIndex) if is_held else _in_memory(storage, context)
    catch_up(whole, storage, context)
    return whole


def _can_follow(stands: IndexState, head: Head) -> bool:
    return stands.identity == index_identity(head) and stands.reached == MAX_KEY and stands.version <= head.version


def _layered(storage: OverlayStorage, context: str) -> Index:
    below = _caught_up(storage.below, context)
    start, head = storage.start, storage.head(context)
    if head is None or head == start:
        return below
    above = _in_memory(storage, context)
    identity = index_identity(head)
    since = start.version if start else 0
    if above.state() is None:
        above.update(None, IndexState(since, identity), ())
    touched = changed_pages(storage, context, since, head.version)
    catch_up(above, storage, context)
    return LayeredIndex(below, above, touched or ())
