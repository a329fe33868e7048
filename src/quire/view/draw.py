"""Drawing: from pages to the pieces of a view. A pure function of what a reader sees; it writes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from msgspec.structs import replace

from quire.core.reader import Reader
from quire.core.records import DeferredChange, PageRecord, SegmentRecord, page_key, segment_number
from quire.model.messages import PER_MESSAGE, Message, messages_to_text
from quire.model.pages import Form, Lifecycle, Permission, SegmentType, Visibility
from quire.view.deferred import opened_pages
from quire.view.part_builder import Maker, block_head
from quire.view.parts import Granularity, Part, Shown

OPENING = "[The conversation begins here.]"
_LATER = "(stands here from the next fold on)"


class Node:
    """One thing that stands in the conversation: a page with the piece that shows it, or a run of lines."""

    __slots__ = ("pages", "part")

    def __init__(self, part: Part, pages: list[PageRecord]) -> None:
        self.part = part
        self.pages = pages


def draw_conversation(reader: Reader, maker: Maker, settled: int) -> list[Node]:
    """The conversation in order: blocks of lines, exchanges, notes."""
    number = reader.conversation()
    if number is None:
        return []
    nodes: list[Node] = []
    shown = list(shown_pages(reader, page_key(number, 0)))
    reader.prefetch(
        [n for page in shown if generation_of(page) is None and not maker.knows(page) for n in page.header.numbers]
    )
    for generation, group in groupby(shown, key=generation_of):
        if generation is not None:
            pages = list(group)
            nodes.append(Node(maker.lines(reader, pages, settled), pages))
            continue
        for page in group:
            part = draw_leaf(reader, maker, page, settled)
            if part is not None:
                nodes.append(Node(part, [page]))
    return nodes


def draw_leaf(reader: Reader, maker: Maker, page: PageRecord, settled: int) -> Part | None:
    """A leaf of the conversation that is shown whole."""
    if page.header.numbers:
        return maker.exchange(reader, page, settled)
    return maker.note(reader, page, settled)


def draw_opened(
    reader: Reader, maker: Maker, page: PageRecord, leaves: Sequence[PageRecord], missing: Sequence[int] = ()
) -> Part:
    """A page that an agent opened, as a quotation: it stands after the exchange that opened it until the next fold.

    Pages that are `missing` below a folder until then are named.
    """
    title = f"Opened [{reader.index(page.key)}] {maker.quoting.words(page.header.name)}"
    text = block_head(maker.key, title)
    shown: list[Shown] = []
    for leaf in leaves:
        inner, granularity = _quoted(reader, maker, leaf)
        text += inner
        shown.append(Shown(leaf.key, reader.index(leaf.key), granularity, maker.size(inner)))
    text += "".join(f"[{reader.index(key)}] {_LATER}\n" for key in missing)
    tokens = maker.size(text) + PER_MESSAGE
    if page.header.folder:
        shown.append(Shown(page.key, reader.index(page.key), "whole", tokens))
    return Part("opened", [Message(role="user", content=text)], tokens, shown)


def with_opened(
    nodes: Sequence[Node], reader: Reader, maker: Maker, anchors: Mapping[int, DeferredChange]
) -> list[Node]:
    """The conversation with the pages that were opened, each after everything that stood there by then."""
    placed = list(nodes)
    quoted: dict[int, PageRecord] = {}
    for anchor, page in opened_pages(anchors):
        segment = reader.segment(segment_number(page.key))
        if segment is None or segment.gone or segment.permission is Permission.PRIVATE:
            continue
        if page.header.form is Form.WINDOW:
            continue  # it stands in the tail, once
        leaves, missing = _leaves(reader, page, anchor, quoted) if page.header.folder else ([page], [])
        quoted[page.key] = page
        known = ("opened", page.key, anchor.seq, *map(_state, leaves), *missing)
        part = maker.kept(known, partial(draw_opened, reader, maker, page, leaves, missing))
        place = max((n for n, node in enumerate(placed) if _stood(node, anchor.seq)), default=-1) + 1
        while place < len(placed) and placed[place].part.kind == "opened":
            place += 1
        placed.insert(place, Node(part, []))
    return placed


def draw_system(reader: Reader, maker: Maker, settled: int) -> list[Part]:
    """The prompts: what the SYSTEM segments hold, the only pages that speak with the system's voice."""
    parts: list[Part] = []
    for number, segment in reader.live_segments():
        if segment.type is SegmentType.SYSTEM and segment.permission is not Permission.PRIVATE:
            for page in shown_pages(reader, page_key(number, 0)):
                part = _draw_prompt(reader, maker, page, settled)
                if part is not None:
                    parts.append(part)
    return parts


