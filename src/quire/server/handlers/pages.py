"""Handlers for pages and messages: list, read, search, create, change."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, to_builtins

from quire.context import Context
from quire.errors import InvalidValue
from quire.model.messages import Message
from quire.model.pages import (
    STATES,
    ContentsPage,
    Page,
    PageIndex,
    Segment,
    State,
    page_to_dict,
    parse_index,
    state_word,
)
from quire.search.find import Hit
from quire.search.page_text import CLOSE, OPEN
from quire.server import responses
from quire.server.context_pool import OpenContext
from quire.server.handlers import History, HistoryOrList, Index, Limit, MessageOrList, Seq
from quire.server.responses import PageResult, fill

_SEARCHED_PARTS = 10
"""A filtered list reads at most this many times its limit; the next request continues."""
_LIFECYCLES = {state: lifecycle for lifecycle, state in STATES.items()}
_MARKED = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")

# Reading pages


def list_pages(
    opened: OpenContext,
    *,
    parent: Index | None = None,
    after: Index | None = None,
    limit: Limit = 100,
    lifecycle: State | None = None,
) -> responses.Pages:
    """List the children of a folder, or the roots of all segments."""
    if parent is None:
        return _list_roots(opened.context, after, limit, lifecycle)
    return _list_children(opened.context, parent, after, limit, lifecycle)


def _list_roots(context: Context, after: Index | None, limit: int, lifecycle: State | None) -> responses.Pages:
    roots = [context.pages.get_page(segment.root_index) for segment in context.pages.list_segments()]
    indices = [page.index for page in roots]
    if after is not None and after not in indices:
        raise InvalidValue(f"is {after!r}; the root of a segment is needed: {', '.join(indices)}.", argument="after")
    start = 0 if after is None else indices.index(after) + 1
    found = roots[start : start + limit]
    more = start + limit < len(roots)
    chosen = [page for page in found if lifecycle in (None, STATES[page.effective])]
    return _pages(context, chosen, found[-1].index if more and found else None)


def _list_children(
    context: Context, parent: Index, after: Index | None, limit: int, lifecycle: State | None
) -> responses.Pages:
    chosen: list[Page] = []
    seen = 0
    while True:
        found = context.pages.children(parent, after=after, limit=limit + 1, cold=lifecycle == "cold")
        for page in found[:limit]:
            after, seen = page.index, seen + 1
            if lifecycle in (None, STATES[page.effective]):
                chosen.append(page)
            if len(chosen) == limit:
                return _pages(context, chosen, page.index if page is not found[-1] else None)
        if len(found) <= limit:
            return _pages(context, chosen, None)
        if seen >= _SEARCHED_PARTS * limit:
            return _pages(context, chosen, after)


def _pages(context: Context, pages: list[Page], after: PageIndex | None) -> responses.Pages:
    segments = {segment.id: segment for segment in context.pages.list_segments()}
    lines = [responses.PageLine(**_page_fields(page, segments[_segment_id(page.index)])) for page in pages]
    return responses.Pages(lines, after, context.seq)


def _page_fields(page: Page, segment: Segment) -> dict[str, Any]:
    return {**page_to_dict(page), "segment": segment.id, "permission": segment.permission.name}


def _segment_id(index: PageIndex) -> str:
    parts = parse_index(index)
    return parts.segment if parts else ""


def show_page(
    opened: OpenContext,
    index: PageIndex,
    *,
    max_chars: Annotated[int, Meta(ge=0, le=10_000_000)] = 20_000,
    offset: Annotated[int, Meta(ge=0, le=2**40)] = 0,
) -> responses.WholePage:
    """Show a page with its text. Its messages are left out if `detail` is only a part of the text."""
    context = opened.context
    page = context.pages.get_page(index)
    text = "" if isinstance(page, ContentsPage) else context.pages.detail(index)
    detail = text[offset : offset + max_chars]
    messages = context.conversation.messages_on(index) if detail == text else []
    above = [folder.index for folder in context.pages.ancestors(index)]
    return responses.WholePage(
        **_page_fields(page, context.pages.segment_of(index)),
        detail=detail,
        detail_chars=len(text),
        path=above[::-1],
        messages=list(map(_message_line, messages)),
        seq=context.seq,
    )


def find_pages(
    opened: OpenContext,
    *,
    q: Annotated[str, Meta(max_length=10_000)],
    limit: Annotated[int, Meta(ge=1, le=100)] = 10,
    segment: str | None = None,
    lifecycle: State | None = None,
    role: Literal["user", "assistant", "system", "tool"] | None = None,
    kind: Literal["folder", "leaf", "exchange", "chapter", "summary", "text"] | None = None,
) -> responses.Hits:
    """Search pages, best first."""
    state = None if lifecycle is None else _LIFECYCLES[lifecycle]
    hits = opened.context.find(q, limit, segment=segment, role=role, kind=kind, lifecycle=state)
    return responses.Hits([_hit_line(opened.context, hit) for hit in hits], opened.context.seq)


def _hit_line(context: Context, hit: Hit) -> responses.HitLine:
    pieces = [responses.Piece(text, n % 2 == 1) for n, text in enumerate(_MARKED.split(hit.snippet)) if text]
    segment = _segment_id(hit.index)
    folded = state_word(context.pages.get_page(hit.index)) == "folded"
    return fill(responses.HitLine, hit, snippet=pieces, lifecycle=STATES[hit.lifecycle], segment=segment, folded=folded)


# Changing pages


def create_page(
    opened: OpenContext,
    *,
    name: str,
    parent: Index,
    kind: Literal["detail", "contents"] = "detail",
    description: str = "",
    detail: str = "",
) -> PageResult:
    """Create a page at the end of a folder."""
    pages = opened.context.pages
    if kind == "detail":
        index = pages.create_detail_page(name, description, detail, parent)
    elif detail:
        raise InvalidValue("must be empty for a folder; create a page in the folder for the text.", argument="detail")
    else:
        index = pages.create_contents_page(name, description, parent)
    return _page_result(opened.context, index)


def change_page(
    opened: OpenContext,
    index: PageIndex,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType = UNSET,
    detail: str | UnsetType = UNSET,
) -> PageResult:
    """Change a page's name, description or text in one commit."""
    given: dict[str, Any] = {"name": name, "description": description, "detail": detail}
    changes = {field: value for field, value in given.items() if value is not UNSET}
    opened.context.pages.update_page(index, **changes)
    return _page_result(opened.context, index)


