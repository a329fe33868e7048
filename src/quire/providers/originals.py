"""How `raw` keeps an original: as JSON text, with the long texts that stand in the message's own fields left out.

A message is stored once, not twice: where the original repeats a text of the message (or the data of an image), `raw`
has a note saying where to find it. Nothing in `raw` depends on how messages are parsed or formatted, so it can be
read by any later version.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from quire.messages import Message

_WORTH_A_NOTE = 64
Path = list[Any]


def dumps(value: object) -> str:
    """The value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def exact(message: Message, original: object, formatted: object) -> Message:
    """The message, with the original in `raw` if what is formatted without it is something else."""
    return message if formatted == original else structs.replace(message, raw=_keep(original, message))


def give_back(message: Message) -> Any:
    """The original that `exact` kept, as a fresh value."""
    kept = json.loads(message.raw or "")
    for target, source in kept["notes"]:
        _step(kept["original"], target[:-1])[target[-1]] = _text_at(message, source)
    return kept["original"]


def _keep(original: object, message: Message) -> str:
    known = {text: path for path, text in _texts(message) if len(text) >= _WORTH_A_NOTE}
    notes: list[tuple[Path, Path]] = []
    return dumps({"original": _hollow(original, [], known, notes), "notes": notes})


def _texts(message: Message) -> Iterator[tuple[Path, str]]:
    if isinstance(message.content, str):
        yield ["content"], message.content
    for n, part in enumerate(message.content if isinstance(message.content, list) else ()):
        for key, value in part.items():
            if isinstance(value, str):
                yield ["content", n, key], value
    for n, call in enumerate(message.tool_calls):
        yield ["tool_calls", n], call.arguments


def _hollow(value: object, path: Path, known: dict[str, Path], notes: list[tuple[Path, Path]]) -> object:
    """The value with every known text replaced by None and noted."""
    if isinstance(value, dict):
        return {key: _hollow(inner, [*path, key], known, notes) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hollow(inner, [*path, n], known, notes) for n, inner in enumerate(value)]
    if isinstance(value, str) and value in known:
        notes.append((path, known[value]))
        return None
    return value


def _text_at(message: Message, path: Path) -> str:
    if path[0] == "tool_calls":
        return message.tool_calls[path[1]].arguments
    return str(_step(message.content, path[1:]))


def _step(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value
