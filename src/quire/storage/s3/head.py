"""The head object of a context and its key, and snapshots.

A head holds the version of a context, its newest commits, and the list of runs with the older records. It is replaced
as a whole, if it did not change since it was read. Every head contains a unique commit id. No two heads have the same
bytes, so an entity tag that a server computes from the bytes never occurs again.

The key of a head is derived from the context's name. An S3 server lists keys by their bytes, so keys sort by code point
as the names do. They consist of letters, digits, `-` and `_`, which no server, proxy or signature treats specially.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.errors import InvalidValue, NewerFormat, short_repr
from quire.storage.base import MAX_GROUP, MAX_KEY, PAGE, Family, Head, Record, quire_version
from quire.storage.file.frames import PATCH, read_frames
from quire.storage.s3.chunks import (
    RANKS,
    SLOTS,
    ChunkReader,
    Entry,
    LogEntries,
    Run,
    RunReader,
    SortKey,
    combine,
    decode_changes,
    key_in,
    record_of,
)
from quire.storage.s3.client import damaged

FORMAT: Final = 1
_TITLE: Final = b"quire head\n"
ID_BYTES: Final = 8
MAX_IDS: Final = 1_000
"""The number of commit ids in a head."""


class HeadObject(Struct, frozen=True, array_like=True):
    """The content of a head. `log` has the newest commits as frames, `runs` the older records, the oldest first."""

    context: str
    incarnation: str
    """Differs for a context that was dropped and created again."""
    version: int
    value: bytes
    commit_ids: bytes
    """The ids of the last commits, the newest last."""
    log: bytes
    runs: tuple[Run, ...]
    flushes: int
    """The number of flushes of the log so far. Chunks are named by it."""
    writes: int = 0
    """The number of writes of this head so far. It tells which of two heads is newer."""
    fence: int = 0
    """A merge that began at fewer flushes is too late: the chunks it wrote may be gone."""

    @property
    def head(self) -> Head:
        return Head(self.version, self.value)

    def has_commit(self, commit_id: bytes) -> bool:
        """Return True if this commit is one of the last ones."""
        ids = self.commit_ids
        return any(ids[at : at + ID_BYTES] == commit_id for at in range(0, len(ids), ID_BYTES))

    def ids_with(self, commit_id: bytes) -> bytes:
        """Return the ids of the last commits and a new one."""
        return (self.commit_ids + commit_id)[-ID_BYTES * MAX_IDS :]

    def chunk_ids(self) -> set[str]:
        """Return the ids of all chunks that this head needs."""
        return {chunk.id for run in self.runs for chunk in run.chunks}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HeadObject).decode
_decode_frame = msgspec.msgpack.Decoder(tuple[int, str, int, bytes]).decode


def encode_head(head: HeadObject) -> bytes:
    """Return the bytes of a head."""
    body = _encode(head)
    return _TITLE + _encode((FORMAT, quire_version(), crc32(body), body))


def decode_head(data: bytes, key: str, context: str) -> HeadObject:
    """Return the head in these bytes. Raises `Corrupt` with the object's key, or `NewerFormat`."""
    try:
        if not data.startswith(_TITLE):
            raise damaged(key, "its beginning cannot be read")
        format_, writer, checksum, body = _decode_frame(data[len(_TITLE) :])
    except msgspec.MsgspecError:
        raise damaged(key, "its frame cannot be read") from None
    if format_ > FORMAT:
        raise NewerFormat(
            f"The object {key!r} has format {format_}; this quire reads up to {FORMAT}."
            f" Install quire {writer} or newer."
        )
    if crc32(body) != checksum:
        raise damaged(key, "its content cannot be read")
    try:
        head = _decode(body)
    except msgspec.MsgspecError:
        raise damaged(key, "its content cannot be read") from None
    if head.context != context:
        raise damaged(key, f"it belongs to context {head.context!r}")
    return head


_DIGITS: Final = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_FIRST: Final = 6  # a code point in three digits starts with one of the digits from here
_LAST: Final = 62  # to here; the next digit starts a code point in four digits
_SHORT: Final = "z{|}~"
_WIDE: Final = (_LAST - _FIRST + 1) << 12
_MAX_SEGMENT: Final = 240
"""The most characters between two slashes: some servers store keys as files, and file names end at 255 bytes."""
_END, _CONTINUED = "!", "-/"
MAX_KEY_BYTES: Final = 1024


def _encode_char(char: str) -> str:
    """Return the characters for one character of a name. They sort as the characters of names do."""
    point = ord(char)
    if point < 0x30:
        return f"-{max(point - 0x20, 0):x}"
    if point < 0x7A:
        if "9" <= char <= "@":
            return f"9{point - ord('9')}"
        if "Z" <= char <= "^":
            return f"Z{point - ord('Z')}"
        return f"_{point - ord('_')}" if "_" <= char <= "`" else char
    if char in _SHORT:
        return f"z{_SHORT.index(char)}"
    number = point - 0x7F
    if number < _WIDE:
        return "z" + _encode_number(number + (_FIRST << 12), 3)
    return "zz" + _encode_number(number - _WIDE, 4)


