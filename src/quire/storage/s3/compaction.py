"""Compaction: merging runs into larger ones, and removing objects that nothing needs any more.

Compaction can run at any time, in any process, or never. No commit waits for it, and a crash during it loses nothing. A
merge writes new chunks and then replaces the runs in the head, if they are still there. The replaced chunks are removed
later. The id of a chunk contains the range of flushes it covers, so a newer chunk with a wider range shows when a chunk
was replaced.

A context that is dropped and created again gets a new incarnation with a folder of its own. `drop` writes a marker into
the folder before it removes the head. Without a marker, a folder that no head names belongs to a context that lost its
head object. Such a folder is never removed, because nothing else holds its records.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

from msgspec.structs import replace

from quire.errors import Conflict, QuireError, StorageFailure
from quire.storage.base import Symptom
from quire.storage.s3.chunks import ChunkReader, ChunkRef, Run, RunReader, only_puts, write_chunks
from quire.storage.s3.client import ObjectInfo, ObjectMissing
from quire.storage.s3.commit import (
    CREATING,
    FIRST,
    LAST,
    MAX_RUNS,
    ContextState,
    ContextStates,
    Draft,
    chunk_name,
    covered_flushes,
    find_mergeable,
)
from quire.storage.s3.head import HeadObject, Layer, Snapshot, merge_layers, read_log

DROPPED: Final = "dropped"
"""The marker in the folder of a dropped context."""
_COLLECT_EVERY: Final = 64
_MERGE_CACHE_BYTES: Final = 24 << 20
"""A merge reads through a cache of its own, so that it does not evict what is read often."""
_CLOCK: Final = "probes/clock"
PENDING_SECONDS: Final = 3_600.0
"""Objects that no head names yet may be in use for this long. Their writer gives up after half of it."""


class Incarnation(NamedTuple):
    """The objects of one incarnation of a context."""

    folder: str
    objects: list[ObjectInfo]

    @property
    def is_dropped(self) -> bool:
        return any(each.key == self.folder + DROPPED for each in self.objects)

    @property
    def is_being_created(self) -> bool:
        return any(each.key == self.folder + CREATING for each in self.objects)

    @property
    def modified(self) -> datetime:
        return max(each.modified for each in self.objects)

    def keys(self) -> list[str]:
        """Return the keys in the order to remove them: the marker last, in case the removal is interrupted."""
        return sorted((each.key for each in self.objects), key=lambda key: key == self.folder + DROPPED)


def group_incarnations(listed: Iterable[ObjectInfo]) -> list[Incarnation]:
    """Group the objects below `data` by incarnation."""
    return [Incarnation(*item) for item in _group(listed, 3).items()]


def _group(listed: Iterable[ObjectInfo], depth: int) -> dict[str, list[ObjectInfo]]:
    """Group objects by the first parts of their keys: two for a context, three for an incarnation."""
    found: dict[str, list[ObjectInfo]] = {}
    for each in listed:
        found.setdefault("".join(f"{part}/" for part in each.key.split("/")[:depth]), []).append(each)
    return found


class Deadline:
    """The time limit of a writer that stores chunks before a head names them."""

    def __init__(self) -> None:
        self._monotonic, self._time = time.monotonic(), time.time()

    def is_over(self) -> bool:
        """Return True if the chunks may be removed soon. Time in which the machine slept counts."""
        passed = max(time.monotonic() - self._monotonic, time.time() - self._time)
        return passed > PENDING_SECONDS / 2


class Compactor:
    """Merges and removals for one storage."""

    def __init__(self, states: ContextStates, grace_seconds: float) -> None:
        self._states = states
        self._objects = states.objects
        self._grace = grace_seconds
        self._due: dict[str, tuple[ContextState, Snapshot]] = {}
        self._thread: Thread | None = None
        self._stopping = Event()
        self._lock = Lock()
        self._merge_lock = Lock()

    def schedule(self, state: ContextState, snapshot: Snapshot) -> None:
        """Start the work after a flush in a background thread. If there are too many runs, merge them now."""
        if not find_mergeable(snapshot.head.runs) and snapshot.head.flushes % _COLLECT_EVERY:
            return
        if len(snapshot.head.runs) >= MAX_RUNS:
            self.run_after_flush(state, snapshot)
            return
        with self._lock:
            if self._stopping.is_set():
                return
            self._due.setdefault(state.name, (state, snapshot))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="quire-s3-upkeep", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._due or self._stopping.is_set():
                    self._thread = None
                    return
                state, snapshot = self._due.pop(next(iter(self._due)))
            self.run_after_flush(state, state.snapshot or snapshot)

    def stop(self) -> None:
        """End the thread. An unfinished merge can be done again."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def run_after_flush(self, state: ContextState, snapshot: Snapshot) -> None:
        """Do the work after a flush. A failure is ignored, because the commit is already done."""
        with suppress(QuireError, ObjectMissing):
            which = find_mergeable(snapshot.head.runs)
            if which:
                self._merge(state, snapshot, which)
            if snapshot.head.flushes % _COLLECT_EVERY == 0:
                self.collect(state, self._grace)

    def compact(self, state: ContextState) -> bool:
        """Merge everything into one run. Return False if another writer was first."""
        snapshot = self._states.refresh(state)
        return snapshot is None or self._merge(state, snapshot, range(len(snapshot.head.runs)), whole=True)

    def _merge(self, state: ContextState, snapshot: Snapshot, which: range, *, whole: bool = False) -> bool:
        """Merge adjacent runs into one, with `whole` also the log. Return False if another writer was first."""
        old = snapshot.head.runs[which.start : which.stop]
        with self._merge_lock:
            state.merging = {each for run in old for each in run.ids}
            try:
                return self._merge_runs(state, snapshot, old, is_oldest=which.start == 0, whole=whole)
            finally:
                state.merging = frozenset()

    def _merge_runs(
        self, state: ContextState, snapshot: Snapshot, old: tuple[Run, ...], *, is_oldest: bool, whole: bool
    ) -> bool:
        deadline = Deadline()
        head, folder = snapshot.head, state.folder(snapshot.head.incarnation)
        chunks = ChunkReader(self._objects, _MERGE_CACHE_BYTES)
        readers = [RunReader(run, folder, chunks) for run in reversed(old)]
        layers: list[Layer] = [snapshot.log, *readers] if whole else [*readers]
        entries = merge_layers([layer.between(FIRST, LAST) for layer in layers])
        refs: list[ChunkRef] = []
        for chunk in write_chunks(only_puts(entries) if is_oldest else entries, chunk_name(old, head.flushes + 1)):
            if self._stopping.is_set():
                return False
            self._objects.put(folder + chunk.ref.id, chunk.data)
            self._states.chunks.cache_new(folder, chunk.ref, chunk.data, whole=False)
            refs.append(chunk.ref)
        if deadline.is_over():
            raise StorageFailure(f"{self._objects.name}: merging {state.name!r} took too long.")
        merge = _Merge(head, old, Run(tuple(refs)) if refs else None, head.log if whole else b"")
        with state.write_lock:
            try:
                self._states.move(state, state.snapshot or self._states.refresh(state), merge.draft)
            except Conflict:
                now = state.snapshot
                if now is None or now.head.incarnation != head.incarnation:  # dropped: no other writer knows the chunks
                    self._objects.delete([folder + ref.id for ref in refs])
                return False
        self._states.chunks.forget(each for run in old for each in run.ids)
        return True

    def collect(self, state: ContextState, grace: float) -> int:
        """Remove the chunks of a context that no head or reader needs. Return their number."""
        listed = list(self._objects.list(state.data_prefix.rstrip("/")))
        return len(self._sweep(state, listed, self._server_time(), grace)) if listed else 0

    def collect_all(self, names: Iterable[str], grace: float, *, remove: bool = True) -> list[str]:
        """Remove the objects that no context needs, including those of dropped contexts. Return their keys.

        Without `remove`, only return the keys.
        """
        now, listed = self._server_time(), _group(self._objects.list("data"), 2)
        found: list[str] = []
        for name in names:
            state = self._states.get(name)
            if objects := listed.pop(state.data_prefix, None):
                found += self._sweep(state, objects, now, grace, remove=remove)
        left = [key for prefix, objects in listed.items() for key in _find_unneeded(prefix, objects, None, now, grace)]
        if remove:
            probes = (each for each in self._objects.list("probes") if each.key != _CLOCK)
            left += [each.key for each in probes if _is_older(each.modified, now, PENDING_SECONDS)]
            self._objects.delete(left)
        return found + left

    def _sweep(
        self, state: ContextState, listed: list[ObjectInfo], now: datetime, grace: float, *, remove: bool = True
    ) -> list[str]:
        """Return the keys that a context does not need, and remove them. Before, ensure that no merge names them."""
        snapshot = self._states.refresh(state)
        unneeded = _find_unneeded(state.data_prefix, listed, snapshot, now, grace)
        if remove:
            if snapshot is not None and (grace < PENDING_SECONDS or not _are_replaced(unneeded, snapshot.head)):
                snapshot = self._fence(state)
                unneeded = _find_unneeded(state.data_prefix, listed, snapshot, now, grace)
            self._objects.delete(unneeded)
        return unneeded

    def _fence(self, state: ContextState) -> Snapshot | None:
        """Write the head so that a merge in progress cannot name the chunks it has written. They can be removed."""

        def draft(snapshot: Snapshot | None, commit_id: bytes) -> Draft:
            if snapshot is None:
                raise Conflict(f"Context {state.name!r} does not exist.")
            head = snapshot.head
            count = head.flushes + 1
            return Draft(replace(head, flushes=count, fence=count, commit_ids=head.ids_with(commit_id)), snapshot.log)

        with state.write_lock:
            snapshot = self._states.refresh(state)
            return snapshot and self._states.move(state, snapshot, draft)

    def _server_time(self) -> datetime:
        """Return the time of the server, because the clocks of machines differ."""
        self._objects.put(_CLOCK, b"")
        for listed in self._objects.list("probes"):
            if listed.key == _CLOCK:
                return listed.modified
        raise StorageFailure(f"{self._objects.name}: an object that was just written is not listed.")

    def examine(self, contexts: Callable[[], Iterable[str]], *, repair: bool) -> list[Symptom]:
        """Report contexts that lost their head object, and objects that `collect_all` removes."""
        leftovers = self.collect_all(contexts(), max(self._grace, PENDING_SECONDS), remove=False)
        return [*self._find_headless(contexts()), *(_report_leftover(key, repair) for key in leftovers)]

    def _find_headless(self, names: Iterable[str]) -> Iterator[Symptom]:
        """Report the incarnations that no head names and that were not dropped."""
        now, found = self._server_time(), group_incarnations(self._objects.list("data"))
        in_use: set[str] = set()
        names_by_prefix: dict[str, str] = {}
        for name in names:
            state = self._states.get(name)
            snapshot = self._states.refresh(state)
            names_by_prefix[state.data_prefix] = name
            in_use |= {state.folder(snapshot.head.incarnation)} if snapshot else set()
        for each in found:
            is_new = each.is_being_created and not _is_older(each.modified, now, PENDING_SECONDS)
            if each.folder in in_use or is_new:
                continue
            for again in group_incarnations(self._objects.list(each.folder.rstrip("/"))):  # it may be gone by now
                if not again.is_dropped:
                    prefix = f"{again.folder.rstrip('/').rpartition('/')[0]}/"
                    yield _report_headless(again, names_by_prefix.get(prefix, ""))


