"""Messages of LangChain: converted to messages of quire and back, or stored without loss."""

import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from quire.adapters.context_pool import requires_extra
from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message
from quire.providers import format_messages
from quire.providers.langchain import read

with requires_extra("langchain"):
    from langchain_core.load import dumpd, load
    from langchain_core.load.serializable import Serializable
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        convert_to_messages,
        messages_from_dict,
    )


def parse(message: BaseMessage) -> list[Message]:
    """Return the message as a list of one, in which every call has an id; an empty list for a `RemoveMessage`."""
    return [
        replace(
            found,
            tool_calls=tuple(replace(call, id=call.id or f"call_{n}") for n, call in enumerate(found.tool_calls)),
        )
        for found in read(message, "message")
    ]


def fingerprint(message: BaseMessage) -> bytes:
    """Return bytes that are equal for messages with the same content. Ids are left out: a graph sets them later."""
    role, answered = next(((found.role, found.tool_call_id) for found in parse(message)), ("user", None))
    calls = [message.tool_calls, message.invalid_tool_calls] if isinstance(message, AIMessage) else []
    return msgspec.json.encode([role, message.name, message.content, calls, answered], enc_hook=repr)


def to_langchain(message: Message, original: BaseMessage | None = None) -> BaseMessage | None:
    """Return a message of a view for LangChain: its original with the shown content, or a new one. None if empty."""
    written = format_messages([message], "openai")
    if not written:
        return None
    [fresh] = convert_to_messages(written)
    if original is None or [call.id for call in message.tool_calls] != [
        call.id for found in parse(original) for call in found.tool_calls
    ]:
        return fresh
    return original.model_copy(update={"content": fresh.content})


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
