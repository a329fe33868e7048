"""Explanations of a view: why a page is in it or not, and what the context contains."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from quire.conversation.sequence import items
from quire.core.entries import read_entry
from quire.core.records import AGENTS, WINDOW_LINES, DeferredChange, PageRecord, page_key, page_number, segment_number
from quire.core.state import State
from quire.model.pages import Form, Lifecycle, Mark, PageIndex, Permission, SegmentType, Visibility
from quire.system.lifecycle import stored_window
from quire.view.cost import Usage
from quire.view.draw import shown_pages
from quire.view.opened import opened_room, opened_tokens
from quire.view.options import OPENED_SHARE
from quire.view.parts import RecalledPage, ShownPage, ViewPart, tokens_by_kind
from quire.view.sheets import SPAN

_WIDTH = 50
_PAGE_HEAD = 32
"""The estimated tokens of a segment's heading and of a page's name."""
_FRAMES = {"whole": "whole in", "clipped": "clipped to fit"}


class Why(Struct, frozen=True, kw_only=True):
    """The rule that decides how a page is shown, the tokens it takes or would take, and the call that changes it.

    `shown` is `whole`, `clipped`, `line`, `recalled`, `open` (a folder that is replaced by its pages), or `no`.
    `by` is the actor who decided it in journal entry `entry`, at the time `at` in milliseconds since 1970.
    """

    index: PageIndex
    shown: str
    rule: str
    tokens: int
    call: str = ""
    by: str = ""
    entry: int = 0
    at: int = 0


class Stats(Struct, frozen=True, kw_only=True):
    """The number of items, active and obsolete, their tokens, and the tokens of each segment.

    `window_items` counts open windows. `usage` is the billing of each model (`report_usage`).
    """

    total_items: int = 0
    active_items: int = 0
    obsolete_items: int = 0
    window_items: int = 0
    estimated_tokens: int = 0
    segments: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)


def explain_page(state: State, parts: Sequence[ViewPart], index: PageIndex, budget: int) -> Why:
    """Return the rule that decides how a page is shown in a view of this budget. Raise `NoSuchPage`."""
    page = state.require_page(index)
    real = [shown for part in parts for shown in part.pages if _is_real(shown)]
    places = {shown.key: shown for shown in real}
    found = [shown for shown in real if shown.key == page.key]
    shown = min(found, key=lambda place: place.granularity == "line", default=None)
    form: str = shown.granularity if shown is not None else "no"
    tokens = shown.tokens if shown is not None else page.header.tokens
    anchor = None if page.header.form is Form.WINDOW else state.deferred_changes().get(page.key)  # the tail is current
    below = [places[key] for key in _open_below(state, page) if key in places]
    if anchor is not None:
        rule, call = _why_waiting(anchor, page, index)
    elif below:
        form, tokens = "open", sum(place.tokens for place in below)
        rule = f"open: its pages are shown {'in its place' if shown is None else 'below its name'}"
        call = f"hide({index!r})"
    elif shown is None:
        rule, call = _why_not(state, page, parts, budget)
    elif isinstance(shown, RecalledPage):
        form = "recalled"
        which = "the last user message" if shown.is_new else "an earlier user message, until the next fold"
        rule, call = f"recalled for {which}: {shown.reason}", f"expand({index!r})"
    else:
        rule, call = _why_shown(state, page, shown, parts, budget)
    by, entry, at = _decision(state, page)
    return Why(index=index, shown=form, rule=rule, tokens=tokens, call=call, by=by, entry=entry, at=at)


def _decision(state: State, page: PageRecord) -> tuple[str, int, int]:
    """Return who decided how a page is shown, in which entry, and when."""
    number = segment_number(page.key)
    layout = None if number == state.conversation() else state.layout(number)
    seq = page.header.seq if layout is None or page_number(page.key) >= layout.next else layout.seq
    if layout is None and page.parent is not None and isinstance(above := state.page(page.parent), PageRecord):
        seq = max(seq, above.header.seq if above.header.visibility is Visibility.HIDDEN else 0)
    entry = read_entry(state, seq)
    return ("", 0, 0) if entry is None else (entry.actor, seq, entry.time)


def read_stats(state: State) -> Stats:
    """Return the numbers of items and tokens of a context."""
    found = list(items(state, content=False))
    obsolete = sum(item.obsolete for item in found)
    tokens: dict[str, int] = {}
    for number, _ in state.live_segments():
        pages = (page for page in state.segment_pages(number) if not page.header.folder)
        live = (page.header.tokens for page in pages if page.header.mark is Mark.NONE)
        tokens[state.counters[number].segment] = sum(live)
    return Stats(
        total_items=len(found),
        active_items=len(found) - obsolete,
        obsolete_items=obsolete,
        window_items=sum(item.type == "Window" and not item.obsolete for item in found),
        estimated_tokens=sum(tokens.values()),
        segments=tokens,
    )


def dump_items(state: State) -> str:
    """Return one line for every item."""
    lines = []
    for item in items(state):
        text = " ".join(item.content.split()) or _calls(state, item.id)
        said = text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
        lines.append(f"[{'X' if item.obsolete else '✓'}] [{item.seq:04d}] {item.type}: {said}")
    return "\n".join(lines)


def _calls(state: State, index: PageIndex) -> str:
    """Return the names of the calls of an exchange without text."""
    numbers = state.require_page(index).header.numbers
    return ", ".join(call.name for number in numbers for call in state.message(number).message.tool_calls)


def _is_real(shown: ShownPage) -> bool:
    """Return whether a page is stored. A chapter that only a preview has is not: its index is a span of pages."""
    return SPAN not in shown.index


def _open_below(state: State, page: PageRecord) -> list[int]:
    """Return the keys of the pages that replace an open folder."""
    header = page.header
    if not header.folder or header.visibility is Visibility.HIDDEN or header.lifecycle is not Lifecycle.ACTIVE:
        return []
    return [inner.key for inner in shown_pages(state, page.key)]


def _why_shown(
    state: State, page: PageRecord, shown: ShownPage, parts: Sequence[ViewPart], budget: int
) -> tuple[str, str]:
    index, granularity = state.index(page.key), shown.granularity
    if page.header.form is Form.WINDOW:
        if page.header.closed:
            return "a closed window: include_obsolete shows it", ""
        if granularity == "line":
            return _why_window_line(state, page), f"expand({index!r})"
        return f"an open window: {_FRAMES[granularity]} the last view", f"windows.close({page.header.name!r})"
    if granularity == "whole":
        return (
            ("pinned: shown whole, always", f"unpin({index!r})") if page.header.pinned else ("open", f"hide({index!r})")
        )
    if granularity == "clipped":
        limit = f"{page.header.clip or shown.tokens:,} tokens"
        alone = "" if page.header.clip else ", in this view alone"
        return f"too large for the view: clipped to {limit}{alone}", f"detail({index!r}) reads all of it"
    if page.header.visibility is Visibility.EXPANDED and _is_laid_out(state, page):
        return "there is no room for it since the last fold: it is one line", _call_to_open(state, page, parts, budget)
    if page.header.visibility is Visibility.EXPANDED:
        call = _call_to_pin(state, page, budget)
        return "folded to its line in this view alone, which had no room for all of it", call
    folded = page.header.line_tokens > 0
    rule = "folded: shown as one line" if folded else "hidden: shown as one line"
    return rule, _call_to_open(state, page, parts, budget)


def _is_laid_out(state: State, page: PageRecord) -> bool:
    number = segment_number(page.key)
    return number != state.conversation() and state.layout(number) is not None


def _call_to_open(state: State, page: PageRecord, parts: Sequence[ViewPart], budget: int) -> str:
    """Return the call that shows a page whole, or the one that reads it if it is too large for the view."""
    index, most = state.index(page.key), opened_room(state, page.key, budget)
    if _is_laid_out(state, page) and page.header.visibility is Visibility.EXPANDED and page.header.folder:
        return _call_to_read(state, page)  # it is open already: the layout chooses among its pages
    if _is_laid_out(state, page) and not page.header.folder:
        room = _layout_room(state, page, parts, budget)
        return f"expand({index!r})" if page.header.tokens <= room else _call_to_pin(state, page, budget)
    return f"expand({index!r})" if opened_tokens(state, page, most) <= most else _call_to_read(state, page)


def _call_to_pin(state: State, page: PageRecord, budget: int) -> str:
    is_small = not page.header.folder and page.header.tokens <= OPENED_SHARE * budget
    return f"pin({state.index(page.key)!r})" if is_small else _call_to_read(state, page)


def _call_to_read(state: State, page: PageRecord) -> str:
    index = state.index(page.key)
    return f"children({index!r}) lists its pages" if page.header.folder else f"detail({index!r}) reads all of it"


def _is_note(state: State, page: PageRecord) -> bool:
    """Return whether an agent created a page."""
    return state.note(AGENTS + page.header.author) is not None


def _layout_room(state: State, page: PageRecord, parts: Sequence[ViewPart], budget: int) -> int:
    """Return about how many tokens the newest page of a layout may have to be shown whole."""
    from quire.view.layout import layout_rooms  # late: it is needed only here and by folds

    kinds = tokens_by_kind(parts)
    rooms = layout_rooms(budget, sum(kinds.get(kind, 0) for kind in ("system", "preamble", "window", "recalled")))
    room, segment = rooms.given, state.segment(segment_number(page.key))
    if _is_note(state, page):
        shown = (one for part in parts if part.kind == "segment" for one in part.pages if one.granularity == "whole")
        pages = (record for one in shown if isinstance(record := state.page(one.key), PageRecord))
        used = sum(one.header.tokens for one in pages if not _is_note(state, one))
        room = min(rooms.own, rooms.given - used)
    if segment is not None and segment.max_capacity:
        room = min(room, int(OPENED_SHARE * segment.max_capacity))
    return room - _PAGE_HEAD


def _why_window_line(state: State, page: PageRecord) -> str:
    """Return why a window is a line: it is hidden, a fold shrank it, or windows that were used later have the room."""
    if page.header.visibility is Visibility.HIDDEN:
        return "a hidden window: shown as one line"
    window, lines = stored_window(page), state.note(WINDOW_LINES)
    if window is not None and lines is not None and window.used <= lines.used[window.meta.important]:
        return f"an open window: one line since the fold of entry {lines.seq}, until the next fold or until it is used"
    return "an open window: one line, because important windows and those that were used later have the room first"


def _why_waiting(anchor: DeferredChange, page: PageRecord, index: PageIndex) -> tuple[str, str]:
    if anchor.opened and page.header.visibility is Visibility.HIDDEN:
        return f"hidden by the agent (entry {page.header.seq}): the view follows at the next fold", f"expand({index!r})"
    if anchor.opened:
        return "opened by the agent: quoted after the messages of that time, in its place from the next fold on", ""
    return f"changed by the agent (entry {anchor.seq}): the view follows at the next fold", f"undo({anchor.seq})"


def _why_not(state: State, page: PageRecord, parts: Sequence[ViewPart], budget: int) -> tuple[str, str]:
    index, header = state.index(page.key), page.header
    if header.form is Form.WINDOW and header.closed:
        return f"a window that was closed by entry {header.seq}", f"undo({header.seq})"
    segment = state.segment(segment_number(page.key))
    if header.mark is not Mark.NONE:
        return f"out of the conversation: {header.mark.name.lower()} by entry {header.seq}", f"undo({header.seq})"
    if segment is not None and segment.permission is Permission.PRIVATE:
        return "its segment is PRIVATE: never drawn", "set_segment_permission(…)"
    if state.cold_top(page) is not None:
        return "in the cold archive", f"recall({index!r})"
    if header.lifecycle is Lifecycle.HOT_ARCHIVED:
        return "archived", f"restore({index!r})"
    for above in state.ancestors(page):
        if above.header.lifecycle is not Lifecycle.ACTIVE or above.header.visibility is Visibility.HIDDEN:
            call = _call_to_open(state, page, parts, budget)
            return f"below {state.index(above.key)!r}, which is not open", call
    if header.form is Form.WINDOW:
        return "a window of an app that is not registered, or without room in the view", "windows.register(…)"
    return _why_left_out(state, page, parts, budget)


def _why_left_out(state: State, page: PageRecord, parts: Sequence[ViewPart], budget: int) -> tuple[str, str]:
    """Return why a page that could be shown is not in this view."""
    segment, span = state.segment(segment_number(page.key)), _span_of(state, page, parts)
    has_prompt = any(part.kind in ("system", "preamble") for part in parts)
    if segment is not None and segment.type is SegmentType.SYSTEM and not has_prompt:
        return "the view was drawn without the system prompt", "render(include_system_prompt=True)"
    layout = None if segment_number(page.key) == state.conversation() else state.layout(segment_number(page.key))
    if layout is not None and (layout.pages or not page.is_root):
        if segment is not None and not (span or layout.items or layout.gathered):
            call = f"update_segment({state.counters[segment_number(page.key)].segment!r}, max_capacity=0)"
            rule = "the capacity of its segment had no room for one line at the last fold"
            return rule, call if segment.max_capacity else ""
        line = f"the line {span}" if span else "one line with others"
        call = _call_to_open(state, page, parts, budget)
        return f"there is no room for it since the last fold: it is in {line}", call
    if span:
        call = _call_to_pin(state, page, budget)
        return f"folded in this view alone, which had no room for all: it is in the line {span}", call
    return "there is nothing in it to show", ""


def _span_of(state: State, page: PageRecord, parts: Sequence[ViewPart]) -> str:
    """Return the line of a preview's chapter that contains a page: it is named by its first and its last page."""
    spans = [shown.index for part in parts for shown in part.pages if not _is_real(shown)]
    root = state.page(page_key(segment_number(page.key), 0)) if spans else None
    if not isinstance(root, PageRecord):
        return ""
    order = {state.index(inner.key): place for place, (_, inner) in enumerate(state.subtree(root))}
    place = order.get(state.index(page.key), -1)
    for span in spans:
        first, _, last = span.partition(SPAN)
        if order.get(first, place + 1) <= place <= order.get(last, -1):
            return span
    return ""
