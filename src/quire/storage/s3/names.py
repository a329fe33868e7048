"""Names as object keys: any name of a context, in an order that is its own, and back again.

An S3 server lists keys by their bytes, so keys of names sort by code point as the names do. The names are written in
letters, digits, `-` and `_`, which no server, proxy or signature treats in a special way.
"""

from typing import Final

from quire.errors import InvalidValue, shown

_DIGITS: Final = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_FIRST: Final = 6  # of a code point in three digits, the first is one of those from here
_LAST: Final = 62  # to here; the digit after it begins a code point in four
_SHORT: Final = "z{|}~"
_WIDE: Final = (_LAST - _FIRST + 1) << 12
_SEGMENT: Final = 240
"""The most of a name in one part of a key: file names in the folders of some servers end at 255 bytes."""
_END, _MORE = "!", "-/"
MAX_KEY_BYTES: Final = 1024


def _one(char: str) -> str:
    """A character as itself or as a few; what follows a first letter here sorts as the characters do."""
    point = ord(char)
    if point < 0x30:
        return f"-{max(point - 0x20, 0):x}"
    if point < 0x7A:
        if "9" <= char <= "@":
            return f"9{point - ord('9')}"
        if "Z" <= char <= "^":
            return f"Z{point - ord('Z')}"
        return f"_{point - ord('_')}" if "_" <= char <= "`" else char
    if char in _SHORT:
        return f"z{_SHORT.index(char)}"
    number = point - 0x7F
    if number < _WIDE:
        return "z" + _digits(number + (_FIRST << 12), 3)
    return "zz" + _digits(number - _WIDE, 4)


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 6 * place & 63] for place in reversed(range(count)))


def key_of(name: str) -> str:
    """The key of a name, without the prefix of the store."""
    text = "".join(map(_one, name))
    parts = [text[at : at + _SEGMENT] for at in range(0, len(text), _SEGMENT)] or [""]
    return _MORE.join(parts) + _END


def name_of(key: str) -> str | None:
    """The name whose key this is; None if it is no such key."""
    text = key.removesuffix(_END).replace(_MORE, "")
    chars: list[str] = []
    position = 0
    try:
        while position < len(text):
            char, position = _read(text, position)
            chars.append(char)
    except (IndexError, KeyError, ValueError):
        return None
    name = "".join(chars)
    return name if key_of(name) == key else None


def _read(text: str, position: int) -> tuple[str, int]:
    lead, following = text[position], text[position + 1 : position + 2]
    match lead:
        case "-":
            return chr(0x20 + int(following, 16)), position + 2
        case "9" | "Z" | "_":
            return chr(ord(lead) + int(following)), position + 2
        case "z" if following in "01234":
            return _SHORT[int(following)], position + 2
        case "z" if following == "z":
            return chr(_number(text[position + 2 : position + 6]) + _WIDE + 0x7F), position + 6
        case "z":
            return chr(_number(text[position + 1 : position + 4]) - (_FIRST << 12) + 0x7F), position + 4
        case _:
            return lead, position + 1


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number << 6 | _VALUES[digit]
    return number


def check_key(key: str, name: str) -> str:
    """The key if a server can take it. Raises `InvalidValue`."""
    if len(key) <= MAX_KEY_BYTES:
        return key
    raise InvalidValue(f"Context name {shown(name)} makes a key of {len(key):,} bytes; S3 takes {MAX_KEY_BYTES:,}.")
