"""Drawing the segments outside the conversation: by their layouts, or, without a layout, by the state of each page.

A layout is decided at a fold. Pages that a developer adds later are shown after the newest message of that time, so
that the text before it does not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from quire.core.derived_records import ItemForm, LayoutItem, LayoutRecord
from quire.core.reader import Reader
from quire.core.records import PageRecord, SegmentRecord, page_key, page_line, segment_number
from quire.core.state import State
from quire.model.messages import Message
from quire.model.pages import Form, Lifecycle, Permission, SegmentType, Visibility
from quire.view.draw import Node, PartBuilder, block_head, granularity_of
from quire.view.parts import Granularity, ShownPage, ViewPart
from quire.view.sheets import SPAN, draw_pages_run, fit_run_line

GATHERED = "More segments"
MOST_NEW = 16
"""If more new pages come together, they are shown as one run."""
MOST_WAITING = 1_000
"""If a segment got more new pages than this since its layout, a fold makes a new layout."""
_RUN_TOKENS = 64
_HEAD_TOKENS = 6
"""The fewest tokens of a page besides its body."""

Piece = tuple[str, ShownPage | None]


class SegmentView(NamedTuple):
    """The parts of all segments. With `exceeds` they are incomplete, because they take more tokens than allowed.

    `blocks` are the parts by segment, None for a segment with nothing to show.
    """

    parts: list[ViewPart]
    blocks: dict[int, ViewPart | None]
    exceeds: bool = False


def drawn_segments(reader: Reader) -> list[tuple[int, SegmentRecord]]:
    """Return the segments that a view shows outside the conversation, with their numbers."""
    conversation = reader.conversation()
    return [
        (number, segment)
        for number, segment in reader.live_segments()
        if segment.type is not SegmentType.SYSTEM
        and number != conversation
        and segment.permission is not Permission.PRIVATE
    ]


def draw_segments(
    reader: Reader, builder: PartBuilder, most: int | None, known: Mapping[int, ViewPart | None]
) -> SegmentView:
    """Return one block of text for every segment with something to show, in display order.

    `known` are the blocks of segments that have not changed.
    """
    segments = drawn_segments(reader)
    parts = []
    blocks: dict[int, ViewPart | None] = {}
    gathered = draw_gathered(reader, builder, segments)
    if gathered is not None:
        parts.append(gathered)
    left = most
    for number, _ in segments:
        part = known[number] if number in known else draw_segment(reader, builder, number, left)
        blocks[number] = part
        if part is None:
            continue
        left = None if left is None else left - part.tokens
        parts.append(part)
        if left is not None and left < 0:
            return SegmentView(parts, blocks, exceeds=True)
    return SegmentView(parts, blocks)


def draw_segment(reader: Reader, builder: PartBuilder, number: int, most: int | None = None) -> ViewPart | None:
    """Return the block of one segment, or None if it has nothing to show. Stop at more than `most` tokens."""
    segment = reader.segment(number)
    if segment is None:
        return None
    layout = reader.layout(number)
    text = segment_head(reader, builder, number)
    shown: list[ShownPage] = []
    used, most = 0, builder.most if most is None else min(most, builder.most)
    pieces = _tree_pieces(reader, builder, number) if layout is None else _layout_pieces(reader, builder, layout)
    for piece, page in pieces:
        text += piece
        if page is not None:
            shown.append(page)
            used += _HEAD_TOKENS + (page.tokens if page.granularity == "whole" else 0)
            if used > most:
                return ViewPart("segment", [Message(role="user", content=text)], used, shown)
    if not shown:
        return None
    return ViewPart("segment", [Message(role="user", content=text)], builder.message_tokens(text), shown)


def segment_head(reader: Reader, builder: PartBuilder, number: int, label: str = "") -> str:
    """Return the first line of a segment's block."""
    segment = reader.segment(number)
    name, about = (segment.name, segment.description) if segment else ("", "")
    title = builder.escaping.escape_line(f"{name}: {about}" if about else name)
    return block_head(builder.key, f"{label}{reader.counters[number].segment}: {title}")