def draw_segments(reader: Reader, maker: Maker) -> list[Part]:
    """One block of text for every other segment with something to show, in display order."""
    conversation = reader.conversation()
    parts = []
    for number, segment in reader.live_segments():
        if segment.type is SegmentType.SYSTEM or number == conversation or segment.permission is Permission.PRIVATE:
            continue
        part = _draw_segment(reader, maker, number, segment)
        if part is not None:
            parts.append(part)
    return parts


def opening(maker: Maker) -> Part:
    """A first word of the user's for a conversation that begins with the assistant."""
    message = Message(role="user", content=OPENING)
    return maker.kept(("opening",), lambda: Part("opening", [message], maker.size(OPENING) + PER_MESSAGE))


def preamble_part(maker: Maker, text: str) -> Part:
    """The few lines that tell a model how to read the view."""
    return Part("preamble", [Message(role="system", content=text)], maker.size(text) + PER_MESSAGE)


def shown_pages(reader: Reader, folder: int) -> Iterator[PageRecord]:
    """The pages shown below a folder: open folders stand for what is in them."""
    stack = [reader.members(folder)]
    while stack:
        page = next(stack[-1], None)
        if page is None:
            stack.pop()
        elif page.header.lifecycle is not Lifecycle.ACTIVE:
            continue
        elif page.header.folder and page.header.visibility is Visibility.EXPANDED:
            stack.append(reader.members(page.key))
        else:
            yield page


def generation_of(page: PageRecord) -> int | None:
    """Which lines stand in one block: those that one fold made, so that a later fold leaves their block as it is."""
    header = page.header
    if header.visibility is Visibility.EXPANDED:
        return None
    return header.born if header.folder else header.seq


def _quoted(reader: Reader, maker: Maker, page: PageRecord) -> tuple[str, Granularity]:
    header = page.header
    if header.visibility is Visibility.HIDDEN or header.folder:
        return maker.line(reader, page)[0], "line"
    if header.numbers:
        part = maker.exchange(reader, page, -1)
        text = maker.quoting.lines(messages_to_text(part.messages)) if part else ""
        return text + "\n", "clipped" if header.clip else "whole"
    return maker.text(reader, page) + "\n", "clipped" if header.clip else "whole"


def _leaves(
    reader: Reader, folder: PageRecord, anchor: DeferredChange, quoted: Mapping[int, PageRecord]
) -> tuple[list[PageRecord], list[int]]:
    """What a folder that was opened shows, with pages `quoted` before as lines; and what else is below it by now."""
    leaves = [_as_line(quoted[page.key]) if page.key in quoted else page for page in shown_pages(reader, folder.key)]
    others = [key for key in anchor.listed if not _is_below(reader, key, folder.key)]
    leaves += [_as_line(quoted[key]) for key in others if key in quoted]
    return leaves, [key for key in others if key not in quoted]


def _state(leaf: PageRecord) -> tuple[int, int, Visibility]:
    return leaf.key, leaf.header.seq, leaf.header.visibility


def _as_line(page: PageRecord) -> PageRecord:
    return replace(page, header=replace(page.header, visibility=Visibility.HIDDEN))


