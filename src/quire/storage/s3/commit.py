"""Commits to S3: the changes of the head object of a context.

A commit appends to the log in the head. If the log becomes too large, the commit flushes it into a chunk and merges the
newest runs into that chunk while they are small. The number of runs therefore grows with the logarithm of the stored
bytes. A writer has the entries to flush in memory, so a commit writes at most one chunk and the head.

A head is replaced by a conditional write. If the answer is lost, quire reads the head and looks for the id of the
commit in it. So a commit happens once or never.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from hashlib import sha256
from os import urandom
from threading import Lock
from typing import Final, NamedTuple

from msgspec.structs import replace

from quire.errors import Busy, OutcomeUnknown, QuireError, StorageFailure
from quire.storage.base import Commit, conflict
from quire.storage.s3.chunks import (
    ChunkReader,
    LogEntries,
    NewChunk,
    Run,
    RunReader,
    SortKey,
    changes_of,
    only_puts,
    write_chunks,
)
from quire.storage.s3.client import ConditionFailed, NoAnswer, ObjectMissing, Objects
from quire.storage.s3.head import (
    ID_BYTES,
    MAX_IDS,
    HeadObject,
    Layer,
    Snapshot,
    check_key,
    decode_head,
    encode_head,
    key_of,
    merge_layers,
    read_log,
)

LOG_BYTES: Final = 64 << 10
MERGE_BYTES: Final = 4 << 20
"""The most that a commit rewrites. Larger merges are part of compaction."""
RATIO: Final = 3
MAX_RUNS: Final = 24
"""A commit that leaves this many runs waits for a merge, so that a read never takes more requests."""
FIRST: Final[SortKey] = (0,)
LAST: Final[SortKey] = (1 << 30,)
CREATING: Final = "creating"
"""Marks the folder of a context while its chunks are stored and its first head is not."""
_MAX_CONTEXTS: Final = 512
_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class Draft(NamedTuple):
    """A head to write, the entries of its log, and the chunks that must be stored before it."""

    head: HeadObject
    log: LogEntries
    chunks: tuple[NewChunk, ...] = ()


def draft_commit(
    context: str,
    snapshot: Snapshot | None,
    commit: Commit,
    frame: bytes,
    commit_id: bytes,
    merging: Set[str] = frozenset(),
) -> Draft:
    """Return the head after a commit. Chunks in `merging` are left to the merge that replaces them."""
    old = snapshot.head if snapshot else new_head(context)
    log = (snapshot.log if snapshot else LogEntries()).with_changes(changes_of(commit.writes))
    head = replace(
        old, version=commit.version, value=commit.head, commit_ids=old.ids_with(commit_id), log=old.log + frame
    )
    if len(head.log) <= LOG_BYTES:
        return Draft(head, log)
    return _flush(head, log, snapshot.runs if snapshot else (), merging)


def new_head(context: str) -> HeadObject:
    """Return the head of a context before its first commit."""
    return HeadObject(context, urandom(8).hex(), 0, b"", b"", b"", (), 0)


def _flush(head: HeadObject, log: LogEntries, runs: Sequence[RunReader], merging: Set[str]) -> Draft:
    """Return the head with its log in a chunk. `runs` are the newest first."""
    count = _count_small_runs(head.runs, log.size, merging)
    layers: list[Layer] = [log, *runs[:count]]
    entries = merge_layers([layer.between(FIRST, LAST) for layer in layers])
    older, merged = head.runs[: len(head.runs) - count], head.runs[len(head.runs) - count :]
    name = chunk_name(merged, head.flushes + 1)
    chunks = tuple(write_chunks(entries if older else only_puts(entries), name))
    new = (*older, Run(tuple(chunk.ref for chunk in chunks))) if chunks else older
    return Draft(replace(head, log=b"", runs=new, flushes=head.flushes + 1), LogEntries(), chunks)


def _count_small_runs(runs: Sequence[Run], size: int, merging: Set[str]) -> int:
    """Return how many of the newest runs to merge into a flush of `size` bytes."""
    count = 0
    for run in reversed(runs):
        if run.size > RATIO * size or size + run.size > MERGE_BYTES or not merging.isdisjoint(run.ids):
            break
        size += run.size
        count += 1
    return count


def find_mergeable(runs: Sequence[Run]) -> range | None:
    """Return the adjacent runs that are worth a merge: the newest four or more of similar size, or None."""
    for end in range(len(runs), 3, -1):
        start, size = end - 1, runs[end - 1].size
        while start and runs[start - 1].size <= RATIO * size:
            start -= 1
            size += runs[start].size
        if end - start >= 4:
            return range(start, end)
    return range(len(runs) // 2, len(runs)) if len(runs) >= MAX_RUNS else None


def chunk_name(runs: Sequence[Run], flush: int) -> str:
    """Return the beginning of the ids of chunks that replace these runs: the range of flushes they cover."""
    first = min((covered_flushes(each)[0] for run in runs for each in run.ids), default=flush)
    return f"{first:08x}-{flush:08x}"


def covered_flushes(chunk_id: str) -> tuple[int, int]:
    """Return the first and the last flush that a chunk covers. Raises `ValueError`."""
    first, last, _ = chunk_id.split("-")
    return int(first, 16), int(last, 16)


class ContextState:
    """One context as this handle knows it. `snapshot` is the last state it read or wrote."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key = check_key(f"heads/{key_of(name)}", name)
        self.data_prefix = f"data/{sha256(name.encode()).hexdigest()[:32]}/"
        self.write_lock = Lock()
        """Held by a writer. Without it, two threads of one handle would only cause conflicts."""
        self.snapshot: Snapshot | None = None
        self.merging: Set[str] = frozenset()
        """Chunks that a merge of this handle will replace. No commit merges them."""
        self.updates = 0
        """The number of changes of `snapshot`. 0 means that the context was never read."""
        self._lock = Lock()

    def folder(self, incarnation: str) -> str:
        """Return the prefix of the chunks of one incarnation."""
        return f"{self.data_prefix}{incarnation}/"

    def update(self, snapshot: Snapshot | None, updates: int | None = None) -> bool:
        """Store a snapshot, unless another thread stored a newer one since `updates`.

        Return False if it is unknown which one is newer.
        """
        with self._lock:
            old = self.snapshot
            if updates is not None and updates != self.updates:
                if old is None or snapshot is None or old.head.incarnation != snapshot.head.incarnation:
                    return False
                if snapshot.head.writes <= old.head.writes:
                    return True
            self.snapshot = snapshot
            self.updates += 1
            return True


