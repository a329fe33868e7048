"""The values a view is made of: its parts, the pages they show, and the result of a fold.

A part is drawn once and cached: the same part in two views is the same object.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from sys import getsizeof
from typing import Any, Literal, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.msgpack import encode
from msgspec.structs import replace

from quire.core.memory import SizedCache
from quire.core.records import SentView
from quire.model.messages import Message
from quire.model.pages import PageIndex
from quire.providers import format_request
from quire.providers.anthropic import write_message
from quire.providers.legal_form import WrittenItems, write_items

Granularity = Literal["whole", "clipped", "line"]
PartKind = Literal[
    "system", "preamble", "segment", "folded", "opening", "exchange", "note", "opened", "window", "budget", "recalled"
]
_CACHE_BYTES = 1 << 23
_tokens_of = attrgetter("tokens")


class FactAccount(NamedTuple):
    """The number of facts of folded text that a summary keeps, that `find` reaches, and that are lost.

    `unread` counts the characters of very long texts whose facts were not listed one by one; `find` reaches them too.
    """

    kept: int
    reachable: int
    lost: int = 0
    unread: int = 0

    def __add__(self, other: object) -> "FactAccount":
        if not isinstance(other, FactAccount):
            return NotImplemented
        return FactAccount(*(one + more for one, more in zip(self, other, strict=True)))


class FoldResult(NamedTuple):
    """The result of a fold: the exchanges it folded, the chapters it made, the tokens it saved, and the facts."""

    exchanges: int = 0
    chapters: int = 0
    saved: int = 0
    account: FactAccount = FactAccount(0, 0)

    def __add__(self, other: object) -> "FoldResult":
        if not isinstance(other, FoldResult):
            return NotImplemented
        exchanges, chapters, saved, account = other
        return FoldResult(
            self.exchanges + exchanges, self.chapters + chapters, self.saved + saved, self.account + account
        )


PreparedLine = tuple[str, str, FactAccount]
"""The name and the summary of a line, and the account of the facts in the text that it replaces."""
_MOST_PREPARED = 512


class PreparedLines:
    """Lines and summaries of chapters that were written before the fold that needs them.

    Each has a key with all that it depends on, so a wrong guess costs time and changes nothing.
    """

    def __init__(self) -> None:
        self.lines: dict[tuple[int, ...], PreparedLine] = {}
        """The key is the limit, the number of segments, and the pages with their versions and tokens."""
        self.summaries: dict[tuple[int, tuple[tuple[str, str], ...]], str] = {}
        """The key is the limit, and the names and summaries of the lines below the chapter."""

    def trim(self) -> None:
        """Keep only the newest lines and summaries, 512 of each."""
        kept: tuple[dict[Any, Any], ...] = (self.lines, self.summaries)
        for found in kept:
            while len(found) > _MOST_PREPARED:
                del found[next(iter(found))]


class ShownPage(Struct, frozen=True, gc=False):
    """A page that a part shows: how much of it, the tokens it takes, and the reason if a rule put it there."""

    key: int
    index: PageIndex
    granularity: Granularity
    tokens: int
    reason: str = ""

    def __repr__(self) -> str:
        return f"<{self.index} {self.granularity}, {self.tokens} tokens>"


class RecalledPage(ShownPage, frozen=True):
    """A page that was recalled for a user message: the folders above it, the root first, and the time of its text.

    `score` is relative to the best page for the message (1.0); 0 if it is not known. `is_new` is False if the page was
    recalled for an earlier message and stays until the next fold.
    """

    path: tuple[PageIndex, ...] = ()
    created_at: datetime | None = None
    score: float = 0.0
    is_new: bool = True

    __repr__ = ShownPage.__repr__


class Reply(NamedTuple):
    """A reply of a model: its number, the entry that added it, and the view that it answers.

    `whole` is its part with thinking; None if its thinking is never sent back.
    """

    number: int
    seq: int
    sent: SentView
    whole: "ViewPart | None"


class Request(NamedTuple):
    """What a reply to a view is stored with: the context, the number of messages, and what its thinking is bound to.

    `frame` is the digest of what is sent beside the messages. `newest` is the number of the newest message with its
    thinking in the view. `digest` is the digest of the view without its tail, None if it is not computed yet. `tools`
    are the tools that are sent with the view, with their tokens; `reserved` are the tokens that it keeps free.
    """

    identity: bytes
    messages: int
    frame: bytes
    newest: int
    digest: bytes | None
    tools: tuple[tuple[str, int], ...]
    reserved: int


class CountedTools(NamedTuple):
    """Tool schemas with their digest, their tokens, and the name and the tokens of each."""

    tools: Sequence[Any]
    digest: bytes
    tokens: int
    sizes: tuple[tuple[str, int], ...]


class ViewPart:
    """Some messages of a view: their kind, their tokens, and the pages they show.

    `reply` is the reply of a model in the part of an exchange. That part has no thinking. The part of the same exchange
    with thinking refers to it as `bare`.
    """

    __slots__ = (
        "_anthropic",
        "_digest",
        "_openai",
        "_responses",
        "bare",
        "kind",
        "messages",
        "pages",
        "reply",
        "tokens",
    )

    def __init__(
        self, kind: PartKind, messages: Sequence[Message], tokens: int, pages: Sequence[ShownPage] = ()
    ) -> None:
        self.kind = kind
        self.messages = tuple(messages)
        self.tokens = tokens
        self.pages = tuple(pages)
        self.reply: Reply | None = None
        self.bare: ViewPart | None = None
        self._digest = b""
        self._openai: list[dict[str, Any]] | None = None
        self._responses: WrittenItems | None = None
        self._anthropic: list[dict[str, Any] | None] | None = None

    def is_same(self, other: "ViewPart") -> bool:
        """Return whether both show the same pages in the same words, with the same count of tokens."""
        return self.tokens == other.tokens and self.messages == other.messages and self.pages == other.pages

    def has_same_text(self, other: "ViewPart") -> bool:
        """Return whether both are sent as the same words, whatever the indices of their messages."""
        if self is other:
            return True
        one, two = ([replace(message, index=-1) for message in part.messages] for part in (self, other))
        return one == two

    def __repr__(self) -> str:
        return f"<{self.kind}, {len(self.messages)} messages, {self.tokens} tokens>"

    def digest(self) -> bytes:
        """Return the digest of the messages as they are sent without thinking."""
        if not self._digest:
            from hashlib import blake2b  # late: only thinking needs it

            plain = [replace(message, index=-1, meta={}) for message in (self.bare or self).messages]
            self._digest = blake2b(encode(plain), digest_size=16).digest()
        return self._digest

    def openai(self) -> list[dict[str, Any]]:
        """Return the messages in OpenAI's form. The list is cached: a caller must copy it before handing it out."""
        if self._openai is None:
            self._openai = format_request(self.messages, "openai")
        return self._openai

    def responses(self) -> WrittenItems:
        """Return the items for the Responses API. They are cached: a caller must copy them before handing them out."""
        if self._responses is None:
            self._responses = write_items(self.messages)
        return self._responses

    def anthropic(self) -> list[dict[str, Any] | None]:
        """Return each message in Anthropic's form, not joined to others; None for one without content. It is cached."""
        if self._anthropic is None:
            self._anthropic = list(map(write_message, self.messages))
        return self._anthropic


