"""Copying contexts between stores: streaming and verified. Backups, exports and imports are copies too.

A copy is built without a name, compared with its source, and named at the end. So nobody can open an unfinished copy.
What is left of an interrupted one is removed by `scrub` and `doctor(repair=True)`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain, islice, zip_longest
from typing import Final, NamedTuple

from msgspec import Struct

from quire.core.codec import decode_entry, decode_head
from quire.core.companion import VECTORS, companion_of
from quire.core.integrity import check_records, lasting_flaws, snapshot_of
from quire.errors import Conflict, Corrupt, Hint, InvalidOperation, NoSuchContext, QuireError, names_options, short_repr
from quire.storage.base import list_contexts
from quire.storage.contract import (
    CACHE,
    CALL,
    FAMILIES,
    MAX_KEY,
    Commit,
    Family,
    Id,
    Loaded,
    Record,
    Storage,
    StoredEntry,
)
from quire.storage.urls import StoreLocation, existing_storage, storage_at

_ENTRIES: Final = 256
"""The entries of one commit of a copy. The records are spread over the commits in proportion."""
_MOST_NAMES: Final = 20


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a copy: the current context, the phase, and the records and bytes done so far."""

    context: str
    phase: str
    records: int
    bytes: int


ProgressCallback = Callable[[Progress], None]
_SKIPPED: Final[tuple[type[QuireError], ...]] = (Corrupt, InvalidOperation, Conflict)
"""Errors that stop the copy of one context only, worst first."""


class Contents(NamedTuple):
    """What is copied: the newest entry of a context, its head, and commits that make the same context."""

    seq: int
    head: bytes
    commits: Callable[[], Iterator[Commit]]


def contents_of(storage: Storage, found: Loaded) -> Contents:
    """Return the contents of a context that does not change meanwhile."""
    return Contents(found.seq, found.head, lambda: _commits_of(storage, found))


class Meter:
    """Counts the records and bytes of the commits of one context, and reports them."""

    def __init__(self, context: str, report: ProgressCallback | None = None) -> None:
        self.context = context
        self.records = self.size = 0
        self._report = report

    def through(self, phase: str, commits: Iterable[Commit]) -> Iterator[Commit]:
        """Yield the commits; report the phase after each."""
        self.records = self.size = 0
        for commit in commits:
            yield commit
            self.records += len(commit.put)
            self.size += sum(len(record.value) for _, record in commit.put)
            self.tell(phase)

    def tell(self, phase: str, size: int | None = None) -> Progress:
        """Report a phase; return what was reported."""
        size = self.size if size is None else size
        done = Progress(context=self.context, phase=phase, records=self.records, bytes=size)
        if self._report is not None:
            self._report(done)
        return done


def copy(contents: Contents, target: Storage, meter: Meter, older: Loaded | None = None) -> Progress:
    """Copy contents into a storage, under the name of the meter. An `older` context of this name is replaced.

    If that one is the same, it is only compared. Raises `Corrupt` if something reads back differently, and `Conflict`
    if another writer used the name meanwhile.
    """
    if older is not None and (older.seq, older.head) == (contents.seq, contents.head):
        _verify(contents, target, older.id, meter)
        return meter.tell("done")
    id_: Id | None = None
    for commit in meter.through("copy", contents.commits()):
        if id_ is None:
            id_ = target.create(None, commit)
        else:
            target.commit(id_, commit)
    if id_ is None:
        raise Corrupt(f"Context {short_repr(meter.context)}: its journal is missing.")
    _verify(contents, target, id_, meter)
    if older is not None:
        target.drop(meter.context, (older.id, older.seq))
    target.name(id_, meter.context)
    return meter.tell("done")


def _verify(contents: Contents, target: Storage, id_: Id, meter: Meter) -> None:
    """Compare a copy with its source. Raises `Corrupt`."""
    written = _commits_of(target, Loaded(id_, contents.seq, contents.head))
    for here, there in zip_longest(meter.through("verify", contents.commits()), written):
        if here != there:
            pairs = zip_longest(_named(here), _named(there))
            place = next((one or two for one, two in pairs if one != two), None)
            what = place[0] if place else "a record"
            raise Corrupt(f"{what} of {meter.context!r} reads back differently from the target.")


def _named(commit: Commit | None) -> Iterator[tuple[str, Record | StoredEntry]]:
    """Yield the parts of a commit, each with its name."""
    if commit is not None:
        yield from ((f"{family} record {record.key}", record) for family, record in commit.put)
        yield from ((f"journal record {entry.seq}", entry) for entry in commit.entries)


