"""Records: the values that quire stores. `codec` turns them into bytes and back.

The key of a page holds the number of its segment and its own number. The parent of a page and its rank are fields of
its record in the storage, so a folder and the list of its children cannot disagree. A cold page has the *cold* parent
of its old folder: out of the tree, with its place remembered. A removed page leaves a `Gone`: no index is used twice,
an old index can name the new one, and undo can see later changes.

Structs are stored as arrays: a field may be appended with a default, never moved or removed.
"""

from collections.abc import Collection
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.model.messages import Message, ToolCall
from quire.model.pages import NUMBER_BITS, Form, Lifecycle, Mark, PageIndex, Permission, SegmentType, Visibility
from quire.model.text import spell_id, spell_name

FORMAT: Final = 4
"""The format of the records in this version. Contexts of older formats are refused."""
DEFAULT_BUDGET: Final = 128_000
"""The budget of a context for which none was set."""
KEY_BITS: Final = 38
"""The bits of the key of a page."""
COLD: Final = 1 << KEY_BITS
"""Is added to the key of a folder: the parent of the pages that were archived cold from it."""
MESSAGES: Final = 1 << KEY_BITS
"""The first key of messages among the texts. The bodies of pages have the keys before it."""
_NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
_COLD: Final = Lifecycle.COLD_ARCHIVED  # reading a member from its enum takes several times as long as comparing it


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
    rank: int
    header: Header

    @property
    def is_root(self) -> bool:
        return self.key & _NUMBER_MASK == 0

    @property
    def is_below_root(self) -> bool:
        return self.parent is not None and self.parent & _NUMBER_MASK == 0

    @property
    def is_cold(self) -> bool:
        return self.header.lifecycle is _COLD

    @property
    def stored_parent(self) -> int | None:
        """The parent of this record in the storage."""
        if self.header.lifecycle is not _COLD or self.parent is None:
            return self.parent
        return self.parent | COLD


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


class Digest(Struct, frozen=True, array_like=True, gc=False):
    """The number of records of a family, and a sum over their keys and seqs: a missing or outdated one is noticed."""

    count: int = 0
    sum: int = 0

    def plus(self, count: int, change: int) -> "Digest":
        """Return the digest with so many further records, which change the sum."""
        return Digest(self.count + count, (self.sum + change) & _SUM_MASK)


_SUM_MASK: Final = (1 << 63) - 1


def stamp(key: int, seq: int = 0) -> int:
    """Return what a record adds to the sum of its family. Texts and calls have no seq."""
    return (key + 1) * 0x9E3779B97F4A7C15 ^ seq * 0xC2B2AE3D27D4EB4F


class HeadRecord(Struct, frozen=True, array_like=True, gc=False):
    """The head of a context. Its counters are never undone, so numbers are never reused.

    `identity` distinguishes a context from a later one of the same name; `origin` has those of the contexts that a
    fork comes from, the oldest first. `digests` are those of pages, texts, notes and calls. The journal begins with the
    entry `first`; that of a fork is not 1. Nothing before the entry `horizon` can be undone. `budget` is the most
    tokens of a view, 0 if it was never set; `fold_budget` is the budget of the last fold. `turn` is the highest number
    of a turn that committed here.
    """

    format: int = FORMAT
    identity: bytes = b""
    origin: tuple[bytes, ...] = ()
    created: int = 0
    updated: int = 0
    counters: tuple[Counter, ...] = ()
    next_body: int = 1
    next_message: int = 0
    actors: tuple[str, ...] = ()
    digests: tuple[Digest, Digest, Digest, Digest] = (Digest(), Digest(), Digest(), Digest())
    first: int = 1
    horizon: int = 0
    budget: int = 0
    fold_budget: int = 0
    turn: int = 0


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
    parent: int | None = None
    rank: int = 0


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
    tools: tuple[tuple[str, int], ...] = ()


class PinRecord(Struct, frozen=True, array_like=True, gc=False):
    """A page that is pinned, since entry `seq`."""

    seq: int


# The keys of notes
BATCHES: Final = 0  # the open batches
GAPS: Final = 1  # the numbers of messages that a cleanup destroyed
KEY: Final = 2  # the key of the context, which marks lines that quire wrote
UNDONE_FOLD: Final = 3  # whether the last fold was undone
USAGE: Final = 4  # the tokens that models bill, compared with the counted tokens
PURGED: Final = 5  # the numbers of purged messages
WINDOW_LINES: Final = 6  # the last windows that a fold shows as lines
LAST_FOLD: Final = 7  # the last fold
LAST_TURN: Final = 9  # the last turn
SENT_TOOLS: Final = 10  # the names and tokens of the tools that were sent with the last answered view
AGENTS: Final = 1 << 16  # from here on: what agents have added, by their number among the actors
KIND_BITS: Final = 40
"""The bits of a note's key below its kind."""
SEGMENTS: Final = 1 << KIND_BITS  # from here on: the segments, by number
PINS: Final = 2 << KIND_BITS  # from here on: the pinned pages, by key
LAYOUTS: Final = 3 << KIND_BITS  # from here on: the layouts of segments, by number
DEFERRED: Final = 4 << KIND_BITS  # from here on: the deferred changes, by page
CHECKPOINTS: Final = 5 << KIND_BITS  # from here on: the checkpoints, by seq; a fork has none of them
RENDERER: Final = "renderer"
"""The actor of folds."""


def is_undone(key: int) -> bool:
    """Return True if undo restores an older version of this note. The context's key and sums are never undone."""
    return key in (BATCHES, GAPS, UNDONE_FOLD) or key >= CHECKPOINTS


class DeferredChange(Struct, frozen=True, array_like=True, gc=False):
    """A page that an agent changed since the last fold; the view shows its old version until the next fold.

    `before` is its old header (None: the page is new); `parent` and `rank` are its old place. If the agent opened the
    page with entry `seq`, `opened` is its header at that moment. The opened page is shown after the messages with a
    number below `number`. For a folder, `listed` are the pages below it that had deferred changes at that moment.
    """

    seq: int
    number: int
    before: bytes | None = None
    parent: int | None = None
    rank: int = 0
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
"""`Touched.family`: what the journal covers."""

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