class OpenAIForm:
    """The messages of the last view in OpenAI's form: the next view mostly adds a part, or replaces the last one."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ViewPart, ...], list[dict[str, Any]]] = ((), [])

    def write(self, parts: tuple[ViewPart, ...]) -> list[dict[str, Any]]:
        """Return the messages of parts, as new values."""
        known, values = self._last  # never changed, only replaced: views of several threads share this
        if known and parts[: len(known)] != known:
            values = values[: len(values) - len(known[-1].openai())]
            known = known[:-1]
            if parts[: len(known)] != known:
                known, values = (), []
        if len(parts) > len(known):
            values = [*values, *(value for part in parts[len(known) :] for value in part.openai())]
        self._last = parts, values
        fresh: list[dict[str, Any]] = to_builtins(values)
        return fresh


def total_tokens(parts: Iterable[ViewPart]) -> int:
    """Return the sum of the tokens of `parts`."""
    return sum(map(_tokens_of, parts))


def tokens_by_kind(parts: Iterable[ViewPart]) -> dict[str, int]:
    """Return the tokens of each kind of part."""
    tokens: dict[str, int] = {}
    for part in parts:
        tokens[part.kind] = tokens.get(part.kind, 0) + part.tokens
    return tokens


class TokenCache:
    """Counts the tokens of texts and caches the latest counts. Texts in `known` are never counted."""

    def __init__(self, count: Callable[[str], int], known: Mapping[str, int] | None = None) -> None:
        self._count = count
        self._known = dict(known or {})
        self._counted: SizedCache[str, int] = SizedCache(_CACHE_BYTES)

    def count(self, text: str) -> int:
        """Return the tokens of `text`."""
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._counted.get(text)
        if tokens is None:
            tokens = self._count(text)
            self._counted.put(text, tokens, getsizeof(text))
        return tokens
