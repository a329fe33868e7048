"""Images: their size, read from the first bytes, and what that size costs.

Providers bill an image by its pixels, not by its bytes, each by a rule of its own. A message is counted once for all of
them, so the larger of the two documented rules counts; `Context.report_usage` learns what a model takes beside that.

What the parts of a message that are no text cost. Base64 is never counted as text.

| part                                | counts                                                                         |
|-------------------------------------|--------------------------------------------------------------------------------|
| image with its bytes                | by width and height: see `image_tokens`                                      |
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
from math import ceil
from typing import Any, Literal, NamedTuple

UNKNOWN_IMAGE = 1_600
"""What an image of unknown size counts (an address, an id, bytes we cannot read): the most that either rule gives."""

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
    """The size of a PNG, JPEG, GIF or WebP by its first bytes; None if they are none of these, or not whole."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        found = _pair(data, 16, 4, "big")
    elif data.startswith((b"GIF87a", b"GIF89a")):
        found = _pair(data, 6, 2, "little")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        found = _webp(data)
    elif data.startswith(b"\xff\xd8"):
        found = _jpeg(data)
    else:
        found = None
    return found if found and found.width and found.height else None


def count_image_tokens(size: Size | None, *, low: bool = False) -> int:
    """What an image of this size counts: the larger of OpenAI's and Anthropic's rule. `low` is OpenAI's `detail`."""
    if size is None:
        return UNKNOWN_IMAGE
    return max(_BASE if low else _in_tiles(size), _by_area(size))


def _in_tiles(size: Size) -> int:
    """OpenAI: scaled down to fit 2,048 pixels square, then to a short side of 768; 170 a tile of 512 and 85."""
    scale = min(1.0, _BOX / max(size))
    scale *= min(1.0, _SHORT_SIDE / (min(size) * scale))
    wide, high = (ceil(round(side * scale, 3) / _TILE) for side in size)
    return _BASE + _PER_TILE * max(1, wide) * max(1, high)


def _by_area(size: Size) -> int:
    """Anthropic: scaled down to a long edge of 1,568 pixels and to 1,600 tokens; a token for 750 pixels."""
    scale = min(1.0, _LONG_EDGE / max(size))
    return min(UNKNOWN_IMAGE, ceil(size.width * size.height * scale * scale / _PIXELS_A_TOKEN))


def _pair(data: bytes, at: int, length: int, order: Literal["big", "little"]) -> Size | None:
    if len(data) < at + 2 * length:
        return None
    return Size(*(int.from_bytes(data[n : n + length], order) for n in (at, at + length)))


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return Size(*(int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27)))
    if kind == b"VP8L" and len(data) >= 25 and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a" and (found := _pair(data, 26, 2, "little")):
        return Size(found.width & 0x3FFF, found.height & 0x3FFF)
    return None


def _jpeg(data: bytes) -> Size | None:
    for marker, at in _markers(data):
        if marker in _FRAMES:
            found = _pair(data, at + 3, 2, "big")
            return found and Size(found.height, found.width)
    return None


def _markers(data: bytes) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG before its pixels, each with where its segment starts."""
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
"""Characters of base64 that nearly always tell the size of an image; if not, all of it is looked at."""
_SEALED = 256
"""Shorter texts are text, whatever they look like."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/_=-]{60,}\r?\n)*[A-Za-z0-9+/_=-]+\s*")
_PAGE_OBJECT = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PAGE_COUNT = re.compile(rb"/Count\s+(\d{1,6})\b")


def count_media_tokens(part: Part) -> int:
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


def extract_text(part: Part) -> str:
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
    size = read_image_size(_bytes(data[:_HEAD]))
    if size is None and len(data) > _HEAD and data.startswith("/9j/"):  # a JPEG with much before its pixels
        size = read_image_size(_bytes(data))
    return count_image_tokens(size, low=low)


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
    size = read_image_size(_bytes(data[:_HEAD]))
    return count_image_tokens(size) if size else -(-_length(data) // _BYTES_A_TOKEN)


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
