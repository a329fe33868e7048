"""Text that can be stored: one-line fields, bodies and `meta`.

Names and descriptions are one line, so that their text cannot start a new line in a view. The module also makes
spellings of tool names and call ids that a provider does not accept. A spelling has the legal characters of the name
and a digest of the name. It depends on nothing else: all processes make the same spelling for the same name, and
different names have different spellings.
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
_LINE_ENDS = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": " ", "f": " ", "n": "\n", "r": "\n", "t": "\t"}
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_INSIDE = _WORD | frozenset("./-@")


def check_one_line(value: object, field: str, limit: int, *, empty: bool = True) -> str:
    """Return the text as one line; line breaks become spaces. Raise `InvalidValue` if it is too long or not text."""
    text = check_text(value, field)
    if len(text) > 4 * limit:  # reject megabytes before any further work
        raise InvalidValue(f"has {len(text):,} characters; at most {limit:,} are allowed.", argument=field)
    if not text.isprintable():  # the common case needs no further checks
        found = _CONTROL.search(text)
        if found:
            raise InvalidValue(f"{short_repr(text)} contains the control character {found.group()!r}.", argument=field)
        text = _LINE_BREAKS.sub(" ", text)
    if len(text) > limit:
        raise InvalidValue(f"{short_repr(text)} is too long; at most {limit:,} characters are allowed.", argument=field)
    if not empty and not text.strip():
        raise InvalidValue(f"{short_repr(value)} is empty; a visible character is needed.", argument=field)
    return text


def clean_line(text: str) -> str:
    """Return a text for one line of a view: without line breaks, controls and changes of the reading direction."""
    return text if text.isprintable() else _DIRECTIONS.sub("", _CONTROL.sub(" ", _LINE_BREAKS.sub(" ", text)))


def indent_lines(text: str) -> str:
    """Return the text with a space before every line that is not empty."""
    return "".join([line if line[0] in _LINE_ENDS else f" {line}" for line in text.splitlines(keepends=True)])


def hang_lines(text: str) -> str:
    """Return the text with a space before every line except the first, which follows a label."""
    return indent_lines(text).removeprefix(" ")


def collapse_whitespace(text: str) -> str:
    """Replace every run of spaces, line breaks and control characters by one space."""
    return _BLANKS.sub(" ", text).strip()


def clip_at_word(text: str, most: int) -> str:
    """Return the start of a text in at most `most` characters. No word, number or identifier is cut in the middle.

    Half an identifier looks like another identifier. If the text begins with a longer word, the result is "".
    """
    if len(text) <= most:
        return text
    end = most
    if _is_inside(text, end) and (text[end] in _WORD or _continues(text, end)):
        start = text.rfind(" ", 0, end) + 1
        word = text[start:end]
        if word.isascii() and word.isalnum():  # the usual case
            return text[:start].rstrip()
        while end and _is_inside(text, end):
            end -= 1
    return text[:end].rstrip()


def unescape_json(text: str) -> str:
    """Replace the escapes of JSON strings by the characters that they encode."""
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
    if not SURROGATE.search(plain):
        return plain
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    return text.isascii() or SURROGATE.search(text) is None


def check_text(value: object, field: str = "detail") -> str:
    """Return the text of a body. Raise `InvalidValue` if it is not text or has a lone surrogate."""
    if not isinstance(value, str):
        raise InvalidValue(f"is {short_repr(value)} of type {type(value).__name__}; text is needed.", argument=field)
    if not value.isascii():
        found = SURROGATE.search(value)
        if found:
            place = f"{found.group()!r} at character {found.start()}"
            raise InvalidValue(f"contains the lone surrogate {place}; Unicode text is needed.", argument=field)
    return value if type(value) is str else str.__str__(value)  # a StrEnum, Markup or numpy.str_ is text


def encode_meta(value: object, field: str = "meta") -> bytes:
    """Encode the `meta` of a page. Raise `InvalidValue` unless it is a small dict of JSON values."""
    if value is None or value == {}:
        return b""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidValue(f"is {short_repr(value)}; a dict with text keys is needed.", argument=field)
    if not _is_json(value, depth=_META_DEPTH):
        raise InvalidValue(
            f"is {short_repr(value)}; JSON values, nested at most {_META_DEPTH} levels, are needed.", argument=field
        )
    data = msgspec.msgpack.encode(_plain(value))
    if len(data) > MAX_META_BYTES:
        raise InvalidValue(
            f"takes {len(data):,} bytes; at most {MAX_META_BYTES:,} are allowed. Put long text into the detail.",
            argument=field,
        )
    return data


def decode_meta(data: bytes) -> dict[str, Any]:
    """Decode the `meta` of a page as a new dict."""
    return msgspec.msgpack.decode(data, type=dict[str, Any]) if data else {}


def format_json(value: object) -> bytes:
    """Format plain values as JSON with one field per line. This is four times as fast as `json.dumps(indent=1)`."""
    return msgspec.json.format(json.dumps(value, ensure_ascii=False).encode(), indent=1)


def _is_inside(text: str, place: int) -> bool:
    """Return whether a place is inside a run of letters, digits and joining characters: `ORD-1026`, `3,500`."""
    before, after = text[place - 1 : place], text[place : place + 1]
    if before in ",:":
        return before != "" and text[place - 2 : place - 1].isdigit() and after.isdigit()
    if after in ",:":
        return before.isdigit() and text[place + 1 : place + 2].isdigit()
    return before in _INSIDE and after in _INSIDE


def _continues(text: str, place: int) -> bool:
    """Return whether the run has letters or digits after the place, not only a full stop."""
    while place < len(text) and _is_inside(text, place):
        if text[place] in _WORD:
            return True
        place += 1
    return False


def _plain(value: Any) -> Any:
    """Return a JSON value in which every text is a plain `str`."""
    if isinstance(value, dict):
        return {str.__str__(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str.__str__(value) if isinstance(value, str) else value


def _is_json(value: object, depth: int) -> bool:
    """Return whether a value is a JSON value, so that every store returns it unchanged."""
    match value:
        case None | bool():
            return True
        case str():
            return value.isascii() or not SURROGATE.search(value)
        case int():
            return -(1 << 63) <= value < 1 << 64
        case float():
            return isfinite(value)
        case list():
            return depth > 0 and all(_is_json(item, depth - 1) for item in value)
        case dict():
            pairs = value.items()
            return depth > 0 and all(isinstance(key, str) and _is_json([key, item], depth) for key, item in pairs)
        case _:
            return False


NAME_LENGTH = 64
ID_LENGTH = 40
"""The lengths that every provider accepts."""
_DIGEST = 6  # bytes
_LEGAL = re.compile("[a-zA-Z0-9_-]+")
_ILLEGAL = re.compile("[^a-zA-Z0-9_-]")
_ILLEGAL_IN_SPEAKER = re.compile(r"[\s<|\\/>]+")
_SPELLED = re.compile(rf".*_[0-9a-f]{{{2 * _DIGEST}}}", re.DOTALL)


def spell_name(name: str) -> str:
    """Return the name of a tool as every provider accepts it: the name itself if they do."""
    return _spell(name, NAME_LENGTH)


def spell_id(call_id: str) -> str:
    """Return the id of a call as every provider accepts it: the id itself if they do."""
    return _spell(call_id, ID_LENGTH)


def spell_speaker(name: str) -> str:
    """Return the name of a speaker as OpenAI's chat accepts it. Different names may become equal."""
    return _ILLEGAL_IN_SPEAKER.sub("_", name)[:NAME_LENGTH] or "_"


def is_spelled(text: str) -> bool:
    """Return whether a name or an id may be the spelling of another."""
    return _SPELLED.fullmatch(text) is not None


def _spell(text: str, length: int) -> str:
    if len(text) <= length and _LEGAL.fullmatch(text):
        return text
    from hashlib import blake2b  # late: the import is slow and rarely needed

    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_DIGEST).hexdigest()
    return f"{_ILLEGAL.sub('_', text)[: length - len(digest) - 1]}_{digest}"
