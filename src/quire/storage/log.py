"""Contexts as logs of objects: a commit is an object, created only if absent, and packs replace many commits.

    names/<hash>/<number>-<name>    which context has a name; without a name at the end: none has. The highest counts.
    <id>/<slot>                     a commit: frames with a checksum, its own first, then some earlier ones
    <id>/pack/<number>              the state after many commits; `end` if the context was dropped
    texts/<id>/<number>-<random>    texts and entries that a pack moved here

Every object is created once and never changed. What is created only if absent is a lock: the slot of a commit, the
number of a pack and of a name. An open context is in memory, without the texts that packs moved to other objects.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from os import urandom
from threading import RLock
from time import monotonic
from typing import Final, TypeVar

from quire.errors import Conflict, QuireError, StorageClosed
from quire.storage.base import check_context_name
from quire.storage.blobs import TEMPORARY, Blobs
from quire.storage.contract import (
    FAMILIES,
    MAX_KEY,
    NOTE,
    PAGE,
    TEXT,
    Commit,
    Family,
    Flaw,
    Fork,
    Id,
    Loaded,
    Record,
    StoredEntry,
    check_commit,
    conflict,
    lost_name,
    unfinished_copy,
)
from quire.storage.frames import TEXTS, Texts, read_frames
from quire.storage.memory import MemoryStorage, Place, Table, storage_of
from quire.storage.names import NAMES, Names
from quire.storage.state import NONCE, State, is_end, is_pack, with_nonce

V = TypeVar("V", Record, StoredEntry)
_OPEN, _CHUNK, _OBJECTS = 256, 32, 8
"""The most contexts in memory, the records that are read at once, and the objects with texts in memory."""
_LOOSE: Final = 16 << 20
"""So many bytes of commits are packed before their number is reached."""
_DAY: Final = 86_400.0


class LogStorage:
    """Records in objects: a folder, or a bucket. Several processes and threads can share it.

    A commit creates its object only if absent, which is the lock. Commits that a pack replaced are removed, so a slot
    can become free for a writer that believes it is the next one. Therefore:

    - Before a slot is freed, a pack that includes it exists. A pack is removed only when a later one exists, and the
      last one, the end mark, a day later. A context without any pack does not exist.
    - After a writer created a commit, it lists the packs. If the newest is still the one that it knows, its slot was
      not freed before. Otherwise it reads what happened, and either finds its commit or removes it: `Conflict`.
    - What a stale writer created, and could not remove, is below the newest pack: nobody reads it.
    - Whoever ends a context without a name, and whoever gives it one, creates its next pack: one of the two does.
    """

    def __init__(self, blobs: Blobs, *, pack_every: int = 256) -> None:
        self._blobs = blobs
        self._every = pack_every
        self._lock = RLock()
        self._states: OrderedDict[Id, State] = OrderedDict()
        self._texts: Callable[[str], Texts] = lru_cache(_OBJECTS)(self._read_texts)
        self._names = Names(blobs, self._is_alive)
        self._known: dict[str, Id] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._blobs.name!r})"

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        self._check_open()
        context = self._known.get(check_context_name(name))
        if context is None or not self._is_alive(context):
            context = self._names.find(name)[1]
            if context is None:
                return None
            self._known[name] = context
        with self._locked(context) as state:
            seq, entry = state.table.seq, state.table.entries.get(state.table.seq)
            notes = None if seen == (context, seq) else tuple(state.table.scan(NOTE, 0, MAX_KEY, reverse=False))
            return Loaded(context, seq, entry.head[NONCE:], notes) if entry else None

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        return self._stream(context, lambda table: table.scan_entries(start, stop, reverse=reverse))

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        with self._locked(context, fresh=True) as state:
            found = map(state.table.records[family].get, keys)
            return [record and state.whole(record) for record in found]

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
        context = int.from_bytes(urandom(8)) >> 2
        with self._locked(context) as state:
            if copy_of is not None:
                self._copy(copy_of, state.table)
            state.table.apply(with_nonce(commit))
            if not state.create_pack(named=name is not None):
                raise conflict(None, commit.seq)  # a scrub of the store took it for what is left of a drop
            if name is not None:
                try:
                    self._names.give(context, name, number)
                except Conflict:
                    state.end()
                    state.collect()
                    raise
        return context

    def name(self, context: Id, name: str) -> None:
        number = self._names.next_number(name)
        with self._locked(context) as state:
            if not state.refresh() or not state.named:
                state.pack_again(named=True)
            if not state.pack:
                raise conflict(None, 0)
        self._names.give(context, name, number)

    def commit(self, context: Id, commit: Commit) -> None:
        check_commit(commit)
        with self._locked(context) as state:
            state.commit(commit)
            is_many = state.slot - state.packed >= max(self._every, len(state.table.records[PAGE]) // 64)
            if is_many or state.loose > _LOOSE:
                self._pack(state)

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[MemoryStorage]:
        """Copy the context into memory: others may remove the objects that it is read from."""
        with self._locked(context) as state:
            state.refresh()
            table = state.table.copy()
            for record in list(table.scan(TEXT, 0, MAX_KEY, reverse=False)):
                table.put(TEXT, state.need(record))
            for entry in list(table.entries.values()):
                table.set_entry(state.need(entry))
        yield storage_of(context, None, table)

    def contexts(self, after: str = "") -> Iterator[str]:
        self._check_open()
        yield from sorted(name for name in self._names.all() if name > after)

    def examine(self) -> Sequence[Flaw]:
        self._check_open()
        found = list[Flaw]()
        roots = {int(blob.key[:16], 16) for blob in self._blobs.list("") if is_pack(blob)}
        named = {context for _, context in self._names.targets()}
        for context in sorted(roots):
            with self._locked(context) as state:
                if state.refresh() and context not in named:
                    found.append(lost_name(context) if state.named else unfinished_copy(context, state.table.seq))
                found += [Flaw("commits_lost", text) for text in state.torn]
        return found

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        self._check_open()
        pointer, context = self._names.find(name)
        if seen is not None and context != seen[0]:
            raise conflict(None, seen[1] + 1)
        if pointer is None or not pointer.size:
            return
        with suppress(FileNotFoundError), self._locked(context or self._names.target(pointer)[0]) as state:
            if seen is not None:
                state.finish(seen[1])
            while state.refresh() and not state.end():
                pass
            if context is None:  # a drop was interrupted, or another handle completes it just now
                state.end()
            self._names.remove(pointer)
            state.collect()

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        self._check_open()
        if context is None:
            self._sweep()
        for each in sorted({found for _, found in self._names.targets()}) if context is None else [context]:
            with self._locked(each) as state:
                state.pack_again(whole=True)
                state.collect()
        note = f"{self._blobs.name}: the bucket keeps versions of removed objects; its rules decide how long."
        return (note,) if self._blobs.versions else ()

    def close(self) -> None:
        self._is_closed = True
        self._states.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageClosed(f"The storage {self._blobs.name!r} is closed. Open it again.")

    @contextmanager
    def _locked(self, context: Id, *, fresh: bool = False) -> Iterator[State]:
        """Hold the lock of one context; with `fresh`, read the commits of others first if that was not just done."""
        with self._lock:
            self._check_open()
            state = self._states.pop(context, None) or State(self._blobs, self._texts, context)
            self._states[context] = state  # the most recently used one is last
            if len(self._states) > _OPEN:
                self._states.popitem(last=False)
        with state.lock:
            if fresh and not (state.pack and monotonic() - state.seen < self._blobs.stale):
                state.refresh()
            yield state

    def _is_alive(self, context: Id) -> bool:
        """Read what others wrote. Return whether the context exists."""
        with self._locked(context) as state:
            return state.refresh()

    def _stream(self, context: Id, read: Callable[[Table], Iterator[V]]) -> Iterator[V]:
        """Yield whole items. The lock is held while some are read, not between them."""
        items = None
        while True:
            with self._locked(context, fresh=items is None) as state:
                items = read(state.table) if items is None else items
                some = list(islice(items, _CHUNK))
                found = [state.whole(item) for item in some]
            yield from filter(None, found)  # without those that were deleted meanwhile
            if len(some) < _CHUNK:
                return

    def _copy(self, fork: Fork, table: Table) -> None:
        """Copy the records of a fork, with their texts."""
        with self._locked(fork.context) as state:
            state.refresh()
            if not state.pack or state.table.seq != fork.seq:
                raise state.conflict(fork.seq + 1)
            for family in FAMILIES:
                stop = fork.limits.get(family, MAX_KEY + 1) - 1
                for record in state.table.scan(family, 0, stop, reverse=False):
                    table.put(family, state.need(record))

    def _pack(self, state: State) -> None:
        """Pack a context. An error is only reported: the commit is done, and the next one tries again."""
        try:
            if state.create_pack():
                state.collect()
            else:
                state.refresh()
        except QuireError as error:
            logging.getLogger("quire").warning("A pack failed: %s", error)

    def _sweep(self) -> None:
        """Remove contexts without a name, and what was left of names, of contexts and of writers that died."""
        blobs = list(self._blobs.list(""))
        day_ago = max((blob.modified for blob in blobs), default=0.0) - _DAY
        packs = {int(blob.key[:16], 16): blob for blob in blobs if is_pack(blob)}
        for pointer, context in list(self._names.targets()):
            if context in packs and is_end(packs[context]):
                self._names.remove(pointer)
        roots = (blob.key.removeprefix("texts/")[:16] for blob in blobs if not blob.key.startswith((NAMES, TEMPORARY)))
        named = {context for _, context in self._names.targets()}
        for context in {int(root, 16) for root in roots} - named:
            with self._locked(context) as state:
                is_young = context in packs and packs[context].modified > day_ago
                if not (state.refresh() and state.named and is_young):
                    state.end()
                    state.collect()
        self._names.remove_empty(day_ago)
        ends = [blob for blob in packs.values() if is_end(blob)]
        left = [blob for blob in blobs if blob.key.startswith(TEMPORARY)]
        self._blobs.delete([blob.key for blob in (*ends, *left) if blob.modified < day_ago])

    def _read_texts(self, key: str) -> Texts:
        found: Texts = next(read_frames(self._blobs.get(key), key, TEXTS))[0]
        return found
