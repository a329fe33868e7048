"""Messages of pydantic-ai: converted to messages of quire and back.

Each part of a request is one message of quire; a response is one message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from quire.adapters.context_pool import requires_extra
from quire.adapters.sync_list import ListSync
from quire.model.messages import Message, Part
from quire.providers.pydantic_ai import read, read_parts
from quire.providers.rewrites import drop_thinking
from quire.view.view import View

with requires_extra("pydantic-ai"):
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

SpokenPart = tuple[ModelRequestPart, Message]


def parse(item: ModelMessage) -> list[Message]:
    """Return the messages of a request or a response. Parts that only the framework reads have none."""
    return read(item, "message")


def fingerprint(item: ModelMessage) -> bytes:
    """Return bytes that are equal for items with the same content, also after a restart.

    Signatures are left out: items that older versions stored have none.
    """
    return msgspec.json.encode([(m.role, _unsigned(m.content), m.tool_calls, m.tool_call_id) for m in parse(item)])


def _unsigned(content: str | list[Part] | None) -> str | list[Part] | None:
    if not isinstance(content, list):
        return content
    return [{"type": "thinking", "text": part["text"]} if part["type"] == "thinking" else part for part in content]


def spoken_parts(request: ModelRequest) -> list[SpokenPart]:
    """Return the parts of a request that have a message, with their messages."""
    found = zip(request.parts, read_parts(request, "message"), strict=True)
    return [(part, message) for part, message in found if message is not None]


# A view for the framework


def to_model_messages(sync: ListSync[ModelMessage], view: View, items: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a view without its leading system messages, with the framework's own objects where they are whole."""
    names: dict[str, str] = {}
    pieces: list[ModelResponse | tuple[ModelRequest | None, ModelRequestPart]] = []
    leading = True
    for message, place in sync.find_origins(view):
        leading = leading and message.role == "system" and place is None
        if leading:
            continue
        names |= {call.id: call.name for call in message.tool_calls}
        source = place or sync.find_source(message)
        item = None if source is None else items[source.item]
        if message.role == "assistant":
            whole = place is not None and isinstance(item, ModelResponse)
            pieces.append(item if whole and isinstance(item, ModelResponse) else _rebuilt(message, item))
        elif source is not None and isinstance(item, ModelRequest):
            part = spoken_parts(item)[source.part][0]
            pieces.append((item, part if place is not None else _clip_part(message, part, names)))
        else:
            pieces.append((None, _make_part(message, names)))
    return list(_group_requests(pieces))


def _group_requests(
    pieces: Sequence[ModelResponse | tuple[ModelRequest | None, ModelRequestPart]],
) -> Iterator[ModelMessage]:
    """Yield the parts as requests: the parts of one request together, or that request itself if it is whole."""
    parts: list[ModelRequestPart] = []
    of: ModelRequest | None = None
    for piece in pieces:
        owner = piece[0] if isinstance(piece, tuple) else None
        if parts and (not isinstance(piece, tuple) or owner is not of):
            yield _request(of, parts)
            parts = []
        if isinstance(piece, tuple):
            of, parts = owner, [*parts, piece[1]]
        else:
            yield piece
    if parts:
        yield _request(of, parts)


def _request(of: ModelRequest | None, parts: list[ModelRequestPart]) -> ModelRequest:
    if of is None:
        return ModelRequest(parts=parts)
    own = [part for part, _ in spoken_parts(of)]
    is_whole = len(own) == len(parts) and all(one is other for one, other in zip(own, parts, strict=True))
    return of if is_whole else replace(of, parts=parts)


def _rebuilt(message: Message, original: object) -> ModelResponse:
    """Return a response that is shown without its thinking, with clipped text, or that has no original."""
    if isinstance(original, ModelResponse) and _is_without_thinking(message, parse(original)[0]):
        return replace(original, parts=[_without_id(p) for p in original.parts if not isinstance(p, ThinkingPart)])
    parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text.strip() else []
    parts += [ToolCallPart(call.name, call.arguments, call.id) for call in message.tool_calls]
    return replace(original, parts=parts) if isinstance(original, ModelResponse) else ModelResponse(parts=parts)


def _is_without_thinking(message: Message, original: Message) -> bool:
    return any(
        (message.content, message.tool_calls) == (bare.content, bare.tool_calls) for bare in drop_thinking([original])
    )


def _without_id(part: ModelResponsePart) -> ModelResponsePart:
    """Return a part without its item id: OpenAI refuses an id if the reasoning that came with it is missing."""
    return replace(part, id=None) if isinstance(part, TextPart | ToolCallPart) and part.id else part


def _clip_part(message: Message, part: ModelRequestPart, names: dict[str, str]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
        return replace(part, content=message.text) if isinstance(part, UserPromptPart) else _make_part(message, names)
    rest = [piece for piece in part.content if not isinstance(piece, str | TextContent)]
    return replace(part, content=[message.text, *rest])


def _make_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    match message.role:
        case "system":
            return SystemPromptPart(message.text)
        case "tool":
            call_id = message.tool_call_id or ""
            return ToolReturnPart(tool_name=names.get(call_id, "unknown"), content=message.text, tool_call_id=call_id)
        case _:
            return UserPromptPart(message.text)
