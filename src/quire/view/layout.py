"""Layout: which pages outside the conversation are shown whole, and how few lines show all the others.

It is decided anew at every fold. Pinned pages are whole, then pages that an agent opened since the last fold, then a
developer's pages, then an agent's notes, each newest first, as far as there is room. All other pages are in lines: at
first each segment is one run, which is one line for several pages. Then the run with the newest page is divided
into shorter runs, again and again, until the room for lines is used.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from msgspec.structs import replace

from quire.core.derived_records import ItemForm, LayoutItem, LayoutRecord
from quire.core.plan import Plan
from quire.core.reader import Slot, slot_of
from quire.core.records import PageRecord, page_key, segment_number
from quire.core.state import State
from quire.model.pages import Form, Lifecycle
from quire.view.draw import PartBuilder, shown_pages
from quire.view.options import OPENED_SHARE
from quire.view.segments import draw_segment, drawn_segments, item_line, segment_head
from quire.view.sheets import CHUNK, Run, clip_line, draw_run, sheets_of

SEGMENT_LINES_SHARE = 0.1
"""The share of the budget for all lines outside the conversation."""
GIVEN_SHARE = 0.3
"""The share of the budget up to which a developer's pages are whole, with everything else that is always shown.

A larger share would leave too little room after a fold, so that the next one comes after a few turns.
"""
LEAST_GIVEN_SHARE = 0.15
FULL_SHARE = 0.5
"""If the system prompt is long, a developer's pages get the first share, unless both together exceed the second one."""
OWN_SHARE = 0.1
"""The share of the budget for notes of agents that are shown whole."""
_PIECES = (16, 8, 4, 2)
_LONGEST_LINE = 8
"""A line takes at most the room for lines divided by this."""
_SHORTEST_LINE = 40
_RUN_TOKENS = 30
"""The estimated tokens of a run in a segment of its own."""
_MISSES = 8
"""After this many pages of a segment did not fit, its older pages are not tried."""
_ALL_MISSES = 32
"""After this many pages of all segments did not fit, no other page is tried."""
_CAPACITY_LINES = 5
"""Lines take at most the capacity of a segment divided by this."""
_MOST_PARTS = 4
"""A segment that is too large is planned for a half, a quarter and an eighth of its capacity; then it is empty."""


class Rooms(NamedTuple):
    """The tokens for whole pages of developers, for notes of agents, for all lines, and for pages that were opened.

    Opened pages are those that an agent opened since the last fold.
    """

    given: int
    own: int
    lines: int
    opened: int = 0


def layout_rooms(budget: int, fixed: int) -> Rooms:
    """Return the rooms in a view in which `fixed` tokens are always shown."""
    given = max(GIVEN_SHARE * budget - fixed, min(LEAST_GIVEN_SHARE * budget, FULL_SHARE * budget - fixed), 0)
    return Rooms(int(given), int(budget * OWN_SHARE), int(budget * SEGMENT_LINES_SHARE), int(budget * OPENED_SHARE))


class LayoutBasis(NamedTuple):
    """What the layouts of a fold depend on, besides the pages outside the conversation."""

    version: int
    budget: int
    rooms: Rooms
    conversation: int | None
    segments: tuple[tuple[int, int, int], ...]
    """The segments outside the conversation: number, last change, and the number of the next page."""
    notes: tuple[int, ...]
    """They include the actors that have written as agents."""

    @classmethod
    def of(cls, state: State, budget: int, rooms: Rooms) -> "LayoutBasis":
        """Return the basis of layouts that are planned now."""
        conversation, counters = state.conversation(), state.counters
        live = ((n, segment.seq, counters[n].next) for n, segment in state.live_segments() if n != conversation)
        return cls(state.version, budget, rooms, conversation, tuple(live), tuple(sorted(state.note_keys())))

    def is_unchanged(self, now: "LayoutBasis", state: State) -> bool:
        """Return whether layouts that are planned now are the same. `now` is the basis of the present state."""
        changed = state.pages_changed_since(self.version)
        return (
            now._replace(version=self.version) == self
            and changed is not None
            and all(segment_number(key) == self.conversation for key in changed)
        )


class _Item:
    """A run or a page in the tree of lines. `inside` are the items that replace it after it was opened."""

    __slots__ = ("cost", "inside", "item", "newest", "page", "pages", "run")

    def __init__(self, *, newest: int, run: Run | None = None, page: PageRecord | None = None, pages: int = 0) -> None:
        self.newest = newest
        self.run = run
        self.page = page
        self.pages = pages
        self.cost = 0
        self.item: LayoutItem | None = None
        self.inside: list[_Item] | None = None


