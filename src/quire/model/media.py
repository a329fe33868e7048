"""Media: the tokens of images, files and audio.

Providers bill an image by its pixels, each by its own rule. A message is counted once for all providers, so the larger
of the two documented rules counts; `Context.report_usage` learns the difference for a model. Base64 is never counted as
text.

| part                                | tokens                                                                         |
|-------------------------------------|--------------------------------------------------------------------------------|
| image with its bytes                | by width and height: see `count_image_tokens`                                  |
| image by URL or id, or unreadable   | 1,600                                                                          |
| PDF                                 | 3,000 per page; if the pages cannot be counted, a page per 50,000 bytes        |
| other file with its bytes           | one per four bytes                                                             |
| file by URL or id                   | 3,000, as one page                                                             |
| audio                               | 10 per second: a WAV by its own rate, other formats at 4,000 bytes per second  |
| encrypted thinking, other data      | one per four bytes; if it is an image, as an image                             |
"""

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Iterator
from math import ceil
from typing import Any, Literal, NamedTuple

UNKNOWN_IMAGE = 1_600
"""The tokens of an image of unknown size (a URL, an id, unreadable bytes): the maximum of both rules."""

_TILE = 512
_BOX = 2_048
_SHORT_SIDE = 768
_BASE, _PER_TILE = 85, 170
_LONG_EDGE = 1_568
_PIXELS_A_TOKEN = 750
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG markers that carry the size
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # JPEG markers without a length


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def read_image_size(data: bytes) -> Size | None:
    """Return the size of a PNG, JPEG, GIF or WebP from its first bytes; None for other or truncated data."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        found = _read_pair(data, 16, 4, "big")
    elif data.startswith((b"GIF87a", b"GIF89a")):
        found = _read_pair(data, 6, 2, "little")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        found = _read_webp_size(data)
    elif data.startswith(b"\xff\xd8"):
        found = _read_jpeg_size(data)
    else:
        found = None
    return found if found and found.width and found.height else None


def count_image_tokens(size: Size | None, *, low: bool = False) -> int:
    """Return the tokens of an image: the larger of OpenAI's and Anthropic's rule. `low` is OpenAI's `detail`."""
    if size is None:
        return UNKNOWN_IMAGE
    return max(_BASE if low else _count_tiles(size), _count_area(size))


def _count_tiles(size: Size) -> int:
    """Apply OpenAI's rule: scale to 2,048 pixels square, then to a short side of 768; 85, and 170 per 512 tile."""
    scale = min(1.0, _BOX / max(size))
    scale *= min(1.0, _SHORT_SIDE / (min(size) * scale))
    wide, high = (ceil(round(side * scale, 3) / _TILE) for side in size)
    return _BASE + _PER_TILE * max(1, wide) * max(1, high)


def _count_area(size: Size) -> int:
    """Apply Anthropic's rule: scale to a long edge of 1,568 pixels; a token per 750 pixels, at most 1,600."""
    scale = min(1.0, _LONG_EDGE / max(size))
    return min(UNKNOWN_IMAGE, ceil(size.width * size.height * scale * scale / _PIXELS_A_TOKEN))


def _read_pair(data: bytes, at: int, length: int, order: Literal["big", "little"]) -> Size | None:
    if len(data) < at + 2 * length:
        return None
    return Size(*(int.from_bytes(data[n : n + length], order) for n in (at, at + length)))


def _read_webp_size(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return Size(*(int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27)))
    if kind == b"VP8L" and len(data) >= 25 and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a" and (found := _read_pair(data, 26, 2, "little")):
        return Size(found.width & 0x3FFF, found.height & 0x3FFF)
    return None


def _read_jpeg_size(data: bytes) -> Size | None:
    for marker, at in _iterate_markers(data):
        if marker in _FRAMES:
            found = _read_pair(data, at + 3, 2, "big")
            return found and Size(found.height, found.width)
    return None


def _iterate_markers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the markers of a JPEG before its pixels, each with the start of its segment."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _BARE:
            at += 2
        elif marker in (0xD9, 0xDA):
            return
        else:
            yield marker, at + 2
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))


Part = dict[str, Any]

