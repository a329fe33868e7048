"""The pieces a view is made of. A piece is drawn once and kept: the same piece in two views is the same object."""

from collections.abc import Sequence
from typing import Any, Literal

from quire.messages import Message
from quire.pages import PageIndex
from quire.providers import format_messages

Granularity = Literal["whole", "clipped", "line"]
Kind = Literal["system", "preamble", "segment", "folded", "opening", "exchange", "note"]


class Shown:
    """One page that a piece shows: which, how much of it, and the tokens that takes."""

    __slots__ = ("granularity", "index", "key", "tokens")

    def __init__(self, key: int, index: PageIndex, granularity: Granularity, tokens: int) -> None:
        self.key = key
        self.index = index
        self.granularity = granularity
        self.tokens = tokens

    def __repr__(self) -> str:
        return f"<{self.index} {self.granularity}, {self.tokens} tokens>"


class Part:
    """Some messages of a view: where they come from, what they cost, and the pages they show."""

    __slots__ = ("_is_flat", "_openai", "kind", "messages", "pages", "tokens")

    def __init__(self, kind: Kind, messages: Sequence[Message], tokens: int, pages: Sequence[Shown] = ()) -> None:
        self.kind = kind
        self.messages = tuple(messages)
        self.tokens = tokens
        self.pages = tuple(pages)
        self._openai: list[dict[str, Any]] | None = None
        self._is_flat = False

    def __repr__(self) -> str:
        return f"<{self.kind}, {len(self.messages)} messages, {self.tokens} tokens>"

    def openai(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's shape, as fresh values; the shape itself is made once."""
        if self._openai is None:
            self._openai = format_messages(self.messages, "openai")
            self._is_flat = not any(isinstance(inner, list) for value in self._openai for inner in value.values())
        return [value.copy() for value in self._openai] if self._is_flat else [*map(_copied, self._openai)]


def _copied(value: dict[str, Any]) -> dict[str, Any]:
    copy = value.copy()
    calls = copy.get("tool_calls")
    if calls:
        copy["tool_calls"] = [_copied_call(call) for call in calls]
    if isinstance(copy.get("content"), list):
        copy["content"] = _deep(copy["content"])
    return copy


def _copied_call(call: dict[str, Any]) -> dict[str, Any]:
    return {key: inner.copy() if isinstance(inner, dict) else inner for key, inner in call.items()}


def _deep(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _deep(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_deep(inner) for inner in value]
    return value
