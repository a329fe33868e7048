"""Messages of LangChain: converted to messages of quire and back, or stored without loss."""

import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from quire.adapters.context_pool import requires_extra
from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message, Part, Role, ToolCall
from quire.providers import format_messages
from quire.providers.langchain import CALL_BLOCKS, CHAT_ROLES, read_thinking

with requires_extra("langchain"):
    from langchain_core.load import dumpd, load
    from langchain_core.load.serializable import Serializable
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
        convert_to_messages,
        messages_from_dict,
    )


def parse(message: BaseMessage) -> list[Message]:
    """Return the message as a list of one; an empty list for a `RemoveMessage`."""
    if isinstance(message, RemoveMessage):
        return []
    role = _role(message)
    return [
        Message(
            role=role,
            content=_content(message.content, _broken_calls(message)),
            tool_calls=tuple(_calls(message)) if isinstance(message, AIMessage) else (),
            tool_call_id=_call_id_of(message) if role == "tool" else None,
            name=message.name if role != "tool" else None,
        )
    ]


def fingerprint(message: BaseMessage) -> bytes:
    """Return bytes that are equal for messages with the same content. Ids are left out: a graph sets them later."""
    role, content = _role(message), message.content
    calls = [message.tool_calls, message.invalid_tool_calls] if isinstance(message, AIMessage) else []
    answered = _call_id_of(message) if role == "tool" else None
    return msgspec.json.encode([role, message.name, content, calls, answered], enc_hook=repr)


def to_langchain(message: Message, original: BaseMessage | None = None) -> BaseMessage | None:
    """Return a message of a view for LangChain: its original with the shown content, or a new one. None if empty."""
    written = format_messages([message], "openai")
    if not written:
        return None
    [fresh] = convert_to_messages(written)
    if original is None or [call.id for call in message.tool_calls] != [call.id for call in _calls(original)]:
        return fresh
    return original.model_copy(update={"content": fresh.content})


def _role(message: BaseMessage) -> Role:
    match message:
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case SystemMessage():
            return "system"
        case ToolMessage() | FunctionMessage():
            return "tool"
        case ChatMessage():
            return CHAT_ROLES.get(message.role, "user")
        case _:
            return "user"


def _call_id_of(message: BaseMessage) -> str:
    return message.tool_call_id if isinstance(message, ToolMessage) else f"function_{message.name}"


def _calls(message: BaseMessage) -> Iterator[ToolCall]:
    if not isinstance(message, AIMessage):
        return
    for n, call in enumerate(message.tool_calls):
        try:
            arguments = json.dumps(call["args"], ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"The arguments of {call['name']!r} cannot be written as JSON: {error}.") from None
        yield ToolCall(call["id"] or f"call_{n}", call["name"], arguments)
    for broken in message.invalid_tool_calls:
        if broken["id"]:
            yield ToolCall(broken["id"], broken["name"] or "unknown", broken["args"] or "")
    legacy = message.additional_kwargs.get("function_call")
    if isinstance(legacy, dict) and isinstance(legacy.get("name"), str):
        yield ToolCall(f"function_{legacy['name']}", legacy["name"], str(legacy.get("arguments") or "{}"))


def _broken_calls(message: BaseMessage) -> list[Part]:
    """Return the invalid calls without an id as texts: no result can answer them."""
    broken = message.invalid_tool_calls if isinstance(message, AIMessage) else []
    texts = (f"[Invalid call of {call['name'] or 'a tool'}: {call['args'] or ''}]" for call in broken if not call["id"])
    return [{"type": "text", "text": text} for text in texts]


def with_ids(message: BaseMessage) -> BaseMessage:
    """Return a message for a model, in which every call has the id that its result has."""
    if not isinstance(message, AIMessage) or all(
        call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]
    ):
        return message
    calls = [{**call, "id": call["id"] or f"call_{n}"} for n, call in enumerate(message.tool_calls)]
    broken = [call for call in message.invalid_tool_calls if call["id"]]
    [parsed] = parse(message)
    content = message.content if len(broken) == len(message.invalid_tool_calls) else parsed.text
    return message.model_copy(update={"content": content, "tool_calls": calls, "invalid_tool_calls": broken})


def _content(content: str | list[str | dict[Any, Any]], more: list[Part]) -> str | list[Part]:
    if isinstance(content, str):
        return [*([{"type": "text", "text": content}] if content.strip() else []), *more] if more else content
    return [*(part for block in content if (part := _part(block)) is not None), *more]


