"""LangChain: messages as objects, as the dicts of `messages_to_dict` and `model_dump`, or as `dumpd` writes them.

They are read without the library and without running its loader.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from quire.errors import InvalidValue
from quire.model.clock import read_time
from quire.model.messages import Message, Part, Role, ToolCall
from quire.providers import anthropic, openai, parts, responses
from quire.providers.plain_json import Values, dumps, invalid_value, to_plain_json

_TYPES: Mapping[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "user",
}
CHAT_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
}
CALL_BLOCKS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "input_json_delta"}
)
"""Blocks that repeat `tool_calls`."""
_FIELDS = (
    *("type", "content", "name", "id", "role", "tool_calls", "invalid_tool_calls", "additional_kwargs"),
    *("tool_call_id", "response_metadata", "usage_metadata"),
)
_INNER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "additional_kwargs": ("tool_calls", "function_call"),
    "response_metadata": ("timestamp", "model_name", "finish_reason"),
}
"""The inner fields that are read. Other inner fields may have any value."""
_READERS = {**responses.READERS, **anthropic.READERS, **openai.READERS}


def read(value: object, place: str) -> list[Message]:
    """Return the message of an object or a dict; none for a `RemoveMessage`. Raise `InvalidValue` with the place."""
    kind, data = _normalize(value, place)
    if kind == "remove":
        return []
    role = _TYPES.get(kind)
    if role is None:
        raise invalid_value(f"{place}.type", kind, f"types of LangChain's messages are {', '.join(_TYPES)}, remove")
    if kind == "chat":
        role = CHAT_ROLES.get(str(data.get("role")), "user")
    content = data.get("content")
    if content is not None and not isinstance(content, str | list):
        raise invalid_value(f"{place}.content", content, "content is text or a list of parts")
    return [
        Message(
            role=role,
            content=_read_content(
                "" if content is None else content, _broken_calls(data) if role == "assistant" else []
            ),
            tool_calls=tuple(_calls(data, place)) if role == "assistant" else (),
            tool_call_id=_result_call_id(kind, data, place) if role == "tool" else None,
            name=parts.optional_text(data, "name", place) if role != "tool" else None,
            meta=_meta(data),
            at=_read_time(data),
        )
    ]


def _normalize(value: object, place: str) -> tuple[str, Values]:
    """Return the type of a message and its fields, as plain JSON."""
    is_object = not isinstance(value, Mapping)
    if not isinstance(value, Mapping):
        value = {name: getattr(value, name) for name in _FIELDS if hasattr(value, name)}
    elif "kwargs" in value:  # dumpd
        names = value.get("id")
        name = str(names[-1]) if isinstance(names, list | tuple) and names else ""
        fields = value["kwargs"] if isinstance(value["kwargs"], Mapping) else {}
        value = {"type": name.removesuffix("Chunk").removesuffix("Message").lower(), **fields}
    elif isinstance(value.get("data"), Mapping):
        value = {**value["data"], "type": value["type"]}
    found = {name: value[name] for name in _FIELDS if name in value and not _is_left_out(name, value[name])}
    for name, keys in _INNER_FIELDS.items():
        if isinstance(inner := found.get(name), Mapping):
            found[name] = {key: inner[key] for key in keys if key in inner}
    plain = _to_plain_json(found, place, is_object)
    return str(plain.get("type")).removesuffix("MessageChunk").lower(), plain


def _is_left_out(name: str, value: object) -> bool:
    """Return whether a field is read like a missing one. Most fields of a message object are empty."""
    return name != "content" and (value is None or (type(value) in (dict, list) and not value))


def _to_plain_json(found: Values, place: str, is_object: bool) -> Values:
    """Return the fields as plain JSON. In an object, other values (a date in the arguments of a call) become texts."""
    plain: Values
    try:
        plain = to_plain_json(found, place)
    except InvalidValue:
        if not is_object:
            raise
        try:
            plain = to_plain_json(json.loads(json.dumps(found, default=str)), place)
        except (TypeError, ValueError, RecursionError):
            plain = {}
        if not plain:
            raise
    return plain


def _read_content(content: str | list[Any], more: list[Part]) -> str | list[Part]:
    if isinstance(content, str):
        return [*([{"type": "text", "text": content}] if content.strip() else []), *more] if more else content
    return [*(part for block in content if (part := _read_block(block)) is not None), *more]


def _read_block(block: Any) -> Part | None:
    """Return a block in LangChain's shape or in that of any provider as a part; None for a block of a call."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in CALL_BLOCKS:
        return None
    if kind in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if kind in ("thinking", "redacted_thinking", "reasoning"):
        return read_thinking(block)
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    part = _read_data_block(block) if isinstance(block, dict) else None
    try:
        part = part or (reader(block) if reader else None)
    except parts.MissingField:  # LangChain has more shapes of such blocks
        part = None
    return part or {"type": "other", "kind": str(kind), "part": dumps(block)}


