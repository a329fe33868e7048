"""Rendering: fold if that is needed, then draw. The only part of the view that writes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.reader import Reader
from quire.core.records import GAPS, LAST_FOLD, RENDERER, UNDONE_FOLD, WINDOW_LINES, NoteRecord, segment_number
from quire.core.state import State
from quire.errors import Conflict, IrreducibleFloor, ReadOnly
from quire.model.messages import Message
from quire.model.pages import PageIndex, SegmentType
from quire.model.tokens import VocabularyCounter
from quire.providers.plain_json import dumps, to_plain_json
from quire.providers.tool_schemas import count_tools, tool_sizes
from quire.view.cost import Outlook, budget_for, draw_outlook, folder_changes, last_reply_at
from quire.view.draw import PartBuilder
from quire.view.options import (
    COLD_SHARE,
    LINES_SHARE,
    RECALL_SHARE,
    TARGET_SHARE,
    THINKING_SHARE,
    CompressionConfig,
    RenderOptions,
)
from quire.view.parts import (
    CountedTools,
    FoldResult,
    OpenAIForm,
    Request,
    TokenCache,
    ViewPart,
    tokens_by_kind,
    total_tokens,
)
from quire.view.preamble import PREAMBLE, SHORT, SMALL_BUDGET, context_key, counted_texts, fill_preamble
from quire.view.tail import Tail, TailPiece, closed_windows, new_parts
from quire.view.view import View
from quire.view.view_cache import ViewCache, sent_before, shared_parts

if TYPE_CHECKING:
    from quire.view.fold.fit_budget import BudgetFitter
    from quire.view.fold.summary_worker import SummaryWorker
    from quire.view.layout import LayoutBasis
    from quire.view.recall_block import RecallBlock

LINE_TOKENS = 72
"""The most tokens of the budget line in the tail of a view."""
DEFAULT_OPTIONS = RenderOptions()
"""The default options. They are compared by identity: only a view with this object can use `_grown_view`."""


class Renderer:
    """Draws the views of one handle. It updates the parts of the last view instead of drawing all of them again."""

    def __init__(
        self, engine: Engine, config: CompressionConfig, on_fold: Callable[[FoldResult], None], words: str | None = None
    ) -> None:
        self.config = config
        self._preamble = words
        self._cache_budget = self._laid_out = 0
        self._most = 0  # the most tokens of segments that are drawn
        self._engine = engine
        self._on_fold = on_fold
        self._builder: PartBuilder | None = None
        self._prepares_fold = False
        self._cache: ViewCache | None = None
        self._gaps: NoteRecord | None = None
        self._epoch = 0
        self._layout_basis: LayoutBasis | None = None
        self._previous: list[ViewPart] = []
        self._tail: list[ViewPart] = []
        self._stable_tokens = 0  # of the last view, without its tail
        self._form = OpenAIForm()
        self._is_plain = False  # the last view had default options and no tail
        self._frame = b""
        self._counted_tools = CountedTools((), b"", 0, ())
        self.sent: View | None = None
        """The last view at the context's own budget."""
        self.sent_tokens = 0
        """The tokens of the last view at the context's own budget; 0 if there was none."""
        self._sent_version = -1
        self._sent_at = 0  # set only if `cache_seconds` is
        self.reserved = 0
        """The tokens that the last view at the context's own budget kept free."""
        self._tokens = TokenCache(engine.counter.count)
        self._last_tail = Tail(self._tokens)  # of the last view at the context's own budget
        self.summaries = _start_summaries(config, engine)

    def render(self, options: RenderOptions, pieces: Sequence[TailPiece] = ()) -> View:
        """Return a view within the budget. At the context's own budget it may commit one fold first.

        The tail has the pieces that are still current, as far as there is room for them.
        """
        with self._engine.lock:
            grown = self._grown_view() if self._is_plain and options is DEFAULT_OPTIONS and not pieces else None
            if grown is None:
                self._is_plain = False
                return self._render(options, pieces)
            return grown

    def _render(self, options: RenderOptions, pieces: Sequence[TailPiece]) -> View:
        budget = self._engine.budget
        wanted = budget if options.max_tokens is None else options.max_tokens
        limit = wanted if options.model is None else budget_for(self._engine.current(), options.model, wanted)
        reserve = options.reserve + (self._tools(options.tools).tokens if options.tools else 0)
        room = max(0, limit - reserve)
        has_line = options.budget_line and room >= 10 * LINE_TOKENS  # the line must not crowd out other parts
        room -= LINE_TOKENS if has_line else 0
        own = wanted == budget and not options.preview
        inline = options.windows == "inline"
        self._frame = self._digest_frame(options)
        self._most = max(budget, wanted)
        cache, folded = self._update_cache(), None
        first = bool(options.recall or has_line) and (not own or cache.awaits_first_reply())
        recall = self._recall_block(options, room) if options.recall and first else None
        new_tail = partial(self._new_tail, pieces, recall, room=room, own=wanted == budget)
        tail, frame = new_tail(cache), self._frame
        self._bind_windows(cache, frame, tail if inline else None)
        after = new_parts(tail, () if inline else cache.preludes())
        cold = own and self._is_cold()
        may_fold = own and self.config.enabled
        if may_fold and self._needs_fold(cache, room, total_tokens(after), cold=cold):
            whole = new_tail(cache, whole=True) if recall or cache.preludes() else tail
            cache, folded = self._fold(cache, room, total_tokens(after), whole, cold=cold)
            tail = tail if cache.preludes() else whole
            after = new_parts(tail, () if inline else cache.preludes())
        fills = wanted != budget or cache.total_tokens() + total_tokens(after) > room
        is_wrong = cache.is_over_capacity or cache.last_folded_line() is not None
        if fills or (is_wrong and not may_fold):
            whole = new_tail(cache, whole=True)
            drawn = self._preview(cache, wanted, room, whole, limit, fills=fills)
            if recall is not None and fills:  # a preview shows other pages, so other pages are recalled
                whole = new_tail(drawn)
                drawn = self._preview(cache, wanted, room, whole, limit, fills=True)
            cache, tail, after = (cache, tail, after) if drawn is cache else (drawn, whole, whole.parts())
        self._bind_windows(cache, frame, tail if inline else None, is_last=True)
        parts = cache.parts(system=options.include_system_prompt, among=tail.parts_by_entry() if inline else ())
        tokens = total_tokens(parts)
        after = [] if inline else [part for part in after if part.kind != "recalled"]
        if recall is not None:
            block = recall.build(room - tokens - total_tokens(after), cache.visible_pages())
            after += [block] if block is not None else []
        if own:
            self._last_tail = tail
        if has_line and (first or cache.has_grown_since_line(limit // 10)):
            line = self._budget_line(limit, tokens + total_tokens(after), reserve)
            after += [line] if line.tokens <= LINE_TOKENS else []
        if cache.is_empty() and not after and not tail.parts():
            after = [cache.opening()]
        used = tokens + total_tokens(after)
        if used > limit - reserve:  # never, unless a part was counted wrongly
            raise _floor_error(self._engine.state, [*parts, *after], used, max(0, limit - reserve), limit)
        request = self._request(cache, options, reserve) if own else None
        view = self._to_view(parts, tokens, after, folded, wanted, request)
        if own:
            self._stable_tokens, self.reserved = tokens, reserve
            self._prepare_fold(cache, room, used if may_fold and folded is None else 0)
            self._is_plain = options is DEFAULT_OPTIONS and may_fold and not (pieces or after or self._frame)
        return view

    def _grown_view(self) -> View | None:
        """Return the view with default options if it only grew at its end since the last one, else None.

        This does what `render` does in the usual case, without the checks of the other cases.
        """
        engine, cache = self._engine, self._cache
        state, room = engine.current(), engine.budget
        if cache is None or room != self._cache_budget or engine.epoch != self._epoch:
            return None
        if state.note(GAPS) is not self._gaps or self.config.cache_seconds is not None or not cache.extend(state):
            return None
        total = cache.total_tokens()
        if total > self._threshold(room) or self._is_raised() or cache.last_folded_line() or not cache.nodes:
            return None
        parts = cache.parts()
        head = state.head
        request = Request(head.identity, head.next_message, b"", -1, None, (), 0)
        view = self._to_view(parts, total, [], None, room, request)
        self._stable_tokens = total
        self._prepare_fold(cache, room, total)
        return view

    def _to_view(
        self,
        parts: list[ViewPart],
        tokens: int,
        tail: list[ViewPart],
        folded: FoldResult | None,
        budget: int,
        request: Request | None,
    ) -> View:
        """Return the view of these parts, with `tokens` before its tail. A view that a reply may answer is kept."""
        before, state = sent_before(self._previous, self._tail, parts), self._engine.state
        same = shared_parts(before, parts)
        shared = tokens - total_tokens(parts[same:])
        is_broken = shared < self._stable_tokens and folded is None
        view = View(
            parts,
            budget=budget,
            tokens=tokens,
            shared_prefix=shared,
            fold=folded,
            seq=state.version,
            previous=before,
            tail=tail,
            changes=folder_changes(state, before, parts, same) if is_broken else None,
            request=request,
            form=self._form if request is not None else None,
        )
        if request is not None:
            self._previous, self._tail, self.sent = parts, tail, view
            self._sent_version, self.sent_tokens = state.version, view.tokens
        return view

    def last_parts(self) -> list[ViewPart]:
        """Return the parts of the last view at the context's own budget, drawn again if anything changed since."""
        with self._engine.lock:
            if self._sent_version == self._engine.state.version:
                return [*self._previous, *self._tail]
            parts = self._update_cache().parts()
            stays = len(sent_before(self._previous, self._tail, parts)) > len(self._previous)
            return [*parts, *(() if stays else self._tail)]

    def outlook(self) -> Outlook:
        """Return how full a view is now, and the pages that a fold would take next. This plans a fold."""
        with self._engine.lock:
            kinds, budget, reserved = tokens_by_kind(self.last_parts()), self._engine.budget, self.reserved
            pages = self._next_to_fold(self.room())
            return Outlook(budget=budget, used=sum(kinds.values()), kinds=kinds, next_fold=pages, reserved=reserved)

    def room(self) -> int:
        """Return the budget without the tokens that the last view kept in reserve. This draws no view."""
        return max(0, self._engine.budget - self.reserved)

    def _recall_block(self, options: RenderOptions, room: int) -> "RecallBlock | None":
        from quire.view.recall_block import RecallBlock  # late: most views recall nothing

        share = RECALL_SHARE if options.recall is True else float(options.recall or 0)
        if self._builder is None:
            return None
        selective = options.recall is True
        floor = float(selective) if options.recall_floor is None else options.recall_floor
        return RecallBlock(self._engine, self._builder, int(share * room), selective=selective, floor=floor)

    def _next_to_fold(self, room: int) -> tuple[PageIndex, ...]:
        if not self.config.enabled:
            return ()
        fitter = self._fitter(self._cache_budget, room, self._last_tail)
        return tuple(fitter.plan.index(page.key) for page in fitter.next_to_fold(self._target(room)))

    def _budget_line(self, budget: int, used: int, reserved: int) -> ViewPart:
        """Return the line with the state of the budget. It counts its own tokens too."""
        pages = self._next_to_fold(max(0, budget - reserved))
        outlook = Outlook(budget=budget, used=used, next_fold=pages, reserved=reserved)
        key = self._builder.key if self._builder else ""
        part = draw_outlook(outlook, key, self._tokens.count)
        if part.tokens <= LINE_TOKENS:
            return part
        return draw_outlook(replace(outlook, next_fold=()), key, self._tokens.count)

    def _request(self, cache: ViewCache, options: RenderOptions, reserve: int) -> Request:
        """Return what a reply to a view is stored with."""
        tools = self._tools(options.tools).sizes if options.tools else ()
        state, thinking = self._engine.state, cache.thinking
        digest = cache.chain().digest() if thinking is not None or self._frame else None
        newest = -1 if thinking is None else thinking.newest
        return Request(state.head.identity, state.next_message, self._frame, newest, digest, tools, reserve)

    def _digest_frame(self, options: RenderOptions) -> bytes:
        """Return the digest of what is sent beside the messages of the context; b"" for a plain view."""
        tools = self._tools(options.tools).digest if options.tools else b""
        is_plain = options.include_system_prompt and not tools
        return b"" if is_plain else _digest(options.include_system_prompt, tools)

    def _bind_windows(self, cache: ViewCache, frame: bytes, tail: Tail | None, *, is_last: bool = False) -> None:
        """Bind thinking to the windows among the messages too. If the last call changes them, show no thinking."""
        windows = [(entry, part.messages[0].text) for entry, part in tail.parts_by_entry()] if tail else []
        bound = _digest(frame, windows) if windows else frame
        if bound != self._frame:
            cache.bind(b"changed" if is_last else bound)  # no reply has such a frame
        self._frame = bound

    def _tools(self, tools: Sequence[Any]) -> CountedTools:
        """Return tool schemas with their digest and their tokens. The last ones are cached."""
        if self._counted_tools.tools != tools:
            counter = self._engine.counter
            tokens, digest = count_tools(tools, counter), _digest(dumps(to_plain_json(tools, "tools")))
            self._counted_tools = CountedTools(list(tools), digest, tokens, tool_sizes(tools, counter))
        return self._counted_tools

    def _update_cache(self) -> ViewCache:
        """Return the parts of the view at the context's own budget."""
        state, budget = self._engine.current(), self._engine.budget
        gaps = state.note(GAPS)
        epoch = self._engine.epoch
        if gaps is not self._gaps or epoch != self._epoch:  # a cleanup changes indices, a rewind changes pages
            self._gaps, self._epoch = gaps, epoch
            self._builder = self._cache = self._layout_basis = None
        if self._builder is None:
            self._builder = self._new_builder(state)
            self._cache = None
        if self._cache is None or budget != self._cache_budget:
            self._cache, self._cache_budget = self._new_cache(self._builder, budget), budget
        self._cache.frame = self._frame
        self._builder.most = max(self._most, budget)
        self._cache.update(state, self._most or None)
        return self._cache

    def _new_builder(self, state: State) -> PartBuilder:
        key, counter = context_key(state), self._engine.counter
        is_counted = type(counter) is VocabularyCounter and counter.vocabulary == "o200k_base"
        return PartBuilder(counter.count, key, counted_texts(key) if is_counted else None)

    def _new_cache(self, builder: PartBuilder, budget: int) -> ViewCache:
        """Return an empty cache for views of a budget. A small view has a short preamble."""
        default = SHORT if budget < SMALL_BUDGET else PREAMBLE
        text = fill_preamble(builder.key, default if self._preamble is None else self._preamble)
        message = Message(role="system", content=text)
        parts = [ViewPart("preamble", [message], builder.message_tokens(text))] if text.strip() else []
        return ViewCache(builder, parts, self._frame)

    def _new_tail(
        self,
        pieces: Sequence[TailPiece],
        recall: "RecallBlock | None",
        cache: ViewCache,
        *,
        room: int,
        own: bool,
        whole: bool = False,
    ) -> Tail:
        """Return the tail of a view with the parts in `cache`. Obsolete pieces are in it only if there is room.

        Windows take a quarter of the budget, or the capacity of their segment. Windows that the last fold shrank to
        lines stay lines in views of the context's `own` size. The `whole` tail is the one after a fold: it has no
        preludes, and it has all recalled pages, because the view does not show them yet.
        """
        state = self._engine.state
        current = [piece for piece in pieces if piece.is_current is None or piece.is_current(state)]
        preludes = () if whole else cache.preludes()
        if preludes:
            current += closed_windows(state, current, preludes)
        if recall is not None:
            current += recall.reserve(() if whole else cache.visible_pages())
        if not current:
            return Tail(self._tokens)
        noted = state.note(WINDOW_LINES)
        tail = Tail(self._tokens, current, self._windows_share(state, cache, room))
        if tail.tokens > self._threshold(room) - cache.total_tokens():
            tail.drop_obsolete()
        if noted is not None and own:
            tail.lay_out(noted.used)
        return tail

    def _windows_share(self, state: State, cache: ViewCache, budget: int) -> int:
        """Return the tokens for all windows: what other pages leave of the segment's capacity, or a quarter."""
        number = state.first_segment(SegmentType.TOOL)
        segment = None if number is None else state.segment(number)
        if segment is None or not segment.max_capacity:
            return budget // 4
        used = (part.tokens for part in cache.segments if segment_number(part.pages[0].key) == number)
        return max(0, segment.max_capacity - sum(used))

    def _is_cold(self) -> bool:
        """Return whether the provider's cached prefix has expired, so that this view is paid in full anyway."""
        if self.config.cache_seconds is None:
            return False
        now, before = self._engine.clock(), max(self._sent_at, last_reply_at(self._engine.state))
        self._sent_at = now
        return 0 < before < now - 1_000 * self.config.cache_seconds

    def _threshold(self, room: int, *, cold: bool = False) -> int:
        threshold = room if self.config.threshold is None else min(self.config.threshold, room)
        return int(COLD_SHARE * threshold) if cold else threshold

    def _target(self, room: int) -> int:
        share = int(self._threshold(room) * TARGET_SHARE)
        return share if self.config.target_tokens is None else min(self.config.target_tokens, room)

    def _prepare_fold(self, cache: ViewCache, room: int, used: int) -> None:
        """Do a part of the work of the next fold, if a view of `used` tokens makes a fold likely."""
        if used > self._target(room):
            if not self._prepares_fold:
                from quire.view.fold import fit_budget, summary_worker  # noqa: F401 - loaded before the fold

                self._prepares_fold = True
            cache.prepare_fold(self._engine.state, int(room * LINES_SHARE))

    def _needs_fold(self, cache: ViewCache, room: int, tail: int, *, cold: bool) -> bool:
        total = cache.total_tokens() + tail
        held = self._engine.state.note(UNDONE_FOLD)
        if total > room:
            return True
        if total > self._fold_threshold(cache, room, cold=cold) and not (held and held.name):
            return True
        return cache.is_over_capacity or self._is_raised() or cache.last_folded_line() is not None

    def _fold_threshold(self, cache: ViewCache, room: int, *, cold: bool) -> int:
        """Return the tokens above which a view folds: fewer at a user message if tool calls with thinking may follow.

        A fold inside the calls of a turn would end the thinking of that turn.
        """
        threshold = self._threshold(room, cold=cold)
        early = int(THINKING_SHARE * self._threshold(room))
        thinking = cache.thinking
        is_early = thinking is not None and thinking.newest >= 0 and cache.ends_with_user_after_calls()
        return min(threshold, early) if is_early else threshold

    def _fold(
        self, cache: ViewCache, room: int, used: int, tail: Tail, *, cold: bool
    ) -> tuple[ViewCache, FoldResult | None]:
        """Commit one fold if it saves enough; return the parts of the view and the fold.

        `used` are the tokens of the tail without a fold; `tail` is the tail after it. All preludes end with a fold. If
        another writer was first, or the storage is read-only, nothing is folded: the next view folds.
        """
        from quire.view.fold.summary_worker import FoldSummaries  # late: many contexts never fold

        engine, budget = self._engine, self._cache_budget
        lines = tail.last_lines
        if self._is_raised():
            tail.lay_out()
        fitter = self._fitter(budget, room, tail)
        plan = fitter.plan
        fitter.start_from(cache)
        summaries = FoldSummaries(engine, self.summaries)
        if summaries.ready:
            fitter.apply_summaries(summaries.ready)
        threshold = self._fold_threshold(cache, room, cold=cold)
        used += cache.total_tokens()
        total = fitter.fit(
            threshold,
            self._target(room),
            used,
            has_preludes=bool(cache.preludes()),
            is_over_capacity=cache.is_over_capacity,
        )
        if self._is_raised():
            total = fitter.open_to(self._target(room))
        if total > room or not fitter.has_effect(cache):
            self._laid_out = budget
            return cache, None  # nothing is left to fold; if the view is too large, render raises the error
        summaries.plan(plan, room)
        held = plan.note(UNDONE_FOLD)
        if plan.pages and held and held.name:
            plan.put_note(UNDONE_FOLD)
        drawn, version = fitter.parts, plan.state.version
        try:
            engine.commit(plan, "fold")
        except (Conflict, ReadOnly):
            tail.lay_out(lines)
            return cache, None
        if engine.state.version == version:
            return cache, None
        # what was fitted is shown, even if another writer has changed the context again
        drawn.adopt(engine.state, plan.pages)
        self._layout_basis = fitter.basis
        self._cache = drawn
        if plan.pages:
            summaries.settle()
            self._on_fold(fitter.result)
        is_changed = engine.state.version != plan.seq  # a listener changed the context
        return self._update_cache() if is_changed else drawn, fitter.result

    def _is_raised(self) -> bool:
        """Return whether the budget is larger than at the last fold, and no view was laid out for it yet."""
        return self._laid_out < self._cache_budget > self._engine.state.head.fold_budget > 0

    def _fitter(self, budget: int, room: int, tail: Tail, *, is_preview: bool = False) -> "BudgetFitter":
        """Begin the plan of a fold: deferred changes take effect."""
        from quire.view.fold.fit_budget import BudgetFitter  # late: many contexts never fold

        plan = self._engine.begin(RENDERER)
        plan.is_preview = is_preview
        plan.apply_deferred()
        plan.put_note(LAST_FOLD)
        builder = self._builder or self._new_builder(plan.state)
        return BudgetFitter(
            plan,
            builder,
            self._new_cache(builder, budget),
            budget=room,
            config=self.config,
            tail=tail,
            basis=self._layout_basis,
        )

    def _preview(self, cache: ViewCache, budget: int, room: int, tail: Tail, limit: int, *, fills: bool) -> ViewCache:
        """Return the parts of a view that fits its room, or `fills` it, without a commit. Raises `IrreducibleFloor`.

        If a fold would change nothing, or has no room to show the last user message again, return `cache`.
        """
        fitter = self._fitter(budget, room, tail, is_preview=True)
        total = fitter.fit(room, room)
        if fills:
            total = fitter.open_to(room)
        if total > room and fills:
            raise _floor_error(fitter.plan, [*fitter.parts.parts(), *tail.parts()], total, room, limit)
        return fitter.parts if fills or (total <= room and fitter.has_effect(cache)) else cache


def _digest(*values: object) -> bytes:
    from hashlib import blake2b  # late: most views are plain

    return blake2b(repr(values).encode(), digest_size=8).digest()


def _floor_error(reader: Reader, parts: Sequence[ViewPart], total: int, room: int, limit: int) -> IrreducibleFloor:
    from quire.view.fold.fit_budget import irreducible_floor

    return irreducible_floor(reader, parts, total, room, limit)


def _start_summaries(config: CompressionConfig, engine: Engine) -> "SummaryWorker | None":
    if config.summariser is None:
        return None
    from quire.view.fold.summary_worker import SummaryWorker  # late: few contexts have a summariser

    return SummaryWorker(config.summariser, engine)
