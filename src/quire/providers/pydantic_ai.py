"""pydantic-ai: requests and responses as objects, or as the JSON of `ModelMessagesTypeAdapter`.

Each part of a request is one message; a response is one message. Times are those of the parts.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from quire.model.clock import read_time
from quire.model.messages import Message, Part, ToolCall
from quire.providers import parts
from quire.providers.plain_json import Values, dumps, invalid_value, to_plain_json

_FIX = "\n\nFix the errors and try again."
_ACCEPTED = "a message of pydantic-ai has a kind, 'request' or 'response', and parts with a part_kind"


def read(value: object, place: str) -> list[Message]:
    """Return the messages of a request or a response. Parts that only the framework reads have none."""
    return [message for message in read_parts(value, place) if message is not None]


def read_parts(value: object, place: str) -> list[Message | None]:
    """Return the message of each part of a request, None for a part without one; or the message of a response."""
    if not isinstance(value, Mapping):
        adapter: Any = sys.modules["pydantic_ai.messages"].ModelMessagesTypeAdapter
        [value] = adapter.dump_python([value], mode="json")
    data = to_plain_json(value, place)
    listed = list(data["parts"])
    for n, part in enumerate(listed):
        if not isinstance(part, dict) or not isinstance(part.get("part_kind"), str):
            raise invalid_value(f"{place}.parts[{n}]", part, _ACCEPTED)
    time = read_time(data.get("timestamp"))
    if data["kind"] == "response":
        return [_read_response(data, listed, time, place)]
    return [_read_request_part(part, time, f"{place}.parts[{n}]") for n, part in enumerate(listed)]


def _read_request_part(part: Values, time: datetime | None, place: str) -> Message | None:
    content, at = part.get("content"), read_time(part.get("timestamp")) or time
    match part["part_kind"]:
        case "system-prompt":
            return Message(role="system", content=parts.text_field(part, "content", place), at=at)
        case "user-prompt":
            return Message(role="user", content=_read_user_content(content, f"{place}.content"), at=at)
        case "tool-return":
            return Message(role="tool", content=_as_text(content), tool_call_id=_call_id(part, place), at=at)
        case "retry-prompt" if part.get("tool_name") is not None:
            return Message(role="tool", content=_retry_text(content), tool_call_id=_call_id(part, place), at=at)
        case "retry-prompt" | "retry-feedback":
            return Message(role="user", content=_retry_text(content), at=at)
        case "speech":
            return Message(role="user", content=[_read_speech(part)], at=at)
        case _:
            return None


def _call_id(part: Values, place: str) -> str:
    return parts.optional_text(part, "tool_call_id", place) or ""


def _as_text(content: object) -> str:
    return content if isinstance(content, str) else dumps(content)


def _retry_text(content: object) -> str:
    if isinstance(content, str):
        return content + _FIX
    count = len(content) if isinstance(content, list) else 1
    return f"{count} validation error{'s' * (count != 1)}:\n```json\n{dumps(content)}\n```{_FIX}"


def _read_user_content(content: object, place: str) -> str | list[Part]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid_value(place, content, "content is text or a list of parts")
    return [part for piece in content if (part := _read_user_part(piece)) is not None]


def _read_user_part(piece: Any) -> Part | None:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    kind = piece.get("kind") if isinstance(piece, dict) else None
    match kind:
        case "cache-point":
            return None
        case "text-content" | "text" if isinstance(piece.get("content"), str):
            return {"type": "text", "text": piece["content"]}
        case "image-url" if isinstance(piece.get("url"), str):
            return {"type": "image", "url": piece["url"]}
        case "audio-url" | "document-url" | "video-url" if isinstance(piece.get("url"), str):
            return {"type": "file", "url": piece["url"]}
        case "binary" if isinstance(piece.get("data"), str):
            return _read_binary(piece)
        case "uploaded-file" if isinstance(piece.get("file_id"), str):
            return {"type": "file", "file_id": piece["file_id"]}
        case _:
            return {"type": "other", "kind": str(kind), "part": dumps(piece)}


def _read_binary(piece: Values) -> Part:
    media = str(piece.get("media_type") or "application/octet-stream")
    data = piece["data"].translate({ord("-"): "+", ord("_"): "/"})  # pydantic writes the alphabet for URLs
    if media.startswith("image/"):
        return {"type": "image", "data": data, "media_type": media}
    if media.startswith("audio/"):
        return {"type": "audio", "data": data, "format": media.rpartition("/")[2]}
    return {"type": "file", "data": data, "media_type": media}


def _read_speech(part: Values) -> Part:
    transcript = part.get("transcript")
    if isinstance(transcript, str):
        return {"type": "text", "text": transcript}
    return {"type": "other", "kind": "speech", "part": dumps(part)}


def _read_response(data: Values, listed: list[Values], time: datetime | None, place: str) -> Message:
    content = list(_read_response_parts(listed))
    is_text = len(content) == 1 and content[0]["type"] == "text"
    usage = data.get("usage")
    meta: Values = parts.pick_texts(data, model="model_name", id="provider_response_id", stop_reason="finish_reason")
    if isinstance(usage, dict) and (numbers := {key: n for key, n in usage.items() if type(n) is int and n}):
        meta["usage"] = numbers
    return Message(
        role="assistant",
        content=content[0]["text"] if is_text else content or None,
        tool_calls=tuple(
            ToolCall(
                _call_id(part, f"{place}.parts[{n}]"),
                parts.text_field(part, "tool_name", f"{place}.parts[{n}]"),
                parts.arguments_field(part, "args", f"{place}.parts[{n}]"),
            )
            for n, part in enumerate(listed)
            if part["part_kind"] == "tool-call"
        ),
        meta=meta,
        at=time,
    )


def _read_response_parts(listed: list[Values]) -> Iterator[Part]:
    for part in listed:
        match part["part_kind"]:
            case "tool-call":
                pass
            case "text" if isinstance(part.get("content"), str):
                yield {"type": "text", "text": part["content"]}
            case "thinking":
                yield _read_thinking(part)
            case "file" if isinstance(part.get("content"), dict) and isinstance(part["content"].get("data"), str):
                yield _read_binary(part["content"])
            case "speech":
                yield _read_speech(part)
            case kind:
                yield {"type": "other", "kind": kind, "part": dumps(part)}


def _read_thinking(part: Values) -> Part:
    """Return thinking with what its provider needs to accept it again: a signature, or the id of a reasoning item."""
    found: Part = {"type": "thinking", "text": _as_text(part.get("content") or "")}
    if isinstance(part.get("signature"), str) and part["signature"]:
        return {**found, "signature": part["signature"]}
    return {**found, "item": dumps({"type": "reasoning", "id": part["id"]})} if part.get("id") else found