class _Merge:
    """The result of a merge. `draft` puts the merged run into the current head."""

    def __init__(self, head: HeadObject, old: tuple[Run, ...], new: Run | None, log: bytes) -> None:
        self._head = head
        self._old = old
        self._new = (new,) if new else ()
        self._log = log

    def draft(self, snapshot: Snapshot | None, commit_id: bytes) -> Draft:
        """Return the head with the merged run. Raises `Conflict` if the old runs are not there any more."""
        head = snapshot.head if snapshot else None
        at = self._find(head) if head else None
        if snapshot is None or head is None or at is None:
            raise Conflict(f"Context {self._head.context!r} was compacted or dropped by another writer: retry.")
        runs = (*head.runs[:at], *self._new, *head.runs[at + len(self._old) :])
        log = head.log[len(self._log) :]
        new = replace(head, runs=runs, log=log, flushes=head.flushes + 1, commit_ids=head.ids_with(commit_id))
        return Draft(new, read_log(new, "") if self._log else snapshot.log)

    def _find(self, head: HeadObject) -> int | None:
        """Return the position of the old runs in a head; None if the merge is too late for it."""
        if head.incarnation != self._head.incarnation or head.fence > self._head.flushes:
            return None
        if not head.log.startswith(self._log) or (self._log and head.flushes != self._head.flushes):
            return None
        count = len(self._old)
        if not count:
            return len(head.runs)
        old = [run.ids for run in self._old]
        for at in range(len(head.runs) - count + 1):
            if [run.ids for run in head.runs[at : at + count]] == old:
                return None if self._log and at + count != len(head.runs) else at
        return None


