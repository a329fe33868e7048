"""What lies in the bucket of contexts whose head is not there: left by a drop that died, or all that there is of them.

A context that is dropped and made again is another making of it, with a folder of its own. Who drops one says so in
that folder before the head goes, so what a dead drop left can be told from a context that lost its head object: that
is never removed, because nothing else holds what is in it.

Keeping a context quick to open: merging runs into larger ones, and removing what nothing needs any more.

All of it can be done at any time, by anyone, or never: no commit waits for it, and none is lost if it dies half way.
A merge writes new chunks and then replaces the runs in the head, if they are still there. What was replaced is removed
later: a chunk tells by its id which seals it covers, so a newer one that covers more tells when it was replaced.

What an examination of a bucket finds below the level of contexts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Final, NamedTuple

from msgspec.structs import replace

from quire.errors import Conflict, QuireError, StorageFailure
from quire.storage.base import Symptom
from quire.storage.s3.chunks import ChunkRef, Chunks, Run, RunReader, settled, write_chunks
from quire.storage.s3.client import Listed, Missing
from quire.storage.s3.contexts import Book, Books, Draft
from quire.storage.s3.flush import FIRST, LAST, MOST_RUNS, chunk_name, covers, mergeable
from quire.storage.s3.head import HeadObject
from quire.storage.s3.snapshot import Layer, Standing, merged, recent_of

DROPPED: Final = "dropped"
"""The object in a folder of chunks that says that its context was dropped."""


class Making(NamedTuple):
    """The objects of one making of a context."""

    folder: str
    objects: list[Listed]

    @property
    def is_dropped(self) -> bool:
        return any(each.key == self.folder + DROPPED for each in self.objects)


def makings(listed: Iterable[Listed]) -> list[Making]:
    """The objects below `data`, by the making they belong to."""
    found: dict[str, list[Listed]] = {}
    for each in listed:
        found.setdefault(f"{each.key.rpartition('/')[0]}/", []).append(each)
    return [Making(folder, objects) for folder, objects in found.items()]


def to_remove(making: Making) -> list[str]:
    """The keys of a making, the one that says it was dropped last: were it interrupted, it is told from a lost one."""
    keys = [each.key for each in making.objects if each.key != making.folder + DROPPED]
    return [*keys, making.folder + DROPPED] if making.is_dropped else keys


_COLLECT_EVERY: Final = 64
_READ_BYTES: Final = 24 << 20
"""Merging reads through a cache of its own, so that it does not push out what is read often."""
_IDLE_SECONDS: Final = 5.0
_CLOCK: Final = "probes/clock"
MAKING_SECONDS: Final = 3_600.0
"""What nothing names yet may be in the making for so long; who makes it gives up after half of that."""


class Started:
    """When something was begun that nothing names until it is done."""

    def __init__(self) -> None:
        self._monotonic, self._time = time.monotonic(), time.time()

    def is_late(self) -> bool:
        """Whether what it wrote may be gone before it is named; a machine that slept counts as time too."""
        passed = max(time.monotonic() - self._monotonic, time.time() - self._time)
        return passed > MAKING_SECONDS / 2


class Upkeep:
    """Merges and removals for one handle."""

    def __init__(self, books: Books, grace_seconds: float) -> None:
        self._books = books
        self._objects = books.objects
        self._grace = grace_seconds
        self._due: SimpleQueue[tuple[Book, Standing] | None] = SimpleQueue()
        self._queued: set[str] = set()
        self._thread: Thread | None = None
        self._stopping = Event()
        self._lock = Lock()
        self._merging = Lock()

    def later(self, book: Book, standing: Standing) -> None:
        """Have what a seal made necessary done in a thread of its own."""
        if not self._is_due(standing.head):
            return
        if len(standing.head.runs) >= MOST_RUNS:
            self.after_seal(book, standing)
            return
        with self._lock:
            if self._stopping.is_set() or book.name in self._queued:
                return
            self._queued.add(book.name)
            self._due.put((book, standing))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="quire-s3-upkeep", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; what it was doing is left and can be done again."""
        with self._lock:
            self._stopping.set()
            self._due.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def after_seal(self, book: Book, standing: Standing) -> None:
        """Do what a seal made necessary. It is a courtesy: that it fails costs nothing that was done."""
        with suppress(QuireError, Missing):
            which = mergeable(standing.head.runs)
            if which:
                self._merge(book, standing, which)
            if standing.head.seals % _COLLECT_EVERY == 0:
                self.collect(book, self._grace)

    def compact(self, book: Book) -> bool:
        """Make one run of everything; False if it came too late."""
        standing = self._books.look(book)
        return standing is None or self._merge(book, standing, range(len(standing.head.runs)), whole=True)

    def _is_due(self, head: HeadObject) -> bool:
        return bool(mergeable(head.runs)) or head.seals % _COLLECT_EVERY == 0

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                due = self._due.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._due.empty():
                        self._thread = None
                        return
                continue
            if due is None:
                return
            book, standing = due
            with self._lock:
                self._queued.discard(book.name)
            self.after_seal(book, book.standing or standing)

    def _merge(self, book: Book, standing: Standing, which: range, *, whole: bool = False) -> bool:
        """Make one run of several in a row, with `whole` of the log too; False if it came too late."""
        old = standing.head.runs[which.start : which.stop]
        with self._merging:
            book.merging = {each for run in old for each in run.ids}
            try:
                return self._merge_runs(book, standing, old, oldest=which.start == 0, whole=whole)
            finally:
                book.merging = frozenset()

    def _merge_runs(self, book: Book, standing: Standing, old: tuple[Run, ...], *, oldest: bool, whole: bool) -> bool:
        started = Started()
        head, folder = standing.head, book.folder(standing.head.incarnation)
        reading = Chunks(self._objects, _READ_BYTES)
        readers = [RunReader(run, folder, reading) for run in reversed(old)]
        sources: list[Layer] = [standing.recent, *readers] if whole else [*readers]
        entries = merged([layer.between(FIRST, LAST, reverse=False) for layer in sources], reverse=False)
        name = chunk_name(old, head.seals + 1)
        refs: list[ChunkRef] = []
        for chunk in write_chunks(settled(entries) if oldest else entries, name):
            if self._stopping.is_set():
                return False
            self._objects.put(folder + chunk.ref.id, chunk.data)
            self._books.chunks.take_end(folder, chunk.ref, chunk.data)
            refs.append(chunk.ref)
        if started.is_late():
            raise StorageFailure(f"{self._objects.place}: merging {book.name!r} took too long.")
        merge = _Merge(head, old, Run(tuple(refs)) if refs else None, head.log if whole else b"")
        with book.writing:
            try:
                fresh = book.standing or self._books.look(book)
                if fresh is None:
                    raise Conflict(f"Context {book.name!r} was dropped.")
                self._books.move(book, fresh, merge.draft)
            except Conflict:
                self._discard(book, head, refs)
                return False
        self._books.chunks.forget(each for run in old for each in run.ids)
        return True

    def _discard(self, book: Book, head: HeadObject, refs: Iterable[ChunkRef]) -> None:
        """Remove what a merge wrote for a context that was dropped meanwhile: nobody else knows of it."""
        now = book.standing
        if now is None or now.head.incarnation != head.incarnation:
            self._objects.delete([book.folder(head.incarnation) + ref.id for ref in refs])

    def collect(self, book: Book, grace: float) -> int:
        """Remove the chunks of a context that its head does not need and nobody reads; how many."""
        listed = list(self._objects.list(book.shelf.rstrip("/")))
        return self._sweep(book, listed, self._now(), grace) if listed else 0

    def leftovers(self, names: Iterable[str]) -> list[str]:
        """The keys of what crashed writers and half-done drops left, and of what was replaced and not removed yet."""
        now, shelves = self._now(), self._shelves()
        found: list[str] = []
        for name in names:
            book = self._books.book(name)
            standing = self._books.look(book)
            found += _doomed(book.shelf, shelves.pop(book.shelf, []), standing, now, MAKING_SECONDS)
        for shelf, listed in shelves.items():
            found += _doomed(shelf, listed, None, now, MAKING_SECONDS)
        return found

    def headless(self, names: Iterable[str]) -> list[tuple[Making, str, bool]]:
        """The makings that no head names and that nobody dropped; whose name it may be, and whether each is settled.

        What is not settled may be in the making: a fork, or a first commit that is large.
        """
        now, found = self._now(), makings(self._objects.list("data"))
        living: set[str] = set()
        shelves: dict[str, str] = {}
        for name in names:
            book = self._books.book(name)
            standing = self._books.look(book)
            shelves[book.shelf] = name
            living |= {book.folder(standing.head.incarnation)} if standing else set()
        suspects = [making.folder for making in found if making.folder not in living]
        again = [each for folder in suspects for each in makings(self._objects.list(folder.rstrip("/")))]
        return [
            (
                making,
                shelves.get(f"{'/'.join(making.folder.split('/')[:2])}/", ""),
                _is_older(max(each.modified for each in making.objects), now, MAKING_SECONDS),
            )
            for making in again
            if not making.is_dropped
        ]

    def _shelves(self) -> dict[str, list[Listed]]:
        """All chunks, by what begins the keys of one context."""
        shelves: dict[str, list[Listed]] = {}
        for listed in self._objects.list("data"):
            shelves.setdefault(f"{'/'.join(listed.key.split('/')[:2])}/", []).append(listed)
        return shelves

    def collect_all(self, names: Iterable[str], grace: float) -> int:
        """The same for all contexts, and for what is left of those that are gone."""
        now, shelves = self._now(), self._shelves()
        removed = 0
        for name in names:
            book = self._books.book(name)
            found = shelves.pop(book.shelf, None)
            removed += self._sweep(book, found, now, grace) if found else 0
        for shelf, found in shelves.items():
            doomed = _doomed(shelf, found, None, now, grace)
            self._objects.delete(doomed)
            removed += len(doomed)
        probes = [each for each in self._objects.list("probes") if each.key != _CLOCK]
        old = [each.key for each in probes if _is_older(each.modified, now, MAKING_SECONDS)]
        self._objects.delete(old)
        return removed + len(old)

    def _sweep(self, book: Book, listed: list[Listed], now: datetime, grace: float) -> int:
        """Remove what nothing needs; if a merge under way might have written it, no merge may name it any more."""
        standing = self._books.look(book)
        doomed = _doomed(book.shelf, listed, standing, now, grace)
        if standing is not None and (grace < MAKING_SECONDS or not _are_replaced(doomed, standing.head)):
            standing = self._fenced(book)
            doomed = _doomed(book.shelf, listed, standing, now, grace)
        self._objects.delete(doomed)
        return len(doomed)

    def _fenced(self, book: Book) -> Standing | None:
        """Move the head so that no merge under way can name what it wrote before: it may be removed at once."""

        def draft(standing: Standing | None, revision: bytes) -> Draft:
            if standing is None:
                raise Conflict(f"Context {book.name!r} does not exist.")
            head = standing.head
            seals = head.seals + 1
            return Draft(
                replace(head, seals=seals, fence=seals, revisions=head.revisions_with(revision)), standing.recent
            )

        with book.writing:
            standing = self._books.look(book)
            return standing and self._books.move(book, standing, draft)

    def _now(self) -> datetime:
        """The time of the server: clocks of machines differ."""
        self._objects.put(_CLOCK, b"")
        for listed in self._objects.list("probes"):
            if listed.key == _CLOCK:
                return listed.modified
        raise StorageFailure(f"{self._objects.place}: what was written just now is not listed.")


