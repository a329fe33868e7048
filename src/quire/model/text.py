"""What text may be stored: one-line fields and bodies.

Names and descriptions are one line, so that nothing in them can break out of the line the model reads.
"""

import json
import re
from math import isfinite
from typing import Any

import msgspec

from quire.errors import InvalidValue, short_repr

MAX_NAME = 200
MAX_DESCRIPTION = 2_000
MAX_META_BYTES = 4_096
_META_DEPTH = 32

_LINE_BREAKS = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": " ", "f": " ", "n": "\n", "r": "\n", "t": "\t"}
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_INSIDE = _WORD | frozenset("./-@")


def check_one_line(value: object, field: str, limit: int, *, empty: bool = True) -> str:
    """The text as one line: line breaks become spaces. Raises `InvalidValue` on anything else that cannot stand."""
    text = _text(value, field)
    if len(text) > 4 * limit:  # far too long: say so before any work on megabytes
        raise InvalidValue(f"{field} has {len(text):,} characters; at most {limit:,} are kept on one line.")
    if not text.isprintable():  # the common case needs no further look
        found = _CONTROL.search(text)
        if found:
            raise InvalidValue(f"{field} {short_repr(text)} holds the control character {found.group()!r}; remove it.")
        text = _LINE_BREAKS.sub(" ", text)
    if len(text) > limit:
        raise InvalidValue(
            f"{field} {short_repr(text)} is too long; at most {limit:,} characters are kept on one line."
        )
    if not empty and not text.strip():
        raise InvalidValue(f"{field} {short_repr(value)} is empty; give at least one visible character.")
    return text


def collapse_whitespace(text: str) -> str:
    """The text with every run of spaces, line breaks and control characters as one space."""
    return _BLANKS.sub(" ", text).strip()


def clip_at_word(text: str, most: int) -> str:
    """The beginning of a text in at most so many characters, without the word, number or identifier it would cut.

    Half an identifier looks like another one. Of a text that is one long word nothing is left.
    """
    if len(text) <= most:
        return text
    end = most
    if _is_inside(text, end) and _goes_on(text, end):
        while end and _is_inside(text, end):
            end -= 1
    return text[:end].rstrip()


def unescape_json(text: str) -> str:
    """The text with the escapes of JSON strings resolved, as a person would read what stands in them."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
    if not _SURROGATE.search(plain):
        return plain
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_text(value: object, field: str = "detail") -> str:
    """The text of a body, any Unicode text. Raises `InvalidValue` on another type or a lone surrogate."""
    return _text(value, field)


def encode_meta(value: object, field: str = "meta") -> bytes:
    """A page's `meta` as stored. Raises `InvalidValue` unless it is a small dict of JSON-like values."""
    if value is None or value == {}:
        return b""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidValue(f"{field} is {short_repr(value)}; give a dict with text keys.")
    if not _is_plain(value, depth=_META_DEPTH):
        raise InvalidValue(f"{field} {short_repr(value)} cannot be stored; use plain JSON values, not nested deeply.")
    data = msgspec.msgpack.encode(value)
    if len(data) > MAX_META_BYTES:
        raise InvalidValue(
            f"{field} takes {len(data):,} bytes; at most {MAX_META_BYTES:,}. Long text is for the detail."
        )
    return data


def decode_meta(data: bytes) -> dict[str, Any]:
    """The inverse of `encode_meta`: a fresh dict each time."""
    return msgspec.msgpack.decode(data, type=dict[str, Any]) if data else {}


def format_json(value: object) -> bytes:
    """Plain values as JSON for people: one field a line. Laying it out in Python would take four times as long."""
    return msgspec.json.format(json.dumps(value, ensure_ascii=False).encode(), indent=1)


def _is_inside(text: str, place: int) -> bool:
    """Whether a place is inside a run of letters, digits and what joins them, as in `ORD-1026` or `3,500`."""
    before, after = text[place - 1 : place], text[place : place + 1]
    if before in ",:":
        return before != "" and text[place - 2 : place - 1].isdigit() and after.isdigit()
    if after in ",:":
        return before.isdigit() and text[place + 1 : place + 2].isdigit()
    return before in _INSIDE and after in _INSIDE


def _goes_on(text: str, place: int) -> bool:
    """Whether a run has more letters or digits after a place, not just a full stop."""
    while place < len(text) and _is_inside(text, place):
        if text[place] in _WORD:
            return True
        place += 1
    return False


def _is_plain(value: object, depth: int) -> bool:
    """Whether a value is one that JSON has, so that it comes back from every store as it was."""
    match value:
        case None | bool():
            return True
        case str():
            return value.isascii() or not _SURROGATE.search(value)
        case int():
            return -(1 << 63) <= value < 1 << 64
        case float():
            return isfinite(value)
        case list():
            return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
        case dict():
            pairs = value.items()
            return depth > 0 and all(isinstance(key, str) and _is_plain([key, item], depth) for key, item in pairs)
        case _:
            return False


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{field} is {short_repr(value)} of type {type(value).__name__}; text is needed.")
    if not value.isascii():
        found = _SURROGATE.search(value)
        if found:
            place = f"at character {found.start()}"
            raise InvalidValue(f"{field} holds a lone surrogate {found.group()!r} {place}; it is not Unicode text.")
    return value