def _is_below(reader: Reader, key: int | None, folder: int) -> bool:
    """Whether a page shows below a folder, itself or as part of what does."""
    while key is not None and key != folder:
        page = reader.page(key)
        if not isinstance(page, PageRecord) or page.header.lifecycle is not Lifecycle.ACTIVE:
            return False
        key = page.parent
    return key == folder


def _stood(node: Node, seq: int) -> bool:
    """Whether something stood in the conversation when an entry was made."""
    return any(page.header.born <= seq for page in node.pages)


def _draw_prompt(reader: Reader, maker: Maker, page: PageRecord, settled: int) -> Part | None:
    header = page.header
    if header.visibility is Visibility.HIDDEN:
        text, tokens = maker.line(reader, page)
        granularity: Granularity = "line"
    elif header.numbers:
        part = maker.exchange(reader, page, settled)
        return part and Part("system", part.messages, part.tokens, part.pages)
    else:
        text = maker.text(reader, page, alone=True)
        tokens = maker.size(text)
        granularity = "clipped" if header.clip else "whole"
    if not text.strip():
        return None
    shown = Shown(page.key, reader.index(page.key), granularity, tokens + PER_MESSAGE)
    return Part("system", [Message(role="system", content=text)], tokens + PER_MESSAGE, [shown])


def _draw_segment(reader: Reader, maker: Maker, number: int, segment: SegmentRecord) -> Part | None:
    about = f"{segment.name}: {segment.description}" if segment.description else segment.name
    text = block_head(maker.key, f"{reader.counters[number].segment}: {maker.quoting.words(about)}")
    shown: list[Shown] = []
    for piece, page, granularity in _segment_lines(reader, maker, page_key(number, 0)):
        text += piece
        if page is not None:
            tokens = page.header.tokens if granularity == "whole" else maker.size(piece)
            shown.append(Shown(page.key, reader.index(page.key), granularity, tokens))
    if not shown:
        return None
    return Part("segment", [Message(role="user", content=text)], maker.size(text) + PER_MESSAGE, shown)


def _segment_lines(reader: Reader, maker: Maker, folder: int) -> Iterator[tuple[str, PageRecord | None, Granularity]]:
    above = reader.page(folder)
    if isinstance(above, PageRecord) and above.is_root and above.header.visibility is Visibility.HIDDEN:
        yield maker.line(reader, above)[0], above, "line"
        return
    stack = [(reader.members(folder), 0)]
    while stack:
        members, archived = stack.pop()
        page = next(members, None)
        if page is None:
            if archived:
                yield f"({archived} archived)\n", None, "line"
            continue
        header = page.header
        is_active = header.lifecycle is Lifecycle.ACTIVE
        is_window = header.form is Form.WINDOW  # it stands in the tail
        stack.append((members, archived + (not is_active and not is_window)))
        if is_active and not is_window:
            yield _segment_line(reader, maker, page)
            if header.folder and header.visibility is Visibility.EXPANDED:
                stack.append((reader.members(page.key), 0))


def _segment_line(reader: Reader, maker: Maker, page: PageRecord) -> tuple[str, PageRecord, Granularity]:
    """One page of a segment: its line, its name if it is an open folder, or all of it."""
    header = page.header
    if header.visibility is Visibility.HIDDEN:
        return maker.line(reader, page)[0], page, "line"
    head = f"[{reader.index(page.key)}] {maker.quoting.words(header.name)}"
    if header.folder:
        return f"{head}/\n", page, "line"
    if header.form in (Form.TEXT, Form.SUMMARY):
        return f"{head}\n{maker.text(reader, page)}\n", page, "clipped" if header.clip else "whole"
    part = maker.exchange(reader, page, -1)  # an exchange that was moved here
    said = "\n".join(message.text for message in part.messages) if part else ""
    return f"{head}\n{maker.quoting.lines(said)}\n", page, "whole"
