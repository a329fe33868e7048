"""Thinking goes back only to the model that thought it: another one refuses its signature or cannot open it."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from quire.messages import Message, Provider
from quire.models import same_model
from quire.providers.originals import exact, give_back
from quire.providers.plain import refused

_THINKING = ("thinking", "redacted_thinking")


def for_model(messages: Sequence[Message], provider: Provider, model: str | None) -> Sequence[Message]:
    """The messages without the thinking of other models; with no model all of them, as they came.

    Thinking of an unknown model stays. A message that was nothing but thinking is left out. Raises `InvalidValue`.
    """
    if model is not None and (not isinstance(model, str) or not model):
        raise refused("model", model, "the name of a model is text")
    if model is None or not any(_is_foreign(message, provider, model) for message in messages):
        return messages
    kept: list[Message] = []
    anew: set[str] = set()
    for message in messages:
        if _is_foreign(message, provider, model):
            anew.update(call.id for call in message.tool_calls)
            message = _without_thinking(message, provider)
            if not message.says_something:
                continue
        elif message.role == "tool" and message.tool_call_id in anew and provider == "responses":
            message = structs.replace(message, raw=None)
        kept.append(message)
    return kept


def _is_foreign(message: Message, provider: Provider, model: str) -> bool:
    made_by = message.meta.get("model")
    if message.origin != provider or not isinstance(made_by, str) or not isinstance(message.content, list):
        return False
    return any(part.get("type") == "thinking" for part in message.content) and not same_model(made_by, model)


def _without_thinking(message: Message, provider: Provider) -> Message:
    content = [part for part in message.content or () if isinstance(part, dict) and part.get("type") != "thinking"]
    left = structs.replace(message, content=content or None, raw=None)
    if provider == "responses":
        # Items that came with reasoning are refused without it, by their ids: they are written as anybody else's.
        return structs.replace(left, origin="openai")
    if message.raw is None:
        return left
    original: dict[str, Any] = give_back(message)
    blocks = [block for block in original["content"] if block.get("type") not in _THINKING]
    return exact(left, {**original, "content": blocks}, None)
