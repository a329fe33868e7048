"""Pages: listing, reading, making, changing."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from quire.context import Context
from quire.core.plan import Plan
from quire.errors import InvalidValue
from quire.model.messages import Message
from quire.model.page_json import STATES, page_values
from quire.model.pages import ContentsPage, Page, PageIndex, Segment, parse_index
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.system.tree import set_detail, update_page

_LOOKED_AT = 10
"""How many times as many pages as it may give a filtered list looks at, before it leaves the rest to the next."""


def list_pages(desk: Desk, request: Asked) -> told.Pages:
    """The children of a folder, or the roots of all segments."""
    query: asked.PagesQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        if query.parent is None:
            return _roots(context, query)
        return _children(context, query, query.parent)


def _roots(context: Context, query: asked.PagesQuery) -> told.Pages:
    roots = [context.pages.get_page(segment.root_index) for segment in context.pages.list_segments()]
    indices = [page.index for page in roots]
    if query.after is not None and query.after not in indices:
        raise InvalidValue(f"after={query.after!r} is the root of no segment; roots are {', '.join(indices)}.")
    start = 0 if query.after is None else indices.index(query.after) + 1
    found = roots[start : start + query.limit]
    more = start + query.limit < len(roots)
    return _pages(context, _passing(found, query), found[-1].index if more and found else None)


def _children(context: Context, query: asked.PagesQuery, parent: PageIndex) -> told.Pages:
    cold = query.lifecycle == "cold"
    chosen: list[Page] = []
    after, looked = query.after, 0
    while True:
        found = context.pages.children(parent, after=after, limit=query.limit + 1, cold=cold)
        part = found[: query.limit]
        for page in part:
            after, looked = page.index, looked + 1
            chosen += _passing([page], query)
            if len(chosen) == query.limit:
                more = page is not found[-1]
                return _pages(context, chosen, page.index if more else None)
        if len(found) <= query.limit:
            return _pages(context, chosen, None)
        if looked >= _LOOKED_AT * query.limit:
            return _pages(context, chosen, after)


def _passing(pages: list[Page], query: asked.PagesQuery) -> list[Page]:
    return [page for page in pages if query.lifecycle in (None, STATES[page.effective])]


def _pages(context: Context, pages: list[Page], after: PageIndex | None) -> told.Pages:
    segments = {segment.id: segment for segment in context.pages.list_segments()}
    return told.Pages(pages=[line(page, segments) for page in pages], next=after, seq=context.seq)


def show(desk: Desk, request: Asked) -> told.WholePage:
    """A page with its text."""
    query: asked.PageQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context, index = opened.context, request.path["p"]
        page = context.pages.get_page(index)
        text = "" if isinstance(page, ContentsPage) else context.pages.detail(index)
        above = [folder.index for folder in context.pages.ancestors(index)]
        return told.WholePage(
            **fields(page, _segment(context, index)),
            detail=text[query.offset : query.offset + query.max_chars],
            detail_chars=len(text),
            path=above[::-1],
            messages=[message_line(message) for message in context.conversation.messages_on(index)],
            seq=context.seq,
        )


def create(desk: Desk, request: Asked) -> told.Changed:
    """Add a page at the end of a folder."""
    body: asked.NewPage = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        pages = opened.context.pages
        if body.kind == "detail":
            index = pages.create_detail_page(body.name, body.description, body.detail, body.parent)
        elif body.detail:
            raise InvalidValue("A contents page has no detail; give it to a detail page below it.")
        else:
            index = pages.create_contents_page(body.name, body.description, body.parent)
        return changed(opened.context, index)


def change(desk: Desk, request: Asked) -> told.Changed:
    """Change a page's name, description or text, in one commit."""
    body: asked.PageChange = request.body
    index = request.path["p"]

    def plan_all(plan: Plan) -> None:
        named = {
            field: value
            for field in ("name", "description")
            if (value := getattr(body, field)) is not UNSET  # what is not given stays
        }
        update_page(plan, index, **named)
        if body.detail is not UNSET:
            set_detail(plan, index, body.detail)

    with desk.shelf.use(request.path["c"]) as opened:
        pages = opened.context.pages
        pages._engine.run(pages.actor, "update_page", plan_all)
        return changed(opened.context, index)


def remove(desk: Desk, request: Asked) -> told.Removed:
    """Remove a page with everything below it."""
    with desk.shelf.use(request.path["c"]) as opened:
        removed = opened.context.pages.remove_page(request.path["p"])
        return told.Removed(seq=opened.context.seq, removed=removed)


def operating(operation: str) -> Callable[[Desk, Asked], told.Changed]:
    """The handler of an operation that takes a page and nothing else."""

    def operate(desk: Desk, request: Asked) -> told.Changed:
        with desk.shelf.use(request.path["c"]) as opened:
            index = request.path["p"]
            getattr(opened.context.pages, operation)(index)
            return changed(opened.context, index)

    return operate


def archive(desk: Desk, request: Asked) -> told.Changed:
    """Take a page out of the window."""
    with desk.shelf.use(request.path["c"]) as opened:
        opened.context.pages.archive(request.path["p"], cold=request.body.cold)
        return changed(opened.context, request.path["p"])


def move(desk: Desk, request: Asked) -> told.Changed:
    """Move a page with all below it."""
    body: asked.Moving = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        index = request.path["p"]
        moved = opened.context.pages.move_page(index, body.target, body.before)
        return changed(opened.context, moved.get(index, index), moved)


def changed(context: Context, index: PageIndex, moved: dict[PageIndex, PageIndex] | None = None) -> told.Changed:
    """A page as it is after a change."""
    page = line(context.pages.get_page(index), {"": _segment(context, index)}, "")
    return told.Changed(seq=context.seq, page=page, moved=moved or UNSET)


def line(page: Page, segments: dict[str, Segment], segment: str | None = None) -> told.PageLine:
    """A page as a list has it."""
    return told.PageLine(**fields(page, segments[segment_of(page.index) if segment is None else segment]))


def segment_of(index: PageIndex) -> str:
    """The id of the segment that an index names."""
    parts = parse_index(index)
    return parts.segment if parts else ""


def fields(page: Page, segment: Segment) -> dict[str, Any]:
    """The fields that all forms of a page have."""
    return {**page_values(page), "segment": segment.id, "permission": segment.permission.name}


def message_line(message: Message) -> told.MessageLine:
    """A message as it is kept."""
    return told.MessageLine(
        index=message.index,
        role=message.role,
        content=message.content,
        tool_calls=[told.CallLine(id=call.id, name=call.name, arguments=call.arguments) for call in message.tool_calls],
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def _segment(context: Context, index: PageIndex) -> Segment:
    return context.pages.segment_of(index)
