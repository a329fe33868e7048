"""The only codec between values and bytes: what quire stores, family by family.

A page's key is its segment's number and its own in one integer; its parent is the record's group and its rank the
record's order, so parent and child list are one record and cannot disagree. A cold page stands in its old folder's
*cold* group: out of the tree, its place remembered. What was removed leaves a `Gone`, so that no index is used twice,
an old index can name the new one, and undo knows what came later.

Structs are arrays: a field may be appended with a default, never moved or removed.
"""

from typing import Final, TypedDict, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.errors import Corrupt, NewerFormat
from quire.model.messages import Message
from quire.model.pages import NUMBER_BITS, Form, Lifecycle, Mark, PageIndex, Permission, SegmentType, Visibility
from quire.storage.base import KEY_BITS, MAX_KEY, Record

FORMAT: Final = 1
COLD_GROUP: Final = 1 << KEY_BITS
_SEAL: Final = 4
_NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1

T = TypeVar("T")


def page_key(segment: int, number: int) -> int:
    """The key of a page from its segment's number and its own."""
    return segment << NUMBER_BITS | number


def segment_number(key: int) -> int:
    """The segment's number in a page key."""
    return key >> NUMBER_BITS


def page_number(key: int) -> int:
    """The page's own number in a page key; 0 is a root."""
    return key & _NUMBER_MASK


class Header(Struct, frozen=True, array_like=True, gc=False, tag=0):
    """Everything about a page but its place and its body.

    Small, because a fork copies it: `author` is a number among the head's actors, `age` the milliseconds from `created`
    to the last change, `born` and `seq` the journal entries that made it and changed it last. An exchange holds the
    `numbers` of its messages and the ids of calls without a result; one that was given up is `closed`. What was
    compressed knows the summary that stands for it as its `standin`. A chapter has a `level`; `line_tokens` is what a
    folded page's line takes, `clip` the tokens that a page too large for the view is shown in.
    """

    folder: bool
    name: str
    description: str
    author: int
    created: int
    age: int
    born: int
    seq: int
    summary_tokens: int = 0
    tokens: int = 0
    body: int = 0
    messages: int = 0
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    visibility: Visibility = Visibility.EXPANDED
    pinned: bool = False
    meta: bytes = b""
    numbers: tuple[int, ...] = ()
    pending: tuple[str, ...] = ()
    form: Form = Form.TEXT
    mark: Mark = Mark.NONE
    closed: bool = False
    standin: int = 0
    level: int = 0
    clip: int = 0
    line_tokens: int = 0


class Origin(TypedDict):
    """The fields of a header that say who made a page, when, and by which entry."""

    author: int
    created: int
    age: int
    born: int
    seq: int


class Gone(Struct, frozen=True, array_like=True, gc=False, tag=1):
    """What is left of a page that was removed by entry `seq`, or moved to another segment, or purged for good."""

    seq: int
    moved_to: int = -1
    purged: bool = False


def page_line(index: PageIndex, header: Header) -> str:
    """The line of a hidden page or a folded chapter, with its line break: such lines have counts that add up."""
    summary = f": {header.description}" if header.description else ""
    return f"[{index} {header.tokens}] {header.name}{summary}\n"


class PageRecord(Struct, frozen=True, gc=False):
    """A page with its place. `parent` is None for a root; for a cold page it is the folder it would return to."""

    key: int
    parent: int | None
    rank: bytes
    header: Header

    @property
    def is_root(self) -> bool:
        return self.key & _NUMBER_MASK == 0

    @property
    def is_cold(self) -> bool:
        return self.header.lifecycle is Lifecycle.COLD_ARCHIVED

    @property
    def group(self) -> int | None:
        """The storage group this record stands in."""
        return self.parent if self.parent is None or not self.is_cold else self.parent | COLD_GROUP


class SegmentRecord(Struct, frozen=True, array_like=True, gc=False):
    """A segment as stored. `position` orders the display; a removed one stays, `gone`."""

    name: str
    description: str
    type: SegmentType
    permission: Permission
    max_capacity: int
    position: int
    created: int
    updated: int
    seq: int
    gone: bool = False


class Counter(Struct, frozen=True, array_like=True, gc=False):
    """A segment id and the next number for its pages. The position in the head's list is the segment's number."""

    segment: str
    next: int


class HeadRecord(Struct, frozen=True, array_like=True, gc=False):
    """The head of a context: its counters, which are never undone, so that numbers are never reused.

    The number of children of the folder at work, `tally_of`, rides here too, so that appending to one folder writes no
    tally record; the tally record of that folder is out of date until another folder takes its turn. `identity` tells
    a context from another that was made later under its name. `horizon` is the entry that ended undo: nothing before
    it can be brought back. `anchors` says how many there are: mostly none, and nobody need look. `family` is the
    identity of the context that this one was forked from, or of the first of a line of them.
    """

    format: int
    created: int
    updated: int
    next_body: int
    counters: tuple[Counter, ...] = ()
    tally_of: int = -1
    tally: int = 0
    actors: tuple[str, ...] = ()
    identity: bytes = b""
    next_message: int = 0
    horizon: int = 0
    deferred_count: int = 0
    family: bytes = b""


