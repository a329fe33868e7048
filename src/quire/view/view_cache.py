"""The drawn parts of one handle, updated change by change: appending a message redraws one page, not all."""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import compress, count
from operator import is_not
from typing import TYPE_CHECKING

from quire.core.derived_records import LayoutRecord
from quire.core.reader import Reader, Slot, slot_of
from quire.core.records import (
    LAST_FOLD,
    DeferredChange,
    Gone,
    PageRecord,
    SegmentRecord,
    page_key,
    page_number,
    segment_number,
)
from quire.core.state import State
from quire.model.messages import Message
from quire.model.pages import Form, Lifecycle, Visibility
from quire.view.deferred import DeferredReader
from quire.view.draw import OPENING, Node, PartBuilder, draw_conversation, draw_prelude, draw_system, insert_opened
from quire.view.parts import Reply, ViewPart, total_tokens
from quire.view.segments import MOST_WAITING, draw_segments, drawn_segments, insert_new, new_pages

if TYPE_CHECKING:
    from quire.view.fold.folding import LineWriter
    from quire.view.thinking import ThinkingChain

PRELUDE_KINDS = ("window", "recalled", "budget")
"""The kinds of parts of a tail. In the conversation they are preludes."""
_EXCEEDING = 1 << 40
"""Added to the tokens of a view if its segments exceed the limit, so that it fits no budget."""
_MANY_NEW = 8
"""After all lines for the next fold are written, the cache waits for this many new elements."""


