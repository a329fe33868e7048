"""Copying contexts from one storage to another: streaming, verified, and resumable.

While a copy is under way the target context has a negative version and a cursor for its head, so it cannot be opened
by accident and the next call goes on where the last one stopped. The last commit of a copy makes it the real thing.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.core.records import decode_entry
from quire.errors import Conflict, Corrupt, InvalidOperation, NoSuchContext, QuireError, short_repr
from quire.storage.base import FAMILIES, JOURNAL, Commit, Family, Head, Put, Record, Storage, check_storage
from quire.storage.integrity import Soundness
from quire.storage.urls import storage_at

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
    replace: bool = False,
    progress: Report | None = None,
) -> Progress:
    """Copy one, several or (None) all contexts from one store to another; the sum of what was copied.

    All of a context goes over: pages, history, vectors. A fork becomes whole: it shares nothing in the target. What
    cannot be copied keeps nobody else back: it is named when all others are copied. `Corrupt` tells of a context with
    damage, or of a copied record that reads back differently; `InvalidOperation` of a name that is taken in the target,
    by an older copy too unless `replace` says to copy that again, and of an unfinished copy in the source; `Conflict`
    of one that changed meanwhile. A store is not copied onto itself (`InvalidOperation`), and `StorageFailure` says
    that there is no source. Calling it again goes on.
    """
    from_, owns_source = storage_at(source, create=False)
    try:
        to, owns_target = storage_at(target)
        try:
            if _place(from_) == _place(to):
                raise InvalidOperation("The source and the target are the same store; give another target.")
            return copy_contexts(from_, to, contexts, replace=replace, progress=progress)
        finally:
            if owns_target:
                to.close()
    finally:
        if owns_source:
            from_.close()


def _place(storage: Storage) -> object:
    """What two handles on one store have in common, as far as it can be told."""
    path = getattr(storage, "path", None)
    if isinstance(path, os.PathLike):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return repr(storage) if type(storage).__module__.startswith("quire.storage.") else id(storage)


_WORST: Final[dict[type[QuireError], str]] = {
    Corrupt: "damaged",
    InvalidOperation: "refused",
    Conflict: "changed meanwhile",
}
"""What keeps one context back and not the others, the worst first."""


class _Left(NamedTuple):
    """A context that was not copied: in a word, and in full."""

    reason: str
    error: QuireError


def copy_contexts(
    source: Storage,
    target: Storage,
    contexts: str | Iterable[str] | None = None,
    *,
    replace: bool = False,
    progress: Report | None = None,
    sound: bool = True,
) -> Progress:
    """`migrate` between storages that are open; unless it must be `sound`, whatever the records say."""
    check_storage(source)
    check_storage(target)
    names = [contexts] if isinstance(contexts, str) else _there(source) if contexts is None else contexts
    records = size = 0
    left: dict[str, _Left] = {}
    for name in names:
        copy = _Copy(source, target, name, progress or _silent, replace=replace, sound=sound)
        try:
            done = copy.run()
        except tuple(_WORST) as error:
            left[name] = _Left(copy.reason or _WORST[_kind(error)], error)
        except NoSuchContext:
            if contexts is not None:
                raise
        else:
            records, size = records + done.records, size + done.bytes
    if left:
        raise _told(left)
    return Progress(context="", phase="done", records=records, bytes=size)


def _there(source: Storage) -> Iterator[str]:
    """All contexts but those whose removal was interrupted. Copies that were interrupted are told of by who copies."""
    for name in source.contexts():
        try:
            head = source.head(name)
        except Corrupt:
            head = None  # who copies it says so
        if head is None or head.version >= 0 or _cursor(head.value) is not None:
            yield name


def _told(left: dict[str, _Left]) -> QuireError:
    """The error for contexts that were not copied: the worst in full, and the names of the others."""
    worst = min(left, key=lambda name: list(_WORST).index(_kind(left[name].error)))
    reason, error = left.pop(worst)
    if not left:
        return error
    others = [short_repr(name) + ("" if why == reason else f" ({why})") for name, (why, _) in left.items()]
    more = f" and {len(others) - _MOST_NAMES:,} more" if len(others) > _MOST_NAMES else ""
    return _kind(error)(f"{error} Not copied either: {', '.join(others[:_MOST_NAMES])}{more}.")


def _kind(error: QuireError) -> type[QuireError]:
    return next(kind for kind in _WORST if isinstance(error, kind))


def _silent(progress: Progress) -> None:
    """Report to nobody."""


class _Copy:
    """The copy of one context."""

    def __init__(
        self, source: Storage, target: Storage, context: str, report: Report, *, replace: bool, sound: bool
    ) -> None:
        self.source = source
        self.target = target
        self.context = context
        self.report = report
        self.replace = replace
        self.sound = sound
        self.records = 0
        self.size = 0
        self.head = Head(0, b"")
        self.reason = ""
        """Why it was refused, in a word."""

    def run(self) -> Progress:
        """Copy what is missing, verify everything, and make the copy real."""
        self.head = self._source_head()
        there = self.target.head(self.context)
        if there is not None and there.version >= 0 and there != self.head:
            self._make_room(there)
            there = None
        is_real = there is not None and there.version >= 0
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

    def _source_head(self) -> Head:
        head = self.source.head(self.context)
        if head is None:
            raise NoSuchContext(
                f"No context {short_repr(self.context)} in the source; its contexts() lists what is there."
            )
        if head.version < 0:
            self.reason = "an unfinished copy in the source"
            raise InvalidOperation(
                f"Context {short_repr(self.context)} in the source is itself an unfinished copy: finish that there, or"
                " delete() it."
            )
        return head

    def _make_room(self, there: Head) -> None:
        """Drop an older copy, if that is wanted and the source is sound. Raises `InvalidOperation` otherwise."""
        name, at = short_repr(self.context), f"at version {there.version}"
        if not self._went_on_from(there):
            self.reason = "taken by another"
            raise InvalidOperation(
                f"The target already holds another context {name}, {at}; drop it or choose another target."
            )
        if not self.replace:
            self.reason = "an older copy is there"
            raise InvalidOperation(
                f"The target holds an older copy of context {name}, {at}; the source is at {self.head.version}."
                " migrate(replace=True) copies it again."
            )
        if self.sound:
            self._judge()  # before the old copy goes, which may be all that can still be read
        self.target.drop(self.context)

    def _went_on_from(self, there: Head) -> bool:
        """Whether the source was once what the target holds: the last entry there is one of its entries."""
        ours, theirs = (store.get(self.context, JOURNAL, there.version) for store in (self.source, self.target))
        if ours is None or theirs is None or there.version > self.head.version:
            return False
        commits = [decode_entry(record.key, record.value).commit for record in (ours, theirs)]
        return commits[0] == commits[1]

    def _judge(self) -> None:
        judge = Soundness(self.context, self.head)
        try:
            for family in FAMILIES:
                for record in self.source.scan(self.context, family):
                    judge.take(family, record)
            judge.close()
        except Corrupt:
            self._source_is_unchanged()
            raise

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
            raise Conflict(f"Context {short_repr(self.context)} changed while it was copied: call migrate() again.")

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
    found = _cursor(value)
    if found is None:
        raise Corrupt("The unfinished copy in the target is damaged; drop it there and retry.")
    return found


def _cursor(value: bytes) -> _Cursor | None:
    try:
        return msgspec.msgpack.decode(value, type=_Cursor)
    except msgspec.MsgspecError:
        return None


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
