"""How long ago the last view was sent: after a long pause the provider has forgotten it.

How full a view is, by what, and what a fold would take next.

Rendering: fold if that is needed, then draw. The only part of the view that writes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.records import GAPS, KEY, UNDONE_FOLD, NoteRecord, PageRecord
from quire.core.state import State
from quire.errors import Conflict, Hint, IrreducibleFloor
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import PageIndex, SegmentType
from quire.model.tokens import VocabularyCounter
from quire.view.billing_factor import budget_for
from quire.view.cost import turned_folders
from quire.view.draw import OPENING, preamble_part
from quire.view.options import COLD_SHARE, RECALL_SHARE, TARGET_SHARE, CompressionConfig, RenderOptions
from quire.view.part_builder import FOLDED, NO_RESULT, Maker, Sizes, block_head
from quire.view.parts import Folded, Part, Shown, total_tokens
from quire.view.preamble import (
    HEAD_TOKENS,
    NO_RESULT_TOKENS,
    OPENING_TOKENS,
    PREAMBLE,
    PREAMBLE_TOKENS,
    SHORT,
    SHORT_TOKENS,
    SMALL,
    derived_key,
    is_derived,
    preamble,
)
from quire.view.tail import Tail, Volatile
from quire.view.view import View
from quire.view.view_cache import Scene, shared_tokens

if TYPE_CHECKING:
    from quire.view.fold.fit_budget import Fitting
    from quire.view.fold.summaries import Better, Job
    from quire.view.recall_block import Recollection
    from quire.view.summariser import Summarising


_LOOKED_AT = 64
"""How many of the newest messages are looked at: a reply is among the last few, or there was none for long."""


def answered_at(state: State) -> int:
    """When the newest message of the assistant's came, in milliseconds since 1970; 0 if none is near the end."""
    newest = state.next_message - 1
    for number in range(newest, max(-1, newest - _LOOKED_AT), -1):
        found = state.message(number)
        page = state.page(found.page) if found.message.role == "assistant" else None
        if isinstance(page, PageRecord):  # one that was removed or moved tells no time
            return page.header.created
    return 0


_NAMED = 4
LINE_TOKENS = 72
"""What the line in a view's tail may take."""
_WORDS = {
    "system": "system prompt",
    "preamble": "how to read this",
    "segment": "notes",
    "folded": "folded lines",
    "exchange": "conversation",
    "note": "notes in the conversation",
    "opened": "pages you opened",
    "opening": "opening",
}


class Outlook(Struct, frozen=True, kw_only=True):
    """What a view takes of its budget, in all and by kind of piece, and the pages that the next fold would fold.

    `reserved` is kept for the reply and for what is sent beside the view: it is not free.
    """

    budget: int
    used: int
    kinds: Mapping[str, int] = {}
    next_fold: tuple[PageIndex, ...] = ()
    reserved: int = 0

    @property
    def free(self) -> int:
        """The tokens that are left before something is folded."""
        return max(0, self.budget - self.reserved - self.used)

    def line(self) -> str:
        """All of it in one line."""
        coming = f"; a fold would take {_span(self.next_fold)} next" if self.next_fold else ""
        return self.short_line() + coming

    def short_line(self) -> str:
        """How full it is, and no more."""
        reserved = f"{self.reserved:,} reserved, " if self.reserved else ""
        return f"{self.used:,} of {self.budget:,} tokens used, {reserved}{self.free:,} free"

    def __str__(self) -> str:
        largest = sorted(self.kinds.items(), key=lambda item: -item[1])
        by_kind = [f"{tokens:,} {_WORDS.get(kind, kind)}" for kind, tokens in largest if tokens]
        return "\n".join([f"{self.line()}.", f"By kind: {', '.join(by_kind)}."])


def _span(pages: tuple[PageIndex, ...]) -> str:
    if len(pages) <= _NAMED:
        return ", ".join(pages)
    return f"{pages[0]} to {pages[-1]} ({len(pages)} pages)"


ACTOR = "renderer"
_WORTHWHILE = 0.05
_NAMED_PAGES = 6
"""Pages that an error names; more lines of one segment are named together."""


