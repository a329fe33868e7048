"""What a fold did.

The pieces a view is made of. A piece is drawn once and kept: the same piece in two views is the same object.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from quire.model.messages import Message
from quire.model.pages import PageIndex
from quire.providers import format_messages


class Account(NamedTuple):
    """Where the facts of folded text are: in the summary, or on a page that a query of the fact finds.

    `unread` are the characters of very long texts whose facts were not listed one by one; find reaches them too.
    """

    kept: int
    reachable: int
    lost: int = 0
    unread: int = 0

    def __add__(self, other: object) -> "Account":
        if not isinstance(other, Account):
            return NotImplemented
        return Account(*(one + more for one, more in zip(self, other, strict=True)))


class Folded(NamedTuple):
    """What a fold did: how many exchanges it folded into how many new chapters, what that saved, and the facts."""

    exchanges: int = 0
    chapters: int = 0
    saved: int = 0
    account: Account = Account(0, 0)

    def __add__(self, other: object) -> "Folded":
        if not isinstance(other, Folded):
            return NotImplemented
        pairs = zip(self[:3], other[:3], strict=True)
        exchanges, chapters, saved = (one + more for one, more in pairs)
        return Folded(exchanges, chapters, saved, self.account + other.account)


Granularity = Literal["whole", "clipped", "line"]
Kind = Literal[
    "system", "preamble", "segment", "folded", "opening", "exchange", "note", "opened", "window", "budget", "recalled"
]


class Shown:
    """One page that a piece shows: which, how much of it, the tokens that takes, and why if that is not plain."""

    __slots__ = ("granularity", "index", "key", "reason", "tokens")

    def __init__(self, key: int, index: PageIndex, granularity: Granularity, tokens: int, reason: str = "") -> None:
        self.key = key
        self.index = index
        self.granularity = granularity
        self.tokens = tokens
        self.reason = reason

    def __repr__(self) -> str:
        return f"<{self.index} {self.granularity}, {self.tokens} tokens>"

    def is_same(self, other: "Shown") -> bool:
        """Whether the same page is shown as much."""
        return (self.key, self.granularity, self.tokens) == (other.key, other.granularity, other.tokens)


class Part:
    """Some messages of a view: where they come from, what they cost, and the pages they show."""

    __slots__ = ("_openai", "kind", "messages", "pages", "tokens")

    def __init__(self, kind: Kind, messages: Sequence[Message], tokens: int, pages: Sequence[Shown] = ()) -> None:
        self.kind = kind
        self.messages = tuple(messages)
        self.tokens = tokens
        self.pages = tuple(pages)
        self._openai: list[dict[str, Any]] | None = None

    def is_same(self, other: "Part") -> bool:
        """Whether both show the same pages in the same words."""
        if self.messages != other.messages or len(self.pages) != len(other.pages):
            return False
        return all(one.is_same(two) for one, two in zip(self.pages, other.pages, strict=True))

    def says_the_same(self, other: "Part") -> bool:
        """Whether both are sent as the same words, whatever indices the messages have."""
        mine, theirs = ([replace(message, index=-1) for message in part.messages] for part in (self, other))
        return mine == theirs

    def __repr__(self) -> str:
        return f"<{self.kind}, {len(self.messages)} messages, {self.tokens} tokens>"

    def openai(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's shape, made once: whoever hands them out copies them."""
        if self._openai is None:
            self._openai = format_messages(self.messages, "openai")
        return self._openai


def total_tokens(parts: Iterable[Part]) -> int:
    """What pieces cost together."""
    return sum(map(_TOKENS, parts))


_TOKENS: Callable[[Part], int] = attrgetter("tokens")
