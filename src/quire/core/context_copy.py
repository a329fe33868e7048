"""Copying contexts between two stores: streaming, verified, and resumable.

While a copy is unfinished, the target context has a negative version, and its head value is a cursor. So it cannot be
opened by accident, and the next call continues after the last copied record. The last commit gives the target the
version and the head of the source.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import zip_longest
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.core.integrity import RecordCheck, check_records
from quire.core.records import decode_entry
from quire.errors import Conflict, Corrupt, Hint, InvalidOperation, NoSuchContext, QuireError, names_options, short_repr
from quire.storage.base import (
    DERIVED,
    FAMILIES,
    JOURNAL,
    Commit,
    Family,
    Head,
    Put,
    Record,
    Storage,
    SupportsPath,
    check_storage,
    find_lost_heads,
    list_contexts,
)
from quire.storage.urls import StoreLocation, existing_storage, storage_at

_CHUNK_RECORDS = 512
_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 20


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a copy: the current context, the phase, and the records and bytes done so far."""

    context: str
    phase: str
    records: int
    bytes: int


ProgressCallback = Callable[[Progress], None]


class _Cursor(Struct, frozen=True, array_like=True):
    """The head of an unfinished copy: the version and head checksum of its source, and the last copied record."""

    version: int
    checksum: int
    family: int
    key: int


_DOCTOR: Final = (Hint("doctor", purpose="to list all damage"),)
_SKIPPED: Final[dict[type[QuireError], str]] = {
    Corrupt: "damaged",
    InvalidOperation: "refused",
    Conflict: "changed meanwhile",
}
"""Errors that stop the copy of one context only, worst first, with a short reason for each."""


class _Failure(NamedTuple):
    """A context that was not copied: the reason in a few words, and the error."""

    reason: str
    error: QuireError


def ignore_progress(progress: Progress) -> None:
    """Do nothing; the default callback."""


def copy_contexts(
    source: Storage,
    target: Storage,
    contexts: str | Iterable[str] | None = None,
    *,
    replace: bool = False,
    progress: ProgressCallback | None = None,
    check: bool = True,
) -> Progress:
    """Copy one, several or (None) all contexts between open storages; return the totals. See `migrate`.

    With `check=False`, damaged records are copied as they are, without derived records that the source cannot read.
    """
    check_storage(source)
    check_storage(target)
    names = [contexts] if isinstance(contexts, str) else _names(source) if contexts is None else contexts
    records = size = 0
    failures: dict[str, _Failure] = {}
    for name in names:
        copy = _Copy(source, target, name, progress or ignore_progress, replace=replace, check=check)
        try:
            done = copy.run()
        except tuple(_SKIPPED) as error:
            failures[name] = _Failure(copy.reason or _SKIPPED[_kind(error)], error)
        except NoSuchContext:
            if contexts is not None:
                raise
        else:
            records, size = records + done.records, size + done.bytes
    for lost in find_lost_heads(source) if contexts is None else ():
        if lost.severity == "error":
            failures[lost.text] = _Failure("without a head", Corrupt(f"{lost.where}: {lost.text}", *_DOCTOR))
    if failures:
        raise _combine(failures)
    return Progress(context="", phase="done", records=records, bytes=size)


def _names(source: Storage) -> Iterator[str]:
    """Yield the names of all contexts, also of damaged and unfinished ones. Interrupted removals are left out."""
    for name in list_contexts(source):
        try:
            head = source.head(name)
        except Corrupt:
            head = None
        if head is None or head.version >= 0 or _decode_cursor(head.value) is not None:
            yield name


def _combine(failures: dict[str, _Failure]) -> QuireError:
    """Return the worst error, with the names of the other contexts that were not copied."""
    worst = min(failures, key=lambda name: list(_SKIPPED).index(_kind(failures[name].error)))
    reason, error = failures.pop(worst)
    if not failures:
        return error
    others = [short_repr(name) + ("" if why == reason else f" ({why})") for name, (why, _) in failures.items()]
    more = f" and {len(others) - _MOST_NAMES:,} more" if len(others) > _MOST_NAMES else ""
    return _kind(error)(f"{error.fact} Not copied either: {', '.join(others[:_MOST_NAMES])}{more}.", *error.hints)


def _kind(error: QuireError) -> type[QuireError]:
    return next(kind for kind in _SKIPPED if isinstance(error, kind))


