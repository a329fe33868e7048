"""What has room in an agent's window: a page that it opens, and an answer of its tools.

Listing pages for a model: one line each, so many at a time.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from quire.agent.gate import Sight
from quire.core.reader import Reader
from quire.core.records import PageRecord, decode_page, page_key, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation, NoSuchPage
from quire.model.pages import MAX_NUMBER, ContentsPage, Form, Lifecycle, Mark, Page, PageIndex, SegmentType, Visibility
from quire.search.find import Hit
from quire.search.snippets import CLOSE, OPEN
from quire.storage.base import PAGE
from quire.view.deferred import Steady
from quire.view.draw import shown_pages

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
    leaves = shown_pages(Steady(state, state.deferred_changes()), page.key) if header.folder else ()
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


_SUMMARY = 120
_PASSAGES = (200, 100, 50)
"""Characters of a name and of a passage, shorter and shorter until the hits have room."""
_PARTLY = "Not all of the query is in these:"
_ECHOES = "These are earlier searches:"


def entry(page: Page, depth: int = 0) -> str:
    """The line of a page: its index, size and state, its name and summary."""
    state = ""
    if page.lifecycle is not Lifecycle.ACTIVE:
        state = " archived"
    elif page.pinned:
        state = " pinned"
    elif page.visibility is Visibility.HIDDEN:
        state = " hidden"
    size = f"{page.child_count} pages" if isinstance(page, ContentsPage) else str(page.tokens)
    about = f": {page.description[:_SUMMARY]}" if page.description else ""
    return f"{'  ' * depth}[{page.index} {size}{state}] {page.name}{about}"


def listing(lines: Sequence[str], start: int, most: int, room: Room) -> str:
    """So many lines that begin at `start`, given with at least one more if there is one, and how to go on."""
    if not lines:
        return f"There is nothing from {start} on." if start else "Nothing there."
    fit = room.whole(lines[:most], room.most)
    more = [f"… more: go on with start={start + fit}."] if len(lines) > fit else []
    return "\n".join([*lines[:fit], *more])


def found(hits: Sequence[Hit], room: Room, tokens: int) -> str:
    """A line for every hit in so many tokens: those that hold everything first, echoes last. Where there is too little
    room, echoes go before anything else does, then passages become shorter, then the last hits go."""
    order = sorted(hits, key=lambda hit: (hit.echo, not hit.complete and not hit.echo))
    pages = sum(not hit.echo for hit in order)
    for length in _PASSAGES:
        for fit in range(len(order), (pages or len(order)) - 1, -1):
            lines = _hit_lines(order[:fit], length)
            if room.count("\n".join(lines)) <= tokens:
                return "\n".join(lines)
    fit = pages or len(order)
    while fit > 1 and room.count("\n".join(_hit_lines(order[:fit], _PASSAGES[-1]))) > tokens:
        fit -= 1
    more = [f"… {len(order) - fit} more that have no room here: ask more exactly."] if fit < len(order) else []
    return "\n".join([*_hit_lines(order[:fit], _PASSAGES[-1]), *more])


def _hit_lines(hits: Sequence[Hit], length: int) -> list[str]:
    lines = []
    above = ""
    for hit in hits:
        head = _ECHOES if hit.echo else "" if hit.complete else _PARTLY
        if head != above:
            lines.append(head)
            above = head
        lines.append(f"[{hit.index}] {hit.name[:length]}: {_around(hit.snippet or hit.description, length)}")
    return lines


def _around(passage: str, length: int) -> str:
    """So much of a passage, with the first place that was found in it. Words that stand in a row have one mark: a model
    pays for every sign."""
    passage = passage.replace(f"{CLOSE} {OPEN}", " ")
    if len(passage) <= length:
        return passage
    place = max(0, passage.find(OPEN))
    start = max(0, min(place - length // 4, len(passage) - length))
    end = start + length
    shown = passage[start:end]
    open_mark = CLOSE if shown.rfind(OPEN) > shown.rfind(CLOSE) else ""
    return f"{'…' if start else ''}{shown}{open_mark}{'…' if end < len(passage) else ''}"


def contents(sight: Sight) -> Iterator[tuple[int, PageRecord]]:
    """What stands open, level by level below every segment's root, each with its depth; a closed folder is one line."""
    for number, _ in sight.live_segments():
        root = sight.page(page_key(number, 0))
        if isinstance(root, PageRecord):
            yield from _below(sight, root)


def every_page(sight: Sight, state: State, after: PageIndex | None) -> Iterator[PageRecord]:
    """The pages of every segment by number, those that come after an index. Streams. Raises `NoSuchPage`."""
    numbers = [number for number, _ in sight.live_segments()]
    first = 0
    if after is not None:
        key = sight.key_of(after)
        if key is None or segment_number(key) not in numbers:
            raise NoSuchPage(after)
        numbers, first = numbers[numbers.index(segment_number(key)) :], key + 1
    for number in numbers:
        last = page_key(number, MAX_NUMBER)
        for record in state.storage.scan(state.context, PAGE, max(first, page_key(number, 0)), last):
            page = decode_page(record)
            if isinstance(page, PageRecord) and page.header.mark is Mark.NONE:
                yield page
        first = 0


def _below(sight: Sight, root: PageRecord) -> Iterator[tuple[int, PageRecord]]:
    rows = [iter((root,))]
    while rows:
        page = next(rows[-1], None)
        if page is None:
            rows.pop()
            continue
        yield len(rows) - 1, page
        header = page.header
        if header.folder and header.lifecycle is Lifecycle.ACTIVE and header.visibility is Visibility.EXPANDED:
            rows.append(sight.members(page.key))
