"""Lists that are too long for one answer: a folder, a run of pages or all segments, in runs that can be opened."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from quire.agent.gate import VisibleReader
from quire.agent.listing import AnswerRoom, format_entry
from quire.core.records import PAGE_CODE, PageRecord, page_key, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation
from quire.model.pages import PageIndex
from quire.system.journal import page_before, stored_entry
from quire.system.public_values import to_page
from quire.view.runs import SPAN, clip_line, draw_run, fit_run_line, read_span
from quire.view.sheets import Run, Sheets

_PIECES = (32, 16, 8, 4, 2)
_LINE_PART = 8
_SHORTEST_RUN = 24
_SHORTEST_ENTRY = 10
"""The fewest tokens of the line of a run and of a page that are worth showing."""
_LIST_LENGTH = 40
"""The most lines of an answer, but for pages that are listed one by one."""
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
    """Return the pages of a run, in shorter lines if necessary, or runs of them; two runs may exceed the room."""
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
