"""Codec: records to bytes and back. Every value ends with a seal: a checksum that also covers its key and its place.

So a damaged record and a misplaced one are both found when they are read. Decoding only builds values.
"""

from typing import Any, Final
from zlib import crc32

import msgspec

from quire.core.derived_records import LayoutRecord
from quire.core.records import (
    CHECKPOINTS,
    COLD,
    DEFERRED,
    FORMAT,
    KIND_BITS,
    LAYOUTS,
    MESSAGES,
    PAGE_CODE,
    PINS,
    SEGMENT_CODE,
    SEGMENTS,
    DeferredChange,
    EntryRecord,
    Gone,
    Header,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    PinRecord,
    SegmentRecord,
    Touched,
)
from quire.errors import Corrupt, NewerFormat, OlderFormat
from quire.model.pages import Lifecycle
from quire.storage.contract import CALL, CODES, NOTE, PAGE, TEXT, Record, StoredEntry

Note = NoteRecord | SegmentRecord | PinRecord | LayoutRecord | DeferredChange
_SEAL: Final = 4
_LARGE: Final = 1 << 16
_ENTRY: Final = len(CODES)
_HEAD: Final = len(CODES) + 1
"""Further codes, beside those of the families."""
_KINDS: Final[dict[int, type[Note]]] = {
    0: NoteRecord,
    SEGMENTS: SegmentRecord,
    PINS: PinRecord,
    LAYOUTS: LayoutRecord,
    DEFERRED: DeferredChange,
    CHECKPOINTS: NoteRecord,
}
_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header | Gone).decode
_decode_note = {kind: msgspec.msgpack.Decoder(type_).decode for kind, type_ in _KINDS.items()}
_decode_message = msgspec.msgpack.Decoder(MessageRecord).decode
_decode_call = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_decode_entry = msgspec.msgpack.Decoder(EntryRecord).decode
_decode_head = msgspec.msgpack.Decoder(HeadRecord).decode


def note_kind(key: int) -> int:
    """Return the first key of the notes of the same kind."""
    return key >> KIND_BITS << KIND_BITS


def encode_page(page: PageRecord | Gone, key: int) -> Record:
    """Return the record of a page, or of what is left of it."""
    if isinstance(page, Gone):
        return Record(key, _seal(_encode(page), CODES[PAGE], key))
    parent, rank = page.stored_parent, page.rank
    return Record(key, _seal(_encode(page.header), CODES[PAGE], key, parent, rank), parent, rank)


def encode_note(key: int, note: Note) -> Record:
    """Return the record of a note."""
    return Record(key, _seal(_encode(note), CODES[NOTE], key))


def encode_message(number: int, message: MessageRecord) -> Record:
    """Return the record of a message."""
    key = MESSAGES + number
    return Record(key, _seal(_encode(message), CODES[TEXT], key))


def encode_body(key: int, text: str) -> Record:
    """Return the record of a body."""
    return Record(key, _seal(text.encode(), CODES[TEXT], key))


def encode_call(key: int, pages: tuple[int, ...]) -> Record:
    """Return the record of the pages with a call."""
    return Record(key, _seal(_encode(pages), CODES[CALL], key))


def encode_entry(seq: int, entry: EntryRecord) -> bytes:
    """Return the bytes of a journal entry."""
    return _seal(_encode(entry), _ENTRY, seq)


def encode_head(seq: int, head: HeadRecord) -> bytes:
    """Return the bytes of the head after an entry."""
    return _seal(_encode(head), _HEAD, seq)


def touched_page(key: int, page: PageRecord | Gone | None) -> Touched:
    """Return the previous version of a page for the journal."""
    if page is None:
        return Touched(PAGE_CODE, key)
    record = encode_page(page, key)
    return Touched(PAGE_CODE, key, record.value, record.parent, record.rank)


def decode_page(record: Record) -> PageRecord | Gone:
    """Decode a page, or what is left of a removed one. Raises `Corrupt`."""
    key, parent = record.key, record.parent
    name = f"page record {key}"
    found: Header | Gone = _decode(_decode_header, record.value, name, CODES[PAGE], key, parent, record.rank)
    if isinstance(found, Gone):
        return found
    if parent is not None:
        if bool(parent & COLD) is not (found.lifecycle is Lifecycle.COLD_ARCHIVED):
            raise _damaged(name, "its lifecycle and its place disagree")
        parent &= ~COLD
    return PageRecord(key, parent, record.rank, found)