PDF_PAGE = 3_000
UNKNOWN_FILE = PDF_PAGE
_BYTES_A_PAGE = 50_000
_BYTES_A_TOKEN = 4
_TOKENS_A_SECOND = 10
_BYTES_A_SECOND = 4_000
_HEAD = 65_536
"""Characters of base64 that nearly always contain the size of an image; if not, all of it is decoded."""
_MIN_ENCODED = 256
"""Shorter texts are never treated as encoded data."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/_=-]{60,}\r?\n)*[A-Za-z0-9+/_=-]+\s*")
_PAGE_OBJECT = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PAGE_COUNT = re.compile(rb"/Count\s+(\d{1,6})\b")


def count_media_tokens(part: Part) -> int:
    """Return the tokens of a part in addition to its texts. Never raise, whatever the bytes are."""
    match part.get("type"):
        case "image":
            data = _get_base64(part)
            return _count_image(data, low=part.get("detail") == "low") if data else UNKNOWN_IMAGE
        case "file":
            return 0 if isinstance(part.get("text"), str) else _count_file(part)
        case "audio":
            return _count_audio(_get_base64(part), part.get("format"))
        case "thinking" | "other":
            tokens = sum(map(_count_encoded, _find_encoded(_load_original(part))))
            return tokens + (_count_encoded(part["data"]) if isinstance(part.get("data"), str) else 0)
        case _:
            return 0


def extract_text(part: Part) -> str:
    """Return the JSON text of a part of type `other` without the encoded data in it; "" for other parts."""
    kept = _load_original(part) if part.get("type") == "other" else None
    return "" if kept is None else json.dumps(_drop_encoded(kept), ensure_ascii=False, separators=(",", ":"))


def _get_base64(part: Part) -> str:
    """Return the base64 text of a part; "" if it has none."""
    data, url = part.get("data"), part.get("url")
    for text in (data, url):
        if isinstance(text, str) and text[:5].lower() == "data:":
            return text.partition(",")[2]
    return data if isinstance(data, str) else ""


def _decode(data: str) -> bytes:
    """Decode base64 text, which may be broken into lines or truncated; b"" if it is not base64."""
    if "\n" in data:
        data = "".join(data.split())
    try:
        return a2b_base64(data[: len(data) // 4 * 4])
    except (Error, ValueError):
        return b""


def _length(data: str) -> int:
    return len(data) * 3 // 4


def _count_image(data: str, *, low: bool = False) -> int:
    size = read_image_size(_decode(data[:_HEAD]))
    if size is None and len(data) > _HEAD and data.startswith("/9j/"):  # a JPEG with much data before its pixels
        size = read_image_size(_decode(data))
    return count_image_tokens(size, low=low)


def _count_file(part: Part) -> int:
    data = _get_base64(part)
    if not data:
        return UNKNOWN_FILE
    if data.startswith("JVBER"):  # %PDF
        return PDF_PAGE * _count_pages(data)
    return -(-_length(data) // _BYTES_A_TOKEN)


def _count_pages(data: str) -> int:
    whole = _decode(data)
    pages = sum(1 for _ in _PAGE_OBJECT.finditer(whole))
    if not pages:  # newer PDFs compress their page objects; some have an uncompressed count
        pages = max((int(found[1]) for found in _PAGE_COUNT.finditer(whole)), default=0)
    return pages or -(-_length(data) // _BYTES_A_PAGE)


def _count_audio(data: str, kind: object) -> int:
    rate = _BYTES_A_SECOND
    if kind in ("wav", "pcm16"):
        head = _decode(data[:64])
        declared = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:16] == b"WAVEfmt " else 0
        rate = declared if declared >= _BYTES_A_SECOND else 32_000
    return -(-_length(data) * _TOKENS_A_SECOND // rate)


def _count_encoded(text: str) -> int:
    data = text.partition(",")[2] if text.startswith("data:") else text
    size = read_image_size(_decode(data[:_HEAD]))
    return count_image_tokens(size) if size else -(-_length(data) // _BYTES_A_TOKEN)


def _load_original(part: Part) -> Any:
    """Return the original of a part, which it holds as JSON text; None if it has none."""
    kept = part.get("part") or part.get("item")
    try:
        return json.loads(kept) if isinstance(kept, str) else None
    except (ValueError, RecursionError):
        return None


def _find_encoded(value: Any) -> Iterator[str]:
    """Yield the encoded texts in a JSON value."""
    if isinstance(value, str):
        if _is_encoded(value):
            yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _find_encoded(inner)


def _drop_encoded(value: Any) -> Any:
    """Return a JSON value without the encoded texts in it."""
    if isinstance(value, dict):
        return {key: _drop_encoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_drop_encoded(inner) for inner in value]
    return "" if isinstance(value, str) and _is_encoded(value) else value


def _is_encoded(text: str) -> bool:
    """Return whether a text is encoded data and not words."""
    if len(text) < _MIN_ENCODED:
        return False
    return text.startswith("data:") or _BASE64.fullmatch(text) is not None