class _Merge:
    """Runs of a head made into one, to be put into whatever head there is by then."""

    def __init__(self, head: HeadObject, old: tuple[Run, ...], new: Run | None, log: bytes) -> None:
        self._head = head
        self._old = old
        self._new = (new,) if new else ()
        self._log = log

    def draft(self, standing: Standing | None, revision: bytes) -> Draft:
        """The head with the merged run. Raises `Conflict` if the runs are no longer there."""
        head = standing.head if standing else None
        if standing is None or head is None or head.incarnation != self._head.incarnation:
            raise self._late()
        if head.fence > self._head.seals or not head.log.startswith(self._log):
            raise self._late()
        at = self._place(head.runs)
        runs = (*head.runs[:at], *self._new, *head.runs[at + len(self._old) :])
        if self._log and (at + len(self._old) != len(head.runs) or head.seals != self._head.seals):
            raise self._late()
        log = head.log[len(self._log) :]
        drafted = replace(head, runs=runs, log=log, seals=head.seals + 1, revisions=head.revisions_with(revision))
        return Draft(drafted, recent_of(drafted, "") if self._log else standing.recent)

    def _place(self, runs: tuple[Run, ...]) -> int:
        if not self._old:
            return len(runs)
        for at in range(len(runs) - len(self._old) + 1):
            if [run.ids for run in runs[at : at + len(self._old)]] == [run.ids for run in self._old]:
                return at
        raise self._late()

    def _late(self) -> Conflict:
        return Conflict(f"Context {self._head.context!r} was sealed anew by another writer: begin again.")


