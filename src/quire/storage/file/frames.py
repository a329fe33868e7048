"""The frames of a log: one checksummed frame per commit.

A reader stops at bytes that are no frame. If a complete frame follows these bytes, the log is damaged.
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
PUT, PATCH, DELETE = 0, 1, 2
_NUMBERS = {family: number for number, family in enumerate(FAMILIES)}


class Entry(NamedTuple):
    """One write of a frame; `offset` and `size` are the position of its value in the log."""

    kind: int
    family: Family
    key: int
    group: int | None
    order: bytes
    offset: int
    size: int


class Frame(NamedTuple):
    """One commit in the log, from `start` to `end`."""

    start: int
    end: int
    version: int
    head: bytes
    entries: list[Entry]


def encode_frame(commit: Commit) -> bytes:
    """Return the commit as bytes to append."""
    rows: list[tuple[int, int, int, int | None, bytes, int]] = []
    values: list[bytes] = []
    for write in commit.writes:
        number = _NUMBERS[write.family]
        match write:
            case Put():
                rows.append((PUT, number, write.key, write.group, write.order, len(write.value)))
                values.append(write.value)
            case Patch():
                rows.append((PATCH, number, write.key, None, b"", len(write.value)))
                values.append(write.value)
            case Delete():
                rows.append((DELETE, number, write.key, None, b"", 0))
    description = msgspec.msgpack.encode((commit.version, commit.head, rows))
    data = b"".join(values)
    checksum = crc32(data, crc32(description))
    return _LAYOUT.pack(_MAGIC, len(description), len(data), checksum) + description + data


FRAME_HEAD = _LAYOUT.size
"""The number of bytes at the start of a frame that contain its size."""


def holds_frame(head: bytes, size: int) -> bool:
    """Return whether `size` bytes that begin with this frame head hold the whole frame."""
    if len(head) < FRAME_HEAD:
        return False
    magic, description_size, values_size, _ = _LAYOUT.unpack(head)
    return bool(magic == _MAGIC and FRAME_HEAD + description_size + values_size <= size)


def read_frames(data: bytes, base: int) -> Iterator[Frame]:
    """Yield the frames in a part of a log that starts at offset `base`, up to a torn tail.

    Raises `Corrupt` if complete frames follow an unreadable one.
    """
    position = 0
    while position < len(data):
        frame = _read_frame(data, position, base)
        if frame is None:
            if find_frame(data, position + 1) < len(data):
                raise Corrupt(f"The log is damaged at byte {base + position}; the commits after it are intact.")
            return
        yield frame
        position = frame.end - base


def _read_frame(data: bytes, position: int, base: int) -> Frame | None:
    start = position + _LAYOUT.size
    if start > len(data):
        return None
    magic, description_size, values_size, checksum = _LAYOUT.unpack_from(data, position)
    values = start + description_size
    end = values + values_size
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


def find_frame(data: bytes, position: int) -> int:
    """Return the position of the next complete frame, or the end."""
    following = data.find(_MAGIC, position)
    while following >= 0 and _read_frame(data, following, 0) is None:
        following = data.find(_MAGIC, following + 1)
    return following if following >= 0 else len(data)


_BLOCK = 512


def has_gap(data: bytes, base: int) -> bool:
    """Return whether a block of the unreadable bytes at offset `base` was never written, so that it is zeros.

    A gap begins at the first byte or at a block, and ends with a block or with the file.
    """
    position = 0
    while position < len(data):
        end = min((base + position) // _BLOCK * _BLOCK + _BLOCK - base, len(data))
        if data[position:end] == bytes(end - position):
            return True
        position = end
    return False
