"""What the objects of the log storage hold: commits and packs, in frames with a checksum."""

from collections.abc import Iterator
from struct import Struct as Format
from typing import Final, TypeVar
from zlib import crc32

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import astuple, replace

from quire.errors import Corrupt, NewerFormat
from quire.storage.contract import CODES, FAMILIES, MAX_KEY, TEXT, Commit, Record, StoredEntry
from quire.storage.memory import Table

T = TypeVar("T")
FORMAT: Final = 1
_SECTOR: Final = 512  # a disk writes parts of this size whole or not at all
_HEAD: Final = Format(">II")
_encode: Final = msgpack.Encoder().encode


class Packed(bytes):
    """The name of the object that holds a value, in place of the value."""


class Frame(Struct, array_like=True, frozen=True, gc=False):
    """A commit as it is stored, or a pack: a commit that makes the whole context.

    Slots are numbered like entries, but power loss can leave a slot without an entry.
    """

    format: int
    slot: int
    seq: int
    head: bytes
    entry: bytes
    put: list[tuple[int, int, bytes, int | None, int]]
    delete: list[tuple[int, int]]
    replace: list[tuple[int, bytes]]
    expire: int
    entries: list[tuple[int, bytes, bytes]]
    """Earlier entries that the commit makes too; of a pack: all earlier ones that are in no object."""
    named: bool = False
    """Of a pack: whether the context has a name, or will get it at once."""
    objects: list[tuple[str, int, list[int], list[int]]] = []
    """Of a pack: the objects with texts and older entries: their names and sizes, and what of them still exists."""

    @classmethod
    def of(cls, slot: int, commit: Commit) -> "Frame":
        """Return a commit as it is stored."""
        put = [(CODES[family], *astuple(record)) for family, record in commit.put]
        delete = [(CODES[family], key) for family, key in commit.delete]
        head, entries = commit.head, [astuple(entry) for entry in commit.earlier]
        return cls(FORMAT, slot, commit.seq, head, commit.entry, put, delete, [*commit.replace], commit.expire, entries)

    @property
    def first(self) -> int:
        """The number of the first entry that a commit makes."""
        return self.seq - len(self.entries)

    def apply_to(self, table: Table) -> Table:
        """Make the changes of this commit."""
        for name, _, keys, numbers in self.objects:
            place = Packed(name.encode())
            for key in keys:
                table.put(TEXT, Record(key, place))
            for seq in numbers:
                table.set_entry(StoredEntry(seq, place, place))
        for entry in self.entries:
            table.set_entry(StoredEntry(*entry))
        put = [(FAMILIES[code], Record(key, value, parent, rank)) for code, key, value, parent, rank in self.put]
        delete = [(FAMILIES[code], key) for code, key in self.delete]
        table.apply(Commit(self.seq, self.head, self.entry, put, delete, self.replace, self.expire))
        return table


def pack_of(table: Table, slot: int, sizes: dict[Packed, int], *, named: bool) -> Frame:
    """Return a context as a pack: the values that are in objects by their places, all others themselves."""
    found: dict[bytes, tuple[list[int], list[int]]] = {name: ([], []) for name in sizes}
    put, earlier = [], []
    for family in FAMILIES:
        for record in table.scan(family, 0, MAX_KEY, reverse=False):
            found[record.value][0].append(record.key) if is_packed(record) else put.append((family, record))
    for entry in table.scan_entries(0, table.seq - 1, reverse=False):
        found[entry.entry][1].append(entry.seq) if is_packed(entry) else earlier.append(entry)
    newest = table.entries[table.seq]
    frame = Frame.of(slot, Commit(table.seq, newest.head, newest.entry, put, earlier=earlier))
    return replace(frame, named=named, objects=[(name.decode(), size, *found[name]) for name, size in sizes.items()])


Texts = tuple[dict[int, bytes], dict[int, tuple[bytes, bytes]]]
"""The content of an object: texts by key, and the heads and values of entries by number."""
FRAME: Final = msgpack.Decoder(Frame)
TEXTS: Final = msgpack.Decoder(Texts)


def value_of(item: Record | StoredEntry) -> bytes:
    """Return the value of a record or an entry, or its place."""
    return item.value if isinstance(item, Record) else item.entry


def is_packed(item: Record | StoredEntry) -> bool:
    """Return whether the value of a record or an entry is in an object."""
    return isinstance(value_of(item), Packed)


# Frames


def framed(value: object) -> bytes:
    """Return an encoded value with its length and checksum."""
    data = _encode(value)
    return _HEAD.pack(len(data), crc32(data)) + data


def read_frames(data: bytes, key: str, decoder: msgpack.Decoder[T]) -> Iterator[tuple[T, bytes]]:
    """Yield the values in an object, at least one, and their bytes. Raises `Corrupt` or `NewerFormat`."""
    start = 0
    while start < len(data) or not start:
        begin = start + _HEAD.size
        size, checksum = _HEAD.unpack_from(data, start) if begin <= len(data) else (-1, 0)
        content = data[begin : begin + size]
        try:
            if len(content) != max(size, 1) or crc32(content) != checksum:  # no value is empty
                raise DecodeError
            if decoder is FRAME and content[1] > FORMAT:
                raise NewerFormat(f"{key!r} has format {content[1]}; this quire reads {FORMAT}.")
            yield decoder.decode(content), data[start : begin + size]
        except DecodeError:
            text = "is damaged: its checksum does not match. Restore it from a backup or a version."
            raise Corrupt(text, record=repr(key)) from None
        start = begin + size


def is_torn(data: bytes) -> bool:
    """Return whether damaged data looks like power loss: its end is missing, or a sector in it is zeros."""
    sectors = (data[start : start + _SECTOR] for start in range(0, len(data), _SECTOR))
    return len(data) < _HEAD.size + max(int.from_bytes(data[:4]), 1) or not all(map(any, sectors))
