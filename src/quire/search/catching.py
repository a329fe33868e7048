"""How an index catches up: it reads the journal from where it stands and looks again at the pages that say something
else. Without a journal to follow (a new fork, an index that was lost) it is built from all pages, batch by batch, and
an interrupted build goes on where it stopped.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from quire.records import PAGE_CODE, Gone, PageRecord, decode_entry, decode_head, decode_page
from quire.search.texts import document, is_found, saying
from quire.search.words import CUT, terms
from quire.storage.base import BODY, JOURNAL, MAX_KEY, MESSAGE, PAGE, Family, Head, Record, Storage
from quire.storage.searching import Document, Phrase, SearchIndex, Standing

PURGE = "purge"
"""The operation whose entries do not tell what pages said before."""
_BATCH = 1_024
_BATCH_TERMS = 1 << 18
_ENTRIES = 1_024
_AHEAD_BYTES = 8 << 20
_ASKED = 2
_LOOKED_AT = 16
"""How many pages, and words of each, and among how many records, are looked for to see whether an index is sound."""


def known_as(head: Head) -> bytes:
    """By what an index knows its context: the identity of that, and the rules by which text is cut into terms."""
    return decode_head(head.value).identity + CUT


def catch_up(index: SearchIndex, storage: Storage, context: str) -> Standing | None:
    """Bring the index to the state that is stored now, and say which; None if there is no such context.

    If others do it at the same time, it is done once.
    """
    while head := storage.head(context):
        identity = known_as(head)
        stands = index.standing()
        if stands is None or stands.identity != identity or stands.version > head.version:
            if storage.head(context) == head:  # else others went on meanwhile, and the index with them
                index.clear()
                index.update(None, Standing(head.version, identity, -1), ())
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
            words = terms(page.header.name)
            if not all(index.count(Phrase((word,)), [(page.key, page.key)], 1) for word in words[:_ASKED]):
                return False
    return True


def _named(storage: Storage, context: str, *, reverse: bool) -> Iterator[PageRecord]:
    for record in islice(storage.scan(context, PAGE, reverse=reverse), _LOOKED_AT):
        page = decode_page(record)
        if isinstance(page, PageRecord) and is_found(page) and terms(page.header.name):
            yield page


def changed(storage: Storage, context: str, since: int, until: int) -> list[int] | None:
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


def _build(index: SearchIndex, stands: Standing, storage: Storage, context: str) -> None:
    """Take in the next pages."""
    pages = list(islice(pages_from(storage, context, stands.reached + 1), _BATCH))
    ahead = Ahead(storage, context, pages)
    documents: list[Document] = []
    terms = 0
    for page in pages:
        documents.append(document(ahead, context, page))
        terms += len(documents[-1].body)
        if terms > _BATCH_TERMS:
            break
    is_last = len(documents) == len(pages) < _BATCH
    reached = MAX_KEY if is_last else documents[-1].key
    index.update(stands, Standing(stands.version, stands.identity, reached), documents)


def _follow(index: SearchIndex, stands: Standing, storage: Storage, context: str, head: Head) -> None:
    """Take in what the next entries changed."""
    until = min(head.version, stands.version + _ENTRIES)
    keys = changed(storage, context, stands.version, until)
    if keys is None:
        index.clear()
        return
    documents: list[Document] = []
    gone: list[int] = []
    terms = 0
    for key in keys:
        page = page_at(storage, context, key)
        if page is None or not is_found(page):
            gone.append(key)
            continue
        documents.append(document(storage, context, page))
        terms += len(documents[-1].body)
        if len(documents) >= _BATCH or terms > _BATCH_TERMS:
            if not index.update(stands, stands, documents, gone):
                return
            documents, gone, terms = [], [], 0
    index.update(stands, Standing(until, stands.identity), documents, gone)


class Ahead:
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


def page_at(storage: Storage, context: str, key: int) -> PageRecord | None:
    """A page as stored now, or None if there is none."""
    record = storage.get(context, PAGE, key)
    page = decode_page(record) if record else None
    return page if isinstance(page, PageRecord) else None


def pages_from(storage: Storage, context: str, first: int = 0, last: int = MAX_KEY) -> Iterator[PageRecord]:
    """The pages with these keys that can be found. Streams."""
    for record in storage.scan(context, PAGE, first, last):
        page = decode_page(record)
        if isinstance(page, PageRecord) and is_found(page):
            yield page


def _said(key: int, before: bytes | None, group: int | None) -> object:
    page = None if before is None else decode_page(Record(key, before, group))
    return None if page is None or isinstance(page, Gone) else saying(page.header)


def _says(storage: Storage, context: str, key: int) -> object:
    page = page_at(storage, context, key)
    return None if page is None else saying(page.header)
