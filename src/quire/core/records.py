"""Records: the values that quire stores, and the codec between them and bytes.

The key of a page holds the number of its segment and its own number. The parent of a page is the group of its record,
and its rank is the order of the record, so a folder and the list of its children cannot disagree. A cold page is in the
*cold* group of its old folder: out of the tree, with its place remembered. A removed page leaves a `Gone`: no index is
used twice, an old index can name the new one, and undo can see later changes.

Structs are stored as arrays: a field may be appended with a default, never moved or removed.
"""

from collections.abc import Collection
from typing import Final, Protocol, TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.errors import Corrupt, NewerFormat, OlderFormat
from quire.model.messages import Message, ToolCall
from quire.model.pages import NUMBER_BITS, Form, Lifecycle, Mark, PageIndex, Permission, SegmentType, Visibility
from quire.model.text import spell_id, spell_name
from quire.storage.base import KEY_BITS, Record

FORMAT: Final = 3
"""The format of the records in this version. Contexts of older formats are refused."""
DEFAULT_BUDGET: Final = 128_000
"""The budget of a context for which none was set."""
COLD_GROUP: Final = 1 << KEY_BITS
_SEAL: Final = 4
_LARGE: Final = 1 << 16
_FOREIGN: Final = "it belongs to another context"
_MARKED: Final = 0x5EA1ED
"""Is mixed into the checksum of a record with a mark, to distinguish it from a record without one."""
_NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
_COLD: Final = Lifecycle.COLD_ARCHIVED  # reading a member from its enum takes several times as long as comparing it

T = TypeVar("T")
V = TypeVar("V", covariant=True)


class ContextMark(bytes):
    """Four bytes in every record that identify its context, because all contexts of a store use the same keys.

    `origins` are the contexts that a fork comes from. A fork also reads the records that they wrote before the fork.
    """

    origins: tuple["Origin", ...] = ()

    def at(self, seq: int) -> bytes:
        """Return the mark of the records that entry `seq` wrote: that of an origin, if it was before the fork."""
        return next((origin.mark for origin in self.origins if seq <= origin.seq), self)


NO_MARK: Final = ContextMark()
"""A decoder with this mark accepts the records of all contexts."""


class Decode(Protocol[V]):
    """A function from the key and bytes of a record to its value."""

    def __call__(self, key: int, value: bytes, mark: ContextMark = NO_MARK) -> V: ...


def page_key(segment: int, number: int) -> int:
    """Return the key of a page from its segment's number and its own number."""
    return segment << NUMBER_BITS | number


def segment_number(key: int) -> int:
    """Return the segment's number in a page key."""
    return key >> NUMBER_BITS


def page_number(key: int) -> int:
    """Return the page's own number in a page key; a root has 0."""
    return key & _NUMBER_MASK


class Header(Struct, frozen=True, array_like=True, gc=False, tag=0):
    """Everything about a page except its place and its body.

    It is small because a fork copies it. `author` is an index into the head's actors. `age` is the time in milliseconds
    from `created` to the last change. `born` and `seq` are the journal entries that created and last changed the page.
    An exchange has the `numbers` of its messages and, in `pending`, the ids of calls without a result; it is `closed`
    when they are no longer awaited. A compressed page has its summary in `standin`. A chapter has a `level`.
    `line_tokens` is the size of a folded page's line; `clip` is the size in which an oversized page is shown.
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


class Gone(Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The rest of a page that entry `seq` removed, moved to another segment, or purged."""

    seq: int
    moved_to: int = -1
    purged: bool = False


def page_line(index: PageIndex, header: Header) -> str:
    """Return the line of a hidden page or folded chapter, with its line break, so that token counts add up."""
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
        return self.header.lifecycle is _COLD

    @property
    def group(self) -> int | None:
        """The storage group of this record."""
        if self.header.lifecycle is not _COLD or self.parent is None:
            return self.parent
        return self.parent | COLD_GROUP


