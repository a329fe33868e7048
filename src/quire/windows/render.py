"""Frames: a window as XML for a model. Nothing in a window can break out of its frame.

All text is escaped, and its further lines are indented. Characters that XML cannot contain, that are invisible or that
change the reading direction are written as a visible `[U+202E]`. The key of the context appears only in the attribute
that proves that a window is real. Long content is clipped; its beginning and its end are shown.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from quire.model.pages import PageIndex
from quire.model.text import hang_lines
from quire.view.escaping import escaping_for
from quire.windows.actions import Action
from quire.windows.app import Contents

MOST_CHARACTERS = 16_000
"""The most characters of a window's content that are shown."""

_HEAD_SHARE = 0.6
_ERROR_CHARACTERS = 300
_DESCRIPTION_CHARACTERS = 500
_ID_CHARACTERS = 100
_LINE_CHARACTERS = 100
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # invisible, or a change of the reading direction
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # not characters
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "\U000e0000-\U000e0fff]"  # tags and selectors of forms: invisible to people
)


class Frame(Struct, frozen=True, kw_only=True):
    """The content of a window at one moment."""

    id: str
    description: str = ""
    contents: Contents = ""
    actions: tuple[Action, ...] = ()
    error: str = ""
    obsolete: bool = False


def frame_text(frame: Frame, key: str, most: int = MOST_CHARACTERS) -> str:
    """Return the window as XML, its content in about `most` characters. The key proves that the window is real."""
    clean = escaping_for(key).escape_key
    inner = f"<error>{escape(clean(_clip(frame.error, _ERROR_CHARACTERS)))}</error>" if frame.error else ""
    return _window(frame, key, inner or _content(frame.contents, most, clean), clean(_actions(frame.actions)))


def frame_line(frame: Frame, key: str, page: PageIndex) -> str:
    """Return the window as one line that says how to open its page. It does not change with the content."""
    escaping = escaping_for(key)
    described = quote_attribute(escaping.escape_key(_clip(frame.description, _LINE_CHARACTERS)))
    name = quote_attribute(escaping.escape_id(frame.id))
    call = f'[… not shown: expand_details("{page}") …]'
    return f'<Window id="{name}" key="{quote_attribute(key)}">{described} {call}</Window>'


def more_windows_line(key: str, windows: Sequence[tuple[str, PageIndex]], root: PageIndex) -> str:
    """Return one line for several windows, given by id and page, that says how to open them."""
    (first, first_page), (last, last_page) = windows[0], windows[-1]
    first, last = map(escaping_for(key).escape_id, (first, last))
    return (
        f"[{key}] {len(windows):,} more windows, not shown: {first} ({first_page}) … {last} ({last_page})."
        f' read_page("{root}") lists them, expand_details(page) opens one.'
    )


def escape(text: str) -> str:
    """Return the text for an XML element: without markup, indented, with invisible characters made visible."""
    if _UNSHOWABLE.search(text):
        text = _UNSHOWABLE.sub(_mark, text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return hang_lines(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quote_attribute(text: str) -> str:
    """Return the text for an XML attribute, on one line."""
    return " ".join(escape(text).split()).replace('"', "&quot;")


def _window(frame: Frame, key: str, content: str, actions: str) -> str:
    obsolete = ' obsolete="true"' if frame.obsolete else ""
    escaping = escaping_for(key)
    description = escaping.escape_key(_clip(frame.description, _DESCRIPTION_CHARACTERS))
    return (
        f'<Window id="{quote_attribute(escaping.escape_id(frame.id))}" key="{quote_attribute(key)}"{obsolete}>\n'
        f"  <Description>{escape(description)}</Description>\n"
        f"  <Content>{content}</Content>\n"
        f"{actions}</Window>"
    )


def _actions(actions: Sequence[Action]) -> str:
    if not actions:
        return ""
    return f"  <Actions>{''.join(map(_action, actions))}</Actions>\n"


def _action(action: Action) -> str:
    params = f' params="{quote_attribute(action.usage)}"' if action.parameters else ""
    return f'<action id="{quote_attribute(action.name)}"{params}>{escape(action.description)}</action>'


def _content(contents: Contents, most: int, clean: Callable[[str], str]) -> str:
    """Return the content in about `most` characters. `clean` breaks up the key in what is shown."""
    if isinstance(contents, str):
        return escape(clean(_clip(contents, most)))
    if sum(len(text) for _, text in contents) + 16 * len(contents) <= most:
        return "".join(_item(name, text, clean) for name, text in contents)
    head, tail = _ends(contents, most)
    marker = f"[… {len(contents) - len(head) - len(tail):,} of {len(contents):,} items left out …]"
    first, last = ("".join(_item(name, text, clean) for name, text in row) for row in (head, tail))
    return f"{first}{marker}{last}"


def _item(name: str, text: str, clean: Callable[[str], str]) -> str:
    return f'<item id="{quote_attribute(clean(name[:_ID_CHARACTERS]))}">{escape(clean(text))}</item>'


def _ends(items: Sequence[tuple[str, str]], most: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the first and the last items that fit. An item that would fill the room alone is shortened."""
    single = max(most // 4, 40)
    head: list[tuple[str, str]] = []
    tail: list[tuple[str, str]] = []
    for kept, row, room in (
        (head, items, int(most * _HEAD_SHARE)),
        (tail, items[::-1], most - int(most * _HEAD_SHARE)),
    ):
        for name, text in row[: len(items) - len(head)]:
            short = _clip(text, single)
            room -= len(short) + 16
            if room < 0:
                break
            kept.append((name, short))
    return head, tail[::-1]


def _clip(text: str, most: int) -> str:
    """Return the beginning and the end of a text with a marker between them."""
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    end = most - head
    marker = f"\n[… {len(text) - most:,} of {len(text):,} characters left out …]\n"
    return f"{text[:head]}{marker}{text[len(text) - end :] if end else ''}"


def _mark(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"
