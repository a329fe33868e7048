"""Changes to a list of messages before it is written for a provider.

- `make_call_ids_distinct`: some models number their calls from the start in every response. Anthropic requires every id
  once per request, and servers of the Responses API pair calls and outputs across the whole list.
- `drop_foreign_thinking`: thinking is sent back only to the model that produced it. Another model refuses its signature
  or cannot decrypt it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from quire.model.messages import Message, Provider, ToolCall
from quire.providers.originals import keep_original, restore_original
from quire.providers.plain_json import invalid_value
from quire.providers.usage import is_same_model

_THINKING = ("thinking", "redacted_thinking")


def make_call_ids_distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Give a new id to every call with an id that was used before, and to its result.

    The new id depends only on the messages before it, so a list that grows at its end keeps its ids.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_with_new_id(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _with_new_id(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """Return the call with an id that no call before it has. `times` counts the uses of each id."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)


def drop_foreign_thinking(messages: Sequence[Message], provider: Provider, model: str | None) -> Sequence[Message]:
    """Return the messages without the thinking of other models. Without a model, return them unchanged.

    Thinking of an unknown model is kept. A message that consists only of thinking is left out. Raise `InvalidValue`.
    """
    if model is not None and (not isinstance(model, str) or not model):
        raise invalid_value("model", model, "the name of a model is text")
    if model is None or not any(_is_foreign(message, provider, model) for message in messages):
        return messages
    kept: list[Message] = []
    rewritten: set[str] = set()
    for message in messages:
        if _is_foreign(message, provider, model):
            rewritten.update(call.id for call in message.tool_calls)
            message = _without_thinking(message, provider)
            if not message.has_content:
                continue
        elif message.role == "tool" and message.tool_call_id in rewritten and provider == "responses":
            message = replace(message, raw=None)
        kept.append(message)
    return kept


def _is_foreign(message: Message, provider: Provider, model: str) -> bool:
    made_by = message.meta.get("model")
    if message.origin != provider or not isinstance(made_by, str) or not isinstance(message.content, list):
        return False
    return any(part.get("type") == "thinking" for part in message.content) and not is_same_model(made_by, model)


def _without_thinking(message: Message, provider: Provider) -> Message:
    content = [part for part in message.content or () if isinstance(part, dict) and part.get("type") != "thinking"]
    left = replace(message, content=content or None, raw=None)
    if provider == "responses":
        # OpenAI refuses items that came with reasoning if it is missing. Without their ids, they are accepted.
        return replace(left, origin="openai")
    if message.raw is None:
        return left
    original: dict[str, Any] = restore_original(message)
    blocks = [block for block in original["content"] if block.get("type") not in _THINKING]
    return keep_original(left, {**original, "content": blocks}, None)