def draw_gathered(
    reader: Reader, builder: PartBuilder, segments: Sequence[tuple[int, SegmentRecord]]
) -> ViewPart | None:
    """Return the one line of all segments that have no block of their own, or None if there are none."""
    gathered = [
        (number, segment, layout.pages)
        for number, segment in segments
        if (layout := reader.layout(number)) is not None and layout.gathered and layout.pages
    ]
    if not gathered:
        return None
    (first, one, _), (last, other, _) = gathered[0], gathered[-1]
    pages = sum(count for _, _, count in gathered)
    span, index = f"{reader.index(page_key(first, 0))} {pages}p", reader.index(page_key(first, 0))
    if first != last:
        index = f"{index}{SPAN}{reader.index(page_key(last, 0))}"
        span = f"{index} {len(gathered)} segments {pages}p"
    names = [segment.name for _, segment, _ in gathered]
    line = fit_run_line(span, one.name, other.name if first != last else "", names, builder.measure, _RUN_TOKENS)
    text = block_head(builder.key, GATHERED) + _escape(builder, line)
    tokens = builder.message_tokens(text)
    shown = ShownPage(page_key(first, 0), index, "line", tokens)
    return ViewPart("segment", [Message(role="user", content=text)], tokens, [shown])


def draw_item(reader: Reader, builder: PartBuilder, item: LayoutItem) -> Piece | None:
    """Return the text of an item of a layout and what it shows; None if its page is gone."""
    if item.form is ItemForm.RUN:
        index = f"{reader.index(item.key)}{SPAN}{reader.index(item.last)}"
        text = _escape(builder, item.text)
        return text, ShownPage(item.key, index, "line", builder.measure(text))
    page = reader.page(item.key)
    if not isinstance(page, PageRecord) or page.is_cold or page.header.lifecycle is not Lifecycle.ACTIVE:
        return None
    index = reader.index(page.key)
    if item.form is ItemForm.WHOLE and not page.header.folder:
        return page_piece(reader, builder, page, is_open=True)
    if item.form is ItemForm.FOLDER:
        archived = f" ({item.pages} archived)" if item.pages else ""
        text = f"[{index}] {builder.escaping.escape_line(page.header.name)}/{archived}\n"
    else:
        text = _escape(builder, item_line(reader, page, item.pages))
        if item.clip and len(text) > item.clip:
            text = text[: item.clip] + SPAN + "\n"
    return text, ShownPage(page.key, index, "line", builder.measure(text))


def item_line(reader: Reader, page: PageRecord, pages: int) -> str:
    """Return the line of a page. That of a folder has the number of pages below it."""
    index, header = reader.index(page.key), page.header
    if not header.folder:
        return page_line(index, header)
    about = f": {header.description}" if header.description else ""
    return f"[{index} {pages}p] {header.name}{about}\n"


def page_piece(reader: Reader, builder: PartBuilder, page: PageRecord, *, is_open: bool | None = None) -> Piece:
    """Return the text of one page of a segment: its line, its name if it is an open folder, or the whole page."""
    header = page.header
    opened = header.visibility is Visibility.EXPANDED if is_open is None else is_open
    if not opened:
        return _piece(reader, builder, page, builder.draw_line(reader, page)[0], "line")
    head = f"[{reader.index(page.key)}] {builder.escaping.escape_line(header.name)}"
    if header.folder:
        return _piece(reader, builder, page, f"{head}/\n", "line")
    if header.form in (Form.TEXT, Form.SUMMARY):
        return _piece(reader, builder, page, f"{head}\n{builder.quote_body(reader, page)}\n", granularity_of(page))
    part = builder.build_leaf(reader, page, -1)  # an exchange that was moved here
    text = "\n".join(message.text for message in part.messages) if part else ""
    return _piece(reader, builder, page, f"{head}\n{builder.escaping.escape_lines(text)}\n", "whole")


def new_pages(state: State, reader: Reader, number: int) -> list[PageRecord]:
    """Return the pages of a segment that a developer added since its layout, in the order of adding."""
    layout = state.layout(number)
    if layout is None or state.counters[number].next <= layout.next:
        return []
    if all(number != drawn for drawn, _ in drawn_segments(reader)):  # it has become PRIVATE since its layout
        return []
    keys = {page.key for page in state.segment_pages(number, layout.next)}
    keys |= {key for key in state.deferred_changes() if page_key(number, layout.next) <= key < page_key(number + 1, 0)}
    pages = (reader.page(key) for key in keys)  # also those that an agent removed
    shown = [page for page in pages if isinstance(page, PageRecord) and _is_shown(reader, page)]
    return sorted(shown, key=lambda page: (_entry(page, layout), page.key))