class Renderer:
    """Draws the views of one handle, each from what the last one left."""

    def __init__(
        self, engine: Engine, config: CompressionConfig, on_fold: Callable[[Folded], None], words: str | None = None
    ) -> None:
        self.config = config
        self._words = words
        self._is_small = False
        self._engine = engine
        self._on_fold = on_fold
        self._maker: Maker | None = None
        self._scene: Scene | None = None
        self._gaps: NoteRecord | None = None
        self._turned = 0
        self._previous: list[Part] = []
        self._sent = 0
        self._sent_at = -1
        self._sent_on = 0  # the moment, where it matters
        self._steady = 0  # the tokens of the last view before its tail
        self.reserved = 0
        """What the last view at the context's own budget kept free."""
        self._sizes = Sizes(engine.counter.count)
        self.after: list[Part] = []
        """The tail of the last view at the context's own budget."""
        self.summarising = _summarising(config)

    def render(self, options: RenderOptions, budget: int, pieces: Sequence[Volatile] = ()) -> View:
        """A view within the budget; at the context's own budget it may commit one fold first.

        The pieces stand in its tail, as far as they still hold and there is room for them.
        """
        with self._engine.lock:
            self._heed(budget)
            wanted = budget if options.max_tokens is None else options.max_tokens
            limit = wanted if options.model is None else budget_for(self._engine.current(), options.model, wanted)
            room = max(0, limit - options.reserve)
            told = options.budget_line and room >= 10 * LINE_TOKENS  # it must not crowd out what it tells of
            room -= LINE_TOKENS if told else 0
            own = wanted == budget and not options.preview
            scene, folded = self._current(), None
            recollection = self._recollection(options, room) if options.recall else None
            if recollection is not None:
                pieces = [*pieces, *recollection.piece(scene.visible())]
            tail = self._tail(pieces, self._threshold(room) - scene.total())
            cold = own and self._is_cold()
            if own and self.config.enabled and self._is_due(self._engine.state, scene, room, tail, cold=cold):
                folded = self._fold(room, tail, cold=cold)
                scene = self._current()
            acts = own and self.config.enabled
            if scene.total() + tail.tokens > room or (not acts and scene.ends_folded() is not None):
                scene = self._shortened(room, tail, limit)
            inline = options.windows == "inline"
            parts = scene.parts(system=options.include_system_prompt, among=tail.placed() if inline else ())
            tokens = scene.total() if options.include_system_prompt and not inline else total_tokens(parts)
            before, shared = self._previous, shared_tokens(self._previous, parts, tokens)
            is_broken = shared < self._steady and folded is None
            turned = turned_folders(self._engine.state, before, parts) if is_broken else None
            after = [] if inline else [part for part in tail.parts() if part.kind != "recalled"]
            if recollection is not None:
                after += self._recalled(recollection, scene, room - tokens - total_tokens(after))
            if told:
                line = self._budget_line(limit, tokens + total_tokens(after), options.reserve)
                after += [line] if line.tokens <= LINE_TOKENS else []
            if own:
                self._previous, self.after = parts, after
                self._steady, self.reserved, self._sent_at = tokens, options.reserve, self._engine.state.version
                self._sent = tokens + total_tokens(after)
            return View(
                parts,
                budget=wanted,
                tokens=tokens,
                shared_prefix=shared,
                fold=folded,
                seq=self._engine.state.version,
                previous=before,
                tail=after,
                turned=turned,
            )

    def _recollection(self, options: RenderOptions, room: int) -> "Recollection | None":
        from quire.view.recall_block import Recollection  # late: not every view brings something back

        share = RECALL_SHARE if options.recall is True else float(options.recall or 0)
        return Recollection(self._engine, self._maker, int(share * room)) if self._maker is not None else None

    def _recalled(self, recollection: "Recollection", scene: Scene, room: int) -> list[Part]:
        """What is brought back beside what is shown, in the room that is left."""
        part = recollection.part(room, scene.visible())
        return [part] if part is not None else []

    def sent(self) -> int:
        """The tokens of the last view at the context's own budget; 0 if there was none."""
        return self._sent

    def seen(self) -> list[Part]:
        """The pieces of the last view at the context's own budget; if anything changed since, what there is to draw."""
        with self._engine.lock:
            scene = self._current()
            is_same = self._sent_at == self._engine.state.version
            return [*(self._previous if is_same else scene.parts()), *self.after]

    def outlook(self, budget: int) -> Outlook:
        """How full a view is now, and what a fold would take next."""
        with self._engine.lock:
            kinds: dict[str, int] = {}
            for part in self.seen():
                kinds[part.kind] = kinds.get(part.kind, 0) + part.tokens
            coming, reserved = self._coming(max(0, budget - self.reserved)), self.reserved
            return Outlook(budget=budget, used=sum(kinds.values()), kinds=kinds, next_fold=coming, reserved=reserved)

    def _coming(self, room: int) -> tuple[PageIndex, ...]:
        """What a fold would take next."""
        if not self.config.enabled:
            return ()
        plan = self._engine.begin(ACTOR)
        plan.apply_deferred()
        fitting = self._fitting(plan, room, Tail(self._sizes))
        return tuple(plan.index(page.key) for page in fitting.next_to_fold(self._target(room)))

    def _budget_line(self, budget: int, used: int, reserved: int) -> Part:
        """The line that tells how full the view is, itself included."""
        coming = self._coming(max(0, budget - reserved))
        outlook = Outlook(budget=budget, used=used, next_fold=coming, reserved=reserved)
        part = self._line_of(outlook)
        return part if part.tokens <= LINE_TOKENS else self._line_of(replace(outlook, next_fold=()))

    def _line_of(self, outlook: Outlook) -> Part:
        key, tokens, text = self._maker.key if self._maker else "", 0, ""
        for _ in range(4):  # its own size is in the figures it tells
            counted = tokens
            text = f"[{key}] Budget: {replace(outlook, used=outlook.used + counted).line()}."
            tokens = self._sizes.size(text) + PER_MESSAGE
            if tokens == counted:
                break
        return Part("budget", [Message(role="user", content=text)], tokens)

    def _heed(self, budget: int) -> None:
        """In a small window the words on how to read it are few."""
        if (budget < SMALL) is not self._is_small:
            self._is_small = budget < SMALL
            self._scene = None

    def _current(self) -> Scene:
        state = self._engine.current()
        gaps = state.note(GAPS)
        turned = self._engine.epoch
        if gaps is not self._gaps or turned != self._turned:  # a cleanup gives other indices, a way back other pages
            self._gaps, self._turned = gaps, turned
            self._maker = self._scene = None
        if self._scene is None or self._maker is None:
            self._maker = self._new_maker(state)
            self._scene = self._new_scene(self._maker)
        self._scene.update(state)
        return self._scene

    def _new_maker(self, state: State) -> Maker:
        note, counter = state.note(KEY), self._engine.counter
        key = note.name if note and note.name else derived_key(state.head.identity)
        if type(counter) is VocabularyCounter and counter.vocabulary == "o200k_base" and is_derived(key):
            known = {
                preamble(key): PREAMBLE_TOKENS,
                preamble(key, SHORT): SHORT_TOKENS,
                block_head(key, FOLDED): HEAD_TOKENS,
                NO_RESULT: NO_RESULT_TOKENS,
                OPENING: OPENING_TOKENS,
            }
            return Maker(counter.count, key, known)
        return Maker(counter.count, key)

    def _new_scene(self, maker: Maker) -> Scene:
        usual = SHORT if self._is_small else PREAMBLE
        words = preamble(maker.key, usual if self._words is None else self._words)
        return Scene(maker, preamble_part(maker, words) if words.strip() else None)

    def _tail(self, pieces: Sequence[Volatile], room: int) -> Tail:
        """What stands after the conversation now; what is obsolete only if there is room for it."""
        state = self._engine.state
        tail = Tail(self._sizes, [piece for piece in pieces if piece.holds is None or piece.holds(state)])
        if tail.tokens > room:
            tail.drop_obsolete()
        for number, segment in state.live_segments() if pieces else ():
            if segment.type is SegmentType.TOOL and segment.max_capacity:
                tail.keep_within(number, segment.max_capacity)
        return tail

    def _is_cold(self) -> bool:
        """Whether the last view was sent longer ago than the provider keeps one: this one is paid in full anyway."""
        if self.config.cache_seconds is None:
            return False
        now, before = self._engine.clock(), max(self._sent_on, answered_at(self._engine.state))
        self._sent_on = now
        return 0 < before < now - 1_000 * self.config.cache_seconds

    def _threshold(self, room: int, *, cold: bool = False) -> int:
        threshold = room if self.config.threshold is None else min(self.config.threshold, room)
        return int(COLD_SHARE * threshold) if cold else threshold

    def _target(self, room: int) -> int:
        share = int(self._threshold(room) * TARGET_SHARE)
        return share if self.config.target_tokens is None else min(self.config.target_tokens, room)

    def _is_due(self, state: State, scene: Scene, room: int, tail: Tail, *, cold: bool) -> bool:
        total = scene.total() + tail.tokens
        held = state.note(UNDONE_FOLD)
        if total > room:
            return True
        if total > self._threshold(room, cold=cold) and not (held and held.name):
            return True
        return scene.overfull or scene.ends_folded() is not None

    def _fold(self, room: int, tail: Tail, *, cold: bool) -> Folded | None:
        """Commit one fold, if it saves anything worth it; another writer who was first is no reason to fail."""
        engine = self._engine
        plan = engine.begin(ACTOR)
        better = self.summarising.ready() if self.summarising is not None else []
        fitting, total = self._fitted(plan, room, tail, better, cold=cold)
        if total > room:
            return None  # the view says so
        folded = self._jobs(plan, room)
        held = plan.note(UNDONE_FOLD)
        if plan.pages and held and held.name:
            plan.put_note(UNDONE_FOLD)
        try:
            engine.commit(plan, "fold")
        except Conflict:
            return None
        if self.summarising is not None and plan.pages:
            self.summarising.drop(better)
            self.summarising.offer(folded)
        if plan.pages:
            self._on_fold(fitting.done)
        return fitting.done if plan.pages or plan.applies_deferred else None

    def _jobs(self, plan: Plan, room: int) -> "list[Job]":
        if self.summarising is None:
            return []
        from quire.view.fold.summaries import jobs

        return jobs(plan, room)

    def _fitted(
        self, plan: Plan, room: int, tail: Tail, better: "Sequence[Better]" = (), *, cold: bool = False
    ) -> "tuple[Fitting, int]":
        plan.apply_deferred()
        fitting = self._fitting(plan, room, tail)
        if better:
            fitting.improve(better)
        before = fitting.bring_back_last_turn()
        fitting.keep_capacities()
        threshold = self._threshold(room, cold=cold)
        if before > threshold:
            fitting.fold_to(self._target(room))
            saved = before - fitting.total()
            if before - tail.could_free() <= room and saved < max(1, threshold * _WORTHWHILE):
                plan.discard_page_changes()
                scene = before - tail.tokens
                tail.give_way(before - room)
                return fitting, scene + tail.tokens
        return fitting, fitting.press()

    def _fitting(self, plan: Plan, room: int, tail: Tail) -> "Fitting":
        from quire.view.fold.fit_budget import Fitting  # late: many a context never folds

        maker = self._maker or self._new_maker(plan.state)
        return Fitting(plan, maker, self._new_scene(maker), budget=room, config=self.config, tail=tail)

    def _shortened(self, room: int, tail: Tail, limit: int) -> Scene:
        """A view that is made to fit for itself alone, without a commit. Raises `IrreducibleFloor`."""
        plan = self._engine.begin(ACTOR)
        plan.is_preview = True
        _, total = self._fitted(plan, room, tail)
        scene = self._new_scene(self._maker or self._new_maker(plan.state))
        scene.draw(plan, plan.state.version)
        if total > room:
            raise _floor(scene, tail, total, room, limit)
        return scene


