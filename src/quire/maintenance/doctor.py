"""The doctor: finds damage in a store, explains it, and repairs what is safe to repair.

It is safe to repair derived data (the search index, counts of children, the list of pins, vectors) and data that
nothing refers to (rows without a context, unused bodies), and to finish an interrupted removal. The only copy of
something is never changed.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from time import sleep
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from quire.core.derived_records import VECTOR_STATE
from quire.core.integrity import RecordCheck, read_records
from quire.core.records import (
    PAGE_CODE,
    PageRecord,
    decode_deferred_change,
    decode_entry,
    decode_head,
    decode_page,
    encode_record,
    mark_of,
)
from quire.core.state import State
from quire.core.summary_board import drop_with_companions
from quire.errors import Busy, Conflict, Corrupt, QuireError, StorageFailure, names_options
from quire.maintenance.retention import REMOVING_HEAD
from quire.search.indexing import PrefetchedRecords, index_identity, scan_pages
from quire.search.page_text import build_document
from quire.search.vectors import delete_vectors
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    JOURNAL,
    LAYOUT,
    PIN,
    SHEET,
    TALLY,
    VECTOR,
    Commit,
    Delete,
    Family,
    Head,
    Put,
    Record,
    Severity,
    Storage,
    SupportsBulkRead,
    SupportsExamine,
    SupportsScrub,
    Symptom,
    Write,
    list_contexts,
    read_snapshot,
)
from quire.storage.search_protocol import (
    Document,
    IndexReadOnly,
    IndexState,
    SupportsSearch,
    SupportsSearchCheck,
    search_symptom,
)
from quire.storage.sqlite.storage import SQLiteStorage
from quire.storage.urls import StoreLocation, existing_storage
from quire.system.check import Problem, check_stored, find_damaged

_BATCH = 256
_REMADE: tuple[Family, ...] = (VECTOR, LAYOUT, SHEET)
"""Families of derived records that the next search or fold creates again."""
_UNUSED: dict[Family, str] = {
    BODY: "texts that no page and no history refers to",
    VECTOR: "vectors of pages that are gone",
}
_TRIES = 5
_PAUSE = 0.3
"""The seconds in which a copy or a removal that is in progress changes the head."""
_REPAIRS = "A repair does it."
_FROM_BACKUP = "Restore the context from a backup or an exported file."
_CHECK_STORE = "Check the disk, the server or the permissions, and run it again."

_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (Corrupt, _FROM_BACKUP),
    (Busy, "No damage is known. Run it again when the other process is done."),
    (Conflict, "No damage is known. Run it again."),
    (StorageFailure, _CHECK_STORE),
    (OSError, _CHECK_STORE),
)
"""The remedy after an error of each type."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The result of an examination: the number of contexts examined, and all symptoms, those of the store first."""

    contexts: int
    symptoms: tuple[Symptom, ...]

    @property
    def healthy(self) -> bool:
        """True if only notes and repaired symptoms are left."""
        return all(symptom.repaired or symptom.severity == "note" for symptom in self.symptoms)


