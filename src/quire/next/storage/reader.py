"""Reading contexts out of objects: the newest pack, the commits after it, and texts when they are asked for."""

import logging
from collections import OrderedDict
from threading import RLock
from typing import Any, Final, TypeVar, cast

from msgspec import DecodeError

from quire.errors import Corrupt, NewerFormat
from quire.next.storage.blobs import Blob, Blobs
from quire.next.storage.contract import TEXT, Record, StoredEntry
from quire.next.storage.frames import (
    FORMAT,
    Frame,
    Pack,
    Packed,
    State,
    damaged,
    decode_entry,
    decode_frame,
    decode_pack,
    is_commit,
    is_end,
    is_pack,
    now,
    number_of,
    read_frames,
    seq_of,
)

V = TypeVar("V", Record, StoredEntry)
ATTEMPTS: Final = 8
"""How often an operation starts again because others changed the same context meanwhile."""
_BLOCK: Final = 65_536
_CACHED: Final = 8_000_000
"""Packs are read in blocks of this size, and so many bytes of them are kept."""


class Reader:
    """Reads the contexts of one store into memory, and keeps some blocks of the texts that it read."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._lock = RLock()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._cached = 0

    def refresh(self, state: State) -> bool:
        """Read the newest pack and the commits after it, as far as they are new. Return whether the context exists.

        Others may remove objects between the list and the reading, so this starts again. Raises `Corrupt`.
        """
        problem = Corrupt(f"{self._blobs.name}: context {state.root} cannot be read.")
        for _ in range(ATTEMPTS):
            moment = now()
            blobs = list(self._blobs.list(state.root, state.key(state.table.seq)))
            pack = max(filter(is_pack, blobs), default=None) or self.newest_pack(state)
            if pack is None or is_end(pack):
                state.forget()
                return False
            try:
                if number_of(pack) != state.pack:
                    state.take(number_of(pack), self.load_pack(pack.key))
                    continue  # list the commits after it
                if not self._follow(state, [blob for blob in blobs if is_commit(blob)]):
                    state.forget()
                    return False
            except FileNotFoundError as error:
                problem = Corrupt(f"is missing in {self._blobs.name}.", record=str(error.args[-1]))
                continue
            state.listed = state.seen = moment
            return True
        raise problem

    def newest_pack(self, state: State) -> Blob | None:
        """Return the newest pack. None is certain: a list may miss the only pack while a newer one replaces it."""
        found = (max(self._blobs.list(f"{state.root}pack/"), default=None) for _ in range(3))
        return next(filter(None, found), None)

    def load_pack(self, key: str) -> Pack:
        """Return a pack. Raises `Corrupt`, `NewerFormat` or `FileNotFoundError`."""
        for data, _ in read_frames(self._blobs.get(key), key):
            try:
                if data[1] > FORMAT:
                    raise NewerFormat(f"{self._blobs.name} has format {data[1]}; this quire reads {FORMAT}.")
                return decode_pack(data)
            except DecodeError:
                break
        raise damaged(key)

    def _follow(self, state: State, blobs: list[Blob]) -> bool:
        """Apply the commits after the newest known one. Return False if one is the end of the context.

        A folder may have newest commits that are damaged by power loss: they count as never written.
        """
        frames: dict[int, tuple[Frame, bytes]] = {}
        torn: list[Blob] = []
        for blob in reversed(blobs):
            if seq_of(blob) in frames or seq_of(blob) <= state.table.seq:
                continue
            content = self._blobs.get(blob.key)
            if not content and not self._blobs.tears:
                raise FileNotFoundError(blob.key)  # emptied by a scrub, so there is a newer pack
            try:
                found = [(decode_frame(data), whole) for data, whole in read_frames(content, blob.key)]
            except (Corrupt, DecodeError):
                if frames or not self._blobs.tears:
                    raise damaged(blob.key) from None
                torn.append(blob)
                continue
            frames = {frame.first: (frame, whole) for frame, whole in found} | frames
        torn.reverse()
        if torn and torn != state.torn:
            logging.getLogger("quire").warning("Power loss damaged %s: never committed.", [each.key for each in torn])
        state.torn = torn
        for frame, whole in (frames[seq] for seq in sorted(frames) if seq > state.table.seq):
            if frame.first != state.table.seq + 1:
                raise FileNotFoundError(state.key(state.table.seq + 1))
            if frame.head is None:
                return False
            state.table.apply(frame.commit())
            self.remember(state, whole, frame.seq, frame.writer)
        return True

    def remember(self, state: State, frame: bytes, seq: int, writer: bytes) -> None:
        """Keep who made a commit, and its frame, which later commits repeat."""
        state.writers[seq] = writer
        if self._blobs.repeats:
            state.recent.insert(0, frame)
            while sum(map(len, state.recent)) > self._blobs.repeats:
                state.recent.pop()

    def whole(self, state: State, item: V) -> V | None:
        """Return a record or an entry with its values. If its pack is gone, read again; None if it is gone too."""
        while True:
            try:
                return self.filled(state, item)
            except FileNotFoundError as error:
                self.refresh(state)
                texts, entries = state.table.records[TEXT], state.table.entries
                found: Any = texts.get(item.key) if isinstance(item, Record) else entries.get(item.seq)
                if found is None:
                    return None
                if found == item:
                    raise Corrupt(f"is missing: {self._blobs.name} has no object {error}.", record="a pack") from None
                item = found

    def filled(self, state: State, item: V) -> V:
        """Return a record or an entry with its values. Raises `FileNotFoundError` if its pack is gone."""
        found: Record | StoredEntry = item
        if isinstance(found, Record):
            if isinstance(found.value, Packed):
                found = Record(found.key, self._read(state, found.value))
        else:
            found = StoredEntry(found.seq, *self.content(state, found)[:2])
        return cast("V", found)

    def content(self, state: State, stored: StoredEntry) -> tuple[bytes, bytes, bytes]:
        """Return the head and the value of an entry, and who made it."""
        if not isinstance(stored.head, Packed):
            return stored.head, stored.entry, state.writers.get(stored.seq, b"")
        head, entry, writer = decode_entry(self._read(state, stored.head))
        return head, entry if isinstance(stored.entry, Packed) else stored.entry, writer

    def _read(self, state: State, place: Packed) -> bytes:
        """Return the value at a place in a pack. Raises `Corrupt`, or `FileNotFoundError` if the pack is gone."""
        number, start, length = place.parts
        if number not in state.objects:
            raise FileNotFoundError(f"texts of pack {number}")
        name, size = state.objects[number]
        key, stop = state.texts + name, start + length
        if length > _BLOCK:
            data = self._blobs.get(key, start, stop)
        else:
            first, last = start // _BLOCK, (stop - 1) // _BLOCK
            blocks = b"".join(self._block(key, block, size) for block in range(first, last + 1))
            data = blocks[start - first * _BLOCK : stop - first * _BLOCK]
        for found, _ in read_frames(data, key):
            return found
        raise damaged(key)

    def _block(self, key: str, number: int, size: int) -> bytes:
        with self._lock:
            found = self._blocks.pop((key, number), None)
            if found is not None:
                self._blocks[key, number] = found
                return found
        found = self._blobs.get(key, number * _BLOCK, min(size, (number + 1) * _BLOCK))
        with self._lock:
            self._cached += len(found) - len(self._blocks.pop((key, number), b""))
            self._blocks[key, number] = found
            while self._cached > _CACHED:
                self._cached -= len(self._blocks.popitem(last=False)[1])
        return found
