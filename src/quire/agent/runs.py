"""Lists that are too long for one answer: a folder, a run of pages or all segments, in runs that can be opened."""

from collections.abc import Sequence

from quire.agent.gate import VisibleReader
from quire.agent.listing import AnswerRoom, format_entry
from quire.core.records import PageRecord, page_key, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation
from quire.model.pages import PageIndex
from quire.system.public_values import to_page
from quire.view.runs import SPAN, draw_run, fit_run_line, read_span
from quire.view.sheets import Run, Sheets

_PIECES = (32, 16, 8, 4, 2)
_LINE_PART = 8
_LIST_LENGTH = 40
"""The most lines of an answer, but for pages that are listed one by one."""
_MOST_PAGES = 100
"""The most pages that are listed one by one."""


def list_segments(reader: VisibleReader, state: State, room: AnswerRoom, span: PageIndex = "") -> str:
    """Return a line for every segment, or for those of a span; runs of segments if these are too many."""
    numbers = [number for number, _ in reader.live_segments()]
    ends = read_span(span) if span else None
    if ends is not None:
        first, last = sorted(numbers.index(segment_number(reader.require_page(end).key)) for end in ends)
        numbers = numbers[first : last + 1]
    roots = [root for number in numbers if isinstance(root := reader.page(page_key(number, 0)), PageRecord)]
    lines = [format_entry(to_page(state, root, seqs=False)) for root in roots]
    if _fits(lines, room):
        return "\n".join(lines)
    for pieces in _PIECES:
        size = -(-len(roots) // pieces)
        groups = [roots[place : place + size] for place in range(0, len(roots), size)]
        lines = [_segment_run(reader, group, room) for group in groups]
        if _fits(lines, room):
            break
    return "\n".join(lines)


def list_folder(reader: VisibleReader, state: State, folder: PageRecord, room: AnswerRoom) -> str | None:
    """Return the children of a folder in runs; None if they fit as they are."""
    sheets = Sheets(state)
    run = sheets.whole(folder.key)
    return _list_run(reader, state, sheets, run, room) if sheets.read(run, _LIST_LENGTH) is None else None


def list_span(reader: VisibleReader, state: State, index: PageIndex, room: AnswerRoom) -> str:
    """Return the pages between two siblings as they are now, or runs of them. Raise `NoSuchPage`."""
    ends = read_span(index)
    first, last = (reader.require_page(end) for end in ends or (index, index))
    if first.is_root and last.is_root:
        return list_segments(reader, state, room, index)
    if first.parent != last.parent or first.is_cold or last.is_cold:
        raise InvalidOperation(
            f"{index!r} names pages of different folders.",
            Hint("read_page", reader.index(first.parent or 0), purpose="to list a folder"),
        )
    if (last.rank, last.key) < (first.rank, first.key):
        first, last = last, first
    sheets = Sheets(state)
    return _list_run(reader, state, sheets, sheets.between(first, last), room)


def _list_run(reader: VisibleReader, state: State, sheets: Sheets, run: Run, room: AnswerRoom) -> str:
    pages = sheets.read(run, _MOST_PAGES)
    lines = [format_entry(to_page(state, page, seqs=False)) for page in pages] if pages is not None else []
    if lines and room.count("\n".join(lines)) <= room.limit:
        return "\n".join(lines)
    for pieces in _PIECES:
        lines = [line for part in sheets.split(run, pieces) if (line := _run_line(reader, state, sheets, part, room))]
        if _fits(lines, room):
            break
    return "\n".join(lines) or "Nothing there."


def _run_line(reader: VisibleReader, state: State, sheets: Sheets, run: Run, room: AnswerRoom) -> str:
    drawn = draw_run(sheets, reader, run, room.count, max(24, room.limit // _LINE_PART))
    if drawn is None:
        return ""
    page = reader.page(drawn.first) if drawn.first == drawn.last else None
    return format_entry(to_page(state, page, seqs=False)) if isinstance(page, PageRecord) else drawn.text.rstrip("\n")


def _segment_run(reader: VisibleReader, roots: Sequence[PageRecord], room: AnswerRoom) -> str:
    first, last = reader.index(roots[0].key), reader.index(roots[-1].key)
    span = first if first == last else f"{first}{SPAN}{last} {len(roots)} segments"
    names = [root.header.name for root in roots]
    return fit_run_line(span, names[0], names[-1], names, room.count, max(24, room.limit // _LINE_PART)).rstrip("\n")


def _fits(lines: Sequence[str], room: AnswerRoom) -> bool:
    return len(lines) <= _LIST_LENGTH and room.count("\n".join(lines)) <= room.limit
