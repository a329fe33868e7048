"""What the parts of a message that are no text cost. Base64 is never counted as text.

| part                                | counts                                                                         |
|-------------------------------------|--------------------------------------------------------------------------------|
| image with its bytes                | by width and height: see `quire.images`                                        |
| image by address or id, unreadable  | 1,600                                                                          |
| PDF                                 | 3,000 a page; if its pages cannot be seen, a page for every 50,000 bytes       |
| other file with its bytes           | a token for four bytes                                                         |
| file by address or id               | 3,000, as a page                                                               |
| audio                               | 10 a second: a WAV by its own rate, anything else as 4,000 bytes a second      |
| sealed thinking, other sealed data  | a token for four bytes, or as the image it is                                  |
"""

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Iterator
from typing import Any

from quire.images import UNKNOWN_IMAGE, image_size, image_tokens

Part = dict[str, Any]

PDF_PAGE = 3_000
UNKNOWN_FILE = PDF_PAGE
_BYTES_A_PAGE = 50_000
_BYTES_A_TOKEN = 4
_TOKENS_A_SECOND = 10
_BYTES_A_SECOND = 4_000
_HEAD = 65_536
"""Characters of base64 that nearly always tell the size of an image; if not, all of it is looked at."""
_SEALED = 256
"""Shorter texts are text, whatever they look like."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/_=-]{60,}\r?\n)*[A-Za-z0-9+/_=-]+\s*")
_PAGE_OBJECT = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PAGE_COUNT = re.compile(rb"/Count\s+(\d{1,6})\b")


def media_tokens(part: Part) -> int:
    """What a part costs beside its texts. Never raises, whatever the bytes are."""
    match part.get("type"):
        case "image":
            data = _base64(part)
            return _image(data, low=part.get("detail") == "low") if data else UNKNOWN_IMAGE
        case "file":
            return 0 if isinstance(part.get("text"), str) else _file(part)
        case "audio":
            return _audio(_base64(part), part.get("format"))
        case "thinking" | "other":
            return sum(_sealed(text) for text in _all_sealed(part))
        case _:
            return 0


def readable(part: Part) -> str:
    """The text of a part that is kept as JSON text, without the sealed data in it; "" if there is none."""
    kept = _original(part) if part.get("type") == "other" else None
    return "" if kept is None else json.dumps(_opened(kept), ensure_ascii=False, separators=(",", ":"))


def _base64(part: Part) -> str:
    """The bytes that a part carries as base64 text; "" if it carries none."""
    data, url = part.get("data"), part.get("url")
    for text in (data, url):
        if isinstance(text, str) and text[:5].lower() == "data:":
            return text.partition(",")[2]
    return data if isinstance(data, str) else ""


def _bytes(data: str) -> bytes:
    """The bytes that base64 text stands for, as far as it does. It may be broken into lines, or cut off."""
    if "\n" in data:
        data = "".join(data.split())
    try:
        return a2b_base64(data[: len(data) // 4 * 4])
    except (Error, ValueError):
        return b""


def _length(data: str) -> int:
    return len(data) * 3 // 4


def _image(data: str, *, low: bool = False) -> int:
    size = image_size(_bytes(data[:_HEAD]))
    if size is None and len(data) > _HEAD and data.startswith("/9j/"):  # a JPEG with much before its pixels
        size = image_size(_bytes(data))
    return image_tokens(size, low=low)


def _file(part: Part) -> int:
    data = _base64(part)
    if not data:
        return UNKNOWN_FILE
    if data.startswith("JVBER"):  # %PDF
        return PDF_PAGE * _pages(data)
    return -(-_length(data) // _BYTES_A_TOKEN)


def _pages(data: str) -> int:
    whole = _bytes(data)
    pages = sum(1 for _ in _PAGE_OBJECT.finditer(whole))
    if not pages:  # newer PDFs compress their page objects; some still tell how many there are
        pages = max((int(found[1]) for found in _PAGE_COUNT.finditer(whole)), default=0)
    return pages or -(-_length(data) // _BYTES_A_PAGE)


def _audio(data: str, kind: object) -> int:
    rate = _BYTES_A_SECOND
    if kind in ("wav", "pcm16"):
        head = _bytes(data[:64])
        told = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt " else 0
        rate = told if told >= _BYTES_A_SECOND else 32_000
    return -(-_length(data) * _TOKENS_A_SECOND // rate)


def _sealed(text: str) -> int:
    data = text.partition(",")[2] if text.startswith("data:") else text
    size = image_size(_bytes(data[:_HEAD]))
    return image_tokens(size) if size else -(-_length(data) // _BYTES_A_TOKEN)


def _original(part: Part) -> Any:
    """What a part keeps as JSON text; None if it keeps nothing."""
    kept = part.get("part") or part.get("item")
    try:
        return json.loads(kept) if isinstance(kept, str) else None
    except (ValueError, RecursionError):
        return None


def _all_sealed(part: Part) -> Iterator[str]:
    data = part.get("data")
    if isinstance(data, str):
        yield data
    yield from _strings(_original(part))


def _strings(value: Any) -> Iterator[str]:
    """The sealed texts in a JSON value."""
    if isinstance(value, str):
        if _is_sealed(value):
            yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _opened(value: Any) -> Any:
    """A JSON value without the sealed texts in it."""
    if isinstance(value, dict):
        return {key: _opened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_opened(inner) for inner in value]
    return "" if isinstance(value, str) and _is_sealed(value) else value


def _is_sealed(text: str) -> bool:
    """Whether a text is bytes or cipher rather than words."""
    if len(text) < _SEALED:
        return False
    return text.startswith("data:") or _BASE64.fullmatch(text) is not None
