"""Messages in quire's own shape, given back by a caller or read from a document: checked field by field."""

import json

import msgspec
from msgspec import structs

from quire.errors import InvalidValue
from quire.messages import Message, Part
from quire.providers.originals import give_back
from quire.providers.plain import plain, refused

_TYPES = ("text", "image", "file", "audio", "thinking", "other")
_TEXTS = frozenset(
    {"text", "transcript", "url", "data", "media_type", "file_id", "name", "detail", "format", "id", "signature"}
)
_ORIGINALS = frozenset({"part", "item"})


def read(value: object, place: str) -> Message:
    """The message as a copy of our own. Raises `InvalidValue` naming what is wrong with it."""
    fields = plain(structs.asdict(value) if isinstance(value, Message) else value, place)
    try:
        message = msgspec.convert(fields, Message)
        msgspec.msgpack.encode(message)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{place} is no message: {error}.") from None
    except OverflowError:
        raise InvalidValue(f"{place} holds a number that is too large to be kept.") from None
    for n, part in enumerate(message.content if isinstance(message.content, list) else ()):
        _check_part(part, f"{place}.content[{n}]")
    if message.tool_calls and message.role != "assistant":
        raise refused(f"{place}.tool_calls", fields["tool_calls"], "only the assistant calls tools")
    if (message.tool_call_id is not None) is not (message.role == "tool"):
        raise refused(f"{place}.tool_call_id", message.tool_call_id, "a tool's result has one, no other message does")
    if message.raw is not None:
        _check_raw(message, f"{place}.raw")
    return message


def _check_part(part: Part, place: str) -> None:
    kind = part.get("type")
    if kind not in _TYPES:
        raise refused(f"{place}.type", kind, f"a part is one of {', '.join(_TYPES)}")
    for key in _TEXTS & part.keys() | ({"text"} if kind == "text" else {"kind"} if kind == "other" else set()):
        if not isinstance(part.get(key), str):
            raise refused(f"{place}.{key}", part.get(key), "text is needed")
    kept = sorted(_ORIGINALS & part.keys())
    if kind == "other" and not kept:
        raise refused(place, part, "a part of type 'other' has its original as `part` or `item`")
    for key in kept:
        try:
            found = json.loads(part[key])
        except (TypeError, ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise refused(f"{place}.{key}", part[key], "an object as JSON text is needed")


def _check_raw(message: Message, place: str) -> None:
    try:
        give_back(message)
    except (TypeError, ValueError, LookupError, RecursionError):
        raise refused(place, message.raw, "an original as quire keeps it is needed") from None