class ContextStates:
    """The contexts below one prefix. It reads and writes their heads."""

    def __init__(self, objects: Objects, chunks: ChunkReader) -> None:
        self.objects = objects
        self.chunks = chunks
        self._states: OrderedDict[str, ContextState] = OrderedDict()
        self._lock = Lock()

    def get(self, name: str) -> ContextState:
        """Return the state of a context, which may not exist."""
        with self._lock:
            state = self._states.get(name)
            if state is None:
                state = self._states[name] = ContextState(name)
            self._states.move_to_end(name)
            while len(self._states) > _MAX_CONTEXTS:
                self._states.popitem(last=False)
            return state

    def refresh(self, state: ContextState) -> Snapshot | None:
        """Read the head and return the current snapshot; None if the context does not exist. One request."""
        while True:
            updates, known = state.updates, state.snapshot
            if state.update(self._read(state, known), updates):
                return state.snapshot

    def _read(self, state: ContextState, known: Snapshot | None) -> Snapshot | None:
        try:
            found = self.objects.get(state.key, known.tag if known else None)
        except ObjectMissing:
            return None
        if found is None:
            return known
        head = decode_head(found.data, state.key, state.name)
        return self._snapshot(state, head, found.tag, read_log(head, state.key))

    def _snapshot(self, state: ContextState, head: HeadObject, tag: str, log: LogEntries) -> Snapshot:
        return Snapshot(head, tag, log, state.folder(head.incarnation), self.chunks)

    def last_known(self, state: ContextState) -> Snapshot | None:
        """Return the last known snapshot. Read the head if it was never read."""
        return state.snapshot if state.updates else self.refresh(state)

    def move(
        self, state: ContextState, snapshot: Snapshot | None, draft: Callable[[Snapshot | None, bytes], Draft]
    ) -> Snapshot:
        """Replace the head of `snapshot` and return the new snapshot. The caller holds `write_lock`.

        `draft` makes the new head from a snapshot and a commit id. It is called again if another writer was first, and
        raises `Conflict` if its commit does not follow. Raises `OutcomeUnknown` if the server does not answer.
        """
        commit_id = urandom(ID_BYTES)
        new = self._store_chunks(state, draft(snapshot, commit_id))
        no_answer: NoAnswer | None = None
        for pause in _PAUSES:
            if pause:
                time.sleep(pause)
            try:
                return self._write(state, snapshot, new)
            except ConditionFailed:  # another writer was first, or an earlier attempt of this write arrived
                pass
            except NoAnswer as error:
                no_answer = error
            fresh = self._read_outcome(state, no_answer)
            if fresh is not None and fresh.head.has_commit(commit_id):
                return fresh
            if (fresh.tag if fresh else None) == (snapshot.tag if snapshot else None):
                continue  # the write did not arrive yet; under its condition it happens at most once
            if fresh is not None and no_answer is not None and _lacks_ids(fresh, new):
                raise OutcomeUnknown(f"{self.objects.name}: too many commits followed to find this one.")
            if fresh is None or fresh.head.incarnation != new.head.incarnation:
                self._discard_chunks(state, new, everything=snapshot is None)
            snapshot, commit_id, no_answer = fresh, urandom(ID_BYTES), None
            new = self._store_chunks(state, draft(snapshot, commit_id))
        if no_answer is not None:
            raise OutcomeUnknown(f"{self.objects.failure(no_answer, state.key)} It may have been committed.")
        raise Busy(f"{self.objects.name}: other writers change {state.name!r} all the time: retry.")

    def _store_chunks(self, state: ContextState, draft: Draft) -> Draft:
        """Store the chunks of a draft and return the draft with its number of writes."""
        folder = state.folder(draft.head.incarnation)
        if draft.chunks and not draft.head.writes:
            self.objects.put(folder + CREATING, b"")
        for chunk in draft.chunks:
            self.objects.put(folder + chunk.ref.id, chunk.data)
            self.chunks.cache_new(folder, chunk.ref, chunk.data)
        return draft._replace(head=replace(draft.head, writes=draft.head.writes + 1))

    def _discard_chunks(self, state: ContextState, draft: Draft, *, everything: bool) -> None:
        """Remove the chunks of a draft after another writer dropped or created the context: no head names them."""
        folder = state.folder(draft.head.incarnation)
        ids = draft.head.chunk_ids() if everything else {chunk.ref.id for chunk in draft.chunks}
        with suppress(QuireError):
            self.objects.delete([folder + each for each in sorted(ids)])
            if everything:
                self.objects.delete([folder + CREATING])  # last: without it, the chunks look like a lost context

    def _write(self, state: ContextState, snapshot: Snapshot | None, draft: Draft) -> Snapshot:
        data = encode_head(draft.head)
        if snapshot is None:
            tag = self.objects.create(state.key, data)
            if draft.head.runs:
                with suppress(QuireError):  # otherwise it is collected later
                    self.objects.delete([state.folder(draft.head.incarnation) + CREATING])
        else:
            tag = self.objects.replace(state.key, data, snapshot.tag)
        new = self._snapshot(state, draft.head, tag, draft.log)
        state.update(new)
        return new

    def _read_outcome(self, state: ContextState, no_answer: NoAnswer | None) -> Snapshot | None:
        """Read the head after a failed write."""
        try:
            return self.refresh(state)
        except (Busy, StorageFailure) as error:
            if no_answer is None:
                raise
            raise OutcomeUnknown(f"{error} The commit to {state.name!r} may have been made.") from None


class FrozenStates(ContextStates):
    """A variant that reads the head of each context only once."""

    def refresh(self, state: ContextState) -> Snapshot | None:
        return state.snapshot if state.updates else super().refresh(state)


def _lacks_ids(fresh: Snapshot, draft: Draft) -> bool:
    """Return True if so many commits followed that the head no longer has the id of this one."""
    return len(fresh.head.commit_ids) >= ID_BYTES * MAX_IDS and fresh.head.version - draft.head.version >= MAX_IDS


def check_follows(context: str, snapshot: Snapshot | None, commit: Commit) -> None:
    """Raise `Conflict` unless the commit follows this state."""
    head = snapshot.head.head if snapshot else None
    if not commit.follows(head):
        raise conflict(context, head, commit.expect)
