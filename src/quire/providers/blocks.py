"""Anthropic's content blocks and our parts, there and back."""

import json
from collections.abc import Mapping
from typing import Any

from quire.messages import Part, Provider, Role
from quire.providers.parts import Reader, data_of, in_words, is_pdf, picked, web_url

Values = dict[str, Any]

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_FILES = frozenset({"application/pdf"})


def _image(block: Values) -> Part | None:
    found = picked(block.get("source"), url="url", data="data", media_type="media_type", file_id="file_id")
    return {"type": "image", **found} if found.keys() & {"url", "data", "file_id"} else None


def _document(block: Values) -> Part | None:
    source = block.get("source")
    name = picked(block, name="title")
    if isinstance(source, dict) and source.get("type") in ("text", "content"):
        text = _all_text(source.get("data" if source["type"] == "text" else "content"))
        return {"type": "file", "text": text, **name} if text else None
    found = _image(block)
    return {**found, "type": "file", **name} if found else None


def _search_result(block: Values) -> Part | None:
    text = _all_text(block.get("content"))
    return {"type": "file", "text": text, **picked(block, name="title")} if text else None


def _all_text(content: object) -> str:
    """The text of text or text blocks; "" if there is anything else."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [picked(block, text="text").get("text") for block in content]
    return "" if None in texts else "\n".join(text for text in texts if text)


def _thinking(block: Values) -> Part | None:
    found = picked(block, text="thinking", signature="signature")
    return {"type": "thinking", **found} if len(found) == 2 else None


def _redacted(block: Values) -> Part | None:
    found = picked(block, data="data")
    return {"type": "thinking", **found} if found else None


READERS: Mapping[str, Reader] = {
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
}


def write_block(part: Part, role: Role, origin: Provider) -> Values | None:
    """The part as a block that may stand in a message of this role; None if nothing of it is left."""
    if origin == "anthropic":
        if "part" in part:
            value: Values = json.loads(part["part"])
            return value
        if "signature" in part:
            return {"type": "thinking", "thinking": part["text"], "signature": part["signature"]}
        if part["type"] == "thinking" and "data" in part:
            return {"type": "redacted_thinking", "data": part["data"]}
    write = _WRITERS.get(part["type"]) if role in ("user", "tool") else None
    if write and (block := write(part, origin)):
        return block
    text = in_words(part)
    return {"type": "text", "text": text} if text.strip() else None


def _written_image(part: Part, origin: Provider) -> Values | None:
    source = _source(part, origin, _IMAGES)
    return {"type": "image", "source": source} if source else None


def _written_file(part: Part, origin: Provider) -> Values | None:
    if "text" in part:
        source: Values | None = {"type": "text", "media_type": "text/plain", "data": part["text"]}
    elif origin != "anthropic" and web_url(part) and not is_pdf(part["url"]):
        source = None  # only PDFs are fetched
    else:
        source = _source(part, origin, _FILES)
    return {"type": "document", "source": source, **picked(part, title="name")} if source else None


_WRITERS = {"image": _written_image, "file": _written_file}


def _source(part: Part, origin: Provider, accepted: frozenset[str]) -> Values | None:
    if (data := data_of(part)) and data[0] in accepted:
        return {"type": "base64", "media_type": data[0], "data": data[1]}
    if url := web_url(part):
        return {"type": "url", "url": url}
    if origin == "anthropic" and "file_id" in part:
        return {"type": "file", "file_id": part["file_id"]}
    return None