FlushRange = tuple[int, int]
"""The first and the last flush in a chunk."""


def _find_unneeded(
    prefix: str, listed: list[ObjectInfo], snapshot: Snapshot | None, now: datetime, grace: float
) -> list[str]:
    """Return the keys of one context's objects that neither its head nor a reader needs."""
    head = snapshot.head if snapshot else None
    folder = f"{prefix}{head.incarnation}/" if head else None
    needed = head.chunk_ids() if head else set()
    own = {each.key: each for each in listed if folder and each.key.startswith(folder)}
    covered = ((_flushes_in(key), each.modified) for key, each in own.items())
    replaced = find_replaced((flushes, modified) for flushes, modified in covered if flushes)
    unneeded = [
        key
        for key, each in own.items()
        if key.removeprefix(folder or "") not in needed and is_expired(each, replaced, head, now, grace)
    ]
    for other in group_incarnations(each for each in listed if each.key not in own):
        if other.is_dropped and (grace <= 0 or _is_older(other.modified, now, max(grace, PENDING_SECONDS))):
            unneeded += other.keys()
    return unneeded


def _are_replaced(keys: Iterable[str], head: HeadObject) -> bool:
    """Return True if a chunk in the head replaced each of these: then no merge can name them again."""
    needed = [flushes for each in head.chunk_ids() if (flushes := _flushes_in(each))]
    return all((own := _flushes_in(key)) and any(_is_wider(each, own) for each in needed) for key in keys)


