"""Contexts as logs of objects: a commit is an object, created only if absent, and packs replace many commits.

    names/<hash>/<number>-<name>    which context has a name; without a name at the end: none has. The highest counts.
    <id>/<seq>                      a commit: frames with a checksum, its own first, then some earlier ones
    <id>/pack/<number>              the state after many commits; `end` if the context was dropped
    texts/<id>/<number>-<random>    the texts and entries of a pack

Every object is created once and never changed. What is created only if absent is a lock: the number of a commit, of a
pack and of a name. An open context is in memory, without the texts that are in packs.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from os import urandom
from threading import RLock
from time import time
from typing import Final, TypeVar

from quire.errors import Busy, Conflict, OutcomeUnknown, QuireError, StorageClosed, StorageFailure
from quire.next.storage.blobs import TEMPORARY, Blobs
from quire.next.storage.contract import (
    FAMILIES,
    MAX_KEY,
    NOTE,
    PAGE,
    TEXT,
    Commit,
    Family,
    Fork,
    Id,
    Loaded,
    Record,
    StoredEntry,
    check_commit,
    conflict,
)
from quire.next.storage.frames import (
    END,
    Frame,
    Packed,
    State,
    encode,
    frame_of,
    framed,
    is_commit,
    is_end,
    is_pack,
    now,
    number_of,
    pack_of,
    seconds_since,
    seq_of,
)
from quire.next.storage.memory import MemoryStorage, Place, Table, storage_of
from quire.next.storage.names import NAMES, Names
from quire.next.storage.reader import ATTEMPTS, Reader
from quire.storage.base import check_context_name

V = TypeVar("V", Record, StoredEntry)
_OPEN: Final = 256
"""The most contexts that are kept in memory."""
_CHUNK: Final = 32
_INLINE: Final = 16_384
"""The first pack of a context holds its texts itself if they are smaller than this: one object less."""
_SETTLED: Final = 10.0
"""A commit that cannot be read after so many seconds will never be complete."""
_HOUR: Final = 3_600.0
_DAY: Final = 24 * _HOUR


class LogStorage:
    """Records in objects: a folder, or a bucket. Several processes and threads can share it.

    A commit creates its object only if absent, which is the lock. So no number may ever become free for a writer that
    believes it is the next one. Commits that a pack replaced are removed, therefore:

    - Before a number is freed, a pack that includes it exists; packs are removed only when a later one, or the end mark
      of the context, exists, which is itself removed last. A context without any pack does not exist.
    - After a writer created number N, it lists the packs. If the newest is still the one below N that it knows, no
      pack included N before, so N was not freed before. Otherwise the writer removes its object and raises `Conflict`.
    - In a bucket a number is freed only `grace` seconds after its pack was created, by the store's own clock. A writer
      whose list is younger than half of that when its object exists can omit the list: N cannot be free yet.
    - An object that a stale writer created, and could not remove, is below the newest pack: nobody reads it.
    """

    def __init__(self, blobs: Blobs, *, pack_every: int = 256) -> None:
        self._blobs = blobs
        self._every = pack_every
        self._writer = urandom(8)
        self._lock = RLock()
        self._states: OrderedDict[Id, State] = OrderedDict()
        self._reader, self._names = Reader(blobs), Names(blobs, self._is_alive)
        self._known: dict[str, Id] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"LogStorage({self._blobs.name!r})"

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        context = self._known.get(check_context_name(name))
        if context is None or not self._is_alive(context):
            context = self._find(name)[1]
            if context is None:
                return None
            self._known[name] = context
        with self._locked(context) as state:
            seq, notes = state.table.seq, None
            entry = self._reader.whole(state, state.table.entries[seq]) if state.pack else None
            if seen != (context, seq):
                notes = tuple(state.records(NOTE))
            return Loaded(context, seq, entry.head, notes) if entry else None

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        return self._stream(context, lambda table: table.scan_entries(start, stop, reverse=reverse))

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        with self._locked(context, fresh=True) as state:
            found = map(state.table.records[family].get, keys)
            return [record and self._reader.whole(state, record) for record in found]

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        return self._stream(context, lambda table: table.scan(family, start, stop, reverse=reverse))

    def children(
        self, context: Id, parent: int, *, after: Place | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        return self._stream(context, lambda table: table.children(parent, after, reverse=reverse))

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        check_commit(commit)
        number = 0 if name is None else self._names.next_number(name)
        state = State(int.from_bytes(urandom(8)) >> 2)
        if copy_of is not None:
            self._copy(copy_of, state.table)
        state.table.apply(commit)
        if not self._pack(state, whole=True):
            raise conflict(None, commit.seq)  # a sweep removed it
        if name is not None:
            try:
                self._names.give(state.context, name, number)
            except Conflict:
                self._end(state.context)
                self._remove(state.context)
                raise
        return state.context

    def name(self, context: Id, name: str) -> None:
        number = self._names.next_number(name)
        if not self._is_alive(context):
            raise conflict(None, 0)
        self._names.give(context, name, number)

    def commit(self, context: Id, commit: Commit) -> None:
        check_commit(commit)
        with self._locked(context) as state:
            if not state.pack or commit.first != state.table.seq + 1:
                self._reader.refresh(state)
            if not state.pack or commit.first != state.table.seq + 1:
                raise conflict(state.table.seq or None, commit.first)
            frame, key = framed(encode(frame_of(commit, self._writer))), self._next_key(state)
            if not self._blobs.create(key, b"".join([frame, *state.recent])):
                self._reader.refresh(state)
                raise conflict(state.table.seq or None, commit.first)
            if not self._confirm(state, commit.seq, key):
                state.table.apply(commit)
                self._reader.remember(state, frame, commit.seq, self._writer)
            if state.table.seq - state.packed >= max(self._every, len(state.table.records[PAGE]) // 64):
                self._pack_later(state)

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[MemoryStorage]:
        """Copy the context into memory: others may remove the objects that it is read from."""
        with self._locked(context) as state:
            self._reader.refresh(state)
            table = state.table.copy()
            for record in list(table.scan(TEXT, 0, MAX_KEY, reverse=False)):
                table.put(TEXT, self._need(state, record))
            for entry in list(table.entries.values()):
                table.set_entry(self._need(state, entry))
        yield storage_of(context, None, table)

    def contexts(self, after: str = "") -> Iterator[str]:
        self._check_open()
        yield from sorted(name for name in self._names.all() if name > after)

    def drop(self, name: str) -> None:
        number, context = self._find(name)
        if context is not None:
            self._end(context)
            self._known.pop(name, None)
            self._names.remove(name, number)
            self._remove(context)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        self._check_open()
        if context is None:
            self._sweep()
        elif self._is_alive(context):
            with self._locked(context) as state:
                self._repack(state)
                self._remove(context, kept=state)
        elif any(self._blobs.list(State(context).root)):
            self._end(context)
            self._remove(context)
        note = f"{self._blobs.name}: the bucket keeps versions of removed objects; its rules decide how long."
        return (note,) if self._blobs.versions else ()

    def close(self) -> None:
        self._is_closed = True
        self._states.clear()

    # Reading

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageClosed(f"The storage {self._blobs.name!r} is closed. Open it again.")

    @contextmanager
    def _locked(self, context: Id, *, fresh: bool = False) -> Iterator[State]:
        """Hold the lock of one context; with `fresh`, read the commits of others first if that was not just done."""
        with self._lock:
            self._check_open()
            state = self._states.pop(context, None) or State(context)
            self._states[context] = state  # the most recently used one is last
            if len(self._states) > _OPEN:
                self._states.popitem(last=False)
        with state.lock:
            if fresh and not (state.pack and seconds_since(state.seen) < self._blobs.stale):
                self._reader.refresh(state)
            yield state

    def _is_alive(self, context: Id) -> bool:
        """Read what others wrote. Return whether the context exists."""
        with self._locked(context) as state:
            return self._reader.refresh(state)

    def _stream(self, context: Id, read: Callable[[Table], Iterator[V]]) -> Iterator[V]:
        """Yield whole items. The lock is held while some are read, not between them."""
        items = None
        while True:
            with self._locked(context, fresh=items is None) as state:
                items = read(state.table) if items is None else items
                some = list(islice(items, _CHUNK))
                found = [self._reader.whole(state, item) for item in some]
            yield from filter(None, found)  # without those that were deleted meanwhile
            if len(some) < _CHUNK:
                return

    def _need(self, state: State, item: V) -> V:
        """Return a record or an entry with its values. Raises `Conflict` if another writer just removed it."""
        found = self._reader.whole(state, item)
        if found is None:
            raise conflict(state.table.seq or None, state.table.seq)
        return found

    def _find(self, name: str) -> tuple[int, Id | None]:
        self._check_open()
        return self._names.find(name)

    # Writing

    def _next_key(self, state: State) -> str:
        """Return the key of the next commit. One that power loss damaged stays, and the commit gets a key after it."""
        seq, torn = state.table.seq + 1, [blob for blob in state.torn if seq_of(blob) == state.table.seq + 1]
        if torn and time() - torn[0].modified < _SETTLED:
            raise Busy(f"{torn[0].key} in {self._blobs.name} is damaged, or another writer is not done. Retry.")
        return f"{state.key(seq)}.{len(torn)}" if torn else state.key(seq)

    def _confirm(self, state: State, seq: int, key: str) -> bool:
        """Make sure that the number of a new commit was not freed before: see the class. Raises `Conflict`.

        Return whether the state has the commit already: others may have packed it before this writer looks.
        """
        moment = now()
        if seconds_since(state.listed) < self._blobs.grace / 2:
            return False
        try:
            newest = self._reader.newest_pack(state)
            if newest is not None and newest.key == state.pack_key(state.pack):
                state.listed = moment
                return False
            if self._reader.refresh(state):
                entry = state.table.entries.get(seq)
                if entry is None:
                    raise StorageFailure("it is expired already")
                if seq > state.packed or self._reader.content(state, entry)[2] == self._writer:
                    return True
            self._blobs.delete([key])
        except (QuireError, FileNotFoundError) as error:
            raise OutcomeUnknown(f"{self._blobs.name}: it is unknown whether entry {seq} exists: {error}") from error
        raise conflict(state.table.seq or None, seq)

    def _pack_later(self, state: State) -> None:
        """Pack a context. An error is only reported: the commit is done, and the next one tries again."""
        try:
            sizes = sum(size for _, size in state.objects.values())
            values = [
                *(each.value for each in state.records(TEXT)),
                *(each.head for each in state.table.entries.values()),
            ]
            used = sum(value.parts[2] for value in values if isinstance(value, Packed))
            if self._pack(state, whole=used * 2 < sizes):
                self._collect(state)
            else:
                self._reader.refresh(state)
        except (QuireError, FileNotFoundError) as error:
            logging.getLogger("quire").warning("A pack failed: %s", error)

    def _pack(self, state: State, *, whole: bool) -> bool:
        """Create the next pack; `whole` with all texts, else with those that are in no pack. False if it exists."""
        number, table, data = state.pack + 1, state.table.copy(), bytearray()

        def place(value: bytes) -> Packed:
            start = len(data)
            data.extend(framed(value))
            return Packed.of(number, start, len(data) - start)

        for record in state.records(TEXT):
            if whole or not isinstance(record.value, Packed):
                table.put(TEXT, Record(record.key, place(self._reader.filled(state, record).value)))
        for entry in state.table.scan_entries(0, state.table.seq - 1, reverse=False):  # every load needs the newest
            if whole or not isinstance(entry.entry, Packed):
                where = place(encode(self._reader.content(state, entry)))
                table.set_entry(StoredEntry(entry.seq, where, where))
        objects = {} if whole else dict(state.objects)
        name = f"{number:09}-{urandom(4).hex()}"
        if number == 1 and len(data) < _INLINE:
            table = state.table
        elif data:
            objects[number] = name, len(data)
            self._blobs.create(state.texts + name, bytes(data), sync=True)
        made = framed(encode(pack_of(table, state.writers, objects)))
        if not self._blobs.create(state.pack_key(number), made, sync=True):
            self._blobs.delete([state.texts + name])
            return False
        if not self._is_part(state, number, name if number in objects else ""):
            return False
        state.table, state.objects, state.pack, state.packed, state.recent = table, objects, number, table.seq, []
        state.writers = {seq: writer for seq, writer in state.writers.items() if seq == table.seq or not objects}
        return True

    def _is_part(self, state: State, number: int, name: str) -> bool:
        """Return whether a new pack belongs to a context. If that was removed meanwhile, remove the pack too."""
        packs = [blob.key for blob in self._blobs.list(f"{state.root}pack/")]
        if packs[:1] != [state.pack_key(number)]:
            return True
        if number == 1 and (not name or any(blob.key == state.texts + name for blob in self._blobs.list(state.texts))):
            return True
        self._blobs.delete([state.texts + name, state.pack_key(number)])
        return False

    def _repack(self, state: State) -> None:
        """Pack a context with all its texts."""
        for _ in range(ATTEMPTS):
            with suppress(FileNotFoundError):
                if not self._reader.refresh(state) or self._pack(state, whole=True):
                    return
        raise Busy(f"{self._blobs.name}: others pack the context all the time. Retry.")

    def _collect(self, state: State) -> None:
        """Remove what the newest pack that is older than the grace time has replaced."""
        blobs = list(self._blobs.list(state.root))
        clock, packs = max((blob.modified for blob in blobs), default=0), list(filter(is_pack, blobs))
        old = [blob for blob in packs if clock - blob.modified >= self._blobs.grace]
        if not old or packs[-1].key != state.pack_key(state.pack):  # the writer of a newer one knows what it needs
            return
        number = number_of(old[-1])
        seq = state.packed if number == state.pack else self._reader.load_pack(old[-1].key).seq
        garbage = [each for each in blobs if is_commit(each) and seq_of(each) <= seq] + old[:-1]
        if number >= min(state.objects, default=number):  # the newest whole pack is not younger
            kept = {state.texts + name for name, _ in state.objects.values()}
            texts = (each for each in self._blobs.list(state.texts) if number_of(each) <= number)
            garbage += [each for each in texts if each.key not in kept]
        self._blobs.delete([each.key for each in garbage])

    def _end(self, context: Id) -> list[str]:
        """End a context: its next number is taken, and then its last pack is the end mark. Return what was created."""
        with self._locked(context) as state:
            made = []
            for _ in range(ATTEMPTS * 8):
                if not self._reader.refresh(state):
                    break
                key, end = self._next_key(state), Frame(self._writer, state.table.seq + 1, None)
                if self._blobs.create(key, framed(encode(end)), sync=True):
                    made = [key]
            else:
                raise Busy(f"{self._blobs.name}: others write to the context all the time. Retry.")
            while True:
                newest = self._reader.newest_pack(state)
                if newest is not None and is_end(newest):
                    return made
                key = state.pack_key(number_of(newest) + 1 if newest else 1)
                if self._blobs.create(key, END + self._writer, sync=True):
                    made.append(key)

    def _remove(self, context: Id, kept: State | None = None) -> None:
        """Remove what the end of a context, or its new whole pack, replaced.

        In a bucket the young commits stay as empty objects, and so does the end mark: no number is free too early.
        """
        state = kept or State(context)
        blobs = [*self._blobs.list(state.root), *self._blobs.list(state.texts)]
        newest = max(filter(is_pack, blobs), default=None)
        if newest is None or is_end(newest) is not (kept is None):
            return  # others change it at this moment
        keys = {newest.key, *(state.texts + name for name, _ in state.objects.values())}
        if kept is not None:
            keys |= {each.key for each in blobs if is_commit(each) and seq_of(each) > kept.packed}
            keys |= {each.key for each in blobs if not is_commit(each) and number_of(each) > kept.pack}
        clock = self._now()
        garbage = [each for each in blobs if each.key not in keys]
        young = [each for each in garbage if is_commit(each) and clock - each.modified < self._blobs.grace]
        self._blobs.delete([each.key for each in young if each.size], empty=True)
        self._blobs.delete([each.key for each in garbage if each not in young])
        if kept is None and clock - newest.modified >= self._blobs.grace:
            self._blobs.delete([newest.key])

    def _now(self) -> float:
        """Return the time of the store's own clock."""
        key = f"{TEMPORARY}{urandom(8).hex()}"
        self._blobs.create(key, b"")
        found = next(blob.modified for blob in self._blobs.list(TEMPORARY) if blob.key == key)
        self._blobs.delete([key])
        return found

    def _sweep(self) -> None:
        """Remove contexts without a name, and what was left of names and of writers that died.

        A context may get its name at this moment. So it is ended first; if it has a name then, the end is taken back.
        Who gave the name sees the end or is seen: one of the two gives way.
        """
        clock, blobs = self._now(), list(self._blobs.list(""))
        ends = {each.key.split("/")[0]: is_end(each) for each in blobs if is_pack(each)}
        for pointer in self._names.pointers():
            with suppress(FileNotFoundError):  # removed just now
                if ends.get(f"{self._names.target(pointer)[0]:016x}", False):
                    self._names.remove_pointer(pointer)
        roots = {each.key.removeprefix("texts/").split("/")[0] for each in blobs if not each.key.startswith(NAMES)}
        found = {int(root, 16) for root in roots if len(root) == 16} - self._names.contexts()
        made = {context: self._end(context) for context in found}
        named = self._names.contexts()
        for context in found:
            if context in named:
                self._blobs.delete(made[context])
            else:
                self._remove(context)
        self._names.remove_older_than(clock - _DAY)
        self._blobs.delete(
            [each.key for each in blobs if each.key.startswith(TEMPORARY) and each.modified < clock - _HOUR]
        )

    def _copy(self, fork: Fork, table: Table) -> None:
        """Copy the records of a fork, with their texts."""
        with self._locked(fork.context) as state:
            self._reader.refresh(state)
            if not state.pack or state.table.seq != fork.seq:
                raise conflict(state.table.seq or None, fork.seq + 1)
            for family in FAMILIES:
                stop = fork.limits.get(family, MAX_KEY + 1) - 1
                for record in state.table.scan(family, 0, stop, reverse=False):
                    table.put(family, self._need(state, record))
