"""A request to the provider, what the provider remembers between requests, and the problem of a refused request."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from tests.strict_provider.cache import PrefixCache

Body = dict[str, Any]
Api = Literal["anthropic", "chat", "responses"]
_SORTED = msgspec.json.Encoder(order="deterministic")
_PLAIN = msgspec.json.Encoder()
BINDING_BETA = "thinking-binding-controls-2026-08-01"


class Problem(NamedTuple):
    """The reason for a refusal: the error of the API, the rule, and the document that the rule comes from."""

    message: str
    param: str | None = None
    code: str | None = None
    kind: str = "invalid_request_error"
    status: int = 400
    rule: str = ""
    source: str = ""


class Place(NamedTuple):
    """A content block of an Anthropic request, and its place."""

    message: int
    block: int
    role: str
    value: Body

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.block}"


class Request(NamedTuple):
    """A request: its API, its body, the values of the `anthropic-beta` header, and whether it is for count_tokens."""

    api: Api
    body: Body
    betas: frozenset[str] = frozenset()
    counts: bool = False

    @property
    def messages(self) -> list[Body]:
        """The messages or input items."""
        if self.api != "responses":
            found: list[Body] = self.body.get("messages") or []
            return found
        listed = self.body.get("input") or []
        return [{"role": "user", "content": listed}] if isinstance(listed, str) else listed

    def blocks(self) -> Iterator[Place]:
        """Yield all content blocks of an Anthropic request."""
        for number, message in enumerate(self.messages):
            for place, block in enumerate(to_blocks(message.get("content"))):
                yield Place(number, place, message.get("role", ""), block)


@dataclass
class State:
    """The settings of a provider, and what it remembers.

    `limit` is the context window in tokens. `prefill` allows an assistant message at the end. `bind_reasoning` also
    binds the reasoning items of Responses to their prefix; OpenAI does not document such a rule. `clock` is the time
    of the prefix cache in seconds. What a rule in `tolerated` finds is not refused but added to `found`.
    """

    limit: int = 200_000
    prefill: bool = False
    bind_reasoning: bool = False
    clock: Callable[[], float] = time.monotonic
    secret: bytes = b"strict provider"
    tolerated: frozenset[str] = frozenset()
    found: list[Problem] = field(default_factory=list)
    cache: PrefixCache = field(init=False)
    signed: int = 0
    prefixes: dict[str, list[str]] = field(default_factory=dict)
    """The digests of the messages before each signed block, only to name the message that changed."""
    stored: dict[str, Body] = field(default_factory=dict)
    """The output items of Responses with `store`, by id."""
    reasoning_of: dict[str, str] = field(default_factory=dict)
    """The id of the reasoning item directly before an output item, by the id of the output item."""
    threads: dict[str, Body] = field(default_factory=dict)
    """The requests of message threads with their answers, by the id of the answer."""

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.clock)


def encode(value: object, *, is_sorted: bool = True) -> bytes:
    """Return a value as JSON. With sorted keys, equal values give equal bytes."""
    try:
        return (_SORTED if is_sorted else _PLAIN).encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, sort_keys=is_sorted).encode()


def to_blocks(content: object) -> list[Body]:
    """Return the content as blocks. A string is one text block: messages are equal in both forms."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