def _doomed(shelf: str, listed: list[Listed], standing: Standing | None, now: datetime, grace: float) -> list[str]:
    """The keys of what nothing needs."""
    head = standing.head if standing else None
    making = f"{shelf}{head.incarnation}/" if head else None
    needed = head.ids() if head else set()
    mine = {each.key: each for each in listed if making and each.key.startswith(making)}
    covered = [(_covers(each.key), each.modified) for each in mine.values()]
    gone = [each for key, each in mine.items() if key.removeprefix(making or "") not in needed]
    doomed = [each.key for each in gone if _is_over(each, covered, head, now, grace)]
    lost = max(grace, MAKING_SECONDS)
    for other in makings(each for each in listed if each.key not in mine):
        if other.is_dropped and _is_older(max(each.modified for each in other.objects), now, lost):
            doomed += to_remove(other)
    return doomed


def _are_replaced(keys: Iterable[str], head: HeadObject) -> bool:
    """Whether each was replaced by a chunk that the head needs: then no merge can bring it back."""
    needed = [wider for each in head.ids() if (wider := _covers(each))]
    return all((mine := _covers(key)) and any(_is_wider(wider, mine) for wider in needed) for key in keys)


Covered = tuple[tuple[int, int] | None, datetime]
"""Which seals a chunk covers, and when it was written."""


