"""Message parts and originals: what the readers and writers of all providers share.

- `keep_original` and `restore_original`: `raw` holds the original of a message as JSON text. If the original repeats a
  long text of the message (a text, the data of an image, the arguments of a call), `raw` refers to the field instead,
  so that it is stored once. `raw` does not depend on how messages are parsed or formatted: later versions can read it.
- `read_message`: checks a message in quire's own shape that a caller gives back or that a document contains.
- `drop_foreign_thinking`: thinking is sent back only to the model that produced it. Another model refuses its signature
  or cannot decrypt it.
- Fields and parts: a part that a provider does not accept in a place is written as text, or as a mark like `[image]`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from quire.errors import InvalidValue
from quire.model.messages import Message, Part, Provider
from quire.providers.common import invalid_value, to_plain_json
from quire.providers.usage import is_same_model

_WORTH_A_NOTE = 64
_DEPTH = 3  # the depth of items, parts and arguments in an original
Path = tuple[Any, ...]


def dumps(value: object) -> str:
    """Return the value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
        self._texts: list[tuple[Path, Path]] = []
        self._values: list[tuple[Path, Path]] = []

    def keep(self, original: object) -> str:
        hollow = self._hollow(original, ())
        return dumps({"original": hollow, "texts": self._texts, "values": self._values})

    def _hollow(self, value: object, path: Path) -> object:
        """Return the value with None for every text of the message, and record where the text is."""
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


_TYPES = ("text", "image", "file", "audio", "thinking", "other")
_TEXTS = frozenset(
    {"text", "transcript", "url", "data", "media_type", "file_id", "name", "detail", "format", "id", "signature"}
)
_ORIGINALS = frozenset({"part", "item"})


def read_message(value: object, place: str) -> Message:
    """Return a checked copy of a message. Raise `InvalidValue`, which names the wrong field."""
    fields = to_plain_json(structs.asdict(value) if isinstance(value, Message) else value, place)
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
        raise invalid_value(f"{place}.tool_calls", fields["tool_calls"], "only the assistant calls tools")
    if (message.tool_call_id is not None) is not (message.role == "tool"):
        raise invalid_value(
            f"{place}.tool_call_id", message.tool_call_id, "a tool's result has one, no other message does"
        )
    if message.raw is not None:
        _check_raw(message, f"{place}.raw")
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


def _check_raw(message: Message, place: str) -> None:
    try:
        restore_original(message)
    except (TypeError, ValueError, LookupError, RecursionError):
        raise invalid_value(place, message.raw, "an original in the form that quire stores is needed") from None


_THINKING = ("thinking", "redacted_thinking")


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
            message = structs.replace(message, raw=None)
        kept.append(message)
    return kept


def _is_foreign(message: Message, provider: Provider, model: str) -> bool:
    made_by = message.meta.get("model")
    if message.origin != provider or not isinstance(made_by, str) or not isinstance(message.content, list):
        return False
    return any(part.get("type") == "thinking" for part in message.content) and not is_same_model(made_by, model)


def _without_thinking(message: Message, provider: Provider) -> Message:
    content = [part for part in message.content or () if isinstance(part, dict) and part.get("type") != "thinking"]
    left = structs.replace(message, content=content or None, raw=None)
    if provider == "responses":
        # OpenAI refuses items that came with reasoning if it is missing. Without their ids, they are accepted.
        return structs.replace(left, origin="openai")
    if message.raw is None:
        return left
    original: dict[str, Any] = restore_original(message)
    blocks = [block for block in original["content"] if block.get("type") not in _THINKING]
    return keep_original(left, {**original, "content": blocks}, None)


Values = dict[str, Any]
Reader = Callable[[Values], Part | None]
"""Reads a block of a known type. None if the block is malformed; then it is stored unchanged."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII)
_MARK = 60


def read_content(value: object, place: str, readers: Mapping[str, Reader]) -> str | list[Part]:
    """Read content: text, or a list of blocks."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid_value(place, value, "content is text or a list of parts")
    return [read_part(block, f"{place}[{n}]", readers) for n, block in enumerate(value)]


