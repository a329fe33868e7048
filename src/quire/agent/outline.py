"""Listing pages for a model: one line each, so many at a time."""

from collections.abc import Iterator, Sequence

from quire.agent.opening import Room
from quire.agent.sight import Sight
from quire.errors import NoSuchPage
from quire.pages import MAX_NUMBER, ContentsPage, Lifecycle, Mark, Page, PageIndex, Visibility
from quire.records import PageRecord, decode_page, page_key, segment_number
from quire.search.finding import Hit
from quire.search.snippets import CLOSE, OPEN
from quire.state import State
from quire.storage.base import PAGE

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