def read_thinking(block: Values) -> Part:
    """Return thinking with what its provider needs to accept it again: signature, redacted data or reasoning item."""
    if isinstance(data := block.get("data"), str):
        return {"type": "thinking", "data": data}
    text = block.get("thinking") or block.get("reasoning") or ""
    if not text and isinstance(summary := block.get("summary"), list):
        text = "\n".join(str(piece.get("text", "")) for piece in summary if isinstance(piece, dict))
    extras = block.get("extras")
    signature = block.get("signature") or (extras.get("signature") if isinstance(extras, dict) else None)
    if isinstance(signature, str):
        return {"type": "thinking", "text": str(text), "signature": signature}
    item = {"item": dumps(block)} if block.get("id") or block.get("encrypted_content") else {}
    return {"type": "thinking", "text": str(text), **item}


def _read_data_block(block: Values) -> Part | None:
    """Return an image, audio or file in one of LangChain's own shapes as a part; None for another block."""
    kind = block.get("type")
    if kind not in ("image", "audio", "file", "text-plain") or "source" in block:
        return None
    source = "data" if block.get("source_type") == "base64" else "base64"
    found = parts.pick_texts(block, url="url", data=source, media_type="mime_type", file_id="file_id", text="text")
    if block.get("source_type") in ("id", "text"):
        found |= parts.pick_texts(block, **({"file_id": "id"} if block["source_type"] == "id" else {"text": "text"}))
    if not found.keys() & {"url", "data", "file_id", "text"}:
        return None
    if kind == "audio":
        media = found.pop("media_type", "audio/wav")
        return {"type": "audio", "format": media.rpartition("/")[2], **found} if "data" in found else None
    return {"type": "image" if kind == "image" else "file", **found}


def _calls(data: Values, place: str) -> Iterator[ToolCall]:
    called = False
    for n, call in enumerate(data.get("tool_calls") or ()):
        called = True
        where = f"{place}.tool_calls[{n}]"
        name = parts.name_field(call, where) if isinstance(call, dict) else None
        if name is None:
            raise invalid_value(where, call, "a call is a dict with name, args and id")
        yield ToolCall(parts.optional_text(call, "id", where) or "", name, parts.arguments_field(call, "args", where))
    for broken in _invalid_calls(data):
        called = True
        if broken.get("id"):
            yield ToolCall(broken["id"], broken.get("name") or "unknown", broken.get("arguments", ""))
    if called:
        return
    extra = data.get("additional_kwargs")
    extra = extra if isinstance(extra, dict) else {}
    yield from openai._calls({key: extra[key] for key in ("tool_calls", "function_call") if extra.get(key)}, place)
    if not extra.get("tool_calls") and isinstance(data.get("content"), list):
        for block in data["content"]:
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("name"), str):
                arguments = parts.arguments_field(block, "input", place)
                yield ToolCall(parts.pick_texts(block, id="id").get("id", ""), block["name"], arguments)


def _broken_calls(data: Values) -> list[Part]:
    """Return the invalid calls without an id as texts: no result can answer them."""
    return [
        {"type": "text", "text": f"[Invalid call of {call.get('name') or 'a tool'}: {call.get('arguments', '')}]"}
        for call in _invalid_calls(data)
        if not call.get("id")
    ]


def _invalid_calls(data: Values) -> list[Part]:
    return [
        parts.pick_texts(call, id="id", name="name", arguments="args") for call in data.get("invalid_tool_calls") or ()
    ]


def _result_call_id(kind: str, data: Values, place: str) -> str:
    if kind == "function":
        return openai._legacy_id(parts.name_field(data, place))
    return parts.optional_text(data, "tool_call_id", place) or ""


def _read_time(data: Values) -> datetime | None:
    """Return the time that `format_session` writes; LangChain itself stores none."""
    source = data.get("response_metadata")
    return read_time(source.get("timestamp")) if isinstance(source, dict) else None


def _meta(data: Values) -> Values:
    """Return the id of the message, its model and its usage, as far as they are known."""
    found: Values = parts.pick_texts(data, id="id")
    source = data.get("response_metadata")
    found |= parts.pick_texts(source, model="model_name", stop_reason="finish_reason")
    usage = data.get("usage_metadata")
    if isinstance(usage, dict):
        found["usage"] = {key: value for key, value in usage.items() if isinstance(value, int)}
    return found