def decode_note(record: Record) -> Note:
    """Decode a note. Raises `Corrupt`."""
    name = f"note record {record.key}"
    decode = _decode_note.get(note_kind(record.key))
    if decode is None:
        raise _damaged(name, "its kind is unknown")
    found: Note = _decode(decode, record.value, name, CODES[NOTE], record.key)
    return found


def decode_message(record: Record) -> MessageRecord:
    """Decode a message. Raises `Corrupt`."""
    name = f"message record {record.key - MESSAGES}"
    found: MessageRecord = _decode(_decode_message, record.value, name, CODES[TEXT], record.key)
    return found


def decode_body(record: Record) -> str:
    """Decode a body. Raises `Corrupt`."""
    name = f"body record {record.key}"
    payload = _unseal(record.value, name, CODES[TEXT], record.key)
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(name, error) from error


def decode_text(record: Record) -> MessageRecord | str:
    """Decode a message or a body. Raises `Corrupt`."""
    return decode_body(record) if record.key < MESSAGES else decode_message(record)


def decode_call(record: Record) -> tuple[int, ...]:
    """Decode the pages with a call. Raises `Corrupt`."""
    found: tuple[int, ...] = _decode(_decode_call, record.value, f"call record {record.key}", CODES[CALL], record.key)
    return found


def decode_entry(stored: StoredEntry) -> EntryRecord:
    """Decode a journal entry. Raises `Corrupt`."""
    found: EntryRecord = _decode(_decode_entry, stored.entry, f"journal record {stored.seq}", _ENTRY, stored.seq)
    return found


def decode_head(seq: int, value: bytes) -> HeadRecord:
    """Decode a head. Raises `Corrupt`, or `NewerFormat` or `OlderFormat` if another version of quire wrote it."""
    payload = _unseal(value, "the head", _HEAD, seq)
    try:
        head = _decode_head(payload)
    except msgspec.MsgspecError as error:
        found = msgspec.msgpack.decode(payload)
        if isinstance(found, list) and found and isinstance(found[0], int):
            _check_format(found[0])
        raise _damaged("the head", error) from error
    _check_format(head.format)
    return head


def decode_touched(touched: Touched) -> PageRecord | Gone | Note | None:
    """Decode the previous version of a record that an entry changed; None if it did not exist. Raises `Corrupt`."""
    if touched.before is None:
        return None
    if touched.family == PAGE_CODE:
        return decode_page(Record(touched.key, touched.before, touched.parent, touched.rank))
    start = SEGMENTS if touched.family == SEGMENT_CODE else 0
    return decode_note(Record(start + touched.key, touched.before))


def _seal(payload: bytes, code: int, key: int, parent: int | None = None, rank: int = 0) -> bytes:
    """Return a payload with its checksum."""
    return payload + crc32(payload, _seed(code, key, parent, rank)).to_bytes(_SEAL)


def _unseal(value: bytes, name: str, code: int, key: int, parent: int | None = None, rank: int = 0) -> Any:
    """Return the payload of a record. Raises `Corrupt` if the checksum is wrong."""
    data = value if len(value) < _LARGE else memoryview(value)  # slices of bytes are faster if they are small
    payload = data[:-_SEAL]
    if crc32(payload, _seed(code, key, parent, rank)).to_bytes(_SEAL) != data[-_SEAL:]:
        raise _damaged(name, "its checksum does not match")
    return payload


def _seed(code: int, key: int, parent: int | None, rank: int) -> int:
    place = 0 if parent is None else (parent + 1) * 0x9E3779B1 + rank * 0x85EBCA6B
    return (code * 0xC2B2AE35 + key * 0x27D4EB2F + (key >> 32) + place + (place >> 32)) & 0xFFFFFFFF


def _decode(decode: Any, value: bytes, name: str, code: int, key: int, parent: int | None = None, rank: int = 0) -> Any:
    payload = _unseal(value, name, code, key, parent, rank)
    try:
        return decode(payload)
    except msgspec.MsgspecError as error:
        raise _damaged(name, error) from error


def _damaged(name: str, reason: object) -> Corrupt:
    return Corrupt(f"is damaged: {reason}.", record=name)


def _check_format(found: int) -> None:
    """Raise `NewerFormat` or `OlderFormat` if another version of quire wrote a head."""
    if found > FORMAT:
        raise NewerFormat(f"This context has format {found}; this quire reads {FORMAT}. Install a newer quire.")
    if found < FORMAT:
        raise OlderFormat(
            f"quire 0.2 or older wrote this context (format {found}; this quire reads {FORMAT}). Export its messages"
            " with that version, and import them here: docs/storage.md shows how."
        )
