"""Signatures of thinking: each block is bound to everything before it, and to the thinking block before it.

The signature has digests of the system prompt, of the tools and of the messages before the block, the identity of the
thinking block before it, and the model. So a block can be checked without a record of the request that made it. A
message that only has thinking does not count, and neither do `cache_control` markers. A message in another form
(string or one text block) is the same message; two messages instead of one are a change.
Source: https://platform.claude.com/docs/en/build-with-claude/preserved-thinking#what-counts-as-an-edit
"""

import base64
import hmac
import json
from hashlib import sha256
from typing import Any, NamedTuple

from tests.strict_provider.requests import Body, Request, State, encode, to_blocks

THINKING = ("thinking", "redacted_thinking", "reasoning")
_MARK = "gAAA"
"""The start of OpenAI's encrypted contents. Here, the signatures of Anthropic have it too."""


class Seal(NamedTuple):
    """The contents of a signature."""

    number: int
    model: str
    system: str
    tools: str
    messages: str
    text: str
    previous: str
    identity: str = ""


class Found(NamedTuple):
    """A thinking block of a request: its place, the block, and the chain of the messages before it."""

    path: str
    block: Body
    chain: "Chain"


class Chain:
    """The digest of the messages up to a place, and one digest for each of them."""

    def __init__(self, digests: tuple[str, ...] = (), role: str = "", blocks: bytes = b"") -> None:
        self._digests, self._role, self._blocks = digests, role, blocks

    def begin(self, role: str) -> "Chain":
        """Return the chain at the start of a message."""
        return Chain(self.digests, role)

    def add(self, block: Body) -> "Chain":
        """Return the chain after a block of the message."""
        return Chain(self._digests, self._role, self._blocks + _canonical(block))

    @property
    def digests(self) -> tuple[str, ...]:
        return (*self._digests, _digest(self._role.encode() + self._blocks)) if self._blocks else self._digests

    @property
    def digest(self) -> str:
        return _digest("".join(self.digests).encode())


def find_thinking(request: Request) -> tuple[list[Found], Chain]:
    """Return the thinking blocks of a request with their prefixes, and the prefix of the answer."""
    found: list[Found] = []
    chain = Chain()
    for number, message in enumerate(request.messages):
        if request.api == "responses":
            chain = chain.begin("item")
            blocks, path = [message], f"input[{number}]"
        else:
            chain = chain.begin(message.get("role", ""))
            blocks, path = to_blocks(message.get("content")), f"messages.{number}.content"
        for place, block in enumerate(blocks):
            if block.get("type") in THINKING:
                found.append(Found(path if request.api == "responses" else f"{path}.{place}", block, chain))
            else:
                chain = chain.add(block)
    return found, chain


class Signer:
    """Signs the thinking of one answer."""

    def __init__(self, request: Request, state: State, previous: str) -> None:
        self._state = state
        self._body = request.body
        _, chain = find_thinking(request)
        self._chain = chain.begin("item" if request.api == "responses" else "assistant")
        self._previous = previous

    def sign(self, text: str) -> str:
        """Return the signature of the next thinking block."""
        state = self._state
        state.signed += 1
        seal = Seal(
            state.signed,
            self._body.get("model", ""),
            digest_system(self._body),
            digest_tools(self._body),
            self._chain.digest,
            _digest(text.encode()),
            self._previous,
        )
        self._previous = _identify(seal, state.secret)
        state.prefixes[self._previous] = list(self._chain.digests)
        return _write(seal._replace(identity=self._previous))


def read_seal(signature: object, state: State) -> Seal | None:
    """Return the contents of a signature; None if it was not made here or was changed."""
    try:
        fields, mac = json.loads(base64.urlsafe_b64decode(str(signature).removeprefix(_MARK)))
        seal = Seal(*fields)
    except (ValueError, TypeError):
        return None
    identity = _identify(seal, state.secret)
    return seal._replace(identity=identity) if mac == identity else None


def digest_system(body: Body) -> str:
    prompt = body.get("system") or body.get("instructions")
    return _digest(b"".join(_canonical(block) for block in to_blocks(prompt))) if prompt else ""


def digest_tools(body: Body) -> str:
    return _digest(b"".join(sorted(map(_canonical, body.get("tools") or ())))) if body.get("tools") else ""


def digest_text(block: Body) -> str:
    """Return the digest of the visible text of a thinking block; a redacted block has none."""
    return _digest(block.get("thinking", "").encode())


def _write(seal: Seal) -> str:
    signed = json.dumps([seal[:-1], seal.identity])
    return _MARK + base64.urlsafe_b64encode(signed.encode()).decode()


def _identify(seal: Seal, secret: bytes) -> str:
    return hmac.new(secret, json.dumps(seal[:-1]).encode(), sha256).hexdigest()[:16]


def _canonical(value: Any) -> bytes:
    return encode(_drop_marks(value))


def _drop_marks(value: Body) -> Body:
    """Return a block or item without the fields that do not count as a change."""
    is_item = "role" in value or "call_id" in value
    ignored = ("id", "status") if is_item else ("cache_control",)
    kept = {key: inner for key, inner in value.items() if key not in ignored}
    if value.get("type") == "tool_result":
        kept["content"] = [_drop_marks(block) for block in to_blocks(kept.get("content"))]
    return kept


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