def _is_over(chunk: Listed, others: list[Covered], head: HeadObject | None, now: datetime, grace: float) -> bool:
    """Whether nobody needs a chunk that the head does not name."""
    mine = _covers(chunk.key)
    if head is None or mine is None:
        return _is_older(chunk.modified, now, grace)
    if mine[1] > head.seals:
        return False  # a writer is about to name it
    if grace <= 0:
        return True
    since = [modified for covered, modified in others if covered and _is_wider(covered, mine)]
    return _is_older(max(chunk.modified, min(since, default=chunk.modified)), now, grace)


def _covers(key: str) -> tuple[int, int] | None:
    try:
        return covers(key.rpartition("/")[2])
    except ValueError:
        return None


def _is_wider(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def _is_older(modified: datetime, now: datetime, grace: float) -> bool:
    return now - modified > timedelta(seconds=grace)


def examine(upkeep: Upkeep, contexts: Callable[[], Iterable[str]], *, repair: bool) -> list[Symptom]:
    """What belongs to no context: contexts that lost their head object, which stay, and what nobody can miss."""
    return [*_headless(upkeep.headless(contexts())), *(_leftover(key, repair) for key in upkeep.leftovers(contexts()))]


def _headless(found: Iterable[tuple[Making, str, bool]]) -> Iterator[Symptom]:
    for making, name, is_settled in found:
        whose = f"an earlier context {name!r}" if name else "a context"
        count = len(making.objects)
        text = f"{count:,} objects hold records of {whose}, but no head object names them and nobody dropped it."
        if not is_settled:
            text += " If a fork or a large first commit is being made right now, it is that: look again in an hour."
        yield Symptom(
            code="head_lost",
            severity="error" if is_settled else "warning",
            where=making.folder,
            text=text,
            remedy="Restore the object below heads/ from a version of it or a backup. Nothing removes these objects.",
        )


def _leftover(key: str, repair: bool) -> Symptom:
    return Symptom(
        code="leftover",
        severity="note",
        where=key,
        text="No context needs it: a drop that was cut off left it, or it was replaced.",
        remedy="collect() removes it.",
        repaired=repair,
    )
