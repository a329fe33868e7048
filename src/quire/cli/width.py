"""How wide text is on a terminal: a Chinese character takes two columns, a combining mark none."""

import shutil
from functools import lru_cache
from unicodedata import category, east_asian_width

DEFAULT_WIDTH = 100


def terminal_width() -> int:
    """The columns of the terminal (`COLUMNS` is heard), or a usual number where there is none."""
    return max(40, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns)


def width(text: str) -> int:
    """The columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, room: int) -> str:
    """The text, or as much of its beginning as fits the room, with an ellipsis."""
    if width(text) <= room:
        return text
    kept, left = "", room - 1
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept += character
    return f"{kept.rstrip()}…" if room > 0 else ""


def cut_around(text: str, place: int, room: int) -> str:
    """The text, or as much of it around a place as fits the room, about a third before; ellipses where it is cut."""
    start, before, left = place, 0, room - 1 - width(text[place:])
    while start > 0:
        before += _columns(text[start - 1])
        if before > max(room // 3, left):
            break
        start -= 1
    if start <= 0 or width(text) <= room:
        return cut(text, room)
    return f"…{cut(text[start:].lstrip(), room - 1)}" if room > 0 else ""


def pad(text: str, room: int, *, right: bool = False) -> str:
    """The text cut or filled up with spaces to exactly the room; with `right` it stands at the right end."""
    text = cut(text, room)
    filling = " " * (room - width(text))
    return filling + text if right else text + filling


@lru_cache(maxsize=8_192)
def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