@names_options
def doctor(
    where: StoreLocation,
    *,
    contexts: Iterable[str] | None = None,
    repair: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Examine a store and all of its contexts, or the named ones; with `repair`, repair what is safe.

    `progress` is called with the name of each context before it is examined. A store that cannot be opened is reported
    as a symptom. A read-only store is examined as far as possible. Others may write meanwhile: every context is read at
    one moment. Raises `StorageFailure` if the store does not exist.
    """
    try:
        storage, owned = _open(where, repair)
    except (QuireError, OSError) as error:
        if isinstance(error, QuireError) and error.code in ("invalid_value", "storage_failure", "read_only"):
            raise
        return Diagnosis(contexts=0, symptoms=(_error_symptom("store", error),))
    try:
        symptoms = list(_examine_store(storage, repair))
        is_index_lost = any(symptom.code == "search_damaged" for symptom in symptoms)
        indexes = None if is_index_lost else IndexExamination(storage, repair)
        count = 0
        for name in _names(storage, contexts, symptoms):
            if progress is not None:
                progress(name)
            count += 1
            examination = _ContextExamination(storage, name, repair, indexes, listed=contexts is None)
            symptoms += examination.symptoms()
        if indexes is not None:
            symptoms += indexes.shared_symptoms()
        if repair and contexts is None:
            symptoms = _remove_unused_pages(storage, symptoms)
        return Diagnosis(contexts=count, symptoms=tuple(symptoms))
    finally:
        if owned:
            storage.close()


def _open(where: StoreLocation, repair: bool) -> tuple[Storage, bool]:
    """Return the storage, and whether it was opened here. An SQLite file that cannot be written is opened read-only."""
    try:
        return existing_storage(where)
    except QuireError as error:
        path = str(where).removeprefix("sqlite:").removeprefix("//")
        is_writable = os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK)
        if repair or error.code not in ("storage_failure", "read_only") or not os.path.isfile(path) or is_writable:
            raise
        return SQLiteStorage(path, read_only=True), True


def _examine_store(storage: Storage, repair: bool) -> Iterator[Symptom]:
    if not isinstance(storage, SupportsExamine):
        return
    try:
        yield from storage.examine(repair=repair)
    except QuireError as error:
        yield _error_symptom("store", error)


def _remove_unused_pages(storage: Storage, symptoms: list[Symptom]) -> list[Symptom]:
    """Rewrite a store that has unused pages, unless something else is damaged: they may be the rest of lost data."""
    unused = [symptom for symptom in symptoms if symptom.code == "unused_pages"]
    is_whole = all(symptom.repaired or symptom.severity == "note" for symptom in symptoms)
    if unused and is_whole and isinstance(storage, SupportsScrub):
        with suppress(QuireError):  # a reader or a full disk prevents it
            storage.scrub(None)
            return [replace(symptom, repaired=True) if symptom in unused else symptom for symptom in symptoms]
    return symptoms


def _names(storage: Storage, contexts: Iterable[str] | None, symptoms: list[Symptom]) -> Iterator[str]:
    if contexts is not None:
        yield from [contexts] if isinstance(contexts, str) else contexts
        return
    try:
        yield from list_contexts(storage)
    except QuireError as error:
        symptoms.append(_error_symptom("list of contexts", error))


def _error_symptom(where: str, error: Exception, context: str = "") -> Symptom:
    code = error.code if isinstance(error, QuireError) else "storage_failure"
    remedy = next((words for kind, words in _REMEDIES if isinstance(error, kind)), "")
    severity: Severity = "warning" if isinstance(error, Busy | Conflict) else "error"
    return Symptom(code, severity, where, str(error), remedy, context)


class _Findings(NamedTuple):
    """What the snapshot of a context shows: its head if it is readable, the symptoms, and a commit that repairs them.

    Symptoms that the commit repairs are marked as repaired already.
    """

    head: Head | None
    symptoms: list[Symptom]
    repair: Commit | None = None


class _ContextExamination:
    """The examination of one context. It reads a snapshot, because others may write meanwhile."""

    def __init__(
        self, storage: Storage, context: str, repair: bool, indexes: "IndexExamination | None", *, listed: bool = False
    ) -> None:
        self._storage = storage
        self._context = context
        self._repair = repair
        self._indexes = indexes
        self._is_listed = listed
        """True if the store listed the context. It may have been deleted since."""

    def symptoms(self) -> list[Symptom]:
        """Return all symptoms of the context."""
        try:
            head = self._healthy_head()
            found = _Findings(head, []) if head else self._examine_and_repair()
            if found.head is not None and self._indexes is not None:
                found.symptoms.extend(self._indexes.symptoms(self._context, found.head))
            return found.symptoms
        except QuireError as error:
            return [_error_symptom("context", error, self._context)]

    def _healthy_head(self) -> Head | None:
        """Return the head if the storage can read the context in one request and it has no symptoms."""
        copy = self._storage.bulk_read(self._context) if isinstance(self._storage, SupportsBulkRead) else None
        if copy is None or _ContextExamination(copy, self._context, False, None).symptoms():
            return None
        return copy.head(self._context)

    def _examine_and_repair(self) -> _Findings:
        """Examine a snapshot; if another writer commits before the repair, examine a new one."""
        for _ in range(_TRIES):
            found = read_snapshot(self._storage, self._context, self._examine)
            if found.head is not None and found.head.version < 0:
                return _Findings(None, self._report_unfinished(found.head))
            if found.repair is None:
                return found
            with suppress(Conflict):
                self._storage.commit(self._context, found.repair)
                return found._replace(head=self._storage.head(self._context))
        raise Conflict(f"Context {self._context!r} changed in every attempt to repair it.")

    def _examine(self, snapshot: Storage) -> _Findings:
        head = snapshot.head(self._context)
        if head is None:
            missing = self._symptom("no_such_context", "error", "context", "There is no context of this name.")
            return _Findings(None, [] if self._is_listed else [missing])
        if head.version < 0:
            return _Findings(head, [])
        try:
            decode_head(head.value)
            state = State(snapshot, self._context, max_pages=1_000, max_bytes=1 << 20)
        except QuireError as error:
            problems = find_damaged(snapshot, self._context, head)
            named = [problem for problem in problems if problem.where != "head"]
            first = [_error_symptom("head", error, self._context)] if not named or named != problems else []
            return _Findings(None, [*first, *map(self._problem, named)])
        problems = check_stored(state)
        derived = [problem for problem in problems if problem.derived]
        is_readable = not any(problem.invariant == 0 and not problem.derived for problem in problems)
        unused = _find_unused(state) if is_readable else {}
        symptoms = [
            *(self._problem(problem) for problem in problems if not problem.derived),
            *(self._derived_problem(problem, repaired=self._repair and is_readable) for problem in derived),
            *(self._unused_problem(family, keys) for family, keys in unused.items()),
        ]
        if not (self._repair and is_readable and (derived or unused)):
            return _Findings(head, symptoms)
        writes, value = _derive_again(state) if derived else ([], head.value)
        writes += [Delete(BODY, key) for key in unused.get(BODY, ())]
        left = set(unused.get(VECTOR, ())) - {write.key for write in writes if write.family == VECTOR}
        writes += delete_vectors(snapshot, self._context, state.mark, left)
        return _Findings(head, symptoms, Commit(head.version, head.version, value, writes, head.value))

    def _symptom(
        self, code: str, severity: Severity, where: str, text: str, remedy: str = "", *, repaired: bool = False
    ) -> Symptom:
        return Symptom(code, severity, where, text, remedy, self._context, repaired)

    def _problem(self, problem: Problem) -> Symptom:
        if problem.invariant == 0:
            return self._symptom("record_damaged", "error", problem.where, problem.text, _FROM_BACKUP)
        text = f"{problem.text} (invariant {problem.invariant})."
        return self._symptom("invariant_broken", "error", problem.where, text, _FROM_BACKUP)

    def _derived_problem(self, problem: Problem, *, repaired: bool) -> Symptom:
        code = "count_wrong" if problem.invariant else "record_damaged"
        return self._symptom(code, "warning", problem.where, problem.text, _REPAIRS, repaired=repaired)

    def _unused_problem(self, family: Family, keys: list[int]) -> Symptom:
        text = f"{len(keys):,} {_UNUSED[family]}."
        return self._symptom("unreached_records", "note", family, text, _REPAIRS, repaired=self._repair)

    def _report_unfinished(self, head: Head) -> list[Symptom]:
        """Report a copy or a removal that was interrupted. One that is in progress changes the head soon."""
        sleep(_PAUSE)
        if self._storage.head(self._context) != head:
            return []
        if head.value != REMOVING_HEAD:
            remedy = "Run the same migration or import again to finish it, or delete the context."
            return [self._symptom("copy_unfinished", "warning", "context", "It is an unfinished copy.", remedy)]
        if self._repair:
            drop_with_companions(self._storage, self._context)
        text = "Its removal was interrupted."
        return [self._symptom("removal_unfinished", "warning", "context", text, _REPAIRS, repaired=self._repair)]


class _ContextChanged(Exception):
    """Another writer changed the context while its pages were read."""


class IndexExamination:
    """The examination of the search indexes of a store: each against its pages, and then all together.

    An index at an older state is not compared, because the next search updates it. An index that may not be read here
    is not reported.
    """

    def __init__(self, storage: Storage, repair: bool, pages: Storage | None = None) -> None:
        """Examine the indexes in `storage`. `pages` is a copy to read the pages from."""
        self._storage = storage
        self._pages = pages or storage
        self._repair = repair
        self._check = storage.search_check() if isinstance(storage, SupportsSearchCheck) else None

    def symptoms(self, context: str, head: Head) -> Iterator[Symptom]:
        """Compare the index of a context with its pages."""
        if self._check is None or not isinstance(self._storage, SupportsSearch):
            return
        try:
            state = IndexState(head.version, index_identity(head))
            is_same = self._check.matches(context, state, self._documents(context, head))
        except (_ContextChanged, Corrupt, IndexReadOnly):  # damaged records are reported by the check of records
            return
        if not is_same:
            damage, repaired = "it does not match the pages", self._reset(self._storage.search(context).clear)
            yield search_symptom("search_outdated", damage, context, repaired=repaired)

    def shared_symptoms(self) -> Iterator[Symptom]:
        """Check the data that all indexes share."""
        if self._check is not None and (damage := self._check.find_damage()):
            yield search_symptom("search_damaged", damage, repaired=self._reset(self._check.reset))

    def _reset(self, reset: Callable[[], None]) -> bool:
        """With `repair`, empty an index; return whether it was emptied."""
        if self._repair:
            with suppress(IndexReadOnly):
                reset()
                return True
        return False

    def _documents(self, context: str, head: Head) -> Iterator[Document]:
        """Yield the documents that the index should hold. Raises `_ContextChanged` if the context changed meanwhile."""
        mark = mark_of(decode_head(head.value))
        pages = scan_pages(self._pages, context, mark)
        while batch := list(islice(pages, _BATCH)):
            ahead = PrefetchedRecords(self._pages, context, batch)
            yield from (build_document(ahead, context, mark, page) for page in batch)
        if self._pages.head(context) != head:
            raise _ContextChanged


def _derive_again(state: State) -> tuple[list[Write], bytes]:
    """Return writes for the counts of children, the list of pins and the calls, and a head without its own count.

    If a vector is missing or cannot be read, all vectors are deleted; the next semantic search creates them. Damaged
    layouts and sheets are deleted in the same way; the next fold creates them.
    """
    damaged: set[str] = set()
    head = Head(state.version, state.head_value)
    check = RecordCheck(state.context, head, lambda damage: damaged.add(damage.family))
    read_records(check, state.storage, state.context)
    writes: list[Write] = []
    for family in (TALLY, PIN, *(family for family in _REMADE if family in damaged)):
        writes += [Delete(family, record.key) for record in state.storage.scan(state.context, family)]
    writes += [Put(TALLY, key, encode_record(key, tally.pack(), state.mark)) for key, tally in check.children.items()]
    writes += [Put(PIN, key, b"") for key in sorted(check.pinned)]
    writes += [Put(CALL, key, encode_record(key, pages, state.mark)) for key, pages in check.wrong_calls().items()]
    layouts = 0 if LAYOUT in damaged else state.head.layouts
    counts = replace(state.head.counts, pins=len(check.pinned))
    new_head = replace(state.head, tally_of=-1, tally=0, layouts=layouts, counts=counts)
    return writes, encode_record(0, new_head)


def _find_unused(state: State) -> dict[Family, list[int]]:
    """Return the keys of bodies that nothing refers to, and of vectors of removed pages."""
    storage, context = state.storage, state.context
    live = {page.key: page.header.body for page in state.segment_pages()}
    used = set(live.values())
    for record in storage.scan(context, JOURNAL):
        for touched in decode_entry(record.key, record.value, state.mark).touched:
            if touched.family == PAGE_CODE:
                used.add(_body_in(Record(touched.key, touched.before or b"", touched.group, touched.order)))
    for record in storage.scan(context, ANCHOR):
        anchor = decode_deferred_change(record.key, record.value, state.mark)
        used.add(_body_in(Record(record.key, anchor.before or b"", anchor.group, anchor.order)))
        used.add(_body_in(Record(record.key, anchor.opened)))
    vectors = (record.key for record in storage.scan(context, VECTOR) if record.key != VECTOR_STATE)
    found: dict[Family, list[int]] = {
        BODY: [record.key for record in storage.scan(context, BODY) if record.key not in used],
        VECTOR: [key for key in vectors if key not in live],
    }
    return {family: keys for family, keys in found.items() if keys}


def _body_in(record: Record) -> int:
    page = decode_page(record) if record.value else None
    return page.header.body if isinstance(page, PageRecord) else 0
