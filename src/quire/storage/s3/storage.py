"""The backend on any S3-compatible server with conditional writes.

    PREFIX/heads/<name>!                              the head of a context: where it stands, its last commits
    PREFIX/data/<hash of the name>/<making>/<chunk>   what was sealed: immutable
    PREFIX/probes/…                                   a trial of conditional writes, removed at once

A commit replaces the head under the condition that it is the one that was read. It is in S3 when it is acknowledged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import urandom
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from msgspec.structs import replace

from quire.errors import Busy, Conflict, Corrupt, Hint, InvalidValue, StorageClosed, StorageFailure, short_repr
from quire.storage.base import (
    JOURNAL,
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Record,
    check_context_name,
    check_durability,
    conflict,
)
from quire.storage.file.log import encode_frame
from quire.storage.s3.chunks import RANKS, Chunks, Recent, Run, as_write
from quire.storage.s3.client import Connection, Missing, Objects, connect, damaged, key_of, name_of, parse_url
from quire.storage.s3.client import probe as probe_server
from quire.storage.s3.compaction import DROPPED, Started, Upkeep, makings, to_remove
from quire.storage.s3.contexts import Book, Books, Draft, StillBooks, must_follow
from quire.storage.s3.flush import draft_commit, new_head
from quire.storage.s3.head import HeadObject
from quire.storage.s3.snapshot import Standing, standing_over

if TYPE_CHECKING:
    from quire.storage.base import Symptom

T = TypeVar("T")
UpkeepMode = Literal["background", "inline", "off"]
_LOOKS: Final = 4


class S3Storage:
    """Records in a bucket. Several processes, machines and threads can share it.

    Credentials come from the environment as `AWS_ACCESS_KEY_ID` and so on, or are given; `endpoint` is for servers
    other than AWS. `upkeep` says where merges of sealed chunks and the removal of what was replaced are done: in a
    thread of their own, in the commit that causes them, or not at all; then call `compact` and `collect`.
    Chunks that were replaced stay for `grace_seconds`, for those who still read them.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        virtual_hosted: bool = False,
        credential_provider: Any = None,
        timeout_seconds: float = 30.0,
        cache_bytes: int = 64 << 20,
        grace_seconds: float = 3_600.0,
        upkeep: UpkeepMode = "background",
        probe: bool = True,
        durability: Durability = "normal",
    ) -> None:
        connection = Connection(
            bucket=bucket,
            prefix=prefix,
            endpoint=endpoint,
            region=region,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            virtual_hosted=virtual_hosted,
            credential_provider=credential_provider,
            timeout_seconds=timeout_seconds,
        )
        objects = connect(connection)
        self._begin(objects, cache_bytes, grace_seconds, upkeep, durability)
        if probe:
            probe_server(objects, connection.address, bucket)

    def _begin(
        self, objects: Objects, cache_bytes: int, grace_seconds: float, upkeep: UpkeepMode, durability: Durability
    ) -> None:
        self.durability = check_durability(durability)
        if upkeep not in ("background", "inline", "off"):
            raise InvalidValue(f"upkeep is {short_repr(upkeep)}; use 'background', 'inline' or 'off'.")
        self.objects = objects
        """The seam to the server; `objects.requests` counts what was sent."""
        self._chunks = Chunks(objects, cache_bytes)
        self._books = Books(objects, self._chunks)
        self._mode = upkeep
        self._upkeep = Upkeep(self._books, grace_seconds)
        self._grace = grace_seconds
        self._closed = False

    @classmethod
    def over(
        cls,
        objects: Objects,
        *,
        cache_bytes: int = 64 << 20,
        grace_seconds: float = 3_600.0,
        upkeep: UpkeepMode = "background",
    ) -> "S3Storage":
        """A storage over objects that are there already: any store of obstore with conditional writes will do."""
        storage = cls.__new__(cls)
        storage._begin(objects, cache_bytes, grace_seconds, upkeep, "full")
        return storage

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "normal", create: bool = True) -> "S3Storage":
        """The storage that `s3://bucket/prefix?endpoint=…&region=…` names; with `create=False` there must be one."""
        storage = cls(**parse_url(url), durability=durability)
        if not create and next(storage.contexts(), None) is None and next(storage.objects.list("data"), None) is None:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store at {storage.objects.place!r}.", hint)
        return storage

    def __repr__(self) -> str:
        return f"S3Storage({self.objects.place!r})"

    def head(self, context: str) -> Head | None:
        book = self._book(context)
        standing = self._books.look(book)
        return standing.head.head if standing else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        book = self._book(context)
        return self._read(book, lambda standing: standing.get(family, key))

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        def begin(standing: Standing, last: Record | None) -> Iterator[Record]:
            first = start if last is None or reverse else last.key + 1
            end = stop if last is None or not reverse else last.key - 1
            return standing.scan(family, first, end, reverse=reverse)

        return self._start(context, begin)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        def begin(standing: Standing, last: Record | None) -> Iterator[Record]:
            edge = after if last is None else (last.order, last.key)
            return standing.members(family, group, edge, reverse=reverse)

        return self._start(context, begin)

    def commit(self, context: str, commit: Commit) -> None:
        book = self._book(context)
        frame = encode_frame(commit)
        with book.writing:
            standing = self._books.known(book)
            if not commit.follows(standing.head.head if standing else None):
                standing = self._books.look(book)

            def draft(standing: Standing | None, revision: bytes) -> Draft:
                must_follow(context, standing, commit)
                return draft_commit(context, standing, commit, frame, revision, book.merging)

            before = standing.head.seals if standing else 0
            after = self._whole(book, lambda: self._books.move(book, book.standing, draft))
        if after.head.seals > before:
            self._keep_up(book, after)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        source, book = self._book(context), self._book(target)
        encode_frame(commit)  # refuses an impossible write before anything is written
        standing = self._books.look(source)
        if standing is None:
            raise conflict(context, None, commit.expect)
        must_follow(context, standing, commit)
        with book.writing:
            if (found := self._books.look(book)) is not None:
                raise conflict(target, found.head.head, 0)
            try:
                self._fork(standing, source, book, commit, below)
            except Missing as missing:
                again = self._again(source, missing)  # it was dropped or compacted meanwhile
                raise conflict(context, again.head.head if again else None, commit.expect) from None

    def contexts(self, after: str = "") -> Iterator[str]:
        self._check_open()
        for listed in self.objects.list("heads", f"heads/{key_of(after)}" if after else ""):
            name = name_of(listed.key.removeprefix("heads/"))
            if name is not None and name > after:
                yield name
            self._check_open()

    def drop(self, context: str) -> None:
        book = self._book(context)
        with book.writing:
            try:
                standing = self._books.look(book)
            except Corrupt:  # which making it headed cannot be told any more: whatever is left under this name goes
                self._remove(book, [making.folder for making in makings(self.objects.list(book.shelf.rstrip("/")))])
                return
            if standing is not None:
                self._remove(book, [book.folder(standing.head.incarnation)], is_large=bool(standing.head.runs))

    def _remove(self, book: Book, folders: list[str], *, is_large: bool = True) -> None:
        """Remove the head of a context, then its chunks; `book.writing` is held."""
        if is_large:  # told apart from a context that lost its head, should this be cut off
            for folder in folders:
                self.objects.put(folder + DROPPED, b"")
        self.objects.delete([book.key])
        book.take(None)
        for folder in folders:
            for making in makings(self.objects.list(folder.rstrip("/"))):
                self.objects.delete(to_remove(making))
                self._chunks.forget(each.key.rpartition("/")[2] for each in making.objects)

    def close(self) -> None:
        self._closed = True
        self._upkeep.stop()

    def compact(self, context: str) -> None:
        """Make one run of everything in a context, without what was replaced or deleted. Raises `Busy`."""
        book = self._book(context)
        for _ in range(_LOOKS):
            if self._whole(book, lambda: self._upkeep.compact(book)):
                return
        raise Busy(f"Context {context!r} changed each time it was compacted: retry.")

    def collect(self, context: str | None = None, *, grace_seconds: float | None = None) -> int:
        """Remove objects that nothing needs any more, of one context or of all; how many.

        With `grace_seconds=0` readers that are under way may have to look again.
        """
        self._check_open()
        grace = self._grace if grace_seconds is None else grace_seconds
        if context is None:
            return self._upkeep.collect_all(self.contexts(), grace)
        return self._upkeep.collect(self._book(context), grace)

    def scrub(self, contexts: Sequence[str]) -> None:
        """Leave nothing in the bucket of what was deleted or overwritten in these contexts. Raises `Busy`.

        A bucket that keeps versions keeps them.
        """
        for context in contexts:
            self.compact(context)
            self.collect(context, grace_seconds=0)

    def examine(self, *, repair: bool = False) -> "list[Symptom]":
        """What lies in the bucket and belongs to no context; with `repair` it is removed, if nobody can miss it."""
        from quire.storage.s3.compaction import examine

        self._check_open()
        found = examine(self._upkeep, self.contexts, repair=repair)
        if repair:
            self.collect()
        return found

    @contextmanager
    def snapshot(self, context: str) -> Iterator["S3Storage"]:
        """The context as it is now, whatever is committed meanwhile."""
        self._check_open()
        still = Still(self)
        still.head(context)
        yield still

    def _book(self, context: str) -> Book:
        self._check_open()
        return self._books.book(check_context_name(context))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed(f"The storage {self.objects.place!r} is closed: open it again.")

    def _read(self, book: Book, read: Callable[[Standing], T | None]) -> T | None:
        standing = self._books.known(book)
        return self._whole(book, lambda: read(book.standing) if book.standing else None) if standing else None

    def _whole(self, book: Book, action: Callable[[], T]) -> T:
        """Do it; if a chunk is gone that another writer replaced long ago, look again and do it again."""
        for _ in range(_LOOKS):
            try:
                return action()
            except Missing as missing:
                self._again(book, missing)
        raise StorageFailure(f"{self.objects.place}: chunks of {book.name!r} go faster than they can be read.")

    def _again(self, book: Book, missing: Missing) -> Standing | None:
        """Look again because a chunk is gone. Raises `Corrupt` if the head still needs it."""
        again = self._books.look(book)
        _refuse_if_needed(again, missing)
        return again

    def _start(self, context: str, begin: Callable[[Standing, Record | None], Iterator[Record]]) -> Iterator[Record]:
        book = self._book(context)
        standing = self._books.known(book)
        return iter(()) if standing is None else self._stream(book, standing, begin)

    def _stream(
        self, book: Book, standing: Standing, begin: Callable[[Standing, Record | None], Iterator[Record]]
    ) -> Iterator[Record]:
        """The records; should a chunk go that was replaced long ago, the rest is as it is now."""
        records = begin(standing, None)
        last: Record | None = None
        while True:
            self._check_open()
            try:
                found = next(records, None)
            except Missing as missing:
                again = self._again(book, missing)
                if again is None or again.head.incarnation != standing.head.incarnation:
                    return  # the context was dropped meanwhile
                standing, records = again, begin(again, last)
                continue
            if found is None:
                return
            last = found
            yield found

    def _fork(
        self, standing: Standing, source: Book, target: Book, commit: Commit, below: Mapping[Family, int]
    ) -> None:
        """Copy the runs on the server, then make the head that needs them."""
        started = Started()
        bounds = {RANKS[family]: limit for family, limit in below.items()} | {RANKS[JOURNAL]: 0}
        empty = new_head(target.name)
        folder, copies = target.folder(empty.incarnation), []
        for run in standing.head.runs:
            chunks = [replace(chunk, id=f"{chunk.id[:17]}-{urandom(6).hex()}") for chunk in run.chunks]
            for chunk, copy in zip(run.chunks, chunks, strict=True):
                self.objects.copy(source.folder(standing.head.incarnation) + chunk.id, folder + copy.id)
            limits = {rank: min(bounds.get(rank, MAX_KEY + 1), limit) for rank, limit in run.below.items()}
            copies.append(Run(tuple(chunks), bounds | limits))
        if started.is_late():
            raise StorageFailure(f"{self.objects.place}: forking {source.name!r} took too long: retry.")
        empty = replace(empty, runs=tuple(copies), seals=standing.head.seals)
        kept = [
            as_write(place, entry)
            for place, entry in standing.recent.entries.items()
            if place[1] < bounds.get(place[0], MAX_KEY + 1)  # type: ignore[arg-type, operator]
        ]
        whole = Commit(0, commit.version, commit.head, [*kept, *commit.writes])
        self._books.move(target, None, partial(self._forked, empty, whole))

    def _forked(self, empty: HeadObject, whole: Commit, standing: Standing | None, revision: bytes) -> Draft:
        must_follow(empty.context, standing, whole)
        folder = self._books.book(empty.context).folder(empty.incarnation)
        base = standing_over(empty, "", Recent(), folder, self._chunks)
        return draft_commit(empty.context, base, whole, encode_frame(whole), revision)

    def _keep_up(self, book: Book, standing: Standing) -> None:
        """Have done what a seal made necessary."""
        if self._mode == "inline":
            self._upkeep.after_seal(book, standing)
        elif self._mode == "background":
            self._upkeep.later(book, standing)


class Still(S3Storage):
    """A storage whose contexts stay as they were when they were first looked at."""

    def __init__(self, storage: S3Storage) -> None:
        self._begin(storage.objects, 0, storage._grace, "off", storage.durability)
        self._chunks = storage._chunks
        self._books = StillBooks(self.objects, self._chunks)

    def _again(self, book: Book, missing: Missing) -> Standing | None:
        now = Books(self.objects, self._chunks)
        _refuse_if_needed(now.look(now.book(book.name)), missing)
        raise Conflict(f"What was read of {book.name!r} was replaced long ago: begin again.")


def _refuse_if_needed(standing: Standing | None, missing: Missing) -> None:
    """Raise `Corrupt` for a chunk that is gone although the head names it."""
    key = str(missing)
    if standing is not None and key.rpartition("/")[2] in standing.head.ids():
        raise damaged(key, "it is missing and")