def find_replaced(chunks: Iterable[tuple[FlushRange, datetime]]) -> dict[FlushRange, datetime]:
    """Return when each range of flushes was replaced: the time of the first chunk with a wider range.

    The time is n log n, because a context has tens of thousands of chunks after an hour of many commits.
    """
    written: dict[FlushRange, datetime] = {}
    for flushes, modified in chunks:
        written[flushes] = min(modified, written.get(flushes, modified))
    replaced: dict[FlushRange, datetime] = {}
    ends: list[int] = []  # of ranges that start earlier; a range that ends later and is older hides the others
    times: list[datetime] = []
    for flushes in sorted(written, key=lambda each: (each[0], -each[1])):
        end, modified = flushes[1], written[flushes]
        place = bisect_left(ends, end)
        if place < len(ends):
            replaced[flushes] = times[place]
            if times[place] <= modified:
                continue
        hidden = place
        while hidden and times[hidden - 1] >= modified:
            hidden -= 1
        after = place + (place < len(ends) and ends[place] == end)
        ends[hidden:after], times[hidden:after] = [end], [modified]
    return replaced


def is_expired(
    chunk: ObjectInfo, replaced: Mapping[FlushRange, datetime], head: HeadObject | None, now: datetime, grace: float
) -> bool:
    """Return True if a chunk that the head does not name can be removed."""
    own = _flushes_in(chunk.key)
    if head is None or own is None:
        return _is_older(chunk.modified, now, grace)
    if own[1] > head.flushes:
        return False  # a writer is about to name it
    if grace <= 0:
        return True
    return _is_older(max(chunk.modified, replaced.get(own, chunk.modified)), now, grace)


def _flushes_in(key: str) -> FlushRange | None:
    try:
        return covered_flushes(key.rpartition("/")[2])
    except ValueError:
        return None


def _is_wider(one: FlushRange, other: FlushRange) -> bool:
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def _is_older(modified: datetime, now: datetime, seconds: float) -> bool:
    return now - modified > timedelta(seconds=seconds)


def _report_headless(incarnation: Incarnation, name: str) -> Symptom:
    context = f"an earlier context {name!r}" if name else "a context"
    text = f"{len(incarnation.objects):,} objects hold records of {context}, but its head object is missing."
    if incarnation.is_being_created:
        text += " A fork or a large first commit was interrupted."
        remedy = "If the context never existed, remove these objects. quire does not remove them."
        return Symptom("head_lost", "warning", incarnation.folder, text, remedy)
    remedy = "Restore the object below heads/ from a version of it or a backup. Nothing removes these objects."
    return Symptom("head_lost", "error", incarnation.folder, text, remedy)


def _report_leftover(key: str, repair: bool) -> Symptom:
    text = "No context needs it. An interrupted drop left it, or it was replaced."
    return Symptom("leftover", "note", key, text, "A garbage collection removes it.", repaired=repair)
