"""Fields and parts of messages: what the readers and writers of all providers share.

A part that a provider does not accept in a place is written as text, or as a mark like `[image]`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from quire.model.messages import Message, Part, Provider, Role
from quire.providers.plain_json import Values, dumps, invalid_value, to_plain_json

Reader = Callable[[Values], Part | None]
"""Reads a block of a known type. None if the block is stored unchanged. Raises `MissingField`."""
Writer = Callable[[Part, Provider], Values | None]
"""Writes a part that came from a provider. None if the part is written as text."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII)
_MARK = 60
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_ROLES: Mapping[str, Role] = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "tool_result": "user",
}
"""Blocks of Anthropic that every provider refuses in a message of another role."""
_NO_PARTS = ("tool_use", "tool_result")
"""Blocks that are read as a call and as a message with a result."""


class MissingField(Exception):
    """A block of a known type does not have its required fields. The argument shows these fields."""


def read_content(value: object, place: str, readers: Mapping[str, Reader], role: Role) -> str | list[Part]:
    """Read the content of a message with this role: text, or a list of blocks."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid_value(place, value, "content is text or a list of parts")
    return [read_part(block, f"{place}[{n}]", readers, role) for n, block in enumerate(value)]


def read_part(block: object, place: str, readers: Mapping[str, Reader], role: Role) -> Part:
    """Read one block of a message with this role as a part. A block of an unknown type is stored unchanged.

    Raise `InvalidValue` for a block without its required fields, and for one that no message with this role can have.
    """
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise invalid_value(place, block, 'a part of the content is a dict with a "type"')
    kind: str = block["type"]
    if kind in _TEXT_TYPES:
        return {"type": "text", "text": text_field(block, "text", place)}
    check_role(kind, place, role)
    read = readers.get(kind)
    try:
        return (read(block) if read else None) or {"type": "other", "kind": kind, "part": dumps(block)}
    except MissingField as error:
        raise invalid_value(place, block, f"a part of the type {kind!r} has {error}") from None


def check_role(kind: str, place: str, role: Role) -> None:
    """Raise `InvalidValue` if a message with this role cannot have a part of this type."""
    if is_misplaced(kind, role):
        wanted = f"only Anthropic messages with the role {_ROLES[kind]!r} have such a part"
        raise invalid_value(f"{place}.type", kind, wanted)


def is_misplaced(kind: str, role: Role) -> bool:
    """Return whether no message with this role can have a part of this type."""
    return kind in _NO_PARTS or _ROLES.get(kind, role) != role


def kind_of(part: Part) -> str:
    """Return the type that a part had at its provider, as far as it is known."""
    return str(part.get("kind") if part["type"] == "other" else part["type"])


def is_incomplete(block: Mapping[str, Any], readers: Mapping[str, Reader]) -> bool:
    """Return whether a block of a known type does not have its required fields."""
    kind = block.get("type")
    read = readers.get(kind) if isinstance(kind, str) else None
    try:
        if read is not None:
            read(dict(block))
    except MissingField:
        return True
    return False


def role_field(value: Values, place: str, roles: Mapping[str, Role]) -> Role:
    """Return the role of a message. Raise `InvalidValue` if it is not in `roles`."""
    role = value.get("role")
    if not isinstance(role, str) or role not in roles:
        raise invalid_value(f"{place}.role", role, f"roles are {', '.join(roles)}")
    return roles[role]


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


def optional_text(value: Values, key: str, place: str) -> str | None:
    """Return the text under a key; None if it is missing. Raise `InvalidValue` if it is not text.

    The id of a call may be missing: it is filled in when the whole history is known.
    """
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise invalid_value(f"{place}.{key}", found, "text is needed")
    return found


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


def pick_texts(value: object, **names: str) -> Part:
    """Return the text fields of a block under new names: `pick_texts(block, url="image_url")`."""
    if not isinstance(value, Mapping):
        return {}
    return {ours: value[theirs] for ours, theirs in names.items() if isinstance(value.get(theirs), str)}


def read_file(fields: object, required: str, **names: str) -> Part:
    """Read a file of OpenAI. `names` are fields in addition to those of a chat message. Raise `MissingField`."""
    found = pick_texts(fields, **names, data="file_data", file_id="file_id", name="filename")
    if found.get("data", "").startswith("data:") and "url" not in found:
        found["url"] = found.pop("data")
    if not found.keys() & {"data", "url", "file_id"}:
        raise MissingField(required)
    return {"type": "file", **found}


def read_refusal(block: Values) -> Part:
    """Read a refusal of an OpenAI model. Raise `MissingField`."""
    found = pick_texts(block, text="refusal")
    if not found:
        raise MissingField('{"refusal": "…"}')
    return {"type": "text", **found, "refusal": True}


def write_part(
    part: Part, origin: Provider, provider: Provider, writers: Mapping[str, Writer], text_type: str = "text"
) -> Values | None:
    """Write the part: its original for its own provider, else with the writer of its type, else as text."""
    if origin == provider and "part" in part:
        value: Values = json.loads(part["part"])
        return value
    write = writers.get(part["type"])
    if write and (block := write(part, origin)):
        return block
    text = part_to_text(part)
    return {"type": text_type, "text": text} if text or part["type"] == "text" else None


def prefix_name(message: Message) -> str | list[Part] | None:
    """Return the content for a provider without names: the name of a user is put before the text."""
    if message.role != "user" or not message.name:
        return message.content
    if isinstance(message.content, str):
        return f"{message.name}: {message.content}"
    return [{"type": "text", "text": f"{message.name}:"}, *(message.content or ())]


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
