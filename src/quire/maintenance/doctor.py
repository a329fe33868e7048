"""Examining a store: what is damaged or out of order, what that means, and repairing what is safe to repair.

Safe is what is derived from something else (the search index, counts of children, the list of pins, vectors), what
nobody can reach (rows of no context, bodies that nothing refers to), and the rest of a removal that was interrupted.
Whatever holds the only copy of something is left as it is.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from quire.core.records import (
    PAGE_CODE,
    VECTOR_STATE,
    PageRecord,
    decode_deferred_change,
    decode_entry,
    decode_head,
    decode_page,
    decode_vector,
    encode_record,
)
from quire.core.state import State
from quire.errors import Busy, Conflict, Corrupt, QuireError, StorageFailure
from quire.maintenance.retention import LEAVING
from quire.maintenance.search_index import Indexes
from quire.storage.base import (
    ANCHOR,
    BODY,
    JOURNAL,
    PIN,
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
    Symptom,
    Write,
)
from quire.storage.sqlite.storage import SQLiteStorage
from quire.storage.urls import storage_at
from quire.system.check import Problem, check, unreadable

_DERIVED: tuple[Family, ...] = (TALLY, PIN)
_REPAIRS = "repair=True does it."
_FROM_BACKUP = "Restore the context from a backup or an exported file."
_LOOK = "Look at the disk, the server or the rights, and run it again."

_REMEDIES: tuple[tuple[type[Exception], str], ...] = (
    (Corrupt, _FROM_BACKUP),
    (Busy, "Nothing is known to be damaged: run it again when the other is done."),
    (Conflict, "Nothing is known to be damaged: run it again."),
    (StorageFailure, _LOOK),
    (OSError, _LOOK),
)
"""What helps after an error, where its text does not say so itself."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """What an examination found: how many contexts were looked at, and every symptom, the store's own first."""

    contexts: int
    symptoms: tuple[Symptom, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing but notes is left."""
        return all(symptom.repaired or symptom.severity == "note" for symptom in self.symptoms)


def doctor(
    where: str | os.PathLike[str] | Storage,
    *,
    contexts: Iterable[str] | None = None,
    repair: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Examine a store and its contexts, all or those named; with `repair`, repair what is safe.

    `progress` hears the name of each context before it is looked at. A store that cannot be opened is a finding, not an
    error; one that can only be read is examined as far as that goes. Raises `StorageFailure` if there is no store.
    """
    try:
        storage, owned = _opened(where, repair)
    except (QuireError, OSError) as error:
        if isinstance(error, QuireError) and error.code in ("invalid_value", "storage_failure"):
            raise
        return Diagnosis(contexts=0, symptoms=(_refused("store", error),))
    try:
        symptoms = list(_store(storage, repair))
        is_lost = any(symptom.code == "search_damaged" for symptom in symptoms)  # of all contexts then
        indexes = None if is_lost else Indexes(storage, repair=repair)
        looked_at = 0
        for name in _names(storage, contexts, symptoms):
            if progress is not None:
                progress(name)
            looked_at += 1
            symptoms += _Examination(storage, name, repair, indexes).symptoms()
        if indexes is not None:
            symptoms += indexes.rest()
        return Diagnosis(contexts=looked_at, symptoms=tuple(symptoms))
    finally:
        if owned:
            storage.close()


def _opened(where: str | os.PathLike[str] | Storage, repair: bool) -> tuple[Storage, bool]:
    """The storage; an SQLite file that cannot be written to is opened to be read."""
    try:
        return storage_at(where, create=False)
    except QuireError as error:
        path = str(where).removeprefix("sqlite:").removeprefix("//")
        if repair or error.code != "storage_failure" or not os.path.isfile(path):
            raise
        return SQLiteStorage(path, read_only=True), True


def _store(storage: Storage, repair: bool) -> Iterator[Symptom]:
    examine: Any = getattr(storage, "examine", None)
    if examine is None:
        return
    try:
        yield from examine(repair=repair)
    except QuireError as error:
        yield _refused("store", error)


def _names(storage: Storage, contexts: Iterable[str] | None, symptoms: list[Symptom]) -> Iterator[str]:
    if contexts is not None:
        yield from [contexts] if isinstance(contexts, str) else contexts
        return
    try:
        yield from storage.contexts()
    except QuireError as error:
        symptoms.append(_refused("list of contexts", error))


def _refused(where: str, error: Exception, context: str = "") -> Symptom:
    code = error.code if isinstance(error, QuireError) else "storage_failure"
    remedy = next((words for kind, words in _REMEDIES if isinstance(error, kind)), "")
    return Symptom(code=code, severity="error", where=where, text=str(error), remedy=remedy, context=context)


class _Examination:
    """The examination of one context."""

    def __init__(self, storage: Storage, context: str, repair: bool, indexes: Indexes | None) -> None:
        self._storage = storage
        self._context = context
        self._repair = repair
        self._indexes = indexes

    def symptoms(self) -> list[Symptom]:
        """Everything that is wrong with it."""
        found: list[Symptom] = []
        try:
            head = self._sound()
            if head is None:
                found.extend(self._look())
            elif self._indexes is not None:
                found.extend(self._indexes.look(self._context, head))
        except QuireError as error:
            found.append(_refused("context", error, self._context))
        return found

    def _sound(self) -> Head | None:
        """The head of a small context with which everything is in order, as one look at all of it tells."""
        take: Any = getattr(self._storage, "whole", None)
        copy: Storage | None = None if take is None else take(self._context)
        if copy is None or _Examination(copy, self._context, False, None).symptoms():
            return None
        return copy.head(self._context)

    def _look(self) -> Iterator[Symptom]:
        head = self._storage.head(self._context)
        if head is None:
            yield self._symptom("no_such_context", "error", "context", "There is no context of this name.")
            return
        if head.version < 0:
            yield self._unfinished(head)
            return
        try:
            decode_head(head.value)
            state = State(self._storage, self._context, max_pages=1_000, max_bytes=1 << 20)
        except QuireError as error:
            yield _refused("head", error, self._context)
            yield from map(self._problem, unreadable(self._storage, self._context))
            return
        problems = check(state)
        yield from (self._problem(problem) for problem in problems if not problem.derived)
        is_readable = not any(problem.invariant == 0 and not problem.derived for problem in problems)
        yield from self._derived(state, [problem for problem in problems if problem.derived], is_readable)
        if is_readable:
            yield from self._unreached(state)
        if self._indexes is not None:
            yield from self._indexes.look(self._context, head)

    def _symptom(self, code: str, severity: Severity, where: str, text: str, remedy: str = "") -> Symptom:
        return Symptom(code=code, severity=severity, where=where, text=text, remedy=remedy, context=self._context)

    def _problem(self, problem: Problem) -> Symptom:
        if problem.invariant == 0:
            return self._symptom("record_damaged", "error", problem.where, problem.text, _FROM_BACKUP)
        text = f"{problem.text} (invariant {problem.invariant})."
        return self._symptom("invariant_broken", "error", problem.where, text, _FROM_BACKUP)

    def _unfinished(self, head: Head) -> Symptom:
        if head.value == LEAVING:
            text = "It was on its way out when the removal was interrupted."
            symptom = self._symptom("removal_unfinished", "warning", "context", text, _REPAIRS)
            if self._repair:
                self._storage.drop(self._context)
            return replace(symptom, repaired=self._repair)
        remedy = "Run the same migrate() or import_() again to finish it, or delete() it."
        return self._symptom("copy_unfinished", "warning", "context", "It is an unfinished copy.", remedy)

    def _derived(self, state: State, problems: list[Problem], is_readable: bool) -> Iterator[Symptom]:
        """What can be made anew, if all that it is made of can be read."""
        repaired = bool(problems) and self._repair and is_readable
        if repaired:
            self._commit(state, *_counted_anew(state))
        for problem in problems:
            code, end = ("count_wrong", ".") if problem.invariant else ("record_damaged", "")
            symptom = self._symptom(code, "warning", problem.where, f"{problem.text}{end}", _REPAIRS)
            yield replace(symptom, repaired=repaired)

    def _unreached(self, state: State) -> Iterator[Symptom]:
        """Bodies that nothing refers to, and vectors of pages that are gone."""
        strays: tuple[tuple[Family, list[int], str], ...] = (
            (BODY, _stray_bodies(state), "texts that no page and no history refers to"),
            (VECTOR, _stray_vectors(state), "vectors of pages that are gone"),
        )
        for family, keys, what in strays:
            if keys:
                if self._repair:
                    self._commit(state, [Delete(family, key) for key in keys])
                text = f"{len(keys):,} {what}."
                symptom = self._symptom("unreached_records", "note", family, text, _REPAIRS)
                yield replace(symptom, repaired=self._repair)

    def _commit(self, state: State, writes: list[Write], head: bytes | None = None) -> None:
        """Write beside what the context says: its version stays."""
        now = state.head_value
        commit = Commit(state.version, state.version, now if head is None else head, writes, now)
        self._storage.commit(self._context, commit)
        state.load()


def _counted_anew(state: State) -> tuple[list[Write], bytes]:
    """The counts of children and the list of pins as the pages have them, and a head that keeps no count itself.

    If a vector cannot be read, all go: the next search by meaning makes them.
    """
    children: dict[int, int] = {}
    pinned: set[int] = set()
    for page in state.segment_pages():
        if page.parent is not None and not page.is_cold:
            children[page.parent] = children.get(page.parent, 0) + 1
        if page.header.pinned:
            pinned.add(page.key)
    writes: list[Write] = []
    for family in _DERIVED:
        writes += [Delete(family, record.key) for record in state.storage.scan(state.context, family)]
    writes += [Put(TALLY, key, encode_record(key, count)) for key, count in children.items()]
    writes += [Put(PIN, key, b"") for key in sorted(pinned)]
    writes += _unread_vectors(state)
    return writes, encode_record(0, replace(state.head, tally_of=-1, tally=0))


def _unread_vectors(state: State) -> list[Write]:
    try:
        for record in state.storage.scan(state.context, VECTOR):
            decode_vector(record.key, record.value)
    except QuireError:
        return [Delete(VECTOR, record.key) for record in state.storage.scan(state.context, VECTOR)]
    return []


def _stray_bodies(state: State) -> list[int]:
    storage, context = state.storage, state.context
    used = {page.header.body for page in state.segment_pages()}
    for record in storage.scan(context, JOURNAL):
        for touched in decode_entry(record.key, record.value).touched:
            if touched.family == PAGE_CODE:
                used.add(_body_in(touched.key, touched.before, touched.group))
    for record in storage.scan(context, ANCHOR):
        anchor = decode_deferred_change(record.key, record.value)
        used.add(_body_in(record.key, anchor.before, anchor.group))
        used.add(_body_in(record.key, anchor.opened or None, None))
    return [record.key for record in storage.scan(context, BODY) if record.key not in used]


def _body_in(key: int, header: bytes | None, group: int | None) -> int:
    page = None if header is None else decode_page(Record(key, header, group))
    return page.header.body if isinstance(page, PageRecord) else 0


def _stray_vectors(state: State) -> list[int]:
    live = {page.key for page in state.segment_pages()}
    keys = (record.key for record in state.storage.scan(state.context, VECTOR))
    return [key for key in keys if key != VECTOR_STATE and key not in live]