class SegmentRecord(Struct, frozen=True, array_like=True, gc=False):
    """A stored segment. `position` is the display order; a removed segment stays and is `gone`."""

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
    """A segment id and the next number for its pages. Its index in the head's list is the segment's number."""

    segment: str
    next: int


class Counts(Struct, frozen=True, array_like=True, gc=False):
    """How many records a context has, so that a missing one is noticed.

    `first_entry` is the key of the first journal entry; that of a fork is not 1. `pages` has the number of page records
    of each segment, with those of removed pages. `notes` has the keys of all notes below the checkpoints.
    """

    first_entry: int = 1
    pages: tuple[int, ...] = ()
    pins: int = 0
    notes: tuple[int, ...] = ()
    checkpoints: int = 0


class Tally(Struct, frozen=True, gc=False):
    """The number of children of a folder, and the sum of their orders (see `sum_orders`).

    It is stored as one number.
    """

    children: int = 0
    orders: int = 0

    @classmethod
    def unpack(cls, stored: int) -> "Tally":
        """Return the tally that is stored as this number."""
        return cls(stored & 0xFFFFFFFF, stored >> 32)

    def pack(self) -> int:
        """Return the number to store."""
        return self.orders << 32 | self.children

    def plus(self, children: int, orders: int) -> "Tally":
        """Return the tally with further children."""
        return Tally(self.children + children, (self.orders + orders) & 0xFFFFFFFF)


class Origin(Struct, frozen=True, array_like=True, gc=False):
    """A context that a fork comes from: its mark, and its last entry and next body key at the time of the fork."""

    mark: bytes
    seq: int
    next_body: int


class HeadRecord(Struct, frozen=True, array_like=True, gc=False):
    """The head of a context. Its counters are never undone, so numbers are never reused.

    `tally` is the packed `Tally` of the folder `tally_of`, the one last changed: appending to one folder writes no
    tally record. The tally record of that folder is updated when another folder takes its place here. `identity`
    distinguishes a context from a later one of the same name. Nothing before the entry `horizon` can be undone.
    `deferred_count` is the number of deferred changes, mostly 0, so that they need not be read. `family` is the
    identity of the context at the origin of all forks. `budget` is the most tokens of a view, 0 if it was never set;
    `fold_budget` is the budget of the last fold. `layouts` is the number of layouts of segments, 0 before the first
    fold, so that they need not be read. `stamp` is a checksum of the context's name and version. `turn` is the highest
    number of a turn that committed here. `lineage` has the contexts that a fork comes from, the oldest first.
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
    budget: int = 0
    layouts: int = 0
    fold_budget: int = 0
    counts: Counts = Counts()
    stamp: int = 0
    turn: int = 0
    lineage: tuple[Origin, ...] = ()

    def belongs_to(self, context: str, version: int) -> bool:
        """Return whether this is the head of a context at a version."""
        return self.stamp == head_stamp(context, version)


def head_stamp(context: str, version: int) -> int:
    """Return the stamp of a head."""
    return crc32(context.encode(), version)


class TailText(Struct, frozen=True, array_like=True, gc=False):
    """A text at the end of a view: a window, recalled pages or the budget line, with the keys of the pages it shows.

    Recalled pages also have their scores and the reasons why they were recalled.
    """

    kind: str
    text: str
    tokens: int
    pages: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    reasons: tuple[str, ...] = ()


class SentView(Struct, frozen=True, array_like=True, gc=False):
    """The view that a reply answers. `tail` has the texts that were new at its end.

    Some models accept the thinking of a reply only after the same messages. So a reply with thinking has more fields:
    `digest` is the digest of all messages that were sent before the reply, without thinking; `frame` is the digest of
    the tools and of options that change what is sent; `previous` is the number of the last message that was sent with
    its thinking, or -1. `behind` is the seq of the reply minus the seq of the view, 0 if the view is not known.
    `tokens` is the size of the view. `reserved` is the number of tokens that it kept free.
    """

    tail: tuple[TailText, ...] = ()
    digest: bytes = b""
    frame: bytes = b""
    previous: int = -1
    behind: int = 0
    tokens: int = 0
    budget: int = 0
    reserved: int = 0

    def without_pages(self, keys: Collection[int]) -> "SentView":
        """Return it without the texts that show one of these pages."""
        return msgspec.structs.replace(self, tail=tuple(text for text in self.tail if not set(text.pages) & set(keys)))


class MessageRecord(Struct, frozen=True, array_like=True, gc=False):
    """A message, its page, and the entry that added it. A reply has the view that it answers.

    `ids` are the ids that a program gave it, so that it is not added twice.
    """

    page: int
    seq: int
    message: Message
    sent: SentView | None = None
    ids: tuple[str, ...] = ()


class Touched(Struct, frozen=True, array_like=True, gc=False):
    """One record that an entry changed, with its previous value (None: it did not exist) and place."""

    family: int
    key: int
    before: bytes | None = None
    group: int | None = None
    order: bytes = b""


class Batch(Struct, frozen=True, array_like=True, gc=False):
    """An open batch: the number of its first message, and the entry that opened it.

    A batch that came with a document also has the pages that it changed before, as they were when it was opened.
    """

    boundary: int
    seq: int
    before: tuple[Touched, ...] = ()


class Billing(Struct, frozen=True, array_like=True, gc=False):
    """A model's billed tokens compared with the counted ones: decaying sums, and the last report."""

    model: str
    reports: int
    all_billed: float
    all_counted: float
    spread: float
    counted: int
    billed: int
    cached: int


