"""Planning the changes that make a view fit its budget: fold old pages, shrink windows, fold newer pages, then clip.

Old exchanges go first, then notes, then open windows, then the last turns: while a window is shown with its content,
the last turns are kept within half the budget. The system prompt, pinned pages and the last user message are never
folded. The newest message is clipped only if nothing else helps.

A preview can also open folded lines again: the newest exchanges first, as far as there is room. A chapter that fits
only in part is opened, and its older pages go into a new chapter inside it, with the same name and summary. So at most
one more line is shown for each level of chapters.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum, auto
from typing import Final

from quire.core.exchanges import unfold_last_turn
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import WINDOW_LINES, Counter, Gone, PageRecord, page_key
from quire.core.summary_board import SummaryRecord
from quire.errors import Hint, IrreducibleFloor
from quire.model.pages import Form, Lifecycle, Visibility
from quire.view.clip import share_equally
from quire.view.draw import FOLDED, PartBuilder, block_head, shown_pages
from quire.view.fold.folding import (
    ChosenPages,
    LineBudget,
    RowItem,
    choose_pages,
    essential_pages,
    fold_pages,
    is_folded_line,
    level_of,
    make_chapter,
    merge_all_lines,
    protected_pages,
    unread_results,
)
from quire.view.fold.summaries import apply_model_summaries, restore_summaries
from quire.view.layout import LayoutBasis, LayoutPlanner, Rooms, layout_rooms
from quire.view.opened import OpenedPages, find_opened
from quire.view.options import LINES_SHARE, CompressionConfig
from quire.view.parts import FoldResult, ViewPart, tokens_by_kind, total_tokens
from quire.view.tail import NO_LINES, Tail
from quire.view.view_cache import ViewCache

_TRIES = 3
"""The cost of lines is estimated before a fold. If the estimate was too low, a further pass folds a little more."""
_MIN_SAVING = 0.05
"""A fold that saves less than this share of the threshold is not committed."""
_MIN_CLIP = 48
_BARE_CLIP = 26
_ACTIVE: Final = Lifecycle.ACTIVE
_HIDDEN: Final = Visibility.HIDDEN
"""Constants for loops over all pages of the first row, because reading a member from its enum is slow."""
_MAX_NAMED = 6
"""The number of pages that an error names."""


class BudgetFitter:
    """One attempt to make a view fit its budget, as changes in a plan."""

    def __init__(
        self,
        plan: Plan,
        builder: PartBuilder,
        cache: ViewCache,
        *,
        budget: int,
        config: CompressionConfig,
        tail: Tail,
        basis: LayoutBasis | None = None,
    ) -> None:
        self.plan = plan
        self._stored_basis = basis
        self.basis: LayoutBasis | None = None
        """What the layouts after this plan depend on; None if the next fold must plan them again."""
        self.result = FoldResult()
        self._builder = builder
        self._cache = cache
        self._tail = tail
        self._budget = budget
        recalled = tokens_by_kind(tail.parts()).get("recalled", 0)
        free = budget - recalled  # recalled pages matter more than lines and older turns
        number = plan.conversation()
        segment = None if number is None else plan.segment(number)
        self._capacity = segment.max_capacity if segment else 0
        self._lines = int(min(free, self._capacity or free) * LINES_SHARE)
        self._last_turns = free // 2
        self._config = config
        self._committed = plan.state.version
        self.is_discarded = False
        """True if folding would not save enough, so that only the tail was shrunk."""
        self._layout: LayoutPlanner | None = None
        self._rooms = Rooms(0, 0, 0)
        self._total: int | None = None  # None after a change, until it is measured again
        self._fixed_changed = self._conversation_changed = True  # since the view was drawn last
        self._has_open_folders = False  # in the first row
        self._folds_unread = False
        self._first_row: list[RowItem] | None = None  # None after a change of the conversation
        self._opened = find_opened(plan, budget) if config.sliding_window is None else OpenedPages()

    def fit(
        self,
        threshold: int,
        target: int,
        used: int = 0,
        *,
        has_preludes: bool = False,
        is_over_capacity: bool = False,
    ) -> int:
        """Plan all changes that make the view fit; return its tokens after them. They can still exceed the budget.

        `used` are the tokens of the view with preludes; the plan leaves preludes out. Without a fold, preludes still
        show their windows, so a smaller tail does not help then. A fold that saves little is discarded, unless a
        capacity needs it.
        """
        tail, lines = self._tail, self._tail.last_lines
        windows = tail.tokens
        before = max(used, self._bring_back_last_turn())
        incomplete = self._cache.exceeds
        self._lay_out_first()
        if incomplete:
            before = self.total()
        self._limit_conversation()
        if before > threshold:
            tail.lay_out()
            self._fold_to(target)
            if self.plan.is_preview:
                return self._shrink_to_budget()
            saved = before - self.total()
            drawn = before - windows
            is_small = saved < max(1, threshold * _MIN_SAVING) and not (incomplete or is_over_capacity)
            least = before if has_preludes else drawn + tail.least_tokens()
            if least <= self._budget and is_small:
                self.plan.discard_page_changes()
                self.basis = None
                self._invalidate()
                self._bring_back_last_turn()
                self.is_discarded = True
                tail.lay_out(lines)
                tail.squeeze(before - self._budget)
                return drawn + tail.tokens
        return self._shrink_to_budget()

    def open_to(self, tokens: int) -> int:
        """Plan to open the newest folded exchanges until the view has about `tokens` tokens; return its size."""
        room = tokens - self.total()
        if self._capacity:
            most = self._capacity if self.plan.is_preview else self._capacity // 2
            room = min(room, most - self._cache.conversation_tokens)
        if room > 0 and self._config.sliding_window is None:
            head = self._builder.message_tokens(block_head(self._builder.key, FOLDED))
            Unfolding(self.plan, room, count=self._builder.measure, head=head).open_newest(self._row())
            self._invalidate()
            self._limit_conversation()
        return self._shrink_to_budget()

    def has_effect(self, before: ViewCache) -> bool:
        """Return whether the planned changes make the view differ from the parts `before`."""
        plan = self.plan
        ends_preludes = bool(before.preludes()) and not self.is_discarded
        return bool(plan.pages or plan.applies_deferred or plan.layouts or ends_preludes or len(plan.notes) > 1)

    @property
    def parts(self) -> ViewCache:
        """The parts of the view with the planned changes."""
        self.total()
        return self._cache

    def start_from(self, shown: ViewCache) -> None:
        """Use the parts that are shown now instead of drawing them again, if nothing is planned yet."""
        if self._total is None and not self.plan.pages and self._cache.take_over(shown, self.plan, self._budget):
            self._total = self._cache.total_tokens()
            self._fixed_changed = self._conversation_changed = False

    def total(self) -> int:
        """Return the tokens of the view with the planned changes."""
        if self._total is None:
            most = None if self.plan.lays_out else self._budget
            fixed, conversation = self._fixed_changed, self._conversation_changed
            self._cache.redraw(self.plan, self._committed, most, fixed=fixed, conversation=conversation)
            self._total = self._cache.total_tokens()
            self._fixed_changed = self._conversation_changed = False
        return self._total + self._tail.tokens

    def _invalidate(self, *, fixed: bool = True, conversation: bool = True) -> None:
        """Mark what may have changed, so that it is drawn again before the view is measured."""
        self._total = None
        self._fixed_changed = self._fixed_changed or fixed
        self._conversation_changed = self._conversation_changed or conversation
        if conversation:
            self._first_row = None

    def apply_summaries(self, ready: Mapping[int, SummaryRecord]) -> None:
        """Plan to replace extracted summaries by those of the summariser."""
        apply_model_summaries(self.plan, ready, self._builder.measure)
        self._invalidate()

    def next_to_fold(self, target: int) -> list[PageRecord]:
        """Return the pages that folding down to the target would take."""
        return [item.page for item in self._choose(self._row(), *self._measure(target)).items]

    def _bring_back_last_turn(self) -> int:
        """Take the last turn out of a folded line that ends the conversation; return the tokens of the view."""
        total = self.total()
        line = self._cache.last_folded_line()
        if line is None:
            return total
        unfold_last_turn(self.plan, line)
        self._invalidate()
        return self.total()

    def _fold_to(self, target: int) -> None:
        """Fold old exchanges until the view is down to the target. Shrink windows before any of the last turns."""
        lines = [item.page for item in self._row() if item.is_line]
        if restore_summaries(self.plan, lines, self._lines, self._builder.measure):
            self._invalidate(fixed=False)
        self._fold_old(target)
        if self._tail.has_open_windows and self._folds_last_turns(target):
            self._tail.shrink(self.total() - target)
            self._fold_old(target)

    def _folds_last_turns(self, target: int) -> bool:
        """Return whether a fold to the target would take some of the last turns if no window were open."""
        turns, _, excess, limit = self._measure(target)
        if self._config.sliding_window is not None or excess <= 0:
            return False
        return bool(self._choose(self._row(), turns, min(target // 2, self._last_turns), excess, limit).items)

    def _fold_old(self, target: int) -> None:
        for _ in range(_TRIES):
            turns, room, excess, limit = self._measure(target)
            if excess <= 0:
                return
            if not self._fold(turns, room, excess, limit):
                return  # another round would change nothing

    def _planned(self) -> tuple[list[PageRecord | Gone], list[Counter]]:
        """Return the pages and counters of the plan: they differ after any change of pages."""
        return list(self.plan.pages.values()), list(self.plan.counters)

    def _fold_old_turns(self) -> None:
        room = self._turns_room(self._budget // 4)
        self._fold(self._config.keep_turns, room, self.total() - self._budget, None)

    def _fold_unread(self) -> None:
        """Fold results that the model has not read yet: their calls alone can take more than the budget."""
        self._folds_unread = True
        self._fold(0, 0, self.total(), None)

    def _shrink_to_budget(self) -> int:
        """Take further steps, one by one, until the view is within the budget; return its tokens.

        Plan to store which windows are lines, so that they stay lines.
        """
        steps: Sequence[Callable[[], object]] = (
            self._fold_old_turns,
            self._shrink_layout,
            lambda: self._tail.shrink(self.total() - self._budget),
            self._fold_old_turns,
            lambda: self._tail.squeeze(self.total() - self._budget),
            lambda: self._fold(1, self._budget // 4, self.total() - self._budget, None),
            lambda: self._fold(0, 0, self.total() - self._budget, None),
            lambda: self._fold(0, 0, self.total(), None),  # folding a few small pages may have saved nothing
            lambda: self._clip(newest=False),
            lambda: merge_all_lines(self.plan, [item.page for item in self._row()], self._builder.measure),
            self._strip_lines,
            lambda: self._lay_out(Rooms(0, 0, 0)),
            lambda: self._clip(newest=False, minimum=_BARE_CLIP),
            self._tail.drop_lines,
            lambda: self._tail.clip_pinned(self.total() - self._budget),
            lambda: self._clip(newest=True),
            lambda: self._clip(newest=True, minimum=_BARE_CLIP),
            self._fold_unread,
        )
        for step in steps:
            if self.total() <= self._budget:
                break
            step()
            self._invalidate()
        lines, stored = self._tail.last_lines, self.plan.note(WINDOW_LINES)
        if lines != (stored.used if stored is not None else NO_LINES):
            self.plan.put_note(WINDOW_LINES, used=lines)
        return self.total()

    def _lay_out_first(self) -> None:
        """Plan how the segments outside the conversation are shown, unless that would give the stored layouts."""
        state, before = self.plan.state, self._stored_basis
        self.plan.lays_out = True
        self._rooms = layout_rooms(self._budget, total_tokens(self._cache.system) + self._tail.tokens)
        # layouts with pages that an agent opened since the last fold are only for one fold
        basis = None if state.deferred_changes() else LayoutBasis.of(state, self._budget, self._rooms)
        if self._cache.exceeds or not (before and basis and before.is_unchanged(basis, state)):
            self._lay_out(self._rooms)
        self.basis = basis

    def _lay_out(self, rooms: Rooms) -> LayoutPlanner:
        """Plan how the segments outside the conversation are shown within some rooms."""
        self.basis = None
        if self._layout is None:
            self._layout = LayoutPlanner(self.plan, self._builder, self._budget)
        had_changes = bool(self.plan.layouts)
        self._layout.lay_out(rooms)
        if had_changes or self.plan.layouts or self._cache.exceeds:
            self._invalidate(conversation=False)
        return self._layout

    def _shrink_layout(self) -> None:
        """Show fewer whole pages outside the conversation: first fewer notes, then opened pages, then others."""
        for _ in range(_TRIES):
            excess = self.total() - self._budget
            if excess <= 0:
                return
            given, own, _, opened = (self._layout or self._lay_out(self._rooms)).used
            left = max(0, own - excess)
            excess -= own - left
            kept = max(0, opened - excess)
            excess -= opened - kept
            self._lay_out(Rooms(max(0, given - excess) + left, left, layout_rooms(self._budget, 0).lines, kept))

    def _limit_conversation(self) -> None:
        """Fold old exchanges if the conversation is above its capacity, down to half of it."""
        capacity = self._capacity
        for turns in (self._config.keep_turns, 0) if capacity else ():
            self.total()
            excess = self._cache.conversation_tokens - capacity // 2
            if self._cache.conversation_tokens > capacity:
                self._fold(turns, capacity // 4 if turns else 0, excess, self._measure(0)[-1])

    def _measure(self, target: int) -> tuple[int, int, int, int | None]:
        """Return how many turns stay, their room in tokens, the excess tokens, and the first message that stays."""
        window, batches = self._config.sliding_window, self.plan.batches()
        limit = batches[0].boundary if batches else None
        if window is None:
            room = min(target // 2, self._last_turns)
            return self._config.keep_turns, self._turns_room(room), self.total() - target, limit
        return window, self._budget, sys.maxsize, limit

    def _turns_room(self, room: int) -> int:
        """Return the tokens within which the last turns are kept: half the budget while a window is shown whole."""
        return max(room, self._budget // 2) if self._tail.has_open_windows else room

    def _choose(self, row: Sequence[RowItem], turns: int, room: int, excess: int, limit: int | None) -> ChosenPages:
        protected = protected_pages(row, self.plan, turns, room)
        if not self._folds_unread:
            protected |= unread_results(row)
        return choose_pages(row, protected | self._opened.pages if turns else protected, excess, limit, self._lines)

    def _fold(self, turns: int, room: int, excess: int, limit: int | None) -> bool:
        """Plan to fold the oldest pages; return whether another call may change the plan again."""
        row, before = self._row(), self._planned()
        chosen, are_all = self._choose(row, turns, room, excess, limit)
        head = self._builder.message_tokens(block_head(self._builder.key, FOLDED))
        lines = LineBudget(self._builder.measure, self._lines, head, self._builder.prepared_lines)
        result, is_complete = fold_pages(self.plan, row, chosen, lines)
        self.result += result
        if self._planned() == before:
            return False
        self._invalidate(fixed=False)
        return self._has_open_folders or not (are_all and is_complete)  # a folder may be closed now

    def _row(self) -> list[RowItem]:
        """Return the conversation's first row as it is shown. A folder that must stay open is split into its pages."""
        if self._first_row is None:
            conversation = self.plan.conversation()
            row = [] if conversation is None else list(self._items(page_key(conversation, 0)))
            self._has_open_folders = any(item.is_open_folder for item in row)
            if self._has_open_folders:
                row = list(self._split(row, essential_pages(row, self.plan)))
            self._first_row = row
        return self._first_row

    def _split(self, row: Sequence[RowItem], essential: Set[int]) -> Iterator[RowItem]:
        for item in row:
            key = item.page.key
            is_essential = key in essential
            if not item.is_open_folder or item.page.header.pinned:
                yield item
            elif is_essential or key in self._opened.above or self.plan.pinned_below(key):
                inner = list(self._items(key))
                yield from self._split(inner, essential_pages(inner, self.plan) if is_essential else frozenset())
            else:
                yield item

    def _items(self, folder: int) -> Iterator[RowItem]:
        plan = self.plan
        for page in plan.members(folder):
            header = page.header
            if header.lifecycle is not _ACTIVE:
                continue
            if header.visibility is _HIDDEN:
                yield RowItem(page, self._builder.draw_line(self.plan, page)[1], is_line=True)
            elif header.folder:
                inner = list(shown_pages(plan, page.key))
                yield RowItem(page, sum(self._page_tokens(leaf) for leaf in inner), is_line=False, leaves=inner)
            else:
                yield RowItem(page, self._page_tokens(page), is_line=False)

    def _page_tokens(self, page: PageRecord) -> int:
        if page.header.visibility is _HIDDEN:
            return self._builder.draw_line(self.plan, page)[1]
        if page.header.folder:
            return 0
        node = self._cache.node_of(page)
        if node is not None and node.part.bare is None:  # it is drawn as it is now, without thinking
            return node.part.tokens
        part = self._builder.build_leaf(self.plan, page, self._committed)
        return part.tokens if part is not None else 0

    def _strip_lines(self) -> None:
        """Reduce lines to their names."""
        for item in self._row():
            page = item.page
            if item.is_line and page.header.line_tokens and page.header.description and not page.header.pinned:
                bare = self.plan.change(page, description="", summary_tokens=0, line_tokens=0)
                self.plan.change(bare, line_tokens=self._builder.draw_line(self.plan, bare)[1])

    def _clip(self, *, newest: bool, minimum: int = _MIN_CLIP) -> None:
        """Shorten pages that are still shown whole, the largest most; the newest exchange only with `newest`."""
        items = [s for s in self._row() if not s.is_line and not s.page.header.folder and not s.page.header.pinned]
        if not newest:
            last = next((s.page.key for s in reversed(items) if s.page.header.form is not Form.SYSTEM), None)
            items = [item for item in items if item.page.key != last]
        total = self.total()
        room = self._budget - (total - sum(item.tokens for item in items))
        room = max(room, minimum * len(items))
        for item, allowed in zip(items, share_equally([s.tokens for s in items], room), strict=True):
            if allowed < item.tokens:
                self.plan.change(item.page, clip=max(allowed, 1))