class ViewCache:
    """The parts of a view in order, and their tokens."""

    def __init__(self, builder: PartBuilder, preamble: Sequence[ViewPart], frame: bytes) -> None:
        self._builder = builder
        self._preamble = preamble
        self._version = -1
        self._last: Slot | None = None
        self._places: dict[int, int] = {}
        self.system: list[ViewPart] = []
        self.segments: list[ViewPart] = []
        self._blocks: dict[int, ViewPart | None] = {}
        self.nodes: list[Node] = []
        self._line_writer: LineWriter | None = None
        self._awaited = 0  # elements at which the next line is written
        self.conversation_tokens = 0
        self.is_over_capacity = False
        """True if a segment shows more than its capacity, or too many pages wait for a layout."""
        self.exceeds = False
        """True if the segments outside the conversation exceed the limit, so that not all of them are drawn."""
        self._fixed = 0
        self._anchors: Mapping[int, DeferredChange] = {}
        self._layouts: Mapping[int, LayoutRecord] = {}
        self._new: dict[int, list[PageRecord]] = {}
        self._has_quotations = False
        self._preludes: list[int] = []
        self.thinking: ThinkingChain | None = None
        """The chain that chooses the thinking; None if no reply in the view has thinking to send back."""
        self._folded = 0
        self._is_plain = False
        self.frame = frame
        """The digest of what is sent beside the messages."""

    def update(self, state: State, most: int | None = None) -> None:
        """Redraw what changed since the last update. Of segments without a layout, draw no more than `most` tokens."""
        changed = state.pages_changed_since(self._version) if self._version >= 0 else None
        anchors, layouts = state.deferred_changes(), state.layouts()
        reader = DeferredReader(state, anchors) if anchors else state
        is_settled = state.settled_version <= self._version and layouts is self._layouts and not self.exceeds
        self._layouts = layouts
        if changed is None or not is_settled or last_fold(state) != self._folded:
            self._anchors = anchors
            self._new = {number: new_pages(state, reader, number) for number in layouts}
            self.redraw(reader, state.version, most)
            self._insert_new(state, reader)
        elif changed or anchors is not self._anchors:
            self._follow_changes(state, reader, anchors, changed, most)
        self._choose_thinking()
        self._check_capacities(state)  # thinking counts too
        self._version = state.version
        self._is_plain = self._may_extend(state)

    def extend(self, state: State) -> bool:
        """Follow new messages at the end of a plain conversation; return False if `update` must do it.

        A plain conversation has no preludes, no thinking, no deferred changes and no capacities. If only its end
        changed, only the last parts differ from the view before.
        """
        if not self._is_plain or state.settled_version > self._version or state.layouts() is not self._layouts:
            return False
        changed = state.pages_changed_since(self._version)
        if changed is None or state.deferred_changes() is not self._anchors or last_fold(state) != self._folded:
            return False
        conversation = state.conversation()
        for key in changed:
            number = segment_number(key)
            if number != conversation or key == page_key(number, 0) or not self._follow(state, key, state.version):
                return False
        self._version = state.version
        self._is_plain = not self._preludes and self.thinking is None
        return self._is_plain

    def redraw(
        self,
        reader: Reader,
        committed: int,
        most: int | None = None,
        *,
        fixed: bool = True,
        conversation: bool = True,
    ) -> None:
        """Draw everything again, or what may have changed, from a state or from a plan that may never be committed."""
        self._folded = last_fold(reader)
        has_thinking = self.thinking is not None  # it depends on everything before it
        if fixed or has_thinking:
            self._draw_fixed(reader, committed, most)
        if conversation or has_thinking:
            self._draw_conversation(reader, committed)
        self._version = -1
        self._choose_thinking()

    def take_over(self, shown: "ViewCache", reader: Reader, room: int) -> bool:
        """Take the parts of a view of the same budget, if a fold begins with the same ones; return whether it does.

        A fold begins without preludes and deferred changes, and draws segments anew if they could be too large.
        """
        others = (shown._anchors, shown._preludes, shown.thinking, shown.exceeds, *shown._new.values())
        if any(others) or 2 * total_tokens(shown.segments) > room:
            return False
        self._folded, self._preamble = last_fold(reader), shown._preamble
        self.system, self.segments, self._blocks = list(shown.system), list(shown.segments), dict(shown._blocks)
        self._fixed, self._last, self._has_quotations = shown._fixed, shown._last, False
        self._set_nodes(list(shown.nodes))
        return True

    def node_of(self, page: PageRecord) -> Node | None:
        """Return the element that shows this version of a page alone; None if there is none."""
        place = self._places.get(page.key)
        node = None if place is None else self.nodes[place]
        return node if node is not None and len(node.pages) == 1 and node.pages[0] is page else None

    def adopt(self, state: State, changed: Iterable[int]) -> None:
        """Record that the plan that was drawn last is committed, with the pages that it changed.

        `state` is the state after it.
        """
        self._builder.forget(changed)
        self._anchors, self._layouts = state.deferred_changes(), state.layouts()
        self.is_over_capacity = False
        self._version = state.version
        self._is_plain = self._may_extend(state)

    def _follow_changes(
        self,
        state: State,
        reader: Reader,
        anchors: Mapping[int, DeferredChange],
        changed: Sequence[int],
        most: int | None,
    ) -> None:
        """Redraw the parts of changed pages. Pages with a deferred change are shown as before."""
        conversation = state.conversation()
        keys = list(dict.fromkeys(changed))
        talk = [key for key in keys if segment_number(key) == conversation]
        elsewhere = []
        if len(talk) < len(keys):
            others = (key for key in keys if segment_number(key) != conversation and not _is_window(state.page(key)))
            # a deferred change is skipped, unless it is of a root, or a developer changed the page before the agent
            elsewhere = [key for key in others if key not in anchors or not page_number(key) or changed.count(key) > 1]
        fresh = False  # whether new pages of a developer, or the names and permissions of their segments, changed
        for number in self._layouts.keys() & {segment_number(key) for key in elsewhere}:
            found = new_pages(state, reader, number)
            if found != self._new.get(number, []) or (found and page_key(number, 0) in elsewhere):
                self._new[number], fresh = found, True
        known = {segment_number(key) for key in elsewhere if not self._is_new(key)}
        if known:
            self._draw_fixed(reader, state.version, most, known)
        keeps = anchors is self._anchors and not (elsewhere and (self._has_quotations or fresh))
        recalled = (part for part in self.preludes() if part.kind == "recalled")
        if not {shown.key for part in recalled for shown in part.pages}.isdisjoint(changed):
            keeps = False
        if not (keeps and all(self._follow(reader, key, state.version) for key in talk)):
            self._anchors = anchors
            self._draw_conversation(reader, state.version)
            self._insert_new(state, reader)

    def prepare_fold(self, state: State, lines: int) -> None:
        """Write one line for the next fold, if some elements are new. All lines together may take `lines` tokens."""
        if len(self.nodes) < self._awaited:
            return
        if self._line_writer is None or self._line_writer.limit != lines:
            from quire.view.fold.folding import LineWriter  # late: many contexts never fold

            self._line_writer = LineWriter(self._builder, lines)
        if not self._line_writer.write_next(state, self.nodes):
            self._awaited = len(self.nodes) + _MANY_NEW

    def _is_new(self, key: int) -> bool:
        layout = self._layouts.get(segment_number(key))
        return layout is not None and page_number(key) >= layout.next

    def _insert_new(self, state: State, reader: Reader) -> None:
        """Insert the pages that developers added since the last fold into the conversation."""
        pages = [page for found in self._new.values() for page in found]
        if pages:
            self._set_nodes(insert_new(self.nodes, state, reader, self._builder, pages))

    def parts(self, *, system: bool = True, among: Iterable[tuple[int, ViewPart]] = ()) -> list[ViewPart]:
        """Return the parts in the order in which the model sees them.

        `among` has parts to insert, each with a journal entry. A part is inserted into the conversation after the
        elements that existed at its entry.
        """
        head = [*self.system, *self._preamble] if system else []
        body = [*self.segments, *(_insert_parts(self.nodes, among) if among else [node.part for node in self.nodes])]
        if body and body[0].messages[0].role != "user":
            head.append(self.opening())
        return head + body

    def is_empty(self) -> bool:
        """Return whether there is nothing but prompts. A view then needs the opening at its end."""
        return not self.segments and not self.nodes

    def opening(self) -> ViewPart:
        """Return the user message that a view begins with if no other user message does."""
        message, tokens = Message(role="user", content=OPENING), self._builder.message_tokens(OPENING)
        return self._builder.get_or_build(("opening",), lambda: ViewPart("opening", [message], tokens))

    def total_tokens(self) -> int:
        """Return the tokens of all parts, including the opening if the view needs one."""
        return self.fixed_tokens() + self.conversation_tokens + (_EXCEEDING if self.exceeds else 0)

    def visible_pages(self) -> set[int]:
        """Return the keys of the pages that are shown with their content."""
        parts = [*self.system, *self.segments, *(node.part for node in self.nodes)]
        return {shown.key for part in parts for shown in part.pages if shown.granularity != "line"}

    def preludes(self) -> list[ViewPart]:
        """Return the preludes in the conversation, in order."""
        return [self.nodes[place].part for place in self._preludes]

    def has_grown_since_line(self, most: int) -> bool:
        """Return whether more than `most` tokens follow the newest budget line. True if there is no budget line."""
        place = next((n for n in reversed(self._preludes) if self.nodes[n].part.kind == "budget"), None)
        return place is None or sum(node.part.tokens for node in self.nodes[place + 1 :]) > most

    def awaits_first_reply(self) -> bool:
        """Return whether no reply came since the last user message, or since a fold after it."""
        for node in reversed(self.nodes):
            forms = {page.header.form for page in node.pages if node.part.kind == "exchange"}
            if Form.USER in forms:
                return True
            if Form.ASSISTANT in forms and node.entry > self._folded:
                return False
        return True

    def ends_with_user_after_calls(self) -> bool:
        """Return whether a user message is the last element, and a reply since the last fold calls tools."""
        last = self.nodes[-1] if self.nodes else None
        if last is None or last.part.kind != "exchange" or last.pages[0].header.form is not Form.USER:
            return False
        since = (node for node in self.nodes if node.part.kind == "exchange" and node.entry > self._folded)
        return any(node.part.messages[0].tool_calls for node in since)

    def chain(self) -> "ThinkingChain":
        """Return the digests of the elements, for a view with replies with or without thinking."""
        from quire.view.thinking import ThinkingChain  # late: most views have no thinking

        base = [*self.system, *self._preamble, *self.segments]
        return self.thinking or ThinkingChain(base, self.nodes, self._folded)

    def last_folded_line(self) -> PageRecord | None:
        """Return the folded line that the conversation ends with, if no user message is shown whole; else None."""
        if not self.nodes or self.nodes[-1].part.kind != "folded":
            return None
        exchanges = (page for node in self.nodes if node.part.kind == "exchange" for page in node.pages)
        last = self.nodes[-1].pages[-1]
        is_folded = last.header.line_tokens and last.parent is not None
        return last if is_folded and not any(page.header.form is Form.USER for page in exchanges) else None

    def fixed_tokens(self) -> int:
        """Return the tokens of everything outside the conversation, including the opening if the view needs one."""
        first = self.segments[0] if self.segments else self.nodes[0].part if self.nodes else None
        needs_opening = first is None or first.messages[0].role != "user"
        return self._fixed + (self.opening().tokens if needs_opening else 0)

    def _draw_fixed(self, reader: Reader, committed: int, most: int | None, changed: Set[int] | None = None) -> None:
        """Draw the prompts and the segments, or only the `changed` segments."""
        self.system = _reuse_parts(self.system, draw_system(reader, self._builder, committed))
        known = {} if changed is None else {n: part for n, part in self._blocks.items() if n not in changed}
        segments, self._blocks, self.exceeds = draw_segments(reader, self._builder, most, known)
        self.segments = _reuse_parts(self.segments, segments)
        self._fixed = total_tokens([*self.system, *self._preamble, *self.segments])
        if self.thinking is not None:  # the beginning may have changed
            self.thinking = None
            self.thinking = self.chain()

    def _check_capacities(self, state: State) -> None:
        """Set `is_over_capacity`: a fold is needed because of a capacity, or of pages that wait for a layout."""
        counters = state.counters
        self.is_over_capacity = any(
            (layout := self._layouts.get(number)) is not None and counters[number].next - layout.next > MOST_WAITING
            for number, _ in (drawn_segments(state) if self._layouts else ())
        )
        for number, segment in state.live_segments():
            if segment.max_capacity and not self.is_over_capacity:
                self.is_over_capacity = self._exceeds_capacity(state, number, segment)

    def _may_extend(self, state: State) -> bool:
        """Return whether the next messages can be added by `extend`."""
        others = (self._preludes, self.thinking, self._anchors, self.exceeds, self.is_over_capacity)
        return not any(others) and not any(segment.max_capacity for _, segment in state.live_segments())

    def _exceeds_capacity(self, state: State, number: int, segment: SegmentRecord) -> bool:
        """Return whether a segment shows more than its capacity and could show less."""
        capacity = segment.max_capacity
        quoted = [node.part for node in self.nodes if not node.pages and node.part.kind not in PRELUDE_KINDS]
        inside = [part for part in (*self.segments, *quoted) if _segment_of(part) == number]
        if number != state.conversation():
            layout = self._layouts.get(number)
            if layout is not None and layout.gathered:  # the one line of several segments counts for none of them
                inside = [part for part in inside if page_number(part.pages[0].key)]
            is_least = layout is not None and layout.seq > segment.seq  # it was made for this capacity
            return total_tokens(inside) > max(capacity, layout.tokens if layout is not None and is_least else 0)
        own = [node for node in self.nodes if node.pages]
        if sum(node.part.tokens for node in own) + total_tokens(inside) <= capacity:
            return False
        shown = [node.pages[0] for node in own if node.part.kind != "folded"]
        last_user = next((page.key for page in reversed(shown) if page.header.form is Form.USER), None)
        exempt = {last_user, state.waiting_exchange(), *(page.key for page in shown[-1:])}
        return bool(inside) or any(page.key not in exempt and not page.header.pinned for page in shown)

    def _draw_conversation(self, reader: Reader, committed: int) -> None:
        known = self.node_of if self._version < 0 else None  # a plan is drawn again
        nodes = draw_conversation(reader, self._builder, committed, known)
        self._has_quotations = any(anchor.opened for anchor in self._anchors.values())
        self._set_nodes(insert_opened(nodes, reader, self._builder, self._anchors))
        conversation = reader.conversation()
        last = None if conversation is None else next(reader.members(page_key(conversation, 0), reverse=True), None)
        self._last = slot_of(last) if last is not None else None

    def _set_nodes(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self._line_writer, self._awaited = None, 0
        self.conversation_tokens = sum(node.part.tokens for node in nodes)
        self._places = {page.key: place for place, node in enumerate(nodes) for page in node.pages}
        self._preludes = [place for place, node in enumerate(nodes) if node.part.kind in PRELUDE_KINDS]
        self.thinking = None
        replies = ((node.part.bare or node.part).reply for node in nodes)  # thinking may be shown already
        if any(reply is not None and reply.whole is not None for reply in replies):
            self.thinking = self.chain()

    def _follow(self, reader: Reader, key: int, committed: int) -> bool:
        """Update one changed page of the conversation; return False if the conversation must be drawn again."""
        page = reader.page(key)
        place = self._places.get(key)
        if not isinstance(page, PageRecord) or page.is_cold:
            is_folder = isinstance(page, PageRecord) and page.header.folder  # its children may be shown
            return place is None and not is_folder and not self._has_quotations
        is_shown = page.header.lifecycle is Lifecycle.ACTIVE and page.header.visibility is Visibility.EXPANDED
        if page.header.folder or not is_shown or page.parent != page_key(segment_number(key), 0):
            return page.is_root
        if place is not None:
            return self._replace(reader, page, place, committed)
        slot = slot_of(page)
        if self._last is not None and slot <= self._last:
            return False
        self._last = slot
        part = self._builder.build_leaf(reader, page, committed)
        if part is not None:
            if part.reply is not None:
                self._append_prelude(reader, part.reply)
            self._places[key] = len(self.nodes)
            self.nodes.append(Node(part, [page]))
            self.conversation_tokens += part.tokens
        return True

    def _append_prelude(self, reader: Reader, reply: Reply) -> None:
        """Append the prelude of a reply. The reply itself follows it."""
        for node in draw_prelude(reader, self._builder, reply):
            self._preludes.append(len(self.nodes))
            self.nodes.append(node)
            self.conversation_tokens += node.part.tokens
        if reply.whole is not None and self.thinking is None:
            self.thinking = self.chain()

    def bind(self, frame: bytes) -> None:
        """Set the frame, and choose the thinking that is bound to it."""
        self.frame = frame
        self._choose_thinking()

    def _choose_thinking(self) -> None:
        if self.thinking is not None:
            self.conversation_tokens += self.thinking.choose(self.frame)

    def _replace(self, reader: Reader, page: PageRecord, place: int, committed: int) -> bool:
        node = self.nodes[place]
        old = node.pages[0]
        if len(node.pages) != 1 or slot_of(old) != slot_of(page) or old.header.visibility is Visibility.HIDDEN:
            return False
        part = self._builder.build_leaf(reader, page, committed)
        if part is None:
            return False
        has_thinking = part.reply is not None and part.reply.whole is not None
        if has_thinking and self.thinking is None:
            return False
        self.nodes[place] = Node(part, [page])
        stays = self.thinking is None or self.thinking.replace(place)
        self.conversation_tokens += self.nodes[place].part.tokens - node.part.tokens
        return stays


def _segment_of(part: ViewPart) -> int:
    """Return the segment that a part shows; -1 if it shows several or none."""
    numbers = {segment_number(shown.key) for shown in part.pages}
    return numbers.pop() if len(numbers) == 1 else -1


def _is_window(page: PageRecord | Gone | None) -> bool:
    """Return whether a page is a window: the tail shows it, so a change of it changes no part here."""
    return isinstance(page, PageRecord) and page.header.form is Form.WINDOW


def _insert_parts(nodes: Sequence[Node], among: Iterable[tuple[int, ViewPart]]) -> list[ViewPart]:
    """Return the parts of the conversation with others inserted by their entries; folded lines come before all."""
    row = [(node.entry, node.part) for node in nodes]
    for entry, part in among:
        place = max((n for n, (earlier, _) in enumerate(row) if earlier <= entry), default=-1) + 1
        row.insert(place, (entry, part))
    return [part for _, part in row]


def _reuse_parts(old: Sequence[ViewPart], new: list[ViewPart]) -> list[ViewPart]:
    """Return the new parts, with the old object wherever the old part in the same place is equal."""
    return [*(was if was.is_same(now) else now for was, now in zip(old, new, strict=False)), *new[len(old) :]]


def last_fold(reader: Reader) -> int:
    """Return the journal entry of the last fold, 0 if there was none."""
    note = reader.note(LAST_FOLD)
    return 0 if note is None else note.seq


def sent_before(before: Sequence[ViewPart], tail: Sequence[ViewPart], now: Sequence[ViewPart]) -> Sequence[ViewPart]:
    """Return the parts of the view before, with its tail if `now` has the tail in the same place."""
    stays = now[len(before) : len(before) + len(tail)] if tail else ()
    if tail and len(stays) == len(tail) and all(map(ViewPart.has_same_text, tail, stays)):
        return [*before, *tail]
    return before


def shared_parts(before: Sequence[ViewPart], now: Sequence[ViewPart]) -> int:
    """Return the number of parts of the longest common prefix of two views."""
    shortest = min(len(before), len(now))
    if before[:shortest] == now[:shortest]:  # the usual case: the same parts, and new ones
        return shortest
    same = next(compress(count(), map(is_not, before, now)), shortest)
    while same < shortest and before[same].has_same_text(now[same]):
        same += 1  # the part was drawn again with the same text
    return same