def _part(block: str | dict[Any, Any]) -> Part | None:
    """Return a block in any provider's shape, or in LangChain's, as a part; None for a block of a call."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type")
    if kind in CALL_BLOCKS:
        return None
    if isinstance(text := block.get("text"), str) and kind in ("text", "output_text", "input_text"):
        return {"type": "text", "text": text}
    if kind in ("thinking", "redacted_thinking", "reasoning"):
        return read_thinking(json.loads(json.dumps(block, default=str)))
    return _media(block) or {"type": "other", "kind": str(kind), "part": json.dumps(block, default=str)}


def _media(block: dict[Any, Any]) -> Part | None:
    """Return an image, audio or file part; None for another block."""
    for standard in HumanMessage(content=[block]).content_blocks:
        if read := _MEDIA.get(standard["type"]):
            return read(standard)
    return None


def _image(block: Mapping[str, Any]) -> Part | None:
    found = _texts(block, url="url", data="base64", media_type="mime_type", file_id="file_id")
    return {"type": "image", **found} if found.keys() & {"url", "data", "file_id"} else None


def _audio(block: Mapping[str, Any]) -> Part | None:
    found = _texts(block, data="base64")
    kind = str(block.get("mime_type") or "audio/wav").rpartition("/")[2]
    return {"type": "audio", "format": kind, **found} if found else None


def _file(block: Mapping[str, Any]) -> Part | None:
    found = _texts(block, url="url", data="base64", media_type="mime_type", file_id="file_id", text="text")
    return {"type": "file", **found} if found.keys() & {"url", "data", "file_id", "text"} else None


def _texts(block: Mapping[str, Any], **fields: str) -> Part:
    return {name: block[key] for name, key in fields.items() if isinstance(block.get(key), str)}


_MEDIA: Mapping[str, Callable[[Mapping[str, Any]], Part | None]] = {
    "image": _image,
    "audio": _audio,
    "file": _file,
    "text-plain": _file,
}


_META = "langchain"
_TAG = "$quire"


def to_stored(message: BaseMessage) -> list[Message]:
    """Return the message with its original as JSON in `meta`. Raise `InvalidValue` for other than known values."""
    fields = {name: getattr(message, name) for name in (*type(message).model_fields, *(message.model_extra or ()))}
    if isinstance(message.content, str):
        del fields["content"]  # the message stores it
    data = {name: _to_json(value, f"{type(message).__name__}.{name}") for name, value in fields.items()}
    written = json.dumps({"type": message.type, "data": data}, ensure_ascii=False)
    return [replace(parsed, meta={_META: written}) for parsed in parse(message)]


def from_stored(message: Message) -> BaseMessage | None:
    """Return the message as it was added, with the content that a view shows. None if that is empty."""
    written = message.meta.get(_META)
    if not isinstance(written, str):
        return to_langchain(message)
    stored = json.loads(written)
    data = {name: _read(value) for name, value in stored["data"].items()}
    data.setdefault("content", message.content if isinstance(message.content, str) else "")
    [found] = messages_from_dict([{"type": stored["type"], "data": data}])
    [parsed] = parse(found)
    return found if parsed.content == message.content else to_langchain(message, found)


def _to_json(value: Any, place: str) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is list:
        return [_to_json(inner, f"{place}[{n}]") for n, inner in enumerate(value)]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and _TAG not in value:
            return {key: _to_json(inner, f"{place}.{key}") for key, inner in value.items()}
        pairs = [[_to_json(key, place), _to_json(inner, f"{place}[{key!r}]")] for key, inner in value.items()]
        return {_TAG: "dict", "value": pairs}
    if type(value) is tuple:
        return {_TAG: "tuple", "value": [_to_json(inner, f"{place}[{n}]") for n, inner in enumerate(value)]}
    if isinstance(value, bytes):
        return {_TAG: "bytes", "value": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {_TAG: "datetime", "value": value.isoformat()}
    if isinstance(value, Serializable) and value.is_lc_serializable():
        return {_TAG: "core", "value": dumpd(value)}
    raise InvalidValue(
        f"{place} is {short_repr(value)}; JSON values, tuples, bytes, dates and LangChain objects can be stored."
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if _TAG in value:
        return _READ[value[_TAG]](value["value"])
    return {key: _read(inner) for key, inner in value.items()}


def _core(value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(value, allowed_objects="core")


_READ: Mapping[str, Callable[[Any], Any]] = {
    "dict": lambda pairs: {_read(key): _read(value) for key, value in pairs},
    "tuple": lambda values: tuple(map(_read, values)),
    "bytes": b64decode,
    "datetime": datetime.fromisoformat,
    "core": _core,
}