def irreducible_floor(reader: Reader, parts: Sequence[ViewPart], total: int, room: int, limit: int) -> IrreducibleFloor:
    """Return the error for parts that do not fit. It names the largest pages and what would help."""
    shown = sorted((one for part in parts for one in part.pages), key=lambda one: -one.tokens)
    rows = [(one.tokens, one.index) for one in shown[:_MAX_NAMED]] + [(p.tokens, p.kind) for p in parts if not p.pages]
    rows.sort(key=lambda row: -row[0])
    named = ", ".join(f"{name} ({tokens:,})" for tokens, name in rows)
    reserved = f" of {limit:,}, of which {limit - room:,} are reserved" if room < limit else ""
    prompts = {one.key for part in parts if part.kind == "system" for one in part.pages}
    pages = [(one.index, reader.page(one.key)) for one in shown if one.key not in prompts]
    pinned = [index for index, page in pages if isinstance(page, PageRecord) and page.header.pinned]
    steps = ["raise the budget"] + (["reserve less"] if reserved else [])
    steps += (["shorten the system prompt"] if prompts else []) + (["unpin pages"] if pinned else [])
    advice = f"{', '.join(steps[:-1])}, or {steps[-1]}" if len(steps) > 1 else steps[0]
    hints = [Hint("unpin", index, purpose="to let it become a line") for index in pinned[:1]]
    return IrreducibleFloor(
        f"The parts that must be shown take {total:,} tokens, and the budget has {room:,}{reserved}: {named}."
        f" {advice[0].upper()}{advice[1:]}.",
        *hints,
        tokens=total,
        budget=room,
        parts=tuple((name, tokens) for tokens, name in rows),
    )


