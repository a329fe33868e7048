"""Explaining a view: why a page is in it or not, and what the context holds."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from quire.conversation.items import items
from quire.pages import Form, Lifecycle, Mark, PageIndex, Permission, Visibility
from quire.records import Anchor, PageRecord, segment_number
from quire.rendering.usage import Usage
from quire.state import State
from quire.view.parts import Part

_WIDTH = 50
_FRAMES = {"whole": "whole in", "clipped": "clipped to fit", "line": "without its content in"}


class Why(Struct, frozen=True, kw_only=True):
    """Why a page is shown as it is: the rule, the tokens it takes or would take, and the call that changes it."""

    index: PageIndex
    shown: str
    rule: str
    tokens: int
    call: str = ""


class Stats(Struct, frozen=True, kw_only=True):
    """How much there is: items that count and that do not, what they cost, and the tokens of each segment.

    `usage` is what each model was found to bill (`report_usage`).
    """

    total_items: int = 0
    active_items: int = 0
    obsolete_items: int = 0
    window_items: int = 0
    estimated_tokens: int = 0
    segments: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)


def why(state: State, parts: Sequence[Part], index: PageIndex, recalled: Mapping[int, str]) -> Why:
    """The rule that decides how a page is shown. Raises `NoSuchPage`."""
    page = state.live(index)
    places = [shown for part in parts for shown in part.pages if shown.key == page.key]
    shown = min(places, key=lambda place: place.granularity == "line", default=None)
    anchor = state.anchors().get(page.key)
    if anchor is not None:
        rule, call = _why_waiting(anchor)
        return Why(
            index=index,
            shown=shown.granularity if shown else "no",
            rule=rule,
            tokens=shown.tokens if shown else page.header.tokens,
            call=call,
        )
    if shown is not None and page.key in recalled:
        rule = f"recalled for the last user message: {recalled[page.key]}"
        return Why(index=index, shown="recalled", rule=rule, tokens=shown.tokens, call=f"expand({index!r})")
    if shown is not None:
        rule, call = _why_shown(state, page, shown.granularity)
        return Why(index=index, shown=shown.granularity, rule=rule, tokens=shown.tokens, call=call)
    rule, call = _why_not(state, page)
    return Why(index=index, shown="no", rule=rule, tokens=page.header.tokens, call=call)


def stats(state: State) -> Stats:
    """What the context holds, counted."""
    found = list(items(state))
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
        window_items=sum(item.type == "Window" for item in found),
        estimated_tokens=sum(tokens.values()),
        segments=tokens,
    )


def dump(state: State) -> str:
    """One line for every item, as the design document prints them."""
    lines = []
    for item in items(state):
        text = " ".join(item.content.split())
        said = text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
        lines.append(f"[{'X' if item.obsolete else '✓'}] [{item.seq:04d}] {item.type}: {said}")
    return "\n".join(lines)


def _why_shown(state: State, page: PageRecord, granularity: str) -> tuple[str, str]:
    index = state.index(page.key)
    if page.header.form is Form.WINDOW:
        return f"an open window: {_FRAMES[granularity]} the last view", f"windows.close({page.header.name!r})"
    if granularity == "whole":
        return (
            ("pinned: shown whole, always", f"unpin({index!r})") if page.header.pinned else ("open", f"hide({index!r})")
        )
    if granularity == "clipped":
        return f"too large for the view: clipped to {page.header.clip} tokens", f"detail({index!r}) reads all of it"
    folded = page.header.line_tokens > 0
    return "folded: shown as one line" if folded else "hidden: shown as one line", f"expand({index!r})"


def _why_waiting(anchor: Anchor) -> tuple[str, str]:
    if anchor.opened:
        return "opened by the agent: quoted after the messages of that time, in its place from the next fold on", ""
    return f"changed by the agent (entry {anchor.seq}): the view follows at the next fold", f"undo({anchor.seq})"


def _why_not(state: State, page: PageRecord) -> tuple[str, str]:
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
            return f"below {state.index(above.key)!r}, which is not open", f"expand({index!r})"
    if header.form is Form.WINDOW:
        return "a window that the last view had no room for, or whose app is not registered", "windows.register(…)"
    return "there is nothing in it to show", ""