class MessageRecord(Struct, frozen=True, array_like=True, gc=False):
    """A message as it arrived: the page it was put on, by which entry, and what it says. Written once."""

    page: int
    seq: int
    message: Message


class Batch(Struct, frozen=True, array_like=True, gc=False):
    """An open batch: the number of its first message, and the entry that opened it."""

    boundary: int
    seq: int


class Billing(Struct, frozen=True, array_like=True, gc=False):
    """What a model billed for what was counted: sums that fade with every report, and the last report."""

    model: str
    reports: int
    all_billed: float
    all_counted: float
    spread: float
    counted: int
    billed: int
    cached: int


class NoteRecord(Struct, frozen=True, array_like=True, gc=False):
    """A small fact about the whole context: the open batches, the numbers that cleanup or a purge took, a checkpoint's
    name, the pages and bytes that an agent has added, or what models bill."""

    seq: int
    batches: tuple[Batch, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    name: str = ""
    used: tuple[int, int] = (0, 0)
    usage: tuple[Billing, ...] = ()


BATCHES: Final = 0
GAPS: Final = 1
KEY: Final = 2
UNDONE_FOLD: Final = 3
USAGE: Final = 4
PURGED: Final = 5
AGENTS: Final = 1 << 16
CHECKPOINTS: Final = 1 << 32
"""Keys of notes: open batches, gaps in the numbering, the context's key, a fold that was undone, what models bill,
the messages that were purged, what agents have added (by their number among the actors), checkpoints (by seq)."""


def is_undone(key: int) -> bool:
    """Whether steps back bring an older note back; the context's key, what models bill and what agents
    have added only go on."""
    return key in (BATCHES, GAPS, UNDONE_FOLD) or key >= CHECKPOINTS


class DeferredChange(Struct, frozen=True, array_like=True, gc=False):
    """A page that an agent changed since the last fold: how the view goes on showing it until the next.

    `before` is its header then (None: there was no such page) with its place. If the agent opened it, `opened` is its
    header at that moment, and it is shown after the messages below `number`, by entry `seq`; of a folder, `listed` are
    the pages below it that an agent had changed or opened by then.
    """

    seq: int
    number: int
    before: bytes | None = None
    group: int | None = None
    order: bytes = b""
    opened: bytes = b""
    listed: tuple[int, ...] = ()


class VectorRecord(Struct, frozen=True, array_like=True, gc=False):
    """What an embedder made of a page: numbers of two bytes each, in a row."""

    vector: bytes


class VectorState(Struct, frozen=True, array_like=True, gc=False):
    """Which state of which context the vectors reflect, and by which embedder they were made."""

    version: int
    identity: bytes
    model: int


VECTOR_STATE: Final = MAX_KEY
"""The key in the family of vectors that says where they stand."""


class Touched(Struct, frozen=True, array_like=True, gc=False):
    """One record that an entry changed, and what it was before (`before` None: it did not exist)."""

    family: int
    key: int
    before: bytes | None = None
    group: int | None = None
    order: bytes = b""


class EntryRecord(Struct, frozen=True, array_like=True, gc=False):
    """One journal entry; its key is its seq. `commit` tells whose write it was when an outcome was in doubt.

    `undoes` is the entry that an undo undid, or the first one of a temporary block that this one ended.
    """

    time: int
    actor: str
    operation: str
    commit: bytes
    touched: tuple[Touched, ...]
    undoes: int = 0


PAGE_CODE: Final = 0
SEGMENT_CODE: Final = 1
NOTE_CODE: Final = 2
"""`Touched.family`: the families the journal covers."""

_encode = msgspec.msgpack.Encoder().encode
_page_decoder = msgspec.msgpack.Decoder(Header | Gone)
_segment_decoder = msgspec.msgpack.Decoder(SegmentRecord)
_head_decoder = msgspec.msgpack.Decoder(HeadRecord)
_entry_decoder = msgspec.msgpack.Decoder(EntryRecord)
_tally_decoder = msgspec.msgpack.Decoder(int)
_message_decoder = msgspec.msgpack.Decoder(MessageRecord)
_note_decoder = msgspec.msgpack.Decoder(NoteRecord)
_anchor_decoder = msgspec.msgpack.Decoder(DeferredChange)
_vector_decoder = msgspec.msgpack.Decoder(VectorRecord)
_vector_standing_decoder = msgspec.msgpack.Decoder(VectorState)
_call_decoder = msgspec.msgpack.Decoder(tuple[int, ...])


def encode_record(key: int, value: Struct | int | tuple[int, ...]) -> bytes:
    """Any record but a body, as stored under this key."""
    payload = _encode(value)
    return payload + crc32(payload, key & 0xFFFFFFFF).to_bytes(_SEAL)


def encode_body(key: int, text: str) -> bytes:
    """A text body as stored under this key."""
    return _seal(key, text.encode())


def decode_page(record: Record) -> PageRecord | Gone:
    """A page or what is left of it. Raises `Corrupt`."""
    key, value, parent = record.key, record.value, record.group
    payload = value[:-_SEAL]
    try:
        if crc32(payload, key & 0xFFFFFFFF) != int.from_bytes(value[-_SEAL:]):
            raise Corrupt(f"page record {key} is damaged: its checksum does not match.")
        header = _page_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"page record {key} is damaged: {error}.") from error
    if isinstance(header, Gone):
        return header
    if parent is not None:
        if bool(parent & COLD_GROUP) is not (header.lifecycle is Lifecycle.COLD_ARCHIVED):
            raise Corrupt(f"page record {key} is damaged: its lifecycle and its place disagree.")
        parent &= ~COLD_GROUP
    return PageRecord(key, parent, record.order, header)


