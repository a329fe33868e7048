"""Lists of pages and hits as lines for a model, and the tokens that such an answer may take.

A list that is too long for one answer (a folder, a run of pages or all segments) is given in runs that can be opened.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from quire.agent.gate import VisibleReader
from quire.core.reader import Reader
from quire.core.records import PAGE_CODE, PageRecord, page_key, page_number, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, NoSuchPage
from quire.model.pages import (
    READABLE,
    ContentsPage,
    DetailPage,
    Form,
    Lifecycle,
    Page,
    PageIndex,
    SegmentType,
    Visibility,
)
from quire.model.text import clean_line, indent_lines
from quire.search.find import Hit
from quire.search.page_text import CLOSE, OPEN
from quire.system.journal import page_before, stored_entry
from quire.system.tree import to_page
from quire.view.deferred import DeferredReader
from quire.view.opened import opened_room, opened_tokens
from quire.view.sheets import SPAN, Run, Sheets, clip_line, draw_run, fit_run_line, read_span

_DEFAULT_TOKENS = 1_000
_MIN_TOKENS = 120
"""The tokens that every answer may take, so that an agent can work in a window of any size."""
_MOST_ORIGINALS = 40
_MORE_TOKENS = 16
"""The tokens of a line that counts others."""
_LONGEST_TOKEN = 16
"""Characters. Longer tokens are rare, so a text is counted no further than this many characters for each token."""


class AnswerRoom(Struct, frozen=True):
    """The tokens that an answer of a tool may take: by default, and if the model asks for a length itself."""

    default: int
    limit: int
    count: Callable[[str], int]

    def cut(self, text: str, tokens: int) -> int:
        """Return how many characters of a text fit: at least one, and up to a blank if one is near."""
        size = min(len(text), max(1, tokens) * _LONGEST_TOKEN)
        while size > 1 and (used := self.count(text[:size])) > tokens:
            size = max(1, min(size - 1, int(size * tokens / used * 0.98)))
        if size < len(text):
            blank = max(text.rfind(sign, size - size // 8, size) for sign in " \n。")
            return blank + 1 if blank >= 0 else size
        return size

    def count_lines(self, lines: Sequence[str], tokens: int) -> int:
        """Return how many of the lines fit; at least one."""
        fit = len(lines)
        while fit > 1 and self.count("\n".join(lines[:fit])) > tokens:
            fit -= 1
        return fit


def answer_room(reader: Reader, window: int, count: Callable[[str], int]) -> AnswerRoom:
    """Return the room for an answer in a view of `window` tokens.

    System prompts use a part of the view, and calls that were made together share a part of the remaining tokens, so
    that the view clips no answer.
    """
    prompts = (
        page.header.tokens
        for number, segment in reader.live_segments()
        if segment.type is SegmentType.SYSTEM
        for page in reader.members(page_key(number, 0))
    )
    left = max(0, window - sum(prompts))
    waiting = reader.open_exchange()
    calls = len(waiting.header.pending) + len(waiting.header.numbers) - 1 if waiting else 1
    limit = max(_MIN_TOKENS, min(left // 4, left // (2 * max(1, calls))))
    return AnswerRoom(max(_MIN_TOKENS, min(_DEFAULT_TOKENS, left // 6, limit)), limit, count)


def check_page_fits(state: State, page: PageRecord, budget: int, originals: Sequence[PageRecord]) -> None:
    """Raise `InvalidOperation` if the page is too large to be opened in a view of this budget.

    `originals` are the messages that a summary shows if it is opened.
    """
    tokens = sum(original.header.tokens for original in originals)
    tokens = tokens or opened_tokens(DeferredReader(state, state.deferred_changes()), page, budget)
    if tokens <= opened_room(state, page.key, budget):
        return
    index, segment = state.index(page.key), state.segment(segment_number(page.key))
    capacity = segment.max_capacity if segment is not None else 0
    room = f"its segment has {capacity:,}" if 0 < capacity < budget else f"your window has {budget:,}"
    if page.header.folder:
        raise InvalidOperation(
            f"Cannot open {index!r}: its pages take {tokens:,} tokens{' and more' if tokens > budget else ''}, {room}.",
            Hint("children", index, purpose="to list them, and open the ones you need"),
        )
    raise InvalidOperation(
        f"Cannot open {index!r}: it takes {tokens:,} tokens, {room}.",
        Hint("read_page", index, arguments="start=0, length=4000", purpose="to read it in parts"),
    )


_EXCHANGES = (Form.USER, Form.ASSISTANT, Form.SYSTEM, Form.TOOL)
_SUMMARY = 120
_PASSAGES = (200, 100, 50)
"""Characters of a name and of a passage. The shorter lengths are tried if the hits do not fit."""
_PARTIAL_HITS = "Not all of the query is in these:"
_EARLIER_SEARCHES = "These are earlier searches:"


def count_pages(count: int) -> str:
    """Return a number of pages in words."""
    return f"{count} page" if count == 1 else f"{count} pages"


def format_entry(page: Page, depth: int = 0) -> str:
    """Return the line of a page: its index, size and state, its name and summary."""
    state = ""
    if page.lifecycle is not Lifecycle.ACTIVE:
        state = " archived"
    elif page.pinned:
        state = " pinned"
    elif page.visibility is Visibility.HIDDEN:
        state = " hidden"
    size = count_pages(page.child_count) if isinstance(page, ContentsPage) else str(page.tokens)
    about = f": {page.description[:_SUMMARY]}" if page.description else ""
    return f"{'  ' * depth}[{page.index} {size}{state}] {clean_line(page.name + about)}"


def is_exchange(page: Page) -> bool:
    """Return whether a page holds messages."""
    return isinstance(page, DetailPage) and page.form in _EXCHANGES


def quote_range(text: str, page: Page, start: int) -> str:
    """Return a range of a page's text as an answer quotes it. Every line is indented, except lines with a speaker.

    A later range of an exchange begins with a mark, because it could begin with any word of a message.
    """
    if not is_exchange(page):
        return indent_lines(text)
    return f"…{text}" if start else text


def format_lines(lines: Sequence[str], start: int, limit: int, room: AnswerRoom) -> str:
    """Return at most `limit` lines and how to continue. `lines` begins at `start`, plus one line if there are more."""
    if not lines:
        return f"There is nothing from {start} on." if start else "Nothing there."
    fit = room.count_lines(lines[:limit], room.limit)
    more = [f"… more: go on with start={start + fit}."] if len(lines) > fit else []
    return "\n".join([*lines[:fit], *more])


def format_originals(pages: Sequence[Page], room: AnswerRoom, tokens: int) -> str:
    """Return the pages that a summary replaces, in at most `tokens` tokens if possible."""
    lines = ["It summarises these pages:", *map(format_entry, pages[:_MOST_ORIGINALS])]
    fit = max(2, room.count_lines(lines, tokens - _MORE_TOKENS))
    left = len(pages) + 1 - fit
    return "\n".join([*lines[:fit], *([f"… {left} more; find searches all of them."] if left else [])])


def format_hits(hits: Sequence[Hit], room: AnswerRoom, tokens: int) -> str:
    """Return one line for every hit, in at most `tokens` tokens.

    Hits that hold the whole query come first, echoes of earlier searches last. If they do not fit, echoes are left out
    first, then passages are shortened, then the last hits are left out.
    """
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
        head = _EARLIER_SEARCHES if hit.echo else "" if hit.complete else _PARTIAL_HITS
        if head != above:
            lines.append(head)
            above = head
        passage = _cut_passage(hit.snippet or hit.description, length)
        lines.append(f"[{hit.index}] {clean_line(f'{hit.name[:length]}: {passage}')}")
    return lines


def _cut_passage(passage: str, length: int) -> str:
    """Return `length` characters of a passage around its first match.

    Matches in a row are marked as one, because a model pays for every character.
    """
    passage = passage.replace(f"{CLOSE} {OPEN}", " ")
    if len(passage) <= length:
        return passage
    match = max(0, passage.find(OPEN))
    start = max(0, min(match - length // 4, len(passage) - length))
    end = start + length
    part = passage[start:end]
    open_mark = CLOSE if part.rfind(OPEN) > part.rfind(CLOSE) else ""
    return f"{'…' if start else ''}{part}{open_mark}{'…' if end < len(passage) else ''}"


def contents(reader: VisibleReader) -> Iterator[tuple[int, PageRecord]]:
    """Yield the roots of all segments and the pages below them, with their depth. Closed folders are not entered."""
    for number, _ in reader.live_segments():
        root = reader.page(page_key(number, 0))
        if isinstance(root, PageRecord):
            yield from _open_subtree(reader, root)


def _open_subtree(reader: VisibleReader, root: PageRecord) -> Iterator[tuple[int, PageRecord]]:
    rows = [iter((root,))]
    while rows:
        page = next(rows[-1], None)
        if page is None:
            rows.pop()
            continue
        yield len(rows) - 1, page
        header = page.header
        if header.folder and header.lifecycle is Lifecycle.ACTIVE and header.visibility is Visibility.EXPANDED:
            rows.append(reader.members(page.key))


def every_page(reader: VisibleReader, state: State, after: PageIndex | None) -> Iterator[PageRecord]:
    """Yield the pages of all segments by number; with `after`, only those after this index. Raise `NoSuchPage`."""
    numbers = [number for number, _ in reader.live_segments()]
    start = 0
    if after is not None:
        key = reader.key_of(after)
        if key is None or segment_number(key) not in numbers:
            raise NoSuchPage(after)
        numbers, start = numbers[numbers.index(segment_number(key)) :], page_number(key) + 1
    for number in numbers:
        yield from (page for page in state.segment_pages(number, start) if page.header.mark in READABLE)
        start = 0


_PIECES = (32, 16, 8, 4, 2)
_LINE_PART = 8
_SHORTEST_RUN = 24
_SHORTEST_ENTRY = 10
"""The fewest tokens of the line of a run and of a page that are worth showing."""
_LIST_LENGTH = 40
"""The most lines of an answer, except for pages that are listed one by one."""
_MOST_PAGES = 100
"""The most pages that are listed one by one."""


def list_segments(reader: VisibleReader, state: State, room: AnswerRoom, span: PageIndex = "") -> str:
    """Return a line for every segment, or for those of a span, with their pages in runs as far as there is room.

    If the segments are too many, they come in runs themselves.
    """
    numbers = [number for number, _ in reader.live_segments()]
    ends = read_span(span) if span else None
    if ends is not None:
        first, last = sorted(numbers.index(segment_number(reader.require_page(end).key)) for end in ends)
        numbers = numbers[first : last + 1]
    roots = [root for number in numbers if isinstance(root := reader.page(page_key(number, 0)), PageRecord)]
    lines = _entries(state, roots)
    if _fits(lines, room):
        return "\n".join(_with_pages(reader, state, roots, lines, room))
    for pieces in _PIECES:
        size = -(-len(roots) // pieces)
        groups = [roots[place : place + size] for place in range(0, len(roots), size)]
        lines = [_segment_run(reader, group, room) for group in groups]
        if _fits(lines, room):
            break
    return "\n".join(lines)


def list_folder(reader: VisibleReader, state: State, folder: PageRecord, room: AnswerRoom) -> str | None:
    """Return the children of a folder in shorter lines or in runs; None if they fit as they are."""
    sheets = Sheets(state)
    run = sheets.whole(folder.key)
    pages = sheets.read(run, _LIST_LENGTH)
    is_short = pages is not None and _fits(_entries(state, pages), room)
    return None if is_short else _list_run(reader, state, sheets, run, room)


def list_span(reader: VisibleReader, state: State, index: PageIndex, room: AnswerRoom) -> str:
    """Return the pages between two siblings as they are now, or runs of them. Raise `NoSuchPage`."""
    ends = read_span(index)
    first, last = (_require_place(reader, state, end) for end in ends or (index, index))
    if first.is_root and last.is_root:
        return list_segments(reader, state, room, index)
    if first.parent != last.parent:
        raise InvalidOperation(
            f"{index!r} names pages of different folders.",
            Hint("read_page", reader.index(first.parent or 0), purpose="to list a folder"),
        )
    if (last.rank, last.key) < (first.rank, first.key):
        first, last = last, first
    sheets = Sheets(state)
    return _list_run(reader, state, sheets, sheets.between(first, last), room)


def _require_place(reader: VisibleReader, state: State, index: PageIndex) -> PageRecord:
    """Return a page, or its last version with its place if it was removed since. Raise `NoSuchPage`."""
    key = reader.key_of(index)
    page = None if key is None else state.page(key)
    if isinstance(page, PageRecord):
        return page  # only its place is used, so it may be a deleted message
    if page is not None and page.seq > state.head.horizon:
        for touched in stored_entry(state, page.seq).touched:
            before = page_before(touched) if (touched.family, touched.key) == (PAGE_CODE, key) else None
            if isinstance(before, PageRecord):
                return before
    return reader.require_page(index)


def _with_pages(
    reader: VisibleReader, state: State, roots: Sequence[PageRecord], lines: Sequence[str], room: AnswerRoom
) -> list[str]:
    """Return the lines of segments, each with its pages in runs below it. The rest of the room is shared equally."""
    sheets = Sheets(state)
    left, below = room.limit - room.count("\n".join(lines)), {}
    runs = sorted((sheets.whole(root.key) for root in roots), key=lambda run: (run.pages, run.folder))
    for waiting, run in zip(range(len(runs), 0, -1), runs, strict=True):
        share = replace(room, limit=left // waiting)
        found = _run_lines(reader, state, sheets, run, share) if share.limit >= 2 * _SHORTEST_RUN else []
        below[run.folder] = [f"  {line}" for line in found]
        left -= room.count("\n".join(below[run.folder]))
    return [line for root, head in zip(roots, lines, strict=True) for line in (head, *below[root.key])]


def _list_run(reader: VisibleReader, state: State, sheets: Sheets, run: Run, room: AnswerRoom) -> str:
    return "\n".join(_run_lines(reader, state, sheets, run, room)) or "Nothing there."


def _run_lines(reader: VisibleReader, state: State, sheets: Sheets, run: Run, room: AnswerRoom) -> list[str]:
    """Return the pages of a run, in shorter lines if necessary, or runs of them, at least two even without room."""
    pages = sheets.read(run, _MOST_PAGES)
    lines = _list_pages(state, pages, room) if pages is not None else None
    if lines is not None:
        return lines
    lines = []
    for pieces in _PIECES:
        most = min(room.limit // _LINE_PART, room.limit // pieces - 1)
        if most >= _SHORTEST_RUN or pieces == _PIECES[-1]:
            parts = sheets.split(run, pieces)
            lines = [line for part in parts if (line := _run_line(reader, state, sheets, part, room, most))]
            if _fits(lines, room):
                break
    return lines


def _list_pages(state: State, pages: Sequence[PageRecord], room: AnswerRoom) -> list[str] | None:
    """Return the lines of pages, in shorter lines if necessary; None if there is no room for them."""
    lines = _entries(state, pages)
    most = room.limit // max(1, len(lines)) - 1
    if room.count("\n".join(lines)) > room.limit and most >= _SHORTEST_ENTRY:
        lines = [_shorten(line, room, most) for line in lines]
    return lines if room.count("\n".join(lines)) <= room.limit else None


def _entries(state: State, pages: Iterable[PageRecord]) -> list[str]:
    return [format_entry(to_page(state, page, seqs=False)) for page in pages]


def _shorten(line: str, room: AnswerRoom, most: int) -> str:
    size = clip_line(f"{line}\n", room.count, most)
    return f"{line[:size]}{SPAN}" if size else line


def _run_line(reader: VisibleReader, state: State, sheets: Sheets, run: Run, room: AnswerRoom, most: int) -> str:
    drawn = draw_run(sheets, reader, run, room.count, max(_SHORTEST_RUN, most))
    if drawn is None:
        return ""
    page = reader.page(drawn.first) if drawn.first == drawn.last else None
    if isinstance(page, PageRecord):
        return _shorten(_entries(state, [page])[0], room, max(_SHORTEST_RUN, most))
    return drawn.text.rstrip("\n")


def _segment_run(reader: VisibleReader, roots: Sequence[PageRecord], room: AnswerRoom) -> str:
    first, last = reader.index(roots[0].key), reader.index(roots[-1].key)
    span = first if first == last else f"{first}{SPAN}{last} {len(roots)} segments"
    names = [root.header.name for root in roots]
    return fit_run_line(
        span, names[0], names[-1], names, room.count, max(_SHORTEST_RUN, room.limit // _LINE_PART)
    ).rstrip("\n")


def _fits(lines: Sequence[str], room: AnswerRoom) -> bool:
    return len(lines) <= _LIST_LENGTH and room.count("\n".join(lines)) <= room.limit
