"""Frames: a window as XML for a model. Nothing in a window can break out of its frame.

All text is escaped. Characters that XML cannot contain, that are invisible or that change the reading direction are
written as a visible `[U+202E]`. The key of the context appears only in the attribute that proves that a window is real.
Long content is clipped; its beginning and its end are shown.
"""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from quire.model.pages import PageIndex
from quire.windows.actions import Action
from quire.windows.app import Contents

MOST_CHARACTERS = 16_000
"""The most characters of a window's content that are shown."""

_HEAD_SHARE = 0.6
_BREAK = "·"
_ERROR_CHARACTERS = 300
_DESCRIPTION_CHARACTERS = 500
_ID_CHARACTERS = 100
_LINE_CHARACTERS = 100
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # reading direction, and zero width
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # not characters
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "\U000e0000-\U000e007f]"  # tags: invisible to people
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
    frame = _without_key(frame, key)
    inner = f"<error>{escape(_clip(frame.error, _ERROR_CHARACTERS))}</error>" if frame.error else ""
    return _window(frame, key, inner or _content(frame.contents, most), _actions(frame.actions))


def frame_line(frame: Frame, key: str, page: PageIndex) -> str:
    """Return the window as one line that says how to open its page. It does not change with the content."""
    head = _without_key(Frame(id=frame.id, description=frame.description), key)
    described = quote_attribute(_clip(head.description, _LINE_CHARACTERS))
    call = f'[… not shown: expand_details("{page}") …]'
    return f'<Window id="{quote_attribute(head.id)}" key="{quote_attribute(key)}">{described} {call}</Window>'


def more_windows_line(key: str, windows: Sequence[tuple[str, PageIndex]], root: PageIndex) -> str:
    """Return one line for several windows, given by id and page, that says how to open them."""
    (first, first_page), (last, last_page) = windows[0], windows[-1]
    return (
        f"[{key}] {len(windows):,} more windows, not shown: {first} ({first_page}) … {last} ({last_page})."
        f' read_page("{root}") lists them, expand_details(page) opens one.'
    )


def escape(text: str) -> str:
    """Return the text for an XML element: without markup, with invisible characters made visible."""
    if _UNSHOWABLE.search(text):
        text = _UNSHOWABLE.sub(_mark, text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quote_attribute(text: str) -> str:
    """Return the text for an XML attribute, on one line."""
    return " ".join(escape(text).split()).replace('"', "&quot;")


def _without_key(frame: Frame, key: str) -> Frame:
    """Return the frame with the context's key broken up in its texts, in case one repeats the key."""
    found = re.compile(re.escape(key), re.IGNORECASE)
    contents = frame.contents
    texts = [contents] if isinstance(contents, str) else [text for item in contents for text in item]
    if not any(map(found.search, (frame.description, frame.error, *texts))):
        return frame

    def broken(text: str) -> str:
        return found.sub(lambda match: match[0][:1] * (len(key) > 1) + _BREAK + match[0][1:], text)

    without = broken(contents) if isinstance(contents, str) else tuple((broken(a), broken(b)) for a, b in contents)
    return replace(frame, description=broken(frame.description), error=broken(frame.error), contents=without)


def _window(frame: Frame, key: str, content: str, actions: str) -> str:
    obsolete = ' obsolete="true"' if frame.obsolete else ""
    return (
        f'<Window id="{quote_attribute(frame.id)}" key="{quote_attribute(key)}"{obsolete}>\n'
        f"  <Description>{escape(_clip(frame.description, _DESCRIPTION_CHARACTERS))}</Description>\n"
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


def _content(contents: Contents, most: int) -> str:
    if isinstance(contents, str):
        return escape(_clip(contents, most))
    if sum(len(text) for _, text in contents) + 16 * len(contents) <= most:
        return "".join(map(_item, contents))
    head, tail = _ends(contents, most)
    marker = f"[… {len(contents) - len(head) - len(tail):,} of {len(contents):,} items left out …]"
    return "".join([*map(_item, head), marker, *map(_item, tail)])


def _item(item: tuple[str, str]) -> str:
    return f'<item id="{quote_attribute(item[0][:_ID_CHARACTERS])}">{escape(item[1])}</item>'


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
