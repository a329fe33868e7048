"""How `raw` keeps an original: as JSON text, without what already stands in the message's own fields.

A message is stored once, not twice: where the original repeats a long text of the message, the data of an image or the
arguments of a call, `raw` has a note saying where to find it. Nothing in `raw` depends on how messages are parsed or
formatted, so any later version can read it.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from quire.messages import Message

_WORTH_A_NOTE = 64
_DEPTH = 3  # how deep items, parts and arguments stand in an original
Path = tuple[Any, ...]


def dumps(value: object) -> str:
    """The value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def exact(message: Message, original: object, formatted: object) -> Message:
    """The message, with the original in `raw` if what is formatted without it is something else."""
    return message if formatted == original else structs.replace(message, raw=_Keeper(message).keep(original))


def give_back(message: Message) -> Any:
    """The original that `exact` kept, as a fresh value."""
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
        self._texts: list[tuple[Path, Path]] = []
        self._values: list[tuple[Path, Path]] = []

    def keep(self, original: object) -> str:
        hollow = self._hollow(original, ())
        return dumps({"original": hollow, "texts": self._texts, "values": self._values})

    def _hollow(self, value: object, path: Path) -> object:
        """The value with None for all that is known, and a note where it is found."""
        if isinstance(value, str) and value in self._known:
            self._texts.append((path, self._known[value]))
            return None
        if isinstance(value, list):
            return [self._hollow(inner, (*path, n)) for n, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if self._known and 0 < len(path) <= _DEPTH and (text := dumps(value)) in self._known:
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