def decode_segment(number: int, value: bytes) -> SegmentRecord:
    """A segment. Raises `Corrupt`."""
    return _decode(_segment_decoder, "segment", number, value)


def decode_head(value: bytes) -> HeadRecord:
    """A head. Raises `Corrupt`, or `NewerFormat` if a newer quire wrote it."""
    try:
        head = _head_decoder.decode(_unseal("head", 0, value))
    except msgspec.MsgspecError as error:
        found = msgspec.msgpack.decode(value[:-_SEAL])
        if isinstance(found, list) and found and isinstance(found[0], int) and found[0] > FORMAT:
            raise _too_new(found[0]) from None
        raise Corrupt(f"head record 0 is damaged: {error}.") from error
    if head.format > FORMAT:
        raise _too_new(head.format)
    return head


def decode_entry(seq: int, value: bytes) -> EntryRecord:
    """A journal entry. Raises `Corrupt`."""
    return _decode(_entry_decoder, "journal", seq, value)


def decode_tally(key: int, value: bytes) -> int:
    """A folder's number of children. Raises `Corrupt`."""
    return _decode(_tally_decoder, "tally", key, value)


def decode_body(key: int, value: bytes) -> str:
    """A text body. Raises `Corrupt`."""
    try:
        return _unseal("body", key, value).decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"body record {key} is damaged: {error}.") from error


def decode_message(number: int, value: bytes) -> MessageRecord:
    """A message. Raises `Corrupt`."""
    return _decode(_message_decoder, "message", number, value)


def decode_note(key: int, value: bytes) -> NoteRecord:
    """A note. Raises `Corrupt`."""
    return _decode(_note_decoder, "note", key, value)


def decode_deferred_change(key: int, value: bytes) -> DeferredChange:
    """An anchor. Raises `Corrupt`."""
    return _decode(_anchor_decoder, "anchor", key, value)


def decode_call(key: int, value: bytes) -> tuple[int, ...]:
    """The pages whose exchanges made a call with an id of this hash, oldest first. Raises `Corrupt`."""
    return _decode(_call_decoder, "call", key, value)


def decode_vector(key: int, value: bytes) -> VectorRecord | VectorState:
    """A page's vector, or where the vectors stand. Raises `Corrupt`."""
    if key == VECTOR_STATE:
        return _decode(_vector_standing_decoder, "vector", key, value)
    return _decode(_vector_decoder, "vector", key, value)


def call_key(call_id: str) -> int:
    """The key under which the exchanges that made a call with this id are found."""
    return crc32(call_id.encode())  # two ids under one key are told apart by the exchanges themselves


def _too_new(found: int) -> NewerFormat:
    return NewerFormat(f"This context has format {found}; this quire reads up to {FORMAT}. Install a newer quire.")


def _decode(decoder: "msgspec.msgpack.Decoder[T]", family: str, key: int, value: bytes) -> T:
    payload = _unseal(family, key, value)
    try:
        return decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{family} record {key} is damaged: {error}.") from error


def _seal(key: int, payload: bytes) -> bytes:
    """The payload with a checksum over it, seeded by its key: a flipped bit is seen, and so is a misplaced record."""
    return payload + crc32(payload, key & 0xFFFFFFFF).to_bytes(_SEAL)


def _unseal(family: str, key: int, value: bytes) -> bytes:
    payload = value[:-_SEAL]
    if crc32(payload, key & 0xFFFFFFFF).to_bytes(_SEAL) != value[-_SEAL:]:
        raise Corrupt(f"{family} record {key} is damaged: its checksum does not match.")
    return payload
