"""Content parts: what the three providers' readers and writers share.

A part that a provider cannot take in some place is written as text: the text it holds, or a short mark like `[image]`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from quire.messages import Message, Part
from quire.providers.originals import dumps
from quire.providers.plain import plain, refused

Values = dict[str, Any]
Reader = Callable[[Values], Part | None]
"""Reads a block of a known type; None if it is not as the type wants it, so that it is kept as it is."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII)
_MARK = 60


def read_content(value: object, place: str, readers: Mapping[str, Reader]) -> str | list[Part]:
    """Content as we keep it: text as text, a list block by block."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise refused(place, value, "content is text or a list of parts")
    return [read_part(block, f"{place}[{n}]", readers) for n, block in enumerate(value)]


def read_part(block: object, place: str, readers: Mapping[str, Reader]) -> Part:
    """One block as a part; what no reader knows is kept whole."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise refused(place, block, 'a part of the content is a dict with a "type"')
    kind: str = block["type"]
    if kind in _TEXTS:
        return {"type": "text", "text": text_field(block, "text", place)}
    read = readers.get(kind)
    return (read(block) if read else None) or {"type": "other", "kind": kind, "part": dumps(block)}


_TEXTS = frozenset({"text", "input_text", "output_text"})


def text_field(value: Values, key: str, place: str) -> str:
    """The text under a key. Raises `InvalidValue` if it is missing or of another type."""
    text = value.get(key)
    if not isinstance(text, str):
        raise refused(f"{place}.{key}", text, "text is needed")
    return text


def name_field(value: Values, place: str) -> str:
    """The name of a tool that is called."""
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise refused(f"{place}.name", name, "a call names its tool")
    return name


def id_field(value: Values, key: str, place: str) -> str:
    """The id of a call; "" if it has none: what is missing is healed where the whole history is known."""
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise refused(f"{place}.{key}", found, "an id is text")
    return found or ""


def arguments_field(value: Values, key: str, place: str) -> str:
    """The arguments of a call as JSON text. Some servers send the object itself."""
    found = value.get(key)
    if found is not None and not isinstance(found, str | dict):
        raise refused(f"{place}.{key}", found, "arguments are JSON text")
    return found if isinstance(found, str) else dumps(found or {})


def arguments_object(text: str) -> Values:
    """The arguments as an object; what a model wrote that is none stands under `_raw`."""
    if not text.strip():
        return {}
    try:
        value = plain(json.loads(text), "arguments")
    except (ValueError, RecursionError):  # `InvalidValue` is a ValueError
        value = None
    return value if isinstance(value, dict) else {"_raw": text}


def picked(value: object, **names: str) -> Part:
    """The text fields of a block under our names: `picked(block, url="image_url")`."""
    if not isinstance(value, dict):
        return {}
    return {ours: value[theirs] for ours, theirs in names.items() if isinstance(value.get(theirs), str)}


def parts_of(message: Message) -> list[Part]:
    """The content as parts, whichever way it is kept."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}]
    return message.content or []


def spoken(message: Message) -> str | list[Part] | None:
    """The content for a provider that knows no names: a user's name stands before the text."""
    if message.role != "user" or not message.name:
        return message.content
    if isinstance(message.content, str):
        return f"{message.name}: {message.content}"
    return [{"type": "text", "text": f"{message.name}:"}, *parts_of(message)]


def in_words(part: Part) -> str:
    """What stands for the part where only text can stand; "" for thinking, which is nobody else's business."""
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


def data_of(part: Part) -> tuple[str, str] | None:
    """Media type and base64 data of an image or file that carries its bytes, if both are known."""
    if "data" in part:
        media_type = part.get("media_type") or ("application/pdf" if is_pdf(part.get("name", "")) else "")
        return (media_type, part["data"]) if media_type else None
    found = _DATA_URL.match(part.get("url", ""))
    return (found.group(1).lower(), part["url"][found.end() :]) if found else None


def web_url(part: Part) -> str | None:
    """The web address of an image or file, if it has one."""
    url: str = part.get("url", "")
    return url if url.startswith(("https://", "http://")) else None


def data_url(part: Part) -> str | None:
    """The bytes of an image or file as a data URL, if it carries them."""
    if part.get("url", "").startswith("data:"):
        return str(part["url"])
    data = data_of(part)
    return f"data:{data[0]};base64,{data[1]}" if data else None


def _shown_url(part: Part) -> str:
    url = web_url(part) or ""
    return url if len(url) <= 5 * _MARK else ""


def is_pdf(name: str) -> bool:
    """Whether a file of this name or address is a PDF."""
    return name.lower().endswith(".pdf")
