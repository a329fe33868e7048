"""The doctor: finds damage in a store, explains it, and repairs what is safe to repair.

It is safe to make derived records again (the list of pins, calls, layouts) and to remove what nothing refers to. The
only copy of something is never changed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from os import urandom
from time import sleep, time_ns

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.codec import decode_head, encode_call, encode_entry, encode_head, encode_note
from quire.core.companion import LEASE, SUMMARIES, VECTORS, companion_of
from quire.core.integrity import PAUSE, RecordCheck, lasting_flaws, snapshot_of
from quire.core.lease import LeaseRecord
from quire.core.records import EntryRecord
from quire.errors import Busy, Conflict, Corrupt, NewerFormat, OlderFormat, QuireError, StorageFailure, names_options
from quire.storage.base import RESERVED, Severity, Symptom, list_contexts
from quire.storage.contract import CALL, NOTE, PAGE, TEXT, Commit, Family, Flaw, Record, Storage
from quire.storage.urls import StoreLocation, existing_storage
from quire.system.check import Problem, examine_records

_TRIES = 5
_REPAIRS = "A repair does it."
_FROM_BACKUP = "Restore the context from a backup or an exported file."
_CHECK_STORE = "Check the disk, the server or the permissions, and run it again."
_FLAWS: dict[str, tuple[Severity, str, str]] = {
    "file_damaged": ("error", "file", f"Copy what can be read: quire.backup. {_FROM_BACKUP}"),
    "name_lost": ("error", "store", f"Nothing is removed. {_FROM_BACKUP}"),
    "commits_lost": ("warning", "store", "Nothing can be done: the newest changes were never on the disk."),
    "copy_unfinished": ("warning", "store", _REPAIRS),
}


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
    as a symptom. Others may write meanwhile: every context is read at one moment. Raises `StorageFailure` if the store
    does not exist.
    """
    try:
        storage, owned = existing_storage(where)
    except (QuireError, OSError) as error:
        if isinstance(error, QuireError) and error.code in ("invalid_value", "storage_failure", "read_only"):
            raise
        return Diagnosis(contexts=0, symptoms=(_of_error("store", error),))
    try:
        return Examination(storage, repair=repair, removes_unused=True).run(contexts, progress)
    finally:
        if owned:
            storage.close()


def _of_flaw(flaw: Flaw) -> Symptom:
    severity, where, remedy = _FLAWS[flaw.code]
    return Symptom(flaw.code, severity, where, flaw.text, remedy)


def _of_error(where: str, error: Exception, context: str = "") -> Symptom:
    code = error.code if isinstance(error, QuireError) else "storage_failure"
    if isinstance(error, Busy | Conflict):
        remedy = "No damage is known. Run it again when the other process is done."
        return Symptom(code, "warning", where, str(error), remedy, context)
    is_outside = isinstance(error, StorageFailure | OSError)
    remedy = _FROM_BACKUP if isinstance(error, Corrupt) else _CHECK_STORE if is_outside else ""
    return Symptom(code, "error", where, str(error), remedy, context)