class _Copy:
    """The copy of one context."""

    def __init__(
        self, source: Storage, target: Storage, context: str, report: ProgressCallback, *, replace: bool, check: bool
    ) -> None:
        self.source = source
        self.target = target
        self.context = context
        self.report = report
        self.replace = replace
        self.check = check
        self.records = 0
        self.size = 0
        self.head = Head(0, b"")
        self.reason = ""
        """The reason for refusing the copy, in a few words."""

    def run(self) -> Progress:
        """Copy what is missing, verify everything, and set the final head."""
        self.head = self._source_head()
        existing = self.target.head(self.context)
        if existing is not None and existing.version >= 0 and existing != self.head:
            self._drop_older(existing)
            existing = None
        is_finished = existing is not None and existing.version >= 0
        try:
            version = 0 if is_finished else self._copy(existing)
            difference = self._verify()
        except Corrupt:
            self._check_unchanged()
            if not is_finished:
                self.target.drop(self.context)  # it can never be finished
            raise
        self._check_unchanged()
        if difference:
            raise Corrupt(difference)
        if not is_finished:
            self.target.commit(self.context, Commit(version, self.head.version, self.head.value, ()))
        return self._report("done")

    def _source_head(self) -> Head:
        head = self.source.head(self.context)
        if head is None:
            raise NoSuchContext(f"No context {short_repr(self.context)} in the source.")
        if head.version < 0:
            self.reason = "an unfinished copy in the source"
            raise InvalidOperation(
                f"Context {short_repr(self.context)} in the source is itself an unfinished copy. Finish that copy, or"
                " delete it."
            )
        return head

    def _drop_older(self, existing: Head) -> None:
        """Drop an older copy in the target, with `replace` only. Raises `InvalidOperation` otherwise."""
        name, at = short_repr(self.context), f"at version {existing.version}"
        if not self._continues(existing):
            self.reason = "the name is taken"
            raise InvalidOperation(
                f"The target already holds another context {name}, {at}. Delete it, or choose another target."
            )
        if not self.replace:
            self.reason = "an older copy exists"
            raise InvalidOperation(
                f"The target holds an older copy of context {name}, {at}; the source is at {self.head.version}.",
                Hint("migrate", arguments="replace=True", purpose="to copy it again"),
            )
        if self.check:  # check the source first, because the old copy may be the only readable one
            try:
                check_records(self.source, self.context, self.head)
            except Corrupt:
                self._check_unchanged()
                raise
        self.target.drop(self.context)

    def _continues(self, existing: Head) -> bool:
        """Return whether the source continues the target: the last entry of the target is an entry of the source."""
        ours, theirs = (store.get(self.context, JOURNAL, existing.version) for store in (self.source, self.target))
        if ours is None or theirs is None or existing.version > self.head.version:
            return False
        # compare only the commit ids, because a purge rewrites the other fields of an entry
        commits = [decode_entry(record.key, record.value).commit for record in (ours, theirs)]
        return commits[0] == commits[1]

    def _copy(self, existing: Head | None) -> int:
        """Copy in chunks; each is a commit that moves the cursor. Return the version of the target."""
        checksum = crc32(self.head.value)
        start = _Cursor(self.head.version, checksum, 0, -1)
        cursor = start
        version = 0
        if existing is not None:
            found, version = _decode_cursor(existing.value), existing.version
            if found is None:
                raise Corrupt("The unfinished copy in the target is damaged. Delete it there and retry.")
            cursor = found
        if (cursor.version, cursor.checksum) != (start.version, start.checksum):
            self.target.drop(self.context)  # a copy of another state: start again
            cursor, version = start, 0
        for number in range(cursor.family, len(FAMILIES)):
            family = FAMILIES[number]
            first = cursor.key + 1 if number == cursor.family else 0
            for chunk in _chunks(self._read(family, first)):
                head = msgspec.msgpack.encode(_Cursor(start.version, checksum, number, chunk[-1].key))
                writes = [Put(family, record.key, record.value, record.group, record.order) for record in chunk]
                self.target.commit(self.context, Commit(version, version - 1, head, writes))
                version -= 1
                self._count(chunk)
                self._report("copy")
        if version == 0:  # the context has no records
            self.target.commit(self.context, Commit(0, -1, msgspec.msgpack.encode(start), ()))
            version = -1
        return version

    def _verify(self) -> str:
        """Compare source and target; return the first difference or "". Raises `Corrupt` if the source is damaged."""
        self.records = self.size = 0
        check = RecordCheck(self.context, self.head) if self.check else None
        for family in FAMILIES:
            pairs = zip_longest(self._read(family), self.target.scan(self.context, family))
            for record, copy in pairs:
                if check is not None and record is not None:
                    check.add(family, record)
                if record is None or record != copy:
                    key = record.key if record else copy.key if copy else 0
                    return (
                        f"{family} record {key} of {self.context!r} reads back differently from the target."
                        " Delete the context there and retry."
                    )
                self._count([record])
                if self.records % _CHUNK_RECORDS == 0:
                    self._report("verify")
        if check is not None:
            check.finish()
        return ""

    def _read(self, family: Family, first: int = 0) -> Iterator[Record]:
        """Yield the records of a family in the source. Without checks, derived records end at an unreadable one."""
        records = self.source.scan(self.context, family, first)
        return records if self.check or family not in DERIVED else _readable(records)

    def _check_unchanged(self) -> None:
        if self.source.head(self.context) != self.head:
            raise Conflict(
                f"Context {short_repr(self.context)} changed while it was copied.", Hint("migrate", purpose="again")
            )

    def _count(self, records: list[Record]) -> None:
        self.records += len(records)
        self.size += sum(len(record.value) for record in records)

    def _report(self, phase: str) -> Progress:
        progress = Progress(context=self.context, phase=phase, records=self.records, bytes=self.size)
        self.report(progress)
        return progress


def _decode_cursor(value: bytes) -> _Cursor | None:
    try:
        return msgspec.msgpack.decode(value, type=_Cursor)
    except msgspec.MsgspecError:
        return None


def _readable(records: Iterator[Record]) -> Iterator[Record]:
    with suppress(Corrupt):
        yield from records


def _chunks(records: Iterator[Record]) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.value)
        if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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

    Everything is copied: pages, history, vectors. A fork becomes a complete context: it shares nothing in the target.
    A context that cannot be copied does not stop the others; the error names it when all others are copied:

    - `Corrupt`: the context is damaged or has lost its head, or a copied record reads back differently.
    - `InvalidOperation`: the name is taken in the target (by an older copy, unless `replace`), or the source context
      is an unfinished copy.
    - `Conflict`: the context changed during the copy.

    Raises `InvalidOperation` if source and target are the same store, `StorageFailure` if the source does not exist.
    Call it again to resume an interrupted copy.
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
    if isinstance(storage, SupportsPath):
        found = os.stat(storage.path)
        return found.st_dev, found.st_ino
    return repr(storage) if type(storage).__module__.startswith("quire.storage.") else id(storage)