class NoteRecord(Struct, frozen=True, array_like=True, gc=False):
    """A fact about the whole context, such as the open batches, the deleted message numbers or a checkpoint's name."""

    seq: int
    batches: tuple[Batch, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    name: str = ""
    used: tuple[int, int] = (0, 0)
    usage: tuple[Billing, ...] = ()
    origins: tuple[bytes, ...] = ()
    tools: tuple[tuple[str, int], ...] = ()


# The keys of notes
BATCHES: Final = 0  # the open batches
GAPS: Final = 1  # the numbers of messages that a cleanup destroyed
KEY: Final = 2  # the key of the context, which marks lines that quire wrote
UNDONE_FOLD: Final = 3  # whether the last fold was undone
USAGE: Final = 4  # the tokens that models bill, compared with the counted tokens
PURGED: Final = 5  # the numbers of purged messages
WINDOW_LINES: Final = 6  # the last windows that a fold shows as lines
LAST_FOLD: Final = 7  # the last fold
ORIGINS: Final = 8  # the identities of the contexts that a fork comes from, the oldest first
LAST_TURN: Final = 9  # the last turn
SENT_TOOLS: Final = 10  # the names and tokens of the tools that were sent with the last answered view
AGENTS: Final = 1 << 16  # from here on: what agents have added, by their number among the actors
CHECKPOINTS: Final = 1 << 32  # from here on: the checkpoints, by seq
RENDERER: Final = "renderer"
"""The actor of folds."""


def origins_of(head: HeadRecord, note: NoteRecord | None) -> tuple[bytes, ...]:
    """Return the identities of the contexts that a fork comes from."""
    return note.origins if note is not None else ()


def is_undone(key: int) -> bool:
    """Return True if undo restores an older version of this note. The context's key and sums are never undone."""
    return key in (BATCHES, GAPS, UNDONE_FOLD) or key >= CHECKPOINTS


class DeferredChange(Struct, frozen=True, array_like=True, gc=False):
    """A page that an agent changed since the last fold; the view shows its old version until the next fold.

    `before` is its old header (None: the page is new); `group` and `order` are its old place. If the agent opened the
    page with entry `seq`, `opened` is its header at that moment. The opened page is shown after the messages with a
    number below `number`. For a folder, `listed` are the pages below it that had deferred changes at that moment.
    """

    seq: int
    number: int
    before: bytes | None = None
    group: int | None = None
    order: bytes = b""
    opened: bytes = b""
    listed: tuple[int, ...] = ()


class EntryRecord(Struct, frozen=True, array_like=True, gc=False):
    """One journal entry; its key is its seq. `commit` identifies the write if its outcome was in doubt.

    `undoes` is the entry that an undo undid, or the first entry of a temporary block that this one ended. `turn` is the
    number of the turn that made it, or 0.
    """

    time: int
    actor: str
    operation: str
    commit: bytes
    touched: tuple[Touched, ...]
    undoes: int = 0
    turn: int = 0


PAGE_CODE: Final = 0
SEGMENT_CODE: Final = 1
NOTE_CODE: Final = 2
"""`Touched.family`: the families that the journal covers."""

_encode = msgspec.msgpack.Encoder().encode
_page_decoder = msgspec.msgpack.Decoder(Header | Gone)
_head_decoder = msgspec.msgpack.Decoder(HeadRecord)


def encode_record(key: int, value: Struct | int | tuple[int, ...], mark: bytes = b"") -> bytes:
    """Encode any record except a body, for storage under this key. `mark` is that of the context."""
    return _seal(_encode(value), key & 0xFFFFFFFF, mark)


def encode_page(key: int, value: Header | Gone, group: int | None, order: bytes, mark: bytes = b"") -> bytes:
    """Encode a page for storage under this key, in this place. The checksum covers the place."""
    return _seal(_encode(value), _place_seed(key, group, order), mark)


def _place_seed(key: int, group: int | None, order: bytes) -> int:
    place = 0 if group is None else (group + 1) * 0x9E3779B1 + (group >> 32)
    return crc32(order, (key + place) & 0xFFFFFFFF)


def encode_body(key: int, text: str, mark: bytes = b"") -> bytes:
    """Encode a text body for storage under this key."""
    return _seal(text.encode(), key & 0xFFFFFFFF, mark)


def mark_of(head: HeadRecord) -> ContextMark:
    """Return the mark of a context."""
    mark = ContextMark(crc32(head.identity).to_bytes(_SEAL) if head.identity else b"")
    mark.origins = head.lineage
    return mark


def _seal(payload: bytes, seed: int, mark: bytes) -> bytes:
    """Return a payload with the mark of its context, if it has one, and a checksum."""
    marked = payload + mark
    return marked + crc32(marked, seed ^ _MARKED if mark else seed).to_bytes(_SEAL)


def _unseal(family: str, key: int, value: bytes, mark: ContextMark, seed: int) -> bytes | memoryview:
    """Return the payload of a record. The checksum depends on the key: it also detects a misplaced record.

    A head has no mark.
    """
    data = value if len(value) < _LARGE else memoryview(value)  # slices of bytes are faster if they are small
    marked, seal = data[:-_SEAL], data[-_SEAL:]
    if crc32(marked, seed ^ _MARKED).to_bytes(_SEAL) == seal and len(marked) >= _SEAL:
        found = marked[-_SEAL:]
        if mark and found != mark and all(found != origin.mark for origin in mark.origins):
            raise _damage_error(family, key, _FOREIGN, ForeignRecord)
        return marked[:-_SEAL]
    if crc32(marked, seed).to_bytes(_SEAL) == seal:
        return marked
    raise _damage_error(family, key, "its checksum does not match")


def _check_age(family: str, key: int, value: bytes, mark: ContextMark, seq: int, body: int = 0) -> None:
    """Raise `Corrupt` if a fork has a record that its origin wrote after the fork."""
    found = value[-2 * _SEAL : -_SEAL]
    if found != mark and any(found == o.mark and (seq > o.seq or body >= o.next_body) for o in mark.origins):
        raise _damage_error(family, key, _FOREIGN, ForeignRecord)


class ForeignRecord(Corrupt):
    """A record that belongs to another context."""


def _damage_error(family: str, key: int, reason: object, kind: type[Corrupt] = Corrupt) -> Corrupt:
    return kind(f"is damaged: {reason}.", record=f"{family} record {key}")


def decoder_of(kind: type[T], family: str) -> "Decode[T]":
    """Return a function from the key and bytes of a record to its value. It raises `Corrupt`.

    With `mark`, a record of another context is refused.
    """
    decoder = msgspec.msgpack.Decoder(kind)

    def decode(key: int, value: bytes, mark: ContextMark = NO_MARK) -> T:
        payload = _unseal(family, key, value, mark, key & 0xFFFFFFFF)
        try:
            found = decoder.decode(payload)
        except msgspec.MsgspecError as error:
            raise _damage_error(family, key, error) from error
        if mark.origins:
            _check_age(family, key, value, mark, key if family == "journal" else getattr(found, "seq", 0))
        return found

    return decode


decode_segment = decoder_of(SegmentRecord, "segment")
decode_entry = decoder_of(EntryRecord, "journal")
decode_tally = decoder_of(int, "tally")
decode_message = decoder_of(MessageRecord, "message")
decode_note = decoder_of(NoteRecord, "note")
decode_deferred_change = decoder_of(DeferredChange, "anchor")
decode_call = decoder_of(tuple[int, ...], "call")


def decode_body(key: int, value: bytes, mark: ContextMark = NO_MARK) -> str:
    """Decode a text body. Raises `Corrupt`."""
    try:
        text = str(_unseal("body", key, value, mark, key & 0xFFFFFFFF), "utf-8")
        if mark.origins:
            _check_age("body", key, value, mark, 0, key)
        return text
    except UnicodeDecodeError as error:
        raise _damage_error("body", key, error) from error


def decode_page(record: Record, mark: ContextMark = NO_MARK) -> PageRecord | Gone:
    """Decode a page or the `Gone` of a removed one. Raises `Corrupt`."""
    key, parent = record.key, record.group
    seed = _place_seed(key, parent, record.order)
    payload = _unseal("page", key, record.value, mark, seed)
    try:
        header = _page_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise _damage_error("page", key, error) from error
    if mark.origins:
        _check_age("page", key, record.value, mark, header.seq)
    if isinstance(header, Gone):
        return header
    if parent is not None:
        if bool(parent & COLD_GROUP) is not (header.lifecycle is Lifecycle.COLD_ARCHIVED):
            raise _damage_error("page", key, "its lifecycle and its place disagree")
        parent &= ~COLD_GROUP
    return PageRecord(key, parent, record.order, header)


def decode_head(value: bytes) -> HeadRecord:
    """Decode a head. Raises `Corrupt`, or `NewerFormat` or `OlderFormat` if another version of quire wrote it."""
    payload = _unseal("head", 0, value, NO_MARK, 0)
    try:
        head = _head_decoder.decode(payload)
    except msgspec.MsgspecError as error:
        found = msgspec.msgpack.decode(payload)
        if isinstance(found, list) and found and isinstance(found[0], int):
            _check_format(found[0])
        raise _damage_error("head", 0, error) from error
    _check_format(head.format)
    return head


def _check_format(found: int) -> None:
    """Raise `NewerFormat` or `OlderFormat` if another version of quire wrote a head."""
    if found > FORMAT:
        raise NewerFormat(f"This context has format {found}; this quire reads {FORMAT}. Install a newer quire.")
    if found < FORMAT:
        raise OlderFormat(
            f"quire 0.2 or older wrote this context (format {found}; this quire reads {FORMAT}). Export its messages"
            " with that version, and import them here: docs/storage.md shows how."
        )


MAX_CALLERS: Final = 64
"""Some models repeat a few call ids; only the newest exchanges are remembered."""


def call_keys(call: ToolCall) -> list[int]:
    """Return the keys by which the exchange with this call is found: its id, and the spellings for a provider."""
    spelled = spell_name(call.name)
    texts = dict.fromkeys((call.id, spell_id(call.id), *([spelled] if spelled != call.name else [])))
    return list(map(call_key, texts))


def call_key(call_id: str) -> int:
    """Return the key under which the exchanges with a call of this id are found."""
    return crc32(call_id.encode())  # if two ids share a key, the exchanges themselves tell which one is meant


def message_id_key(message_id: str) -> int:
    """Return the key under which the exchange with a message of this id is found, among the keys of calls."""
    return 1 << 32 | crc32(message_id.encode())