def _summarising(config: CompressionConfig) -> "Summarising | None":
    if config.summariser is None:
        return None
    from quire.view.summariser import Summarising  # late: few contexts have one

    return Summarising(config.summariser)


def _floor(scene: Scene, tail: Tail, total: int, room: int, limit: int) -> IrreducibleFloor:
    parts = [*scene.parts(), *tail.parts()]
    shown = sorted((s for part in parts for s in part.pages), key=lambda s: -s.tokens)
    lists = _long_lists(parts)
    single = [(s.tokens, s.index) for s in shown if s.granularity != "line" or _segment(s) not in lists]
    apart = [(part.tokens, part.kind) for part in parts if not part.pages]
    rows = [
        *single[:_NAMED_PAGES],
        *apart,
        *((sum(lines), f"{len(lines)} lines of {name}") for name, lines in lists.items()),
    ]
    largest = [(name, tokens) for tokens, name in sorted(rows, key=lambda row: -row[0])]
    named = ", ".join(f"{name} ({tokens:,})" for name, tokens in largest)
    reserved = f" of {limit:,}, because {limit - room:,} are reserved" if room < limit else ""
    return IrreducibleFloor(
        f"The pages that must be shown take {total:,} tokens, the budget has {room:,}{reserved}: {named}. Raise the"
        f" budget,{' reserve less,' if reserved else ''} shorten the system prompt, or unpin pages.",
        *(Hint("hide", f"{name}-0", purpose="to show fewer lines") for name in lists),
        tokens=total,
        budget=room,
        parts=largest,
    )


def _long_lists(parts: Sequence[Part]) -> dict[str, list[int]]:
    """The segments beside the conversation that take many lines, each small: the tokens of every line."""
    lines: dict[str, list[int]] = {}
    for shown in (shown for part in parts if part.kind == "segment" for shown in part.pages):
        if shown.granularity == "line":
            lines.setdefault(_segment(shown), []).append(shown.tokens)
    return {name: tokens for name, tokens in lines.items() if len(tokens) > _NAMED_PAGES}


def _segment(shown: Shown) -> str:
    return shown.index.rpartition("-")[0]
