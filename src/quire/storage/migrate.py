"""Copying contexts from one storage to another: streaming, verified, and resumable.

While a copy is under way the target context has a negative version and a cursor for its head, so it cannot be opened
by accident and the next call goes on where the last one stopped. The last commit of a copy makes it the real thing.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.errors import Conflict, Corrupt, InvalidOperation, NoSuchContext
from quire.storage.base import FAMILIES, Commit, Family, Head, Put, Record, Storage, check_storage
from quire.storage.opening import storage_at
from quire.storage.soundness import Soundness

_CHUNK_RECORDS = 512
_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 20


class Progress(Struct, frozen=True, kw_only=True):
    """How far a copy is: the context at hand, what is being done, and what is done of it."""

    context: str
    phase: str
    records: int
    bytes: int


Report = Callable[[Progress], None]


class _Cursor(Struct, frozen=True, array_like=True):
    """The head of an unfinished copy: of which state it is one, and what was copied last."""

    version: int
    checksum: int
    family: int
    key: int


Where = str | os.PathLike[str] | Storage
"""A store, by URL, path or as an object: what `quire.open` takes."""


def migrate(
    source: Where,
    target: Where,
    contexts: str | Iterable[str] | None = None,
    *,
    progress: Report | None = None,
) -> Progress:
    """Copy one, several or (None) all contexts from one store to another; the sum of what was copied.

    All of a context goes over: pages, history, vectors. A fork becomes whole: it shares nothing in the target. A
    context with damage is not copied; the others are, and then `Corrupt` names it with the record. Also raises
    `InvalidOperation` if the target holds another context of that name, `Conflict` if the source changed meanwhile,
    `Corrupt` if a copied record reads back differently, `StorageFailure` if there is no source. Calling it again goes
    on.
    """
    from_, owns_source = storage_at(source, create=False)
    try:
        to, owns_target = storage_at(target)
        try:
            return copy_contexts(from_, to, contexts, progress=progress)
        finally:
            if owns_target:
                to.close()
    finally:
        if owns_source:
            from_.close()


def copy_contexts(
    source: Storage,
    target: Storage,
    contexts: str | Iterable[str] | None = None,
    *,
    progress: Report | None = None,
    sound: bool = True,
) -> Progress:
    """`migrate` between storages that are open; unless it must be `sound`, whatever the records say."""
    check_storage(source)
    check_storage(target)
    names = [contexts] if isinstance(contexts, str) else _finished(source) if contexts is None else contexts
    records = size = 0
    damaged: dict[str, Corrupt] = {}
    for name in names:
        try:
            done = _Copy(source, target, name, progress or _silent, sound=sound).run()
        except Corrupt as error:
            damaged[name] = error
        else:
            records, size = records + done.records, size + done.bytes
    if damaged:
        raise _told(damaged)
    return Progress(context="", phase="done", records=records, bytes=size)


def _told(damaged: dict[str, Corrupt]) -> Corrupt:
    """The error for contexts that were not copied: what is wrong with the first, and the names of the others."""
    first, *others = damaged
    if not others:
        return damaged[first]
    more = f" and {len(others) - _MOST_NAMES:,} more" if len(others) > _MOST_NAMES else ""
    return Corrupt(f"{damaged[first]} Not copied either: {', '.join(map(repr, others[:_MOST_NAMES]))}{more}.")


def _finished(source: Storage) -> Iterator[str]:
    """All contexts but those that are themselves unfinished copies, or were dropped since they were listed."""
    for name in source.contexts():
        try:
            head = source.head(name)
        except Corrupt:
            yield name  # who copies it says so
        else:
            if head is not None and head.version >= 0:
                yield name


def _silent(progress: Progress) -> None:
    """Report to nobody."""


class _Copy:
    """The copy of one context."""

    def __init__(self, source: Storage, target: Storage, context: str, report: Report, *, sound: bool) -> None:
        self.source = source
        self.target = target
        self.context = context
        self.report = report
        self.sound = sound
        self.records = 0
        self.size = 0
        head = source.head(context)
        if head is None:
            raise NoSuchContext(f"No context {context!r} in the source; its contexts() lists what is there.")
        if head.version < 0:
            raise InvalidOperation(f"Context {context!r} in the source is itself an unfinished copy.")
        self.head = head

    def run(self) -> Progress:
        """Copy what is missing, verify everything, and make the copy real."""
        there = self.target.head(self.context)
        is_real = there is not None and there.version >= 0
        if there is not None and is_real and there != self.head:
            raise InvalidOperation(
                f"The target already holds another context {self.context!r}, at version {there.version}; drop it or"
                " choose another target."
            )
        try:
            version = 0 if is_real else self._copy(there)
            difference = self._verify()
        except Corrupt:
            self._source_is_unchanged()
            if not is_real:
                self.target.drop(self.context)  # it would never become whole
            raise
        self._source_is_unchanged()
        if difference:
            raise Corrupt(difference)
        if not is_real:
            self.target.commit(self.context, Commit(version, self.head.version, self.head.value, ()))
        return self._tell("done")

    def _copy(self, there: Head | None) -> int:
        """Copy in chunks, each a commit that moves the cursor; the version the target is then at."""
        checksum = crc32(self.head.value)
        start = _Cursor(self.head.version, checksum, 0, -1)
        cursor = _decode_cursor(there.value) if there else start
        version = there.version if there else 0
        if (cursor.version, cursor.checksum) != (start.version, start.checksum):
            self.target.drop(self.context)  # a copy of another state of it: begin anew
            cursor, version = start, 0
        for number in range(cursor.family, len(FAMILIES)):
            family = FAMILIES[number]
            first = cursor.key + 1 if number == cursor.family else 0
            for chunk in _chunks(self.source.scan(self.context, family, first)):
                head = msgspec.msgpack.encode(_Cursor(start.version, checksum, number, chunk[-1].key))
                writes = [Put(family, record.key, record.value, record.group, record.order) for record in chunk]
                self.target.commit(self.context, Commit(version, version - 1, head, writes))
                version -= 1
                self._count(chunk)
                self._tell("copy")
        if version == 0:  # nothing but a head
            self.target.commit(self.context, Commit(0, -1, msgspec.msgpack.encode(start), ()))
            version = -1
        return version

    def _verify(self) -> str:
        """Compare everything; what is different, or nothing. Raises `Corrupt` if the source itself is damaged."""
        self.records = self.size = 0
        judge = Soundness(self.context, self.head) if self.sound else None
        for family in FAMILIES:
            pairs = zip_longest(self.source.scan(self.context, family), self.target.scan(self.context, family))
            for record, copy in pairs:
                if judge is not None and record is not None:
                    judge.take(family, record)
                if record != copy:
                    return self._difference(family, record, copy)
                self._count([record] if record else [])
                if self.records % _CHUNK_RECORDS == 0:
                    self._tell("verify")
        if judge is not None:
            judge.close()
        return ""

    def _source_is_unchanged(self) -> None:
        if self.source.head(self.context) != self.head:
            raise Conflict(f"Context {self.context!r} changed while it was copied: call migrate() again.")

    def _difference(self, family: Family, record: Record | None, copy: Record | None) -> str:
        key = record.key if record else copy.key if copy else 0
        return f"{family} record {key} of {self.context!r} reads back differently from the target; drop that and retry."

    def _count(self, records: list[Record]) -> None:
        self.records += len(records)
        self.size += sum(len(record.value) for record in records)

    def _tell(self, phase: str) -> Progress:
        progress = Progress(context=self.context, phase=phase, records=self.records, bytes=self.size)
        self.report(progress)
        return progress


def _decode_cursor(value: bytes) -> _Cursor:
    try:
        return msgspec.msgpack.decode(value, type=_Cursor)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"The unfinished copy in the target is damaged ({error}); drop it there and retry.") from None


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
