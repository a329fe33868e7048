"""Changes of messages before they are sent.

- `to_sendable`: providers refuse thinking that no text or call follows, and Anthropic refuses thinking without a
  signature. It is what remains of a reply that was cut off. Stores of earlier versions also have parts without their
  required fields and parts that only messages of another role can have; they are written as a mark like `[tool_use]`.
  A `function_call` of OpenAI becomes a tool call, so that it can be answered by its id.
- `drop_foreign_thinking`: thinking is sent back only to the model that produced it. Another model refuses its signature
  or cannot decrypt it.
- `drop_thinking`: thinking that is bound to another beginning of the conversation is not sent back.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quire.model.messages import Message, Part, Provider, has_original
from quire.providers import anthropic, openai, responses
from quire.providers.originals import keep_original, restore_original
from quire.providers.parts import Reader, is_incomplete, is_misplaced, kind_of, part_to_text
from quire.providers.plain_json import invalid_value
from quire.providers.usage import is_same_model

_THINKING = ("thinking", "redacted_thinking", "reasoning")
_READERS: Mapping[Provider, Mapping[str, Reader]] = {
    "openai": openai.READERS,
    "responses": responses.READERS,
    "anthropic": anthropic.READERS,
}
_PROOFS = ("signature", "data", "item")
"""Thinking with one of these fields is complete: Anthropic signed or encrypted it, or it has a reasoning item."""


def drop_foreign_thinking(messages: Sequence[Message], provider: Provider, model: str | None) -> Sequence[Message]:
    """Return the messages without the thinking of other models. Without a model, return them unchanged.

    Thinking of an unknown model is kept. A message that consists only of thinking is left out. Raise `InvalidValue`.
    """
    if model is not None and (not isinstance(model, str) or not model):
        raise invalid_value("model", model, "the name of a model is text")
    return messages if model is None else _drop(messages, lambda message: _is_foreign(message, provider, model))


def drop_thinking(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without thinking. A message that consists only of thinking is left out."""
    return _drop(messages, lambda message: message.has_thinking)


def _drop(messages: Sequence[Message], is_dropped: Callable[[Message], bool]) -> Sequence[Message]:
    """Return the messages; those that `is_dropped` selects are without their thinking."""
    if not any(map(is_dropped, messages)):
        return messages
    kept: list[Message] = []
    rewritten: set[str] = set()
    for message in messages:
        if message.tool_calls:
            rewritten -= {call.id for call in message.tool_calls}
        if is_dropped(message):
            rewritten.update(call.id for call in message.tool_calls)
            message = _without_thinking(message)
            if not message.has_content:
                continue
        elif message.role == "tool" and message.tool_call_id in rewritten and message.origin == "responses":
            message = replace(message, raw=None)
        kept.append(message)
    return kept


def _is_foreign(message: Message, provider: Provider, model: str) -> bool:
    made_by = message.meta.get("model")
    if message.origin != provider or not isinstance(made_by, str):
        return False
    return message.has_thinking and not is_same_model(made_by, model)


def _without_thinking(message: Message) -> Message:
    content = [part for part in message.content or () if isinstance(part, dict) and part.get("type") != "thinking"]
    left = replace(message, content=content or None, raw=None)
    if message.origin == "responses":
        # OpenAI refuses items that came with reasoning if it is missing. Without their ids, they are accepted.
        return replace(left, origin="openai")
    if not has_original(message, "anthropic"):
        return left
    original: dict[str, Any] = restore_original(message)
    blocks = [block for block in original["content"] if block.get("type") not in _THINKING]
    return keep_original(left, {**original, "content": blocks}, None)


def to_sendable(message: Message) -> Message:
    """Return the message without what its provider refuses. It may become empty."""
    if openai.is_legacy(message):  # the result of a tool has no name
        message = replace(message, name=None if message.role == "tool" else message.name, raw=None)
    return _drop_unsendable_thinking(_mark_unsendable_parts(message))


def _mark_unsendable_parts(message: Message) -> Message:
    """Return the message with marks in place of incomplete and misplaced parts, and without misplaced thinking."""
    content = message.content
    if not isinstance(content, list) or not any(_is_unsendable(part, message) for part in content):
        return message
    shown: list[Part] = []
    for part in content:
        if not _is_unsendable(part, message):
            shown.append(part)
        elif not _is_thinking(part):
            shown.append({"type": "text", "text": part_to_text(part)})
    return replace(message, content=shown or None, raw=None)


def _is_unsendable(part: Part, message: Message) -> bool:
    """Return whether the part is misplaced, or an original without its required fields."""
    kind, readers = kind_of(part), _READERS[message.origin]
    if is_misplaced(kind, message.role):
        return True
    return "part" in part and kind in readers and is_incomplete(json.loads(part["part"]), readers)


def _drop_unsendable_thinking(message: Message) -> Message:
    """Return the message without thinking that its provider refuses. It may become empty."""
    content = message.content
    if message.role != "assistant" or not isinstance(content, list) or not any(map(_is_thinking, content)):
        return message
    original = restore_original(message) if message.raw is not None else None
    blocks = original.get("content") if isinstance(original, dict) else original
    if not isinstance(blocks, list):
        original, blocks = None, [*content, *({} for _ in message.tool_calls)]  # the order in which they are written
    kept = _sendable_blocks(blocks)
    if len(kept) == len(blocks):
        return message
    is_kept = iter([any(block is other for other in kept) for block in blocks if _is_thinking(block)])
    parts = [part for part in content if not _is_thinking(part) or next(is_kept, True)]
    left = replace(message, content=parts or None, raw=None)
    if original is None or not kept:
        return left
    return keep_original(left, kept if isinstance(original, list) else {**original, "content": kept}, None)


def _sendable_blocks(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks without unsigned thinking, and without thinking that only blanks follow."""
    kept = [block for block in blocks if not _is_unsigned(block)]
    end = len(kept)
    while end and (_is_thinking(kept[end - 1]) or _is_blank(kept[end - 1])):
        end -= 1
    return kept[:end] if any(map(_is_thinking, kept[end:])) else kept


def _is_blank(block: dict[str, Any]) -> bool:
    """Return whether a block is a text without words, or an item with such texts only."""
    content = block.get("text", block.get("content"))
    if isinstance(content, list):
        return all(isinstance(inner, dict) and _is_blank(inner) for inner in content)
    return isinstance(content, str) and not content.strip()


def _is_unsigned(block: dict[str, Any]) -> bool:
    return _is_thinking(block) and block.get("type") != "reasoning" and not any(map(block.get, _PROOFS))


def _is_thinking(block: dict[str, Any]) -> bool:
    return block.get("type") in _THINKING or block.get("kind") in _THINKING
