"""Originals: messages as their provider sent them.

`raw` holds the original of a message as JSON text. If the original repeats a long text of the message (a text, the data
of an image, the arguments of a call), `raw` refers to the field instead, so that it is stored once. `raw` does not
depend on how messages are parsed or formatted: later versions can read it.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs

from quire.errors import InvalidValue
from quire.model.messages import Message, Part
from quire.providers.plain_json import Path, dumps, invalid_value, to_plain_json

_WORTH_A_NOTE = 64
_DEPTH = 3  # the depth of items, parts and arguments in an original
_TYPES = ("text", "image", "file", "audio", "thinking", "other")
_TEXTS = frozenset(
    {"text", "transcript", "url", "data", "media_type", "file_id", "name", "detail", "format", "id", "signature"}
)
_ORIGINALS = frozenset({"part", "item"})


def keep_original(message: Message, original: object, formatted: object) -> Message:
    """Return the message, with the original in `raw` if the message formats to something else without it."""
    return message if formatted == original else structs.replace(message, raw=_Keeper(message).keep(original))


def restore_original(message: Message) -> Any:
    """Return the original that `keep_original` stored, as a new value."""
    kept = json.loads(message.raw or "")
    for target, source in kept["texts"]:
        _put(kept["original"], target, _text_at(message, source))
    for target, source in kept["values"]:
        _put(kept["original"], target, json.loads(_text_at(message, source)))
    return kept["original"]


class _Keeper:
    """Writes the `raw` of one message."""

    def __init__(self, message: Message) -> None:
        self._known = {text: path for path, text in _texts(message) if len(text) >= _WORTH_A_NOTE}
        self._has_objects = any(text[0] == "{" for text in self._known)
        self._texts: list[tuple[Path, Path]] = []
        self._values: list[tuple[Path, Path]] = []

    def keep(self, original: object) -> str:
        hollow = self._hollow(original, ())
        return dumps({"original": hollow, "texts": self._texts, "values": self._values})

    def _hollow(self, value: object, path: Path) -> object:
        """Return the value with None in place of every text that the message has, and record where that text is."""
        if isinstance(value, str) and value in self._known:
            self._texts.append((path, self._known[value]))
            return None
        if isinstance(value, list):
            return [self._hollow(inner, (*path, n)) for n, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if self._has_objects and 0 < len(path) <= _DEPTH and (text := dumps(value)) in self._known:
            self._values.append((path, self._known[text]))
            return None
        return {key: self._hollow(inner, (*path, key)) for key, inner in value.items()}


def _texts(message: Message) -> Iterator[tuple[Path, str]]:
    if isinstance(message.content, str):
        yield ("content",), message.content
    for n, part in enumerate(message.content if isinstance(message.content, list) else ()):
        yield from ((("content", n, key), value) for key, value in part.items() if isinstance(value, str))
    yield from ((("tool_calls", n), call.arguments) for n, call in enumerate(message.tool_calls))


def _text_at(message: Message, path: list[Any]) -> str:
    text: str = message.tool_calls[path[1]].arguments if path[0] == "tool_calls" else _at(message.content, path[1:])
    return text


def _put(value: Any, path: list[Any], inner: object) -> None:
    _at(value, path[:-1])[path[-1]] = inner


def _at(value: Any, path: list[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def read_message(value: object, place: str) -> Message:
    """Return a checked copy of a message. Raise `InvalidValue`, which names the wrong field."""
    given: Any = structs.asdict(value) if isinstance(value, Message) else value
    if isinstance(value, Message) and isinstance(value.at, datetime):
        given["at"] = value.at.isoformat()
    fields = to_plain_json(given, place)
    try:
        message = msgspec.convert(fields, Message)
        msgspec.msgpack.encode(message)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{place} is not a message: {error}.") from None
    except OverflowError:
        raise InvalidValue(f"{place} holds a number that is too large to be kept.") from None
    for n, part in enumerate(message.content if isinstance(message.content, list) else ()):
        _check_part(part, f"{place}.content[{n}]")
    if message.tool_calls and message.role != "assistant":
        raise invalid_value(f"{place}.tool_calls", fields["tool_calls"], "only the assistant calls tools")
    if (message.tool_call_id is not None) is not (message.role == "tool"):
        raise invalid_value(
            f"{place}.tool_call_id", message.tool_call_id, "a tool's result has one, no other message does"
        )
    if message.raw is not None:
        try:
            original = restore_original(message)
        except (TypeError, ValueError, LookupError, RecursionError):
            original = None
        if not original or not isinstance(original, list if message.origin == "responses" else dict):
            wanted = "an original in the form that quire stores is needed"
            raise invalid_value(f"{place}.raw", message.raw, wanted) from None
    return message


def _check_part(part: Part, place: str) -> None:
    kind = part.get("type")
    if kind not in _TYPES:
        raise invalid_value(f"{place}.type", kind, f"a part is one of {', '.join(_TYPES)}")
    for key in _TEXTS & part.keys() | ({"text"} if kind == "text" else {"kind"} if kind == "other" else set()):
        if not isinstance(part.get(key), str):
            raise invalid_value(f"{place}.{key}", part.get(key), "text is needed")
    kept = sorted(_ORIGINALS & part.keys())
    if kind == "other" and not kept:
        raise invalid_value(place, part, "a part of type 'other' has its original as `part` or `item`")
    for key in kept:
        try:
            found = json.loads(part[key])
        except (TypeError, ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise invalid_value(f"{place}.{key}", part[key], "an object as JSON text is needed")
