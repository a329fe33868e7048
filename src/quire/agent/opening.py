"""What has room in an agent's window: a page that it opens, and an answer of its tools."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from quire.errors import InvalidOperation
from quire.pages import Form, SegmentType, Visibility
from quire.reader import Reader
from quire.records import PageRecord, page_key
from quire.state import State
from quire.view.draw import shown_pages
from quire.view.steady import Steady

MOST = 0.4
"""The part of a window that one page may take: what is larger would be folded again at once."""
_USUAL = 1_000
_LEAST = 120
"""Tokens of an answer that there is always room for: an agent must get on, however small its window."""
_LONGEST_TOKEN = 16
"""Characters; longer tokens are rare, and a text is looked at no further than they reach."""


class Room(Struct, frozen=True):
    """The tokens that an answer of a tool may take: if nobody says how long it is to be, and at most."""

    usual: int
    most: int
    count: Callable[[str], int]

    def cut(self, text: str, tokens: int) -> int:
        """How many characters of a text's beginning have room; at least one, and up to a blank if one is near."""
        size = min(len(text), max(1, tokens) * _LONGEST_TOKEN)
        while size > 1 and (used := self.count(text[:size])) > tokens:
            size = max(1, min(size - 1, int(size * tokens / used * 0.98)))
        if size < len(text):
            blank = max(text.rfind(sign, size - size // 8, size) for sign in " \n。")
            return blank + 1 if blank >= 0 else size
        return size

    def whole(self, lines: Sequence[str], tokens: int) -> int:
        """How many of these lines have room; at least one."""
        fit = len(lines)
        while fit > 1 and self.count("\n".join(lines[:fit])) > tokens:
            fit -= 1
        return fit


def answer_room(reader: Reader, window: int, count: Callable[[str], int]) -> Room:
    """The room for an answer in a window of so many tokens: prompts stand in it anyway, and calls that were made
    together share it, so that no answer is clipped in the view."""
    prompts = (
        page.header.tokens
        for number, segment in reader.live_segments()
        if segment.type is SegmentType.SYSTEM
        for page in reader.members(page_key(number, 0))
    )
    left = max(0, window - sum(prompts))
    waiting = reader.open_exchange()
    calls = len(waiting.header.pending) + len(waiting.header.numbers) - 1 if waiting else 1
    most = max(_LEAST, min(left // 4, left // (2 * max(1, calls))))
    return Room(max(_LEAST, min(_USUAL, left // 6, most)), most, count)


def check_room(state: State, page: PageRecord, budget: int) -> None:
    """Raise `InvalidOperation` for a page that is too large to be shown, saying how to read it."""
    header = page.header
    if header.form is Form.WINDOW:
        return  # it stands in the tail, which has its own measure
    leaves = shown_pages(Steady(state, state.anchors()), page.key) if header.folder else ()
    tokens = sum(map(_size, leaves)) if header.folder else header.clip or header.tokens
    if tokens <= budget * MOST:
        return
    index = state.index(page.key)
    if header.folder:
        raise InvalidOperation(
            f"Cannot open {index!r}: what is in it takes {tokens:,} tokens, your window has {budget:,}."
            f" read_page({index!r}) lists it; open what you need of it."
        )
    raise InvalidOperation(
        f"Cannot open {index!r}: it takes {tokens:,} tokens, your window has {budget:,}."
        f" read_page({index!r}, start=0, length=4000) reads it piece by piece."
    )


def _size(page: PageRecord) -> int:
    header = page.header
    if header.folder or header.visibility is Visibility.HIDDEN:
        return header.line_tokens
    return header.clip or header.tokens
