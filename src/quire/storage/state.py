"""One context of the log storage in memory: read out of its objects, appended to, packed and ended."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from os import urandom
from threading import RLock
from time import monotonic
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from quire.errors import Busy, Conflict, Corrupt, OutcomeUnknown, QuireError, StorageFailure
from quire.storage.blobs import Blob, Blobs
from quire.storage.contract import MAX_KEY, TEXT, Commit, Id, Record, StoredEntry, conflict
from quire.storage.frames import (
    FRAME,
    Frame,
    Packed,
    Texts,
    framed,
    is_packed,
    is_torn,
    pack_of,
    read_frames,
    value_of,
)
from quire.storage.memory import Table

V = TypeVar("V", Record, StoredEntry)
NONCE: Final = 8
"""The head of a stored entry begins with so many random bytes: no two writers make the same entry."""
_END: Final = b"end"
"""The last pack of a context that was dropped is this. All other packs are longer."""
_ATTEMPTS: Final = 8
"""How often an operation starts again because others changed the same context meanwhile."""
_INLINE, _LARGE = 16_384, 4 << 20
"""Texts that are smaller together stay in their pack; an object has about so many bytes of them."""


class State:
    """A context at the newest entry that was seen. The texts that packs moved to other objects are not in memory."""

    def __init__(self, blobs: Blobs, read_texts: Callable[[str], Texts], context: Id) -> None:
        self.lock = RLock()
        self.root, self._texts = f"{context:016x}/", f"texts/{context:016x}/"
        self._blobs, self._read_texts = blobs, read_texts
        self._forget()

    def _forget(self) -> None:
        """Become the state of a context that does not exist."""
        self.table, self.pack, self.named = Table(), 0, False
        self.slot = self.packed = self.loose = 0
        """The last slot, the one that the newest pack is at, and the bytes of the commits after it."""
        self.seen = 0.0
        self.torn: list[str] = []
        """What power loss did to the commits after the newest pack."""
        self._sizes: dict[Packed, int] = {}
        self._recent: list[bytes] = []

    def key(self, slot: int) -> str:
        """Return the key of a commit."""
        return f"{self.root}{slot:019}"

    def conflict(self, seq: int) -> Conflict:
        """Return the error for a commit that does not follow the newest entry."""
        return conflict(self.table.seq if self.pack else None, seq)

    # Reading

    def refresh(self) -> bool:
        """Read what others wrote. Return whether the context exists. Raises `Corrupt`.

        Others may remove objects between the list and the reading, so this starts again.
        """
        missing = ""
        for _ in range(_ATTEMPTS):
            start, slot = monotonic(), self.slot
            blobs = list(self._blobs.list(self.root, self.key(slot)))
            pack = max(filter(is_pack, blobs), default=None) or self._newest_pack()
            if pack is None or is_end(pack):
                self._forget()
                return False
            try:
                if number_of(pack) != self.pack:
                    self._take(pack)
                if slot <= self.slot:  # otherwise list the commits after the pack
                    self._follow([blob for blob in blobs if is_commit(blob) and slot_of(blob) > self.slot])
                    self.seen = start
                    return self.pack > 0
            except FileNotFoundError as error:
                missing = str(error.filename or error)
        raise Corrupt(f"is missing in {self._blobs.name}. Restore it from a backup or a version.", record=missing)

    def _newest_pack(self) -> Blob | None:
        """Return the newest pack. None is certain: a list may miss the only pack while a newer one replaces it."""
        found = (max(self._blobs.list(f"{self.root}pack/"), default=None) for _ in range(3))
        return next(filter(None, found), None)

    def _take(self, blob: Blob) -> None:
        pack, _ = next(read_frames(self._blobs.get(blob.key), blob.key, FRAME))
        self._forget()
        self.table, self.pack, self.named = pack.apply_to(Table()), number_of(blob), pack.named
        self.slot = self.packed = pack.slot
        self._sizes = {Packed(name.encode()): size for name, size, *_ in pack.objects}

    def _follow(self, blobs: list[Blob]) -> None:
        """Apply commits. Where power loss tore one in a folder, it and those after it count as never made."""
        frames: dict[int, tuple[Frame, bytes]] = {}
        torn = []
        for blob in reversed(blobs):
            if slot_of(blob) not in frames:
                data = self._blobs.get(blob.key)
                try:
                    frames |= {each[0].slot: each for each in read_frames(data, blob.key, FRAME)}
                except Corrupt:  # what can be read is never torn: values can have zeros too
                    if not self._blobs.tears or not is_torn(data):
                        raise
                    torn.append(slot_of(blob))
        for slot in sorted(frames):
            if slot > self.slot and frames[slot][0].first == self.table.seq + 1:
                if not frames[slot][0].head:  # the end: see `finish`
                    self._forget()
                    return
                self._apply(*frames[slot])
            elif slot > self.slot and not any(self.slot < each < slot for each in torn):
                raise FileNotFoundError(self.key(self.slot + 1))
        if torn and max(torn) > self.slot:
            text = f"power loss damaged a commit after {self.key(self.slot)}. It and all after it were not made."
            self.torn.append(text)
            logging.getLogger("quire").warning("%s: %s", self._blobs.name, text)
        self.slot = slot_of(blobs[-1]) if blobs else self.slot

    def _apply(self, frame: Frame, data: bytes) -> None:
        """Make the changes of a commit, and keep its bytes, which later commits repeat."""
        frame.apply_to(self.table)
        self.slot, self.loose = frame.slot, self.loose + len(data)
        self._recent.insert(0, data)
        while sum(map(len, self._recent)) > self._blobs.repeats:
            self._recent.pop()

    def whole(self, item: V) -> V | None:
        """Return a record or an entry with its values. If their object is gone, read again; None if both are gone."""
        try:
            found: Any = self._filled(item)
        except FileNotFoundError as error:
            self.refresh()
            known: Any = self.table.records[TEXT] if isinstance(item, Record) else self.table.entries
            found = known.get(item.key if isinstance(item, Record) else item.seq)
            if found == item:
                raise Corrupt(f"is missing in {self._blobs.name}.", record=str(error.filename or error)) from None
            return None if found is None else self.whole(found)
        return cast("V", found if isinstance(found, Record) else replace(found, head=found.head[NONCE:]))

    def need(self, item: V) -> V:
        """Return a record or an entry with its values. Raises `Conflict` if another writer just removed it."""
        found = self.whole(item)
        if found is None:
            raise self.conflict(self.table.seq)
        return found

    def _filled(self, item: Record | StoredEntry) -> Record | StoredEntry:
        """Return a record or an entry with its values. Raises `FileNotFoundError` if their object is gone."""
        place = item.value if isinstance(item, Record) else item.head
        if not isinstance(place, Packed):
            return item
        texts, entries = self._read_texts(self._texts + place.decode())
        if isinstance(item, Record):
            return Record(item.key, texts[item.key])
        head, entry = entries[item.seq]
        return StoredEntry(item.seq, head, entry if is_packed(item) else item.entry)

    # Writing

    def commit(self, commit: Commit) -> None:
        """Create the next commit. Raises `Conflict`, or `OutcomeUnknown` if it may have been done."""
        if not self.pack or commit.first != self.table.seq + 1:
            self.refresh()
        if not self.pack or commit.first != self.table.seq + 1:
            raise self.conflict(commit.first)
        frame = Frame.of(self.slot + 1, with_nonce(commit))
        data = framed(frame)
        if not self._blobs.create(self.key(frame.slot), b"".join([data, *self._recent])):
            self.refresh()
            raise self.conflict(commit.first)
        if not self._has(frame):
            self._apply(frame, data)

    def _has(self, frame: Frame) -> bool:
        """Make sure that no pack had freed the slot of a new commit before: see `LogStorage`. Raises `Conflict`.

        Return whether the state has the commit already: others may have packed it before this writer looks.
        """
        try:
            newest = self._newest_pack()
            if newest is not None and number_of(newest) == self.pack:
                return False
            if self.refresh() and frame.seq <= self.table.seq:
                entry = self.table.entries.get(frame.seq)
                if entry is None:
                    raise StorageFailure("it has expired")
                found = self._filled(entry)
                if isinstance(found, StoredEntry) and found.head == frame.head:
                    return True
            self._blobs.delete([self.key(frame.slot)])
        except (QuireError, FileNotFoundError) as error:
            text = f"{self._blobs.name}: it is unknown whether entry {frame.seq} exists: {error}"
            raise OutcomeUnknown(text) from error
        raise self.conflict(frame.first)

    def pack_again(self, *, whole: bool = False, named: bool = False) -> None:
        """Pack the context at its newest entry. Raises `Busy`."""
        for _ in range(_ATTEMPTS):
            if not self.refresh() or self.create_pack(whole=whole, named=named):
                return
        raise Busy(f"{self._blobs.name}: others pack the context all the time. Retry.")

    def create_pack(self, *, whole: bool = False, named: bool = False) -> bool:
        """Create the next pack, and objects with texts: all texts, or those in no object or in one that is half gone.

        Return False if another writer packed the context.
        """
        number, table, named = self.pack + 1, self.table.copy(), named or self.named
        used = Counter(value_of(item) for item in self._movable() if is_packed(item))
        sizes = {} if whole else {name: size for name, size in self._sizes.items() if used[name] * 2 >= size}
        try:
            for part in self._parts(sizes):
                name = Packed(f"{number:09}-{urandom(6).hex()}".encode())
                texts = {each.key: each.value for each in part if isinstance(each, Record)}
                entries = {each.seq: (each.head, each.entry) for each in part if isinstance(each, StoredEntry)}
                data = framed((texts, entries))
                is_large = len(data) > _INLINE
                if is_large:
                    sizes[name] = len(part)
                    self._blobs.create(self._texts + name.decode(), data, sync=True)
                for key, value in texts.items():
                    table.put(TEXT, Record(key, name if is_large else value))
                for seq, (head, entry) in entries.items():
                    table.set_entry(StoredEntry(seq, name, name) if is_large else StoredEntry(seq, head, entry))
        except FileNotFoundError:  # another writer replaced an object
            return False
        if not self._create(number, framed(pack_of(table, self.slot, sizes, named=named))):
            return False
        self.table, self.pack, self.named, self.packed, self._sizes = table, number, named, self.slot, sizes
        self.loose, self._recent = 0, []
        return True

    def _create(self, number: int, data: bytes) -> bool:
        return self._blobs.create(f"{self.root}pack/{number:09}", data, sync=True)

    def _movable(self) -> Iterator[Record | StoredEntry]:
        """Yield what a pack can move to an object: texts, and all entries but the newest, which every load needs."""
        texts = self.table.scan(TEXT, 0, MAX_KEY, reverse=False)
        return chain(texts, self.table.scan_entries(0, self.table.seq - 1, reverse=False))

    def _parts(self, kept: dict[Packed, int]) -> Iterator[list[Record | StoredEntry]]:
        """Yield what is in none of these objects, in parts."""
        part: list[Record | StoredEntry] = []
        size = 0
        for item in self._movable():
            if not is_packed(item) or value_of(item) not in kept:
                part.append(self._filled(item))
                size += len(value_of(part[-1]))
                if size > _LARGE:
                    yield part
                    part, size = [], 0
        yield part

    def finish(self, seq: int) -> None:
        """End the context if this is its newest entry: no commit can follow. Raises `Conflict`."""
        if not self.refresh() or self.table.seq != seq:
            raise self.conflict(seq + 1)
        frame, number = Frame.of(self.slot + 1, Commit(seq + 1, b"", b"")), self.pack + 1
        if not self._blobs.create(self.key(frame.slot), framed(frame), sync=True):
            self.refresh()
            raise self.conflict(seq + 1)
        self._has(frame)
        while not self._create(number, _END):  # others may pack what was before
            number += 1
        self._forget()

    def end(self) -> bool:
        """Make the next pack the end mark. Return False if another writer packed the context meanwhile."""
        newest = None if self.pack else self._newest_pack()  # `finish` was interrupted
        if self._create(1 + (self.pack if newest is None or is_end(newest) else number_of(newest)), _END):
            self._forget()
            return True
        return False

    def collect(self) -> None:
        """Remove what the newest pack, or the end of the context, replaced."""
        blobs = [*self._blobs.list(self.root), *self._blobs.list(self._texts)]
        newest = max(filter(is_pack, blobs), default=None)
        if newest is None or (number_of(newest) != self.pack and not is_end(newest)):
            return  # the writer of a newer pack knows what it needs
        kept = {newest.key}
        if not is_end(newest):
            kept |= {self._texts + name.decode() for name in self._sizes}
            kept |= {each.key for each in blobs if is_commit(each) and slot_of(each) > self.packed}
            kept |= {each.key for each in blobs if not is_commit(each) and number_of(each) > self.pack}
        self._blobs.delete([each.key for each in blobs if each.key not in kept])


def with_nonce(commit: Commit) -> Commit:
    """Return a commit that no other writer can make."""
    nonce = urandom(NONCE)
    earlier = [replace(entry, head=nonce + entry.head) for entry in commit.earlier]
    return replace(commit, head=nonce + commit.head, earlier=earlier)


def is_commit(blob: Blob) -> bool:
    """Return whether an object is a commit."""
    return blob.key[16:17] == "/" and blob.key[17:].isdigit()


def slot_of(blob: Blob) -> int:
    """Return the slot of a commit."""
    return int(blob.key[17:])


def is_pack(blob: Blob) -> bool:
    """Return whether an object is a pack, or the end mark in its place."""
    return blob.key[16:22] == "/pack/" and blob.key[22:].isdigit()


def is_end(pack: Blob) -> bool:
    """Return whether a pack is the end mark of a context that was dropped."""
    return pack.size == len(_END)


def number_of(blob: Blob) -> int:
    """Return the number of a pack, or of the pack that texts were written for."""
    return int(blob.key.rpartition("/")[2][:9])
