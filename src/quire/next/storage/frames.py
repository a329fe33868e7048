"""What the objects of the log storage hold: frames with a checksum, commits, packs; and one context in memory."""

from collections.abc import Iterator
from struct import Struct as Format
from threading import RLock
from time import monotonic, time
from typing import Final, cast
from zlib import crc32

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import astuple

from quire.errors import Corrupt
from quire.next.storage.blobs import Blob
from quire.next.storage.contract import (
    CACHE,
    CALL,
    CODES,
    FAMILIES,
    MAX_KEY,
    NOTE,
    PAGE,
    TEXT,
    Commit,
    Family,
    Id,
    Record,
    StoredEntry,
)
from quire.next.storage.memory import Table

FORMAT: Final = 1
END: Final = b"end"
"""The last pack of a context that was dropped is this, and 8 bytes of who dropped it. All others are longer."""
_SMALL: Final[tuple[Family, ...]] = (NOTE, CALL, CACHE)


class Frame(Struct, array_like=True, frozen=True, gc=False):
    """A commit as it is stored. `writer` makes it differ from every other; the end of a context has no head."""

    writer: bytes
    seq: int
    head: bytes | None
    entry: bytes = b""
    put: list[tuple[int, int, bytes, int | None, int]] = []
    delete: list[tuple[int, int]] = []
    replace: list[tuple[int, bytes]] = []
    expire: int = 0
    earlier: list[StoredEntry] = []

    @property
    def first(self) -> int:
        """The number of the first entry, which is in the key of the object."""
        return self.seq - len(self.earlier)

    def commit(self) -> Commit:
        """Return the commit."""
        put = [(FAMILIES[code], Record(key, value, parent, rank)) for code, key, value, parent, rank in self.put]
        delete = [(FAMILIES[code], key) for code, key in self.delete]
        return Commit(self.seq, self.head or b"", self.entry, put, delete, self.replace, self.expire, self.earlier)


Where = tuple[int, int, int, int]
"""A key, and where its value is: the number of the pack, the offset and the length."""


class Pack(Struct, array_like=True, gc=False):
    """A context at entry `seq`. `objects` are the names and sizes of the objects with texts, by number."""

    format: int
    seq: int
    pages: list[tuple[int, bytes, int | None, int]]
    small: list[list[tuple[int, bytes]]]
    texts: list[Where]
    own_texts: list[tuple[int, bytes]]
    entries: list[Where]
    own_entries: list[tuple[int, bytes, bytes, bytes]]
    objects: dict[int, tuple[str, int]]


encode: Final = Encoder().encode
decode_frame: Final = Decoder(Frame).decode
decode_pack: Final = Decoder(Pack).decode
decode_entry: Final = Decoder(tuple[bytes, bytes, bytes]).decode
_HEAD: Final = Format(">II")
_PLACE: Final = Format(">QQQ")


class Packed(bytes):
    """The place of a value, instead of the value: the number of the pack, the offset and the length."""

    @classmethod
    def of(cls, number: int, start: int, length: int) -> "Packed":
        """Return a place."""
        return cls(_PLACE.pack(number, start, length))

    @property
    def parts(self) -> tuple[int, int, int]:
        return cast("tuple[int, int, int]", _PLACE.unpack(self))


class State:
    """One context in memory, at the newest entry that was seen."""

    def __init__(self, context: Id) -> None:
        self.context, self.root, self.texts = context, f"{context:016x}/", f"texts/{context:016x}/"
        self.lock = RLock()
        self.forget()

    def forget(self) -> None:
        """Become the state of a context that does not exist."""
        self.table = Table()
        self.pack = self.packed = 0
        """The number of the newest pack, and the entry it is at. 0 if the context is gone."""
        self.objects: dict[int, tuple[str, int]] = {}
        self.listed = self.seen = (0.0, 0.0)
        """When it was certain that no other pack exists, and that no newer commit exists."""
        self.writers: dict[int, bytes] = {}
        """Who made the entries that are in no object with texts."""
        self.recent: list[bytes] = []
        """The newest frames, newest first, to be repeated."""
        self.torn: list[Blob] = []
        """The newest commits, if power loss damaged them before anybody could read them."""

    def take(self, number: int, pack: Pack) -> None:
        """Become what a pack says."""
        self.forget()
        for page in pack.pages:
            self.table.put(PAGE, Record(*page))
        for family, records in zip(_SMALL, pack.small, strict=True):
            for each in records:
                self.table.put(family, Record(*each))
        for key, *place in pack.texts:
            self.table.put(TEXT, Record(key, Packed.of(*place)))
        for key, value in pack.own_texts:
            self.table.put(TEXT, Record(key, value))
        for seq, *place in pack.entries:
            self.table.set_entry(StoredEntry(seq, where := Packed.of(*place), where))
        for seq, head, entry, self.writers[seq] in pack.own_entries:
            self.table.set_entry(StoredEntry(seq, head, entry))
        self.table.seq = self.packed = pack.seq
        self.pack, self.objects = number, pack.objects

    def key(self, seq: int) -> str:
        """Return the key of a commit."""
        return f"{self.root}{seq:019}"

    def pack_key(self, number: int) -> str:
        """Return the key of a pack."""
        return f"{self.root}pack/{number:09}"

    def records(self, family: Family) -> Iterator[Record]:
        """Return all records of a family, by key."""
        return self.table.scan(family, 0, MAX_KEY, reverse=False)


