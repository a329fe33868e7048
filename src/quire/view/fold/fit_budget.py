"""Planning whatever it takes for a view to fit: fold what is old, then what is less old, then clip.

The order is the contract's: old exchanges first, then notes, then the last turns; the system prompt, pinned pages and
the last user message never go, and the newest message is clipped only when nothing else helps.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from quire.core.chapters import unfold_last_turn
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PageRecord, page_key
from quire.model.messages import PER_MESSAGE
from quire.model.pages import Form, Lifecycle, Permission, SegmentType, Visibility
from quire.view.clip import levelled
from quire.view.draw import draw_leaf, shown_pages
from quire.view.fold.folding import Lines, Standing, choose, essential, fold, gather_all, protected
from quire.view.fold.summaries import Better, improve, sum_up_again
from quire.view.options import LINES_SHARE, CompressionConfig
from quire.view.part_builder import FOLDED, Maker
from quire.view.parts import Folded
from quire.view.tail import Tail
from quire.view.view_cache import Scene

_TRIES = 2
"""What lines will cost is guessed; where that was too little, a little more is folded."""
_LEAST_CLIP = 48
_BARE_CLIP = 26


class Fitting:
    """One attempt to make a view fit, as changes in a plan."""

    def __init__(
        self, plan: Plan, maker: Maker, scene: Scene, *, budget: int, config: CompressionConfig, tail: Tail
    ) -> None:
        self.plan = plan
        self.done = Folded()
        self._maker = maker
        self._scene = scene
        self._tail = tail
        self._budget = budget
        free = budget - tail.tokens_of("recalled")  # what is asked for now is worth more than lines and older turns
        self._lines = int(free * LINES_SHARE)
        self._last_turns = free // 2
        self._config = config
        self._settled = plan.state.version
        self._total: int | None = None  # until something changes
        self._opened = _first_row(plan, (key for key, anchor in plan.state.deferred_changes().items() if anchor.opened))

    def total(self) -> int:
        """What the view would cost now."""
        if self._total is None:
            self._scene.draw(self.plan, self._settled)
            self._total = self._scene.fixed() + self._scene.spoken
        return self._total + self._tail.tokens

    def improve(self, found: Iterable[Better]) -> None:
        """Let better summaries take their places."""
        improve(self.plan, found, self._maker.size)
        self._total = None

    def bring_back_last_turn(self) -> int:
        """Take the last turn out of the line that the conversation ends with, if it does; what the view costs then."""
        total = self.total()
        line = self._scene.ends_folded()
        if line is None:
            return total
        unfold_last_turn(self.plan, line)
        self._total = None
        return self.total()

    def fold_to(self, target: int) -> None:
        """Fold old exchanges until the view is down to the target, or nothing is left that may be folded."""
        lines = [standing.page for standing in self._row() if standing.is_line]
        sum_up_again(self.plan, lines, self._lines, self._maker.size)
        self._total = None
        for _ in range(_TRIES):
            turns, room, excess, limit = self._measure(target)
            if excess > 0:
                self._fold(turns, room, excess, limit)

    def next_to_fold(self, target: int) -> list[PageRecord]:
        """The pages that folding down to the target would take."""
        return [standing.page for standing in self._choose(self._row(), *self._measure(target))]

    def press(self) -> int:
        """Go on, step by step, until the view is within the budget; what it costs then."""
        steps: Sequence[Callable[[], None]] = (
            lambda: self._fold(self._config.keep_turns, self._budget // 4, self.total() - self._budget, None),
            self._hide_notes,
            lambda: self._tail.give_way(self.total() - self._budget),
            lambda: self._fold(1, self._budget // 4, self.total() - self._budget, None),
            lambda: self._fold(0, 0, self.total() - self._budget, None),
            lambda: self._fold(0, 0, self.total(), None),  # a few small ones may have saved nothing
            lambda: self._clip(newest=False),
            self._gather_lines,
            self._bare_lines,
            lambda: self._clip(newest=False, least=_BARE_CLIP),
            lambda: self._tail.clip_pinned(self.total() - self._budget),
            lambda: self._clip(newest=True),
            lambda: self._clip(newest=True, least=_BARE_CLIP),
        )
        for step in steps:
            if self.total() <= self._budget:
                break
            step()
            self._total = None
        return self.total()

    def keep_capacities(self) -> None:
        """Hide the oldest pages of segments that hold more than they may, down to half of it."""
        for number, segment in self.plan.live_segments():
            if segment.max_capacity and number != self.plan.conversation():
                self._shrink(number, segment.max_capacity)

    def _measure(self, target: int) -> tuple[int, int, int, int | None]:
        """How many turns are kept in how much room, how much is to go, and up to which message."""
        window, batches = self._config.sliding_window, self.plan.batches()
        limit = batches[0].boundary if batches else None
        if window is None:
            return self._config.keep_turns, min(target // 2, self._last_turns), self.total() - target, limit
        return window, self._budget, sys.maxsize, limit

    def _choose(
        self, row: Sequence[Standing], turns: int, room: int, excess: int, limit: int | None
    ) -> Sequence[Standing]:
        kept = protected(row, self.plan, turns, room)
        return choose(row, kept | self._opened if turns else kept, excess, limit, self._lines)

    def _fold(self, turns: int, room: int, excess: int, limit: int | None) -> None:
        row = self._row()
        chosen = self._choose(row, turns, room, excess, limit)
        head = self._maker.head(FOLDED)[1] + PER_MESSAGE
        self.done += fold(self.plan, row, chosen, Lines(self._maker.size, self._lines, head))
        self._total = None

    def _row(self) -> list[Standing]:
        """The conversation's first row as it is shown; a folder that must stay open is given page by page."""
        conversation = self.plan.conversation()
        row = [] if conversation is None else list(self._standings(page_key(conversation, 0)))
        return list(self._split(row, essential(row, self.plan)))

    def _split(self, row: Sequence[Standing], kept: Set[int]) -> Iterator[Standing]:
        for standing in row:
            key = standing.page.key
            is_kept = key in kept
            if not standing.is_open_folder or standing.page.header.pinned:
                yield standing
            elif is_kept or self.plan.pinned_below(key):
                inner = list(self._standings(key))
                yield from self._split(inner, essential(inner, self.plan) if is_kept else frozenset())
            else:
                yield standing

    def _standings(self, folder: int) -> Iterator[Standing]:
        plan = self.plan
        for page in plan.members(folder):
            header = page.header
            if header.lifecycle is not Lifecycle.ACTIVE:
                continue
            if header.visibility is Visibility.HIDDEN:
                yield Standing(page, self._maker.line(plan, page)[1], is_line=True)
            elif header.folder:
                inner = list(shown_pages(plan, page.key))
                yield Standing(page, sum(self._cost(leaf) for leaf in inner), is_line=False, leaves=inner)
            else:
                yield Standing(page, self._cost(page), is_line=False)

    def _cost(self, page: PageRecord) -> int:
        if page.header.visibility is Visibility.HIDDEN:
            return self._maker.line(self.plan, page)[1]
        if page.header.folder:
            return 0
        part = draw_leaf(self.plan, self._maker, page, self._settled)
        return part.tokens if part is not None else 0

    def _shrink(self, number: int, capacity: int) -> None:
        pages = sorted(self._open_notes(number), key=_age)
        used = sum(page.header.tokens for page in pages)
        for page in pages if used > capacity else ():
            if used <= capacity // 2:
                break
            used -= page.header.tokens if self._hide(page) else 0

    def _hide_notes(self) -> None:
        """Show notes as lines, oldest first, until the view fits."""
        excess = self.total() - self._budget
        pages = [page for number, _ in self.plan.live_segments() for page in self._open_notes(number)]
        for page in sorted(pages, key=_age):
            if excess <= 0:
                return
            excess -= self._hide(page)

    def _hide(self, page: PageRecord) -> int:
        """Show a note as its line, if that is shorter; what that saves."""
        head = self._maker.size(f"[{self.plan.index(page.key)}] {page.header.name}\n")
        saved = head + page.header.tokens - self._maker.line(self.plan, page)[1]
        if saved <= 0:
            return 0
        self.plan.change(page, visibility=Visibility.HIDDEN)
        self._total = None
        return saved

    def _open_notes(self, number: int) -> Iterator[PageRecord]:
        segment = self.plan.segment(number)
        if segment is None or segment.type is SegmentType.SYSTEM or number == self.plan.conversation():
            return
        if segment.permission is Permission.PRIVATE:
            return  # nothing of it is shown
        for page in shown_pages(self.plan, page_key(number, 0)):
            kept = page.header.pinned or page.header.form is Form.WINDOW  # a window stands in the tail
            if page.header.visibility is Visibility.EXPANDED and not kept:
                yield page

    def _bare_lines(self) -> None:
        """Let lines say no more than what they are called."""
        for standing in self._row():
            page = standing.page
            if standing.is_line and page.header.line_tokens and page.header.description and not page.header.pinned:
                bare = self.plan.change(page, description="", summary_tokens=0, line_tokens=0)
                self.plan.change(bare, line_tokens=self._maker.line(self.plan, bare)[1])

    def _gather_lines(self) -> None:
        gather_all(self.plan, [standing.page for standing in self._row()], self._maker.size)

    def _clip(self, *, newest: bool, least: int = _LEAST_CLIP) -> None:
        """Shorten what is still shown whole, the largest most; the newest exchange only when asked to."""
        rows = [s for s in self._row() if not s.is_line and not s.page.header.folder and not s.page.header.pinned]
        if not newest:
            last = next((s.page.key for s in reversed(rows) if s.page.header.form is not Form.SYSTEM), None)
            rows = [standing for standing in rows if standing.page.key != last]
        total = self.total()
        room = self._budget - (total - sum(standing.tokens for standing in rows))
        room = max(room, least * len(rows))
        for standing, allowed in zip(rows, levelled([s.tokens for s in rows], room), strict=True):
            if allowed < standing.tokens:
                self.plan.change(standing.page, clip=max(allowed, 1))


def _age(page: PageRecord) -> tuple[int, int]:
    return page.header.born, page.key


def _first_row(reader: Reader, keys: Iterable[int]) -> set[int]:
    """The pages of the conversation's first row that these stand in: an agent has just opened them."""
    pages = (page for key in keys if isinstance(page := reader.page(key), PageRecord))
    chains = ([page, *reader.ancestors(page)] for page in pages)
    return {chain[-2].key for chain in chains if len(chain) > 1}