def _commits_of(storage: Storage, found: Loaded) -> Iterator[Commit]:
    """Yield commits that make a context again, always the same ones."""
    try:
        head = decode_head(found.seq, found.head)
        records = sum(digest.count for digest in head.digests)
        share = max(1, -(-records * _ENTRIES // (found.seq - head.first + 1)))
    except Corrupt:
        share = _ENTRIES
    left = chain.from_iterable(_records_of(storage, found.id, family) for family in FAMILIES)
    entries = _entries_of(storage, found.id)
    chunk = list(islice(entries, _ENTRIES))
    while chunk:
        following = list(islice(entries, _ENTRIES))
        *earlier, last = chunk
        put = list(islice(left, share) if following else left)
        yield Commit(last.seq, last.head, last.entry, put, [], [], 0, earlier)
        chunk = following


def _entries_of(storage: Storage, id_: Id) -> Iterator[StoredEntry]:
    """Yield the journal; an empty entry stands for a missing one, so that a damaged context can be copied."""
    expected = 0
    for entry in storage.entries(id_):
        missing = range(expected or entry.seq, entry.seq)
        if len(missing) > _ENTRIES:
            raise Corrupt(f"journal records {missing[0]} to {missing[-1]} are missing.")
        yield from (StoredEntry(seq, b"", b"") for seq in missing)
        yield entry
        expected = entry.seq + 1


def _records_of(storage: Storage, id_: Id, family: Family) -> Iterator[tuple[Family, Record]]:
    """Yield the records of a family, without what a damaged file can have: keys out of order, lost derived records."""
    last = -1
    with suppress(*((Corrupt,) if family in (CALL, CACHE) else ())):
        for record in storage.scan(id_, family):
            if last < record.key <= MAX_KEY:
                yield family, record
                last = record.key


def copy_contexts(
    source: Storage,
    target: Storage,
    contexts: str | Iterable[str] | None = None,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
) -> Progress:
    """Copy one, several or (None) all contexts between open storages; return the totals. See `migrate`."""
    names = [contexts] if isinstance(contexts, str) else list_contexts(source) if contexts is None else contexts
    records = size = 0
    failures: dict[str, QuireError] = {}
    for name in names:
        try:
            done = copy_context(source, target, name, replace=replace, progress=progress)
        except _SKIPPED as error:
            failures[name] = error
        except NoSuchContext:
            if contexts is not None:
                raise
            if name in source.contexts():  # it was not removed meanwhile
                failures[name] = Corrupt(f"Context {short_repr(name)}: its journal is missing.")
        else:
            records, size = records + done.records, size + done.bytes
    if failures:
        raise _combine(failures)
    lost = [flaw.text for flaw in lasting_flaws(source) if flaw.code == "name_lost"] if contexts is None else []
    if lost:
        raise Corrupt(f"All others are copied. {lost[0]}", Hint("doctor", purpose="to list all damage"))
    return Progress(context="", phase="done", records=records, bytes=size)


def copy_context(
    source: Storage,
    target: Storage,
    name: str,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
    check: bool = True,
) -> Progress:
    """Copy one context as it is at one moment, with its vectors. With `check`, its records are read first."""
    with snapshot_of(source, name) as (snapshot, found):
        if found is None:
            raise NoSuchContext(f"No context {short_repr(name)} in the source.")
        if check:
            check_records(snapshot, name, found)
        older = target.load(name)
        if older is not None and (older.seq, older.head) != (found.seq, found.head):
            _check_older(snapshot, found, target, older, name, replace=replace)
        done = copy(contents_of(snapshot, found), target, Meter(name, progress), older)
    vectors = companion_of(name, VECTORS)
    with suppress(Conflict, Corrupt), snapshot_of(source, vectors) as (snapshot, found):  # a search makes them again
        if found is not None:
            copy(contents_of(snapshot, found), target, Meter(vectors), target.load(vectors))
    return done


def _check_older(
    source: Storage, found: Loaded, target: Storage, older: Loaded, context: str, *, replace: bool
) -> None:
    """Raise `InvalidOperation` unless an older copy in the target may be replaced."""
    name, at = short_repr(context), f"at version {older.seq}"
    ours = next(source.entries(found.id, older.seq, older.seq), None)
    theirs = next(target.entries(older.id, older.seq, older.seq), None)
    # compare only the ids of the commits, because a purge rewrites the other fields of an entry
    if ours is None or theirs is None or decode_entry(ours).commit != decode_entry(theirs).commit:
        raise InvalidOperation(
            f"The target already holds another context {name}, {at}. Delete it, or choose another target."
        )
    if not replace:
        raise InvalidOperation(
            f"The target holds an older copy of context {name}, {at}; the source is at {found.seq}.",
            Hint("migrate", arguments="replace=True", purpose="to copy it again"),
        )


def _combine(failures: dict[str, QuireError]) -> QuireError:
    """Return the worst error, with the names of the other contexts that were not copied."""
    worst = min(failures, key=lambda name: _SKIPPED.index(_kind(failures[name])))
    error = failures.pop(worst)
    if not failures:
        return error
    others = [
        short_repr(name) + ("" if each.code == error.code else f" ({each.code})") for name, each in failures.items()
    ]
    more = f" and {len(others) - _MOST_NAMES:,} more" if len(others) > _MOST_NAMES else ""
    return _kind(error)(f"{error.fact} Not copied either: {', '.join(others[:_MOST_NAMES])}{more}.", *error.hints)


def _kind(error: QuireError) -> type[QuireError]:
    return next(kind for kind in _SKIPPED if isinstance(error, kind))


@names_options
def migrate(
    source: StoreLocation,
    target: StoreLocation,
    contexts: str | Iterable[str] | None = None,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
) -> Progress:
    """Copy one, several or (None) all contexts from one store to another; return the totals.

    Pages, history and vectors are copied. A context that cannot be copied does not stop the others; the error names it
    when all others are copied: `Corrupt` if it is damaged or reads back differently, `InvalidOperation` if the name is
    taken in the target (by an older copy, unless `replace`), `Conflict` if another writer used the name meanwhile.

    Raises `InvalidOperation` if source and target are the same store, `StorageFailure` if the source does not exist.
    """
    with ExitStack() as cleanup:
        from_, owns_source = existing_storage(source)
        if owns_source:
            cleanup.callback(from_.close)
        to, owns_target = storage_at(target)
        if owns_target:
            cleanup.callback(to.close)
        if _identity(from_) == _identity(to):
            raise InvalidOperation("The source and the target are the same store; give another target.")
        return copy_contexts(from_, to, contexts, replace=replace, progress=progress)


def _identity(storage: Storage) -> object:
    """Return a value that is equal for two handles on one store, as far as it can be known."""
    path = getattr(storage, "path", None)
    if path is not None:
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return repr(storage) if "://" in repr(storage) else id(storage)