class Examination:
    """The examination of an open store, with or without repairs and the removal of texts that nothing refers to.

    Errors of the kind `told` of the whole store are symptoms; others are raised.
    """

    def __init__(
        self, storage: Storage, *, repair: bool, removes_unused: bool, told: type[QuireError] = QuireError
    ) -> None:
        self._storage = storage
        self._repair = repair
        self._removes_unused = removes_unused
        self._told = told

    def run(self, contexts: Iterable[str] | None, progress: Callable[[str], None] | None) -> Diagnosis:
        """Examine the store and all of its contexts, or the named ones."""
        symptoms = self.of_store()
        given = [contexts] if isinstance(contexts, str) else contexts
        count = 0
        for name in self.names(symptoms) if given is None else given:
            if progress is not None:
                progress(name)
            count += 1
            symptoms += self._of_context(name, is_listed=given is None)
        if given is None and not any(symptom.severity == "error" for symptom in symptoms):
            symptoms = self._without_leftovers(symptoms)
        return Diagnosis(contexts=count, symptoms=tuple(symptoms))

    def _without_leftovers(self, symptoms: list[Symptom]) -> list[Symptom]:
        """Find companions of contexts that are gone. With a repair, remove them and unfinished copies."""
        try:
            symptoms = [*symptoms, *self._of_companions()]
            if self._repair and any(symptom.code == "copy_unfinished" for symptom in symptoms):
                self._storage.scrub()
                symptoms = [
                    replace(each, repaired=each.repaired or each.code == "copy_unfinished") for each in symptoms
                ]
            return symptoms
        except self._told as error:
            return [*symptoms, _of_error("store", error)]

    def of_store(self) -> list[Symptom]:
        """Return what is wrong with the store itself."""
        try:
            return [_of_flaw(flaw) for flaw in lasting_flaws(self._storage)]
        except self._told as error:
            return [_of_error("store", error)]

    def names(self, symptoms: list[Symptom]) -> Iterator[str]:
        """Yield the names of the contexts, as far as their list can be read."""
        try:
            yield from list_contexts(self._storage)
        except self._told as error:
            symptoms.append(_of_error("list of contexts", error))

    def _of_context(self, name: str, *, is_listed: bool) -> list[Symptom]:
        try:
            for _ in range(_TRIES):
                with suppress(Conflict):  # another writer commits before the repair: examine a new snapshot
                    return self._examine(name, is_listed=is_listed)
            raise Conflict(f"Context {name!r} changed in every attempt to repair it.")
        except QuireError as error:
            where = "head" if isinstance(error, NewerFormat | OlderFormat) else "context"
            return [_of_error(where, error, name)]

    def _examine(self, name: str, *, is_listed: bool) -> list[Symptom]:
        """Examine a snapshot of a context, and repair the context. Raises `Conflict`."""
        with snapshot_of(self._storage, name) as (snapshot, found):
            if found is None:
                return _missing(self._storage, name, is_listed=is_listed)
            with suppress(Corrupt):  # a damaged head is told with the records
                decode_head(found.seq, found.head)  # raises if another version of quire wrote it
            records = RecordCheck(snapshot, found)
            problems, _ = examine_records(snapshot, name, records)
        commit = None
        if self._repair and all(problem.derived or problem.invariant for problem in problems):
            commit = _repair_of(records, found.seq + 1, removes_unused=self._removes_unused)
        if commit is not None:
            self._storage.commit(found.id, commit)
        symptoms = [_of_problem(problem, name, repaired=commit is not None) for problem in problems]
        if records.unused:
            text = f"{len(records.unused):,} texts that no page and no history refers to."
            is_done = commit is not None and self._removes_unused
            symptoms.append(Symptom("unreached_records", "note", TEXT, text, _REPAIRS, name, is_done))
        return symptoms

    def _of_companions(self) -> Iterator[Symptom]:
        """Find companions of contexts that are gone."""
        names = [name for name in self._storage.contexts(RESERVED[:-1]) if name.startswith(RESERVED)]
        owners = list(list_contexts(self._storage)) if names else []
        known = {companion_of(owner, kind) for owner in owners for kind in (LEASE, SUMMARIES, VECTORS)}
        left = [name for name in names if name not in known and not _is_lease_in_use(self._storage, name)]
        for name in left if self._repair else ():
            self._storage.drop(name)
        if left:
            text = f"{len(left)} leases, summaries or vectors of contexts that are gone."
            yield Symptom("leftover", "note", "store", text, _REPAIRS, "", self._repair)


def _missing(storage: Storage, name: str, *, is_listed: bool) -> list[Symptom]:
    """Return the symptom of a context that cannot be loaded, unless others removed it meanwhile."""
    if not is_listed:
        return [Symptom("no_such_context", "error", "context", "There is no context of this name.", "", name)]
    sleep(PAUSE)
    if name not in storage.contexts() or storage.load(name) is not None:
        return []
    text = "It has a name, but no journal. It was lost, or a removal was interrupted."
    return [Symptom("head_lost", "error", "context", text, f"{_FROM_BACKUP} Or delete it.", name)]


def _of_problem(problem: Problem, context: str, *, repaired: bool) -> Symptom:
    if problem.derived:
        code = "count_wrong" if problem.invariant else "record_damaged"
        return Symptom(code, "warning", problem.where, problem.text, _REPAIRS, context, repaired)
    if problem.invariant == 0:
        return Symptom("record_damaged", "error", problem.where, problem.text, _FROM_BACKUP, context)
    text = f"{problem.text} (invariant {problem.invariant})."
    return Symptom("invariant_broken", "error", problem.where, text, _FROM_BACKUP, context)


def _repair_of(records: RecordCheck, seq: int, *, removes_unused: bool) -> Commit | None:
    """Return the commit that makes derived records again and removes unused texts; None if nothing is to do."""
    head, put, delete = records.head, list[tuple[Family, Record]](), list[tuple[Family, int]]()
    changes = {**records.repairs, **{(TEXT, key): None for key in records.unused if removes_unused}}
    for (family, key), value in changes.items():
        if value is not None:
            put.append((family, encode_call(key, value) if isinstance(value, tuple) else encode_note(key, value)))
            records.seqs[family, key] = seq if family == NOTE else 0
        elif (family, key) in records.seqs:
            delete.append((family, key))
            del records.seqs[family, key]
    digests = records.digest(PAGE), records.digest(TEXT), records.digest(NOTE), records.digest(CALL)
    if head is None or digests == head.digests:
        return None
    entry = EntryRecord(time_ns() // 1_000_000, "doctor", "repair", urandom(10), ())
    return Commit(seq, encode_head(seq, replace(head, digests=digests)), encode_entry(seq, entry), put, delete)


def _is_lease_in_use(storage: Storage, name: str) -> bool:
    """Return whether a companion is a lease that was not released: perhaps of a context that is not written yet."""
    if name.startswith((SUMMARIES, VECTORS)):
        return False
    found = storage.load(name)
    with suppress(msgspec.MsgspecError):
        return found is not None and not msgspec.msgpack.decode(found.head, type=LeaseRecord).released
    return True  # a damaged one may be in use