class _Shown(Enum):
    """How much of a folded page is shown after an attempt to open it."""

    NOTHING = auto()
    PART = auto()
    ALL = auto()


class Unfolding:
    """Opens folded lines of the conversation in a plan, in at most `room` more tokens.

    `count` counts the tokens of a line, `head` is the size of the head of a block of lines.
    """

    def __init__(self, plan: Plan, room: int, *, count: Callable[[str], int], head: int) -> None:
        self._plan = plan
        self._left = room
        self._count = count
        self._head = head

    def open_newest(self, row: Sequence[RowItem]) -> None:
        """Open the lines of the first row, newest first, until one does not fit."""
        for item in reversed(row):
            if item.is_line and is_folded_line(item.page):
                self._left += item.page.header.line_tokens
                if self._open(item.page) is not _Shown.ALL:
                    return

    def _open(self, page: PageRecord) -> _Shown:
        """Open a folded page with everything below it, or with the newest pages below it; return how much is shown."""
        if page.header.folder:
            return self._open_folder(page)
        is_hidden = page.header.visibility is Visibility.HIDDEN and not is_folded_line(page)  # somebody hid it
        cost = page.header.summary_tokens if is_hidden else page.header.tokens
        if cost > self._left:
            return _Shown.NOTHING
        self._left -= cost
        if not is_hidden:
            self._plan.change(page, visibility=Visibility.EXPANDED)
        return _Shown.ALL

    def _open_folder(self, folder: PageRecord) -> _Shown:
        line = folder.header.line_tokens + self._head  # the older pages take about as much in a line of their own
        self._left -= line
        children = [page for page in self._plan.members(folder.key) if page.header.lifecycle is Lifecycle.ACTIVE]
        first, shown = len(children), _Shown.ALL
        while first and shown is _Shown.ALL:
            shown = self._open(children[first - 1])
            first -= shown is not _Shown.NOTHING
        if first == len(children):
            self._left += line
            return _Shown.NOTHING
        if not first and shown is _Shown.ALL:
            self._left += line
        opened = self._plan.change(folder, visibility=Visibility.EXPANDED)
        self._gather(opened, children[:first])
        return shown if not first else _Shown.PART

    def _gather(self, folder: PageRecord, older: Sequence[PageRecord]) -> None:
        """Move the older pages of an opened chapter into a chapter inside it."""
        if not older or (len(older) == 1 and is_folded_line(older[0])):
            return
        make_chapter(
            self._plan,
            older,
            folder.header.name,
            folder.header.description,
            level=1 + max(map(level_of, older)),
            count=self._count,
            before=sys.maxsize,
        )