class _SegmentPlan:
    """The layout of one segment while it is planned."""

    def __init__(self, number: int, capacity: int, part: int) -> None:
        self.number = number
        self.most = capacity
        """The capacity of the segment; 0: none."""
        self.capacity = max(1, capacity // part) if capacity else 0
        """The part of the capacity that this attempt may use."""
        self.part = part
        self.whole: dict[int, PageRecord] = {}
        self.paths: dict[int, list[Slot]] = {}
        """The places of a whole page and of the folders above it, from the root down."""
        self.below: dict[int, list[tuple[Slot, int]]] = {}
        """The whole pages below each folder: the place of the child that leads to a page, and its key."""
        self.used = 0
        self.lines_left = 0
        self.is_gathered = False
        self.top: _Item | None = None

    def has_room(self, tokens: int) -> bool:
        """Return whether the capacity has room for `tokens` more tokens."""
        limit = self.capacity - (self.capacity // _CAPACITY_LINES if self.part > 1 else 0)
        return not self.capacity or self.used + tokens <= limit


class LayoutPlanner:
    """Plans the layouts of all segments."""

    def __init__(self, plan: Plan, builder: PartBuilder, room: int) -> None:
        self._plan = plan
        self._builder = builder
        self._room = room
        self.sheets = sheets_of(plan.state)
        self.used = Rooms(0, 0, 0)
        """The tokens that the last layout uses: whole pages of developers, notes of agents, and lines, estimated."""

    def lay_out(self, rooms: Rooms) -> None:
        """Plan the layouts within these rooms. A segment above its capacity is planned again for half of it."""
        parts: dict[int, int] = {}
        while over := self._try(rooms, parts):
            for number in over:
                parts[number] = 2 * parts.get(number, 1)

    def _try(self, rooms: Rooms, parts: Mapping[int, int]) -> set[int]:
        """Plan the layouts; return the segments that must be smaller. `parts` divides the capacity of a segment."""
        plan = self._plan
        segments = [_SegmentPlan(n, segment.max_capacity, parts.get(n, 1)) for n, segment in drawn_segments(plan)]
        over = self._choose_whole(segments, rooms) - parts.keys()
        self.used = self.used._replace(lines=self._plan_lines(segments, rooms.lines))
        for segment in segments:
            number, most = segment.number, segment.most
            plan.layouts[number] = layout = self._record(segment)
            part = draw_segment(plan, self._builder, number)
            tokens = part.tokens if part else 0
            pinned = sum(self._cost(page) for page in segment.whole.values() if page.header.pinned)
            if most and tokens - pinned > most and segment.part <= _MOST_PARTS:
                over.add(number)
            elif tokens > most and segment.part > _MOST_PARTS and not pinned:  # not even one line fits
                layout, tokens = replace(layout, items=(), archived=0, gathered=False), 0
            plan.layouts[number] = replace(layout, tokens=tokens)
            self._keep_equal(number)
        return over

    def _keep_equal(self, number: int) -> None:
        """Drop the planned layout if it differs from the stored one only in its entry: then it need not be written."""
        old, new = self._plan.state.layout(number), self._plan.layouts[number]
        segment = self._plan.segment(number)
        is_later = old is not None and segment is not None and segment.seq > old.seq  # the segment changed
        if old is not None and new is not None and not is_later and replace(new, seq=old.seq) == old:
            del self._plan.layouts[number]

    # Whole pages

    def _choose_whole(self, segments: list[_SegmentPlan], rooms: Rooms) -> set[int]:
        """Choose the pages that are whole; return the segments without room for some pages."""
        by_number = {segment.number: segment for segment in segments}
        over: set[int] = set()
        for key in sorted(self._plan.state.pins()):
            page = self._plan.page(key)
            if isinstance(page, PageRecord) and _is_shown(page) and segment_number(key) in by_number:
                self._take(by_number[segment_number(key)], page)
        opened = self._take_opened(by_number, rooms.opened)
        given = self._fill(by_number, rooms.given, over, given=True)
        own = self._fill(by_number, min(rooms.own, rooms.given - given), over, given=False)
        self.used = Rooms(given, own, 0, opened)
        return over

    def _take_opened(self, segments: Mapping[int, _SegmentPlan], room: int) -> int:
        """Take the pages that an agent opened since the last fold, the last one first; return their tokens.

        They have their own share of the budget, so that they displace no page of a developer, unless the capacity of
        their segment is too small for both. A page that the agent wrote since the last fold is not one of them.
        """
        used, plan = 0, self._plan
        for key, change in reversed(list(plan.state.deferred_changes().items())):
            segment, page = segments.get(segment_number(key)), plan.page(key)
            if segment is None or not change.opened or change.before is None or not isinstance(page, PageRecord):
                continue
            if any(plan.is_hidden(one) or not _is_shown(one) for one in (page, *plan.ancestors(page))):
                continue
            for leaf in shown_pages(plan, key) if page.header.folder else (page,):
                cost = self._cost(leaf) + (0 if segment.whole else self._head(segment.number))
                is_page = _is_shown(leaf) and not leaf.header.folder and not plan.is_hidden(leaf)
                if is_page and leaf.key not in segment.whole and used + cost <= room and segment.has_room(cost):
                    used += cost
                    self._take(segment, leaf)
        return used

    def _fill(self, segments: Mapping[int, _SegmentPlan], room: int, over: set[int], *, given: bool) -> int:
        """Take pages while there is room, newest first; return the tokens that they use."""
        used = full = 0
        streams = {n: self.sheets.newest_pages([page_key(n, 0)], given=given) for n in segments if self._is_open(n)}
        heap: list[tuple[int, int, PageRecord | None]] = [
            (-newest, n, None) for n in streams if (newest := self.sheets.newest(page_key(n, 0), given=given))
        ]
        heapify(heap)
        misses = dict.fromkeys(streams, 0)
        while heap and full < _ALL_MISSES:
            _, number, page = heappop(heap)
            if page is not None and page.key not in segments[number].whole:
                segment, cost = segments[number], self._cost(page)
                head = 0 if segment.whole else self._head(number)
                if not segment.has_room(head + cost):
                    over.add(number)
                    misses[number] += 1
                elif used + head + cost > room:
                    misses[number] += 1
                    full += 1
                else:
                    used += head + cost
                    self._take(segment, page)
            if misses[number] < _MISSES and (page := next(streams[number], None)) is not None:
                heappush(heap, (-page.header.seq, number, page))
        return used

    def _is_open(self, number: int) -> bool:
        root = self._plan.page(page_key(number, 0))
        return isinstance(root, PageRecord) and not self._plan.is_hidden(root)

    def _take(self, segment: _SegmentPlan, page: PageRecord) -> None:
        segment.used += self._cost(page) + (0 if segment.whole else self._head(segment.number))
        segment.whole[page.key] = page
        chain = [page, *self._plan.ancestors(page)][:-1]  # without the root
        segment.paths[page.key] = [slot_of(one) for one in reversed(chain)]
        for one in chain:
            segment.below.setdefault(one.parent or 0, []).append((slot_of(one), page.key))

    def _cost(self, page: PageRecord) -> int:
        name = f"[{self._plan.index(page.key)}] {page.header.name}\n"
        return self._builder.measure(name) + (page.header.clip or page.header.tokens) + 1

    def _head(self, number: int) -> int:
        return self._builder.message_tokens(segment_head(self._plan, self._builder, number))

    # Lines

    def _plan_lines(self, segments: list[_SegmentPlan], room: int) -> int:
        """Plan the lines of all segments within the room if possible; return the tokens that they use."""
        longest = max(_SHORTEST_LINE, room // _LONGEST_LINE)
        self._gather(segments, room)
        used = 0
        heap: list[tuple[int, int, int, _Item]] = []
        for segment in segments:
            number = segment.number
            segment.lines_left = segment.capacity // _CAPACITY_LINES if segment.capacity else room
            top = None if segment.is_gathered else self._top(number, longest, segment)
            if top is None:
                continue
            segment.top = top
            used += top.cost
            heappush(heap, (-top.newest, number, len(heap), top))
        numbered = {segment.number: segment for segment in segments}
        steps = len(heap)
        while heap:
            _, number, _, item = heappop(heap)
            segment = numbered[number]
            inside = self._open(item, segment, longest, min(room - used, segment.lines_left) // 2)
            if inside is None:
                continue
            cost = sum(one.cost for one in inside) + self._open_cost(item) - item.cost
            used += cost
            segment.lines_left -= cost
            item.inside = inside
            for one in inside:
                steps += 1
                heappush(heap, (-one.newest, number, steps, one))
        return used

    def _gather(self, segments: list[_SegmentPlan], room: int) -> None:
        """Gather the segments that have no room for lines of their own, those with the oldest pages first."""
        runs = {segment.number: self.sheets.whole(page_key(segment.number, 0)) for segment in segments}
        left = room // 2
        for segment in sorted(segments, key=lambda one: (-runs[one.number].newest, one.number)):
            run = runs[segment.number]
            if not run.pages or len(segment.whole) == run.pages:
                continue
            cost = _RUN_TOKENS + (0 if segment.whole else self._head(segment.number))
            left -= cost
            segment.is_gathered = left < 0

    def _top(self, number: int, longest: int, segment: _SegmentPlan) -> _Item | None:
        root = self._plan.page(page_key(number, 0))
        if not isinstance(root, PageRecord):
            return None
        if self._plan.is_hidden(root):
            item = _Item(newest=0, page=root, pages=self.sheets.whole(root.key).pages)
        else:
            run = self.sheets.whole(root.key)
            if not run.pages and not segment.whole:
                return None
            item = _Item(newest=run.newest, run=run)
        self._draw(item, segment, longest)
        return item

    def _open(self, item: _Item, segment: _SegmentPlan, longest: int, room: int) -> list[_Item] | None:
        """Return the items that replace an item when it is opened; None if they cost over `room` tokens more."""
        run = item.run
        if item.page is not None:
            if not item.page.header.folder or item.page.is_root or self._plan.is_hidden(item.page):
                return None
            run = self.sheets.whole(item.page.key)
        if run is None or (not run.pages and item.page is None):
            return None
        limit = room + item.cost - self._open_cost(item)
        pages = self.sheets.read(run, CHUNK)
        if pages is not None:
            weights = [(page, self.sheets.weigh(page)) for page in pages if _is_shown(page)]
            items = [_Item(newest=max(w.own, w.given), page=page, pages=w.pages) for page, w in weights]
            return self._within(items, segment, longest, limit)
        for pieces in _PIECES:
            runs = self.sheets.split(run, pieces)
            if len(runs) > 1:
                found = self._within([_Item(newest=one.newest, run=one) for one in runs], segment, longest, limit)
                if found is not None:
                    return found
        return None

    def _within(self, items: list[_Item], segment: _SegmentPlan, longest: int, limit: int) -> list[_Item] | None:
        """Draw the items; return None if they cost more than `limit` tokens."""
        used = 0
        for item in items:
            self._draw(item, segment, longest)
            used += item.cost
            if used > limit:
                return None
        return items

    def _draw(self, item: _Item, segment: _SegmentPlan, longest: int) -> None:
        """Set the line of an item and its cost. Pages that are whole need no line."""
        measure = self._builder.measure
        if item.page is not None:
            if item.page.key in segment.whole:
                return
            line = item_line(self._plan, item.page, item.pages)
            clip = clip_line(line, measure, longest)
            item.item = LayoutItem(ItemForm.LINE, item.page.key, pages=item.pages, clip=clip)
            item.cost = min(measure(line), longest)
        elif item.run is not None and len(_whole_inside(item.run, segment)) < item.run.pages:
            drawn = draw_run(self.sheets, self._plan, item.run, measure, longest)
            if drawn is not None:
                item.item = LayoutItem(ItemForm.RUN, drawn.first, drawn.last, item.run.pages, drawn.text)
                item.cost = measure(drawn.text)

    def _open_cost(self, item: _Item) -> int:
        """Return the tokens of the name of an open folder."""
        if item.page is None:
            return 0
        return self._builder.measure(f"[{self._plan.index(item.page.key)}] {item.page.header.name}/\n")

    # Records

    def _record(self, segment: _SegmentPlan) -> LayoutRecord:
        root = page_key(segment.number, 0)
        run = self.sheets.whole(root)
        if segment.top is not None:
            items = tuple(self._items(segment.top, segment))
        else:
            items = tuple(LayoutItem(ItemForm.WHOLE, key) for key in _in_order(segment.whole, segment))
        return LayoutRecord(
            seq=self._plan.seq,
            next=self._plan.counters[segment.number].next,
            pages=run.pages,
            archived=0 if segment.is_gathered or not run.pages else self.sheets.archived(root),
            gathered=segment.is_gathered,
            items=items,
            room=self._room,
        )

    def _items(self, item: _Item, segment: _SegmentPlan) -> Iterator[LayoutItem]:
        """Yield the layout items of a run or page, followed by the whole pages that it covers."""
        if item.inside is None:
            if item.item is not None:
                yield item.item
            for key in _in_order(_covered(item, segment), segment):
                yield LayoutItem(ItemForm.WHOLE, key)
            return
        if item.page is not None:
            yield LayoutItem(ItemForm.FOLDER, item.page.key, pages=self.sheets.archived(item.page.key))
        for one in item.inside:
            yield from self._items(one, segment)


def _covered(item: _Item, segment: _SegmentPlan) -> list[int]:
    """Return the whole pages in a run, in a folder, or the page itself."""
    if item.run is not None:
        return _whole_inside(item.run, segment)
    if item.page is None:
        return []
    own = [item.page.key] if item.page.key in segment.whole else []
    return own + [key for _, key in segment.below.get(item.page.key, ())]


def _whole_inside(run: Run, segment: _SegmentPlan) -> list[int]:
    start, stop = run.start, run.stop
    return [
        key
        for slot, key in segment.below.get(run.folder, ())
        if (start is None or slot >= start) and (stop is None or slot < stop)
    ]


def _in_order(keys: Mapping[int, PageRecord] | list[int], segment: _SegmentPlan) -> list[int]:
    return sorted(keys, key=lambda key: segment.paths[key])


def _is_shown(page: PageRecord) -> bool:
    return page.header.lifecycle is Lifecycle.ACTIVE and page.header.form is not Form.WINDOW