def read_part(block: object, place: str, readers: Mapping[str, Reader]) -> Part:
    """Read one block as a part. A block of an unknown type is stored unchanged."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise invalid_value(place, block, 'a part of the content is a dict with a "type"')
    kind: str = block["type"]
    if kind in _TEXTS_PARTS:
        return {"type": "text", "text": text_field(block, "text", place)}
    read = readers.get(kind)
    return (read(block) if read else None) or {"type": "other", "kind": kind, "part": dumps(block)}


_TEXTS_PARTS = frozenset({"text", "input_text", "output_text"})


def text_field(value: Values, key: str, place: str) -> str:
    """Return the text under a key. Raise `InvalidValue` if it is missing or not text."""
    text = value.get(key)
    if not isinstance(text, str):
        raise invalid_value(f"{place}.{key}", text, "text is needed")
    return text


def name_field(value: Values, place: str) -> str:
    """Return the name of the called tool."""
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise invalid_value(f"{place}.name", name, "a call names its tool")
    return name


def id_field(value: Values, key: str, place: str) -> str:
    """Return the id of a call; "" if it has none. A missing id is filled in when the whole history is known."""
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise invalid_value(f"{place}.{key}", found, "an id is text")
    return found or ""


def arguments_field(value: Values, key: str, place: str) -> str:
    """Return the arguments of a call as JSON text. Some servers send an object."""
    found = value.get(key)
    if found is not None and not isinstance(found, str | dict):
        raise invalid_value(f"{place}.{key}", found, "arguments are JSON text")
    return found if isinstance(found, str) else dumps(found or {})


def arguments_object(text: str) -> Values:
    """Return the arguments as an object. Text that is not a JSON object is put under `_raw`."""
    if not text.strip():
        return {}
    try:
        value = to_plain_json(json.loads(text), "arguments")
    except (ValueError, RecursionError):  # `InvalidValue` is a ValueError
        value = None
    return value if isinstance(value, dict) else {"_raw": text}


def pick_text_fields(value: object, **names: str) -> Part:
    """Return the text fields of a block under new names: `pick_text_fields(block, url="image_url")`."""
    if not isinstance(value, dict):
        return {}
    return {ours: value[theirs] for ours, theirs in names.items() if isinstance(value.get(theirs), str)}


def parts_of(message: Message) -> list[Part]:
    """Return the content as a list of parts."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}]
    return message.content or []


def prefix_name(message: Message) -> str | list[Part] | None:
    """Return the content for a provider without names: the name of a user is put before the text."""
    if message.role != "user" or not message.name:
        return message.content
    if isinstance(message.content, str):
        return f"{message.name}: {message.content}"
    return [{"type": "text", "text": f"{message.name}:"}, *parts_of(message)]


def part_to_text(part: Part) -> str:
    """Return the part as text, for places where a provider accepts only text; "" for thinking."""
    match part["type"]:
        case "text":
            return str(part["text"])
        case "thinking":
            return ""
        case "audio":
            return str(part.get("transcript") or "[audio]")
        case "file":
            label = part.get("name") or _shown_url(part)
            if "text" in part:
                return "\n".join(filter(None, (label, part["text"])))
            return f"[file: {label}]" if label else "[file]"
        case "image":
            label = _shown_url(part)
            return f"[image: {label}]" if label else "[image]"
        case _:
            return f"[{part.get('kind', '')[:_MARK] or 'other'}]"


def get_data(part: Part) -> tuple[str, str] | None:
    """Return the media type and the base64 data of an image or file; None if one of them is unknown."""
    if "data" in part:
        media_type = part.get("media_type") or ("application/pdf" if is_pdf(part.get("name", "")) else "")
        return (media_type, part["data"]) if media_type else None
    found = _DATA_URL.match(part.get("url", ""))
    return (found.group(1).lower(), part["url"][found.end() :]) if found else None


def web_url(part: Part) -> str | None:
    """Return the web address of an image or file; None if it has none."""
    url: str = part.get("url", "")
    return url if url.startswith(("https://", "http://")) else None


def data_url(part: Part) -> str | None:
    """Return the bytes of an image or file as a data URL; None if it has none."""
    if part.get("url", "").startswith("data:"):
        return str(part["url"])
    data = get_data(part)
    return f"data:{data[0]};base64,{data[1]}" if data else None


def _shown_url(part: Part) -> str:
    url = web_url(part) or ""
    return url if len(url) <= 5 * _MARK else ""


def is_pdf(name: str) -> bool:
    """Return whether a file with this name or address is a PDF."""
    return name.lower().endswith(".pdf")
