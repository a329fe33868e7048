"""The storage on an S3-compatible server with conditional writes.

    PREFIX/heads/<name>!                                   the head of a context: its version and newest commits
    PREFIX/data/<hash of the name>/<incarnation>/<chunk>   older records, in immutable chunks
    PREFIX/probes/…                                        the check of conditional writes, removed at once

A commit replaces the head if it is still the one that was read. When `commit` returns, the commit is in S3.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import urandom
from typing import Any, Final, Literal, TypeVar

from msgspec.structs import replace

from quire.errors import Busy, Conflict, Corrupt, Hint, InvalidValue, StorageClosed, StorageFailure, short_repr
from quire.storage.address import find_endpoint
from quire.storage.base import (
    JOURNAL,
    MAX_KEY,
    Commit,
    Durability,
    Family,
    Head,
    Record,
    Symptom,
    check_context_name,
    check_durability,
    check_families,
    conflict,
)
from quire.storage.file.frames import encode_frame
from quire.storage.s3.chunks import RANKS, ChunkReader, LogEntries, Run, to_write
from quire.storage.s3.client import (
    ObjectMissing,
    Objects,
    check_conditional_writes,
    connect,
    damaged,
    parse_url,
)
from quire.storage.s3.commit import (
    CREATING,
    ContextState,
    ContextStates,
    Draft,
    FrozenStates,
    check_follows,
    draft_commit,
    new_head,
)
from quire.storage.s3.compaction import DROPPED, Compactor, Deadline, group_incarnations
from quire.storage.s3.head import Snapshot, key_of, name_of

T = TypeVar("T")
UpkeepMode = Literal["background", "inline", "off"]
_ATTEMPTS: Final = 4
_OLD_VERSIONS: Final = (
    "No object holds the deleted data any more, but the bucket has versioning and keeps deleted and replaced objects."
    " Its owner can delete them; a lifecycle rule (NoncurrentVersionExpiration) deletes old versions."
)


class S3Storage:
    """A storage in a bucket. Several processes, machines and threads can share it.

    Credentials are arguments, or come from the environment (`AWS_ACCESS_KEY_ID` and so on). `endpoint` is for servers
    other than AWS. `upkeep` says where chunks are merged and removed: in a background thread, inline in the commit that
    causes it, or not at all ("off": call `compact` and `collect` yourself). Chunks that were replaced stay for
    `grace_seconds`, because readers may still use them.
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
        endpoint = endpoint or find_endpoint()
        objects = connect(
            bucket,
            prefix,
            endpoint,
            region=region,
            timeout_seconds=timeout_seconds,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            credential_provider=credential_provider,
            virtual_hosted_style_request=virtual_hosted,
        )
        self._setup(objects, cache_bytes, grace_seconds, upkeep, durability)
        if probe:
            check_conditional_writes(objects, endpoint, bucket)

    def _setup(
        self, objects: Objects, cache_bytes: int, grace_seconds: float, upkeep: UpkeepMode, durability: Durability
    ) -> None:
        self.durability = check_durability(durability)
        if upkeep not in ("background", "inline", "off"):
            raise InvalidValue(f"is {short_repr(upkeep)}; use 'background', 'inline' or 'off'.", argument="upkeep")
        self.objects = objects
        """The client; `objects.requests` counts the requests."""
        self._chunks = ChunkReader(objects, cache_bytes)
        self._states = ContextStates(objects, self._chunks)
        self._mode = upkeep
        self._compactor = Compactor(self._states, grace_seconds)
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
        """Return a storage over given objects, which may be in any store of obstore with conditional writes."""
        storage = cls.__new__(cls)
        storage._setup(objects, cache_bytes, grace_seconds, upkeep, "full")
        return storage

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "normal", create: bool = True) -> "S3Storage":
        """Return the storage at `s3://bucket/prefix?endpoint=…&region=…`. With `create=False`, it must exist."""
        storage = cls(**parse_url(url), durability=durability)
        if not create and next(storage.contexts(), None) is None and next(storage.objects.list("data"), None) is None:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store at {storage.objects.name!r}.", hint)
        return storage

    def __repr__(self) -> str:
        return f"S3Storage({self.objects.name!r})"

    def head(self, context: str) -> Head | None:
        snapshot = self._states.refresh(self._state(context))
        return snapshot.head.head if snapshot else None

    def get(self, context: str, family: Family, key: int) -> Record | None:
        state = self._state(context)
        if self._states.last_known(state) is None:
            return None
        return self._retry(state, lambda: state.snapshot.get(family, key) if state.snapshot else None)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        def start_at(snapshot: Snapshot, last: Record | None) -> Iterator[Record]:
            first = start if last is None or reverse else last.key + 1
            end = stop if last is None or not reverse else last.key - 1
            return snapshot.scan(family, first, end, reverse=reverse)

        return self._stream(context, start_at)

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        def start_at(snapshot: Snapshot, last: Record | None) -> Iterator[Record]:
            edge = after if last is None else (last.order, last.key)
            return snapshot.members(family, group, edge, reverse=reverse)

        return self._stream(context, start_at)

    def commit(self, context: str, commit: Commit) -> None:
        state = self._state(context)
        check_families(commit.writes)
        frame = encode_frame(commit)
        with state.write_lock:
            before = self._states.last_known(state)
            if not commit.follows(before.head.head if before else None):
                before = self._states.refresh(state)

            def draft(snapshot: Snapshot | None, commit_id: bytes) -> Draft:
                check_follows(context, snapshot, commit)
                return draft_commit(context, snapshot, commit, frame, commit_id, state.merging)

            after = self._retry(state, lambda: self._states.move(state, state.snapshot, draft))
        if after.head.flushes > (before.head.flushes if before else 0):
            if self._mode == "inline":
                self._compactor.run_after_flush(state, after)
            elif self._mode == "background":
                self._compactor.schedule(state, after)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        source, state = self._state(context), self._state(target)
        check_families(commit.writes)
        encode_frame(commit)  # rejects an invalid write before anything is written
        snapshot = self._states.refresh(source)
        if snapshot is None:
            raise conflict(context, None, commit.expect)
        check_follows(context, snapshot, commit)
        with state.write_lock:
            if (found := self._states.refresh(state)) is not None:
                raise conflict(target, found.head.head, 0)
            try:
                self._copy(snapshot, source, state, commit, below)
            except ObjectMissing as missing:
                fresh = self._refresh_after(source, missing)  # it was dropped or compacted meanwhile
                raise conflict(context, fresh.head.head if fresh else None, commit.expect) from None
        now = self._states.refresh(source)
        if now is None or now.head.incarnation != snapshot.head.incarnation:  # an erasure may have dropped it
            self.drop(target)
            raise conflict(context, now.head.head if now else None, commit.expect)

    def contexts(self, after: str = "") -> Iterator[str]:
        self._check_open()
        for listed in self.objects.list("heads", f"heads/{key_of(after)}" if after else ""):
            name = name_of(listed.key.removeprefix("heads/"))
            if name is not None and name > after:
                yield name
            self._check_open()

    def drop(self, context: str) -> None:
        state = self._state(context)
        with state.write_lock:
            try:
                snapshot = self._states.refresh(state)
            except Corrupt:  # the incarnation is unknown: remove all that exist under this name
                listed = self.objects.list(state.data_prefix.rstrip("/"))
                self._remove(state, [incarnation.folder for incarnation in group_incarnations(listed)])
                return
            if snapshot is not None:
                self._remove(state, [state.folder(snapshot.head.incarnation)], has_chunks=bool(snapshot.head.runs))

    def _remove(self, state: ContextState, folders: list[str], *, has_chunks: bool = True) -> None:
        """Remove the head of a context, then its chunks. The caller holds `write_lock`."""
        if has_chunks:  # the marker distinguishes an interrupted drop from a context that lost its head
            for folder in folders:
                self.objects.put(folder + DROPPED, b"")
        self.objects.delete([state.key])
        state.update(None)
        for folder in folders:
            for incarnation in group_incarnations(self.objects.list(folder.rstrip("/"))):
                self.objects.delete(incarnation.keys())
                self._chunks.forget(each.key.rpartition("/")[2] for each in incarnation.objects)

    def close(self) -> None:
        self._closed = True
        self._compactor.stop()

    def compact(self, context: str) -> None:
        """Merge a context into one run, without what was replaced or deleted. Raises `Busy`."""
        state = self._state(context)
        for _ in range(_ATTEMPTS):
            if self._retry(state, lambda: self._compactor.compact(state)):
                return
        raise Busy(f"Context {context!r} changed in every attempt to compact it: retry.")

    def collect(self, context: str | None = None, *, grace_seconds: float | None = None) -> int:
        """Remove objects that nothing needs any more, of one context or of all. Return their number.

        With `grace_seconds=0`, a reader in progress may have to read the head again.
        """
        self._check_open()
        grace = self._grace if grace_seconds is None else grace_seconds
        if context is None:
            return len(self._compactor.collect_all(self.contexts(), grace))
        return self._compactor.collect(self._state(context), grace)

    def scrub(self, contexts: Sequence[str] | None) -> str | None:
        """Remove all that was deleted or overwritten in these contexts from the bucket. Raises `Busy`.

        A bucket with versioning keeps old versions; then return what its owner can do.
        """
        for context in self.contexts() if contexts is None else contexts:
            self.compact(context)
            if contexts is not None:
                self.collect(context, grace_seconds=0)
        if contexts is None:
            self.collect(grace_seconds=0)
        return _OLD_VERSIONS if self.objects.has_versions("probes/versions") else None

    def examine(self, *, repair: bool = False) -> list[Symptom]:
        """Report objects that belong to no context. With `repair`, remove those that nothing needs."""
        self._check_open()
        found = self._compactor.examine(self.contexts, repair=repair)
        if repair:
            self.collect()
        return found

    @contextmanager
    def snapshot(self, context: str) -> Iterator["S3Storage"]:
        """Yield a storage that shows the context at this moment, whatever is committed meanwhile."""
        self._check_open()
        frozen = _FrozenStorage(self)
        frozen.head(context)
        yield frozen

    def _state(self, context: str) -> ContextState:
        self._check_open()
        return self._states.get(check_context_name(context))

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed(f"The storage {self.objects.name!r} is closed: open it again.")

    def _retry(self, state: ContextState, action: Callable[[], T]) -> T:
        """Call `action`. If another writer replaced and removed a chunk, read the head and call it again."""
        for _ in range(_ATTEMPTS):
            try:
                return action()
            except ObjectMissing as missing:
                self._refresh_after(state, missing)
        raise StorageFailure(f"{self.objects.name}: chunks of {state.name!r} are removed faster than they can be read.")

    def _refresh_after(self, state: ContextState, missing: ObjectMissing) -> Snapshot | None:
        """Read the head again because a chunk is missing. Raises `Corrupt` if the head still names it."""
        fresh = self._states.refresh(state)
        _check_replaced(fresh, missing)
        return fresh

    def _stream(
        self, context: str, start_at: Callable[[Snapshot, Record | None], Iterator[Record]]
    ) -> Iterator[Record]:
        state = self._state(context)
        snapshot = self._states.last_known(state)
        return iter(()) if snapshot is None else self._records(state, snapshot, start_at)

    def _records(
        self,
        state: ContextState,
        snapshot: Snapshot,
        start_at: Callable[[Snapshot, Record | None], Iterator[Record]],
    ) -> Iterator[Record]:
        """Yield the records of one snapshot. If a replaced chunk is removed, continue with the current state."""
        records = start_at(snapshot, None)
        last: Record | None = None
        while True:
            self._check_open()
            try:
                found = next(records, None)
            except ObjectMissing as missing:
                fresh = self._refresh_after(state, missing)
                if fresh is None or fresh.head.incarnation != snapshot.head.incarnation:
                    return  # the context was dropped meanwhile
                snapshot, records = fresh, start_at(fresh, last)
                continue
            if found is None:
                return
            last = found
            yield found

    def _copy(
        self,
        snapshot: Snapshot,
        source: ContextState,
        target: ContextState,
        commit: Commit,
        below: Mapping[Family, int],
    ) -> None:
        """Copy the runs on the server, then write the head that needs them."""
        deadline = Deadline()
        bounds = {RANKS[family]: limit for family, limit in below.items()} | {RANKS[JOURNAL]: 0}
        empty = new_head(target.name)
        folder, copies = target.folder(empty.incarnation), []
        if snapshot.head.runs:
            self.objects.put(folder + CREATING, b"")
        for run in snapshot.head.runs:
            chunks = [replace(chunk, id=f"{chunk.id[:17]}-{urandom(6).hex()}") for chunk in run.chunks]
            for chunk, copy in zip(run.chunks, chunks, strict=True):
                self.objects.copy(source.folder(snapshot.head.incarnation) + chunk.id, folder + copy.id)
            limits = {rank: min(bounds.get(rank, MAX_KEY + 1), limit) for rank, limit in run.below.items()}
            copies.append(Run(tuple(chunks), bounds | limits))
        if deadline.is_over():
            raise StorageFailure(f"{self.objects.name}: forking {source.name!r} took too long: retry.")
        empty = replace(empty, runs=tuple(copies), flushes=snapshot.head.flushes)
        log_writes = [
            to_write(sort_key, entry)
            for sort_key, entry in snapshot.log.entries.items()
            if sort_key[1] < bounds.get(sort_key[0], MAX_KEY + 1)  # type: ignore[arg-type, operator]
        ]
        first = Commit(0, commit.version, commit.head, [*log_writes, *commit.writes])
        base = Snapshot(empty, "", LogEntries(), folder, self._chunks)

        def draft(found: Snapshot | None, commit_id: bytes) -> Draft:
            check_follows(target.name, found, first)
            return draft_commit(target.name, base, first, encode_frame(first), commit_id)

        self._states.move(target, None, draft)


class _FrozenStorage(S3Storage):
    """A storage that shows each context as it was when it was first read."""

    def __init__(self, storage: S3Storage) -> None:
        self._setup(storage.objects, 0, storage._grace, "off", storage.durability)
        self._chunks = storage._chunks
        self._states = FrozenStates(self.objects, self._chunks)

    def _refresh_after(self, state: ContextState, missing: ObjectMissing) -> Snapshot | None:
        current = ContextStates(self.objects, self._chunks)
        _check_replaced(current.refresh(current.get(state.name)), missing)
        raise Conflict(f"The snapshot of {state.name!r} is too old: its chunks were removed. Take a new one.")


def _check_replaced(snapshot: Snapshot | None, missing: ObjectMissing) -> None:
    """Raise `Corrupt` if the head names the missing chunk."""
    key = str(missing)
    if snapshot is not None and key.rpartition("/")[2] in snapshot.head.chunk_ids():
        raise damaged(key, "it is missing")