def insert_new(
    nodes: Sequence[Node], state: State, reader: Reader, builder: PartBuilder, pages: Sequence[PageRecord]
) -> list[Node]:
    """Return the conversation with the new pages of segments, each after everything that was there before it."""
    placed: list[tuple[int, Node]] = []
    row = sorted(pages, key=lambda page: (_new_entry(state, page), page.key))
    for (place, number, _), group in groupby(
        row, key=lambda page: (_place(nodes, _new_entry(state, page)), segment_number(page.key), page.parent)
    ):
        found = list(group)
        part = _draw_new(reader, builder, number, found)
        placed.append((place, Node(part, [], _new_entry(state, found[-1]))))
    result = list(nodes)
    for place, node in reversed(placed):
        result.insert(place, node)
    return result


def _draw_new(reader: Reader, builder: PartBuilder, number: int, pages: Sequence[PageRecord]) -> ViewPart:
    text = segment_head(reader, builder, number, "New in ")
    shown: list[ShownPage] = []
    if len(pages) > MOST_NEW:
        line = _escape(builder, draw_pages_run(reader, pages, builder.measure, _RUN_TOKENS))
        text += line
        index = f"{reader.index(pages[0].key)}{SPAN}{reader.index(pages[-1].key)}"
        shown.append(ShownPage(pages[0].key, index, "line", builder.measure(line)))
    else:
        for page in pages:
            piece, place = page_piece(reader, builder, page)
            text += piece
            shown += [place] if place else []
    return ViewPart("segment", [Message(role="user", content=text)], builder.message_tokens(text), shown)


def _escape(builder: PartBuilder, line: str) -> str:
    return builder.escaping.escape_line(line.rstrip("\n")) + "\n"


def _place(nodes: Sequence[Node], entry: int) -> int:
    return max((place for place, node in enumerate(nodes) if node.entry <= entry), default=-1) + 1


def _new_entry(state: State, page: PageRecord) -> int:
    layout = state.layout(segment_number(page.key))
    return page.header.seq if layout is None else _entry(page, layout)


def _entry(page: PageRecord, layout: LayoutRecord) -> int:
    """Return the entry that brought a page into its segment: its creation, or its last change if it was moved here."""
    return page.header.born if page.header.born > layout.seq else page.header.seq


def _is_shown(reader: Reader, page: PageRecord) -> bool:
    return page.header.form is not Form.WINDOW and reader.effective_lifecycle(page) is Lifecycle.ACTIVE


def _layout_pieces(reader: Reader, builder: PartBuilder, layout: LayoutRecord) -> Iterator[Piece]:
    for item in layout.items:
        piece = draw_item(reader, builder, item)
        if piece is not None:
            yield piece
    if layout.archived:
        yield f"({layout.archived} archived)\n", None


def _tree_pieces(reader: Reader, builder: PartBuilder, number: int) -> Iterator[Piece]:
    """Yield every page of a segment, open or as a line, by its own visibility."""
    root = reader.page(page_key(number, 0))
    if isinstance(root, PageRecord) and reader.is_hidden(root):
        yield page_piece(reader, builder, root)
        return
    stack = [(reader.members(page_key(number, 0)), 0)]
    while stack:
        members, archived = stack.pop()
        page = next(members, None)
        if page is None:
            if archived:
                yield f"({archived} archived)\n", None
            continue
        header = page.header
        is_active = header.lifecycle is Lifecycle.ACTIVE
        is_window = header.form is Form.WINDOW  # the tail shows it
        stack.append((members, archived + (not is_active and not is_window)))
        if is_active and not is_window:
            is_open = not reader.is_hidden(page)
            if header.tokens > builder.most and not header.clip and is_open:  # larger than every view: not drawn
                yield "", ShownPage(page.key, reader.index(page.key), "whole", header.tokens)
            else:
                yield page_piece(reader, builder, page, is_open=is_open)
            if header.folder and is_open:
                stack.append((reader.members(page.key), 0))


def _piece(reader: Reader, builder: PartBuilder, page: PageRecord, text: str, granularity: Granularity) -> Piece:
    tokens = page.header.tokens if granularity == "whole" else builder.measure(text)
    return text, ShownPage(page.key, reader.index(page.key), granularity, tokens)