def remove_page(opened: OpenContext, index: PageIndex) -> responses.RemoveResult:
    """Remove a page with everything below it."""
    removed = opened.context.pages.remove_page(index)
    return responses.RemoveResult(opened.context.seq, removed)


def page_operation(operation: str) -> Callable[[OpenContext, PageIndex], PageResult]:
    """Return the handler of an operation that takes only a page."""

    def operate(opened: OpenContext, index: PageIndex) -> PageResult:
        getattr(opened.context.pages, operation)(index)
        return _page_result(opened.context, index)

    return operate


def archive_page(opened: OpenContext, index: PageIndex, *, cold: bool = False) -> PageResult:
    """Archive a page: it leaves the view; with `cold`, also the tree."""
    opened.context.pages.archive(index, cold=cold)
    return _page_result(opened.context, index)


def move_page(opened: OpenContext, index: PageIndex, *, target: Index, before: Index | None = None) -> PageResult:
    """Move a page with everything below it to the end of a folder, or before one of its children."""
    moved = opened.context.pages.move_page(index, target, before)
    return _page_result(opened.context, moved.get(index, index), moved)


def _page_result(context: Context, index: PageIndex, moved: dict[PageIndex, PageIndex] | None = None) -> PageResult:
    fields = _page_fields(context.pages.get_page(index), context.pages.segment_of(index))
    return PageResult(context.seq, responses.PageLine(**fields), moved or UNSET)


# Messages


def list_messages(
    opened: OpenContext, *, after: Seq | None = None, limit: Limit = 100, all: bool = False
) -> responses.Messages:
    """List messages in the order of the conversation, or all by index."""
    context = opened.context
    if all:
        start = 0 if after is None else after + 1
        found = context.messages(all=True)[start : start + limit + 1]
    else:
        found = context.conversation.messages_after(after, limit + 1)
    lines = [_message_line(message) for message in found[:limit]]
    return responses.Messages(lines, lines[-1].index if len(found) > limit else None, context.seq)


def add_messages(opened: OpenContext, *, body: MessageOrList) -> responses.AddResult:
    """Add a message, or several together, in any provider's format."""
    return responses.AddResult(opened.context.add(body), opened.context.seq)


def import_messages(opened: OpenContext, *, body: HistoryOrList) -> responses.ImportResult:
    """Import a whole history, even a damaged one."""
    report = opened.context.import_messages(body.messages if isinstance(body, History) else body)
    return fill(responses.ImportResult, report, seq=opened.context.seq, findings=to_builtins(report.findings))


def _message_line(message: Message) -> responses.MessageLine:
    calls = [responses.CallLine(call.id, call.name, call.arguments) for call in message.tool_calls]
    return responses.MessageLine(
        message.index, message.role, message.content, calls, message.tool_call_id, message.name
    )