def _encode_number(number: int, digits: int) -> str:
    return "".join(_DIGITS[number >> 6 * place & 63] for place in reversed(range(digits)))


def key_of(name: str) -> str:
    """Return the key of a name, without the prefix of the store."""
    text = "".join(map(_encode_char, name))
    parts = [text[at : at + _MAX_SEGMENT] for at in range(0, len(text), _MAX_SEGMENT)] or [""]
    return _CONTINUED.join(parts) + _END


def name_of(key: str) -> str | None:
    """Return the name that has this key, or None if the key belongs to no name."""
    text = key.removesuffix(_END).replace(_CONTINUED, "")
    chars: list[str] = []
    position = 0
    try:
        while position < len(text):
            char, position = _decode_char(text, position)
            chars.append(char)
    except (IndexError, KeyError, ValueError):
        return None
    name = "".join(chars)
    return name if key_of(name) == key else None


def _decode_char(text: str, position: int) -> tuple[str, int]:
    """Return the character of a name at a position, and the position after it."""
    first, second = text[position], text[position + 1 : position + 2]
    match first:
        case "-":
            return chr(0x20 + int(second, 16)), position + 2
        case "9" | "Z" | "_":
            return chr(ord(first) + int(second)), position + 2
        case "z" if second in "01234":
            return _SHORT[int(second)], position + 2
        case "z" if second == "z":
            return chr(_decode_number(text[position + 2 : position + 6]) + _WIDE + 0x7F), position + 6
        case "z":
            return chr(_decode_number(text[position + 1 : position + 4]) - (_FIRST << 12) + 0x7F), position + 4
        case _:
            return first, position + 1


def _decode_number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number << 6 | _VALUES[digit]
    return number


def check_key(key: str, name: str) -> str:
    """Return the key if a server accepts it. Raises `InvalidValue`."""
    if len(key) <= MAX_KEY_BYTES:
        return key
    raise InvalidValue(
        f"Context name {short_repr(name)} needs a key of {len(key):,} bytes; S3 allows {MAX_KEY_BYTES:,}."
    )


Layer = LogEntries | RunReader
"""The entries of the log, or of one run."""


class Snapshot:
    """A context at one moment: the commits in its head over the runs below. A snapshot never changes.

    A record is looked up from the newest layer to the oldest. `tag` is the entity tag of the head object.
    """

    def __init__(self, head: HeadObject, tag: str, log: LogEntries, folder: str, chunks: ChunkReader) -> None:
        self.head = head
        self.tag = tag
        self.log = log
        self.runs = tuple(RunReader(run, folder, chunks) for run in reversed(head.runs))
        """The newest first, unlike in the head."""
        self._layers: tuple[Layer, ...] = (log, *self.runs)

    def get(self, family: Family, key: int) -> Record | None:
        sort_key = (RANKS[family], key)
        entry: Entry | None = None
        for layer in self._layers:
            found = layer.get(sort_key)
            if found is not None:
                entry = found if entry is None else combine(entry, found)
                if entry.kind != PATCH:
                    break
        return record_of(key, entry)

    def scan(self, family: Family, start: int, stop: int, *, reverse: bool) -> Iterator[Record]:
        rank, start, stop = RANKS[family], max(start, 0), min(stop, MAX_KEY)
        if start > stop:
            return
        layers = [layer.between((rank, start), (rank, stop), reverse=reverse) for layer in self._layers]
        for sort_key, entry in merge_layers(layers, reverse=reverse):
            record = record_of(key_in(sort_key), entry)
            if record is not None:
                yield record

    def members(
        self, family: Family, group: int, after: tuple[bytes, int] | None, *, reverse: bool
    ) -> Iterator[Record]:
        """Yield the records of a group by (order, key), strictly after the given position."""
        if family != PAGE or not 0 <= group <= MAX_GROUP:
            return
        low: SortKey = (SLOTS, group)
        high: SortKey = (SLOTS, group + 1)
        previous: SortKey | None = None
        if after is not None:
            previous = (SLOTS, group, *after)
            low, high = (low, previous) if reverse else (previous, high)
        layers = [layer.slots_between(low, high, reverse=reverse) for layer in self._layers]
        for slot in merge(*layers, reverse=reverse):
            if slot == previous:
                continue
            previous = slot
            record = self.get(family, key_in(slot))
            if record is not None and (record.group, record.order) == slot[1:3]:
                yield record


def merge_layers(
    layers: Iterable[Iterator[tuple[SortKey, Entry]]], *, reverse: bool = False
) -> Iterator[tuple[SortKey, Entry]]:
    """Merge the entries of several layers, the newest first, into one sorted sequence."""
    first = itemgetter(0)
    for sort_key, found in groupby(merge(*layers, key=first, reverse=reverse), key=first):  # merge is stable
        yield sort_key, reduce(combine, (entry for _, entry in found))


def read_log(head: HeadObject, key: str) -> LogEntries:
    """Return the entries of the commits in a head. Raises `Corrupt` with the object's key."""
    frames = list(read_frames(head.log, 0))
    if (frames[-1].end if frames else 0) != len(head.log):
        raise damaged(key, "a commit in it cannot be read")
    return LogEntries().with_changes(change for frame in frames for change in decode_changes(frame, head.log))
