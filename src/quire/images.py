"""Images: their size, read from the first bytes, and what that size costs.

Providers bill an image by its pixels, not by its bytes, each by a rule of its own. A message is counted once for all of
them, so the larger of the two documented rules counts; `Context.report_usage` learns what a model takes beside that.
"""

from collections.abc import Iterator
from math import ceil
from typing import Literal, NamedTuple

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


def image_size(data: bytes) -> Size | None:
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


def image_tokens(size: Size | None, *, low: bool = False) -> int:
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