def now() -> tuple[float, float]:
    """Return this moment for `seconds_since`."""
    return monotonic(), time()


def seconds_since(moment: tuple[float, float]) -> float:
    """Return the seconds since a moment. One clock stops while the computer sleeps, and the other can be set back."""
    return max(monotonic() - moment[0], time() - moment[1])


def is_commit(blob: Blob) -> bool:
    """Return whether an object is a commit."""
    return blob.key[16:17] == "/" and blob.key[17:36].isdigit()


def seq_of(blob: Blob) -> int:
    """Return the number of a commit."""
    return int(blob.key[17:36])


def number_of(blob: Blob) -> int:
    """Return the number of a pack, or of the pack that texts were written for."""
    return int(blob.key.rpartition("/")[2][:9])


def is_end(pack: Blob) -> bool:
    """Return whether a pack is the end mark of a context that was dropped."""
    return pack.size == len(END) + 8


def is_pack(blob: Blob) -> bool:
    """Return whether an object is a pack, or the end mark in its place."""
    return blob.key[16:22] == "/pack/" and blob.key[22:].isdigit()


def frame_of(commit: Commit, writer: bytes) -> Frame:
    """Return a commit as it is stored."""
    put = [(CODES[family], each.key, each.value, each.parent, each.rank) for family, each in commit.put]
    delete = [(CODES[family], key) for family, key in commit.delete]
    replace, earlier = list(commit.replace), list(commit.earlier)
    return Frame(writer, commit.seq, commit.head, commit.entry, put, delete, replace, commit.expire, earlier)


def pack_of(table: Table, writers: dict[int, bytes], objects: dict[int, tuple[str, int]]) -> Pack:
    """Return the content of a pack: values that are in objects by their places, all others themselves."""
    records = {family: list(table.scan(family, 0, MAX_KEY, reverse=False)) for family in FAMILIES}
    entries = list(table.scan_entries(0, MAX_KEY, reverse=False))
    texts = records[TEXT]
    return Pack(
        FORMAT,
        table.seq,
        [(each.key, each.value, each.parent, each.rank) for each in records[PAGE]],
        [[(each.key, each.value) for each in records[family]] for family in _SMALL],
        [(each.key, *each.value.parts) for each in texts if isinstance(each.value, Packed)],
        [(each.key, each.value) for each in texts if not isinstance(each.value, Packed)],
        [(each.seq, *each.head.parts) for each in entries if isinstance(each.head, Packed)],
        [(*astuple(each), writers.get(each.seq, b"")) for each in entries if not isinstance(each.head, Packed)],
        objects,
    )


def framed(data: bytes) -> bytes:
    """Return data with its length and checksum."""
    return _HEAD.pack(len(data), crc32(data)) + data


def read_frames(data: bytes, key: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the contents of the frames in an object, and the frames; at least one. Raises `Corrupt`."""
    start = 0
    while start < len(data) or not start:
        begin = start + _HEAD.size
        size, checksum = _HEAD.unpack_from(data, start) if begin <= len(data) else (-1, 0)
        content = data[begin : begin + size]
        if len(content) != size or crc32(content) != checksum:
            raise damaged(key)
        yield content, data[start : begin + size]
        start = begin + size


def damaged(key: str) -> Corrupt:
    return Corrupt("is damaged: its checksum does not match. Restore it from a backup or a version.", record=repr(key))
