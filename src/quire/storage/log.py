"""A commit log: one checksummed frame a commit, appended and never changed.

An unreadable stretch at the end is a tail that a crash tore: it was never acknowledged. An unreadable stretch with
readable frames after it is damage.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import NamedTuple
from zlib import crc32

import msgspec

from quire.errors import Corrupt
from quire.storage.base import FAMILIES, Commit, Delete, Family, Patch, Put

_MAGIC = b"\xffQL1"
_LAYOUT = Layout(">4sIII")  # magic, size of the description, size of the values, checksum of both
_PUT, _PATCH, _DELETE = 0, 1, 2
_NUMBERS = {family: number for number, family in enumerate(FAMILIES)}


class Entry(NamedTuple):
    """One write of a frame; `offset` and `size` say where in the log its value is."""

    kind: int
    family: Family
    key: int
    group: int | None
    order: bytes
    offset: int
    size: int

    @property
    def is_put(self) -> bool:
        return self.kind == _PUT

    @property
    def is_delete(self) -> bool:
        return self.kind == _DELETE


class Frame(NamedTuple):
    """One commit as the log has it, from `start` to `end`."""

    start: int
    end: int
    version: int
    head: bytes
    entries: list[Entry]


def encode_frame(commit: Commit) -> bytes:
    """The commit as bytes to append."""
    rows: list[tuple[int, int, int, int | None, bytes, int]] = []
    values: list[bytes] = []
    for write in commit.writes:
        number = _NUMBERS[write.family]
        match write:
            case Put():
                rows.append((_PUT, number, write.key, write.group, write.order, len(write.value)))
                values.append(write.value)
            case Patch():
                rows.append((_PATCH, number, write.key, None, b"", len(write.value)))
                values.append(write.value)
            case Delete():
                rows.append((_DELETE, number, write.key, None, b"", 0))
    description = msgspec.msgpack.encode((commit.version, commit.head, rows))
    data = b"".join(values)
    checksum = crc32(data, crc32(description))
    return _LAYOUT.pack(_MAGIC, len(description), len(data), checksum) + description + data


FRAME_HEAD = _LAYOUT.size
"""How many bytes of a frame tell its size."""


def holds_frame(head: bytes, size: int) -> bool:
    """Whether a stretch of so many bytes that begins with this frame head holds the whole frame."""
    if len(head) < FRAME_HEAD:
        return False
    magic, described, valued, _ = _LAYOUT.unpack(head)
    return bool(magic == _MAGIC and FRAME_HEAD + described + valued <= size)


def read_frames(data: bytes, base: int) -> Iterator[Frame]:
    """The frames of a stretch of log that starts at offset `base`, up to a torn tail, if there is one.

    Raises `Corrupt` if there are whole frames after an unreadable one.
    """
    position = 0
    while position < len(data):
        frame = _read_frame(data, position, base)
        if frame is None:
            _refuse_damage(data, position, base)
            return
        yield frame
        position = frame.end - base


def _read_frame(data: bytes, position: int, base: int) -> Frame | None:
    start = position + _LAYOUT.size
    if start > len(data):
        return None
    magic, described, valued, checksum = _LAYOUT.unpack_from(data, position)
    values = start + described
    end = values + valued
    if magic != _MAGIC or end > len(data):
        return None
    description = data[start:values]
    if crc32(memoryview(data)[values:end], crc32(description)) != checksum:
        return None
    try:
        version, head, rows = msgspec.msgpack.decode(description)
        entries = []
        offset = base + values
        for kind, number, key, group, order, size in rows:
            entries.append(Entry(kind, FAMILIES[number], key, group, order, offset, size))
            offset += size
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
        return None
    return Frame(base + position, base + end, version, head, entries)


def _refuse_damage(data: bytes, position: int, base: int) -> None:
    """Raise if a whole frame follows on an unreadable one."""
    following = data.find(_MAGIC, position + 1)
    while following >= 0:
        if _read_frame(data, following, base) is not None:
            raise Corrupt(f"The log is damaged at byte {base + position}; the commits after it are intact.")
        following = data.find(_MAGIC, following + 1)
