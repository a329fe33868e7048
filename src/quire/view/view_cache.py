"""What one handle has drawn, kept up to date change by change: a new message costs what it costs, not what all cost."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not

from quire.core.reader import Reader, Slot, slot_of
from quire.core.records import DeferredChange, Gone, PageRecord, page_key, segment_number
from quire.core.state import State
from quire.model.pages import Form, Lifecycle, Visibility
from quire.view.deferred import Steady
from quire.view.draw import Node, draw_conversation, draw_leaf, draw_segments, draw_system, opening, with_opened
from quire.view.part_builder import Maker
from quire.view.parts import Part, total_tokens


class Scene:
    """The pieces of a view in order, and what they cost together."""

    def __init__(self, maker: Maker, preamble: Part | None) -> None:
        self._maker = maker
        self._preamble = preamble
        self._version = -1
        self._last: Slot | None = None
        self._places: dict[int, int] = {}
        self.system: list[Part] = []
        self.segments: list[Part] = []
        self.nodes: list[Node] = []
        self.spoken = 0
        """The tokens of the conversation."""
        self.overfull = False
        """Whether a segment shows more than its capacity."""
        self._fixed = 0
        self._anchors: Mapping[int, DeferredChange] = {}
        self._quotes = False

    def update(self, state: State) -> None:
        """Bring everything up to date with a state."""
        changed = state.pages_changed_since(self._version) if self._version >= 0 else None
        anchors = state.deferred_changes()
        reader = Steady(state, anchors) if anchors else state
        if changed is None or state.settled_version > self._version:
            self._anchors = anchors
            self.draw(reader, state.version)
        elif changed or anchors is not self._anchors:
            conversation = state.conversation()
            talk = [key for key in changed if segment_number(key) == conversation]
            apart = any(segment_number(key) != conversation and not _is_window(state.page(key)) for key in changed)
            if apart:
                self._draw_fixed(reader, state.version)
            steady = anchors is self._anchors and not (apart and self._quotes)
            followed = steady and all(self._follow(reader, key, state.version) for key in dict.fromkeys(talk))
            if not followed:
                self._anchors = anchors
                self._draw_conversation(reader, state.version)
        self._version = state.version

    def draw(self, reader: Reader, settled: int) -> None:
        """Draw everything anew, from a state or from a plan that may never be made."""
        self._draw_fixed(reader, settled)
        self._draw_conversation(reader, settled)
        self._version = -1

    def parts(self, *, system: bool = True, among: Iterable[tuple[int, Part]] = ()) -> list[Part]:
        """The pieces in the order the model sees them.

        Others stand `among` those of the conversation, each after what was there when the entry it comes with was made.
        """
        head = [*self.system, *([self._preamble] if self._preamble else [])] if system else []
        body = [*self.segments, *[node.part for node in self.nodes]]
        if among:
            body = [*self.segments, *_placed(self.nodes, among)]
        if body and body[0].messages[0].role != "user":
            head.append(opening(self._maker))
        return head + body

    def total(self) -> int:
        """The tokens of all pieces."""
        return self.fixed() + self.spoken

    def visible(self) -> set[int]:
        """The pages that are shown with what they say."""
        drawn = [*self.system, *self.segments, *(node.part for node in self.nodes)]
        return {shown.key for part in drawn for shown in part.pages if shown.granularity != "line"}

    def ends_folded(self) -> PageRecord | None:
        """The line that the conversation ends with, if folding made it and nothing the user said is open."""
        if not self.nodes or self.nodes[-1].part.kind != "folded":
            return None
        spoken = (page for node in self.nodes if node.part.kind == "exchange" for page in node.pages)
        last = self.nodes[-1].pages[-1]
        folded = last.header.line_tokens and last.parent is not None
        return last if folded and not any(page.header.form is Form.USER for page in spoken) else None

    def fixed(self) -> int:
        """The tokens of everything but the conversation."""
        first = self.segments[0] if self.segments else self.nodes[0].part if self.nodes else None
        starts_wrong = first is not None and first.messages[0].role != "user"
        return self._fixed + (opening(self._maker).tokens if starts_wrong else 0)

    def _draw_fixed(self, reader: Reader, settled: int) -> None:
        self.system = _kept(self.system, draw_system(reader, self._maker, settled))
        self.segments = _kept(self.segments, draw_segments(reader, self._maker))
        drawn = [*self.system, *self.segments, *([self._preamble] if self._preamble else [])]
        self._fixed = total_tokens(drawn)
        self.overfull = any(self._is_overfull(reader, number) for number, _ in reader.live_segments())

    def _is_overfull(self, reader: Reader, number: int) -> bool:
        """Whether the pages that a segment shows whole and that could be lines take more than its capacity."""
        segment = reader.segment(number)
        if segment is None or not segment.max_capacity or number == reader.conversation():
            return False
        inside = [s for part in self.segments for s in part.pages if segment_number(s.key) == number]
        pages = [page for s in inside if s.granularity != "line" and isinstance(page := reader.page(s.key), PageRecord)]
        return sum(page.header.tokens for page in pages if not page.header.pinned) > segment.max_capacity

    def _draw_conversation(self, reader: Reader, settled: int) -> None:
        nodes = draw_conversation(reader, self._maker, settled)
        self._quotes = any(anchor.opened for anchor in self._anchors.values())
        self.nodes = with_opened(nodes, reader, self._maker, self._anchors)
        self.spoken = sum(node.part.tokens for node in self.nodes)
        self._places = {page.key: place for place, node in enumerate(self.nodes) for page in node.pages}
        conversation = reader.conversation()
        last = None if conversation is None else next(reader.members(page_key(conversation, 0), reverse=True), None)
        self._last = slot_of(last) if last is not None else None

    def _follow(self, reader: Reader, key: int, settled: int) -> bool:
        """Take over one changed page of the conversation; False if everything has to be drawn anew."""
        page = reader.page(key)
        place = self._places.get(key)
        if not isinstance(page, PageRecord) or page.is_cold:
            return place is None and not self._quotes
        stands = page.header.lifecycle is Lifecycle.ACTIVE and page.header.visibility is Visibility.EXPANDED
        if page.header.folder or not stands or page.parent != page_key(segment_number(key), 0):
            return page.is_root
        if place is not None:
            return self._replace(reader, page, place, settled)
        if self._last is not None and slot_of(page) <= self._last:
            return False
        self._last = slot_of(page)
        part = draw_leaf(reader, self._maker, page, settled)
        if part is not None:
            self._places[key] = len(self.nodes)
            self.nodes.append(Node(part, [page]))
            self.spoken += part.tokens
        return True

    def _replace(self, reader: Reader, page: PageRecord, place: int, settled: int) -> bool:
        node = self.nodes[place]
        old = node.pages[0]
        if len(node.pages) != 1 or slot_of(old) != slot_of(page) or old.header.visibility is Visibility.HIDDEN:
            return False
        part = draw_leaf(reader, self._maker, page, settled)
        if part is None:
            return False
        self.spoken += part.tokens - node.part.tokens
        self.nodes[place] = Node(part, [page])
        return True


def _is_window(page: PageRecord | Gone | None) -> bool:
    """Whether a page is drawn in the tail, so that nothing here changes with it."""
    return isinstance(page, PageRecord) and page.header.form is Form.WINDOW


def _placed(nodes: Sequence[Node], among: Iterable[tuple[int, Part]]) -> list[Part]:
    """The pieces of the conversation with others among them; what is folded came before all of them."""
    row = [(max((page.header.born for page in node.pages), default=0), node.part) for node in nodes]
    row = [(0 if part.kind == "folded" else born, part) for born, part in row]
    for at, part in among:
        place = max((n for n, (born, _) in enumerate(row) if born <= at), default=-1) + 1
        row.insert(place, (at, part))
    return [part for _, part in row]


def _kept(old: Sequence[Part], new: list[Part]) -> list[Part]:
    """The new pieces; one that is as the old one in its place is that one."""
    return [*(was if was.is_same(now) else now for was, now in zip(old, new, strict=False)), *new[len(old) :]]


def shared_tokens(before: Sequence[Part], now: Sequence[Part], tokens: int) -> int:
    """The tokens of the pieces that two views begin with, of those that all pieces of the later one take."""
    shortest = min(len(before), len(now))
    same = next(compress(count(), map(is_not, before, now)), shortest)
    while same < shortest and (before[same] is now[same] or before[same].says_the_same(now[same])):
        same += 1  # it was drawn anew in the same words
    return tokens - total_tokens(now[same:])
