"""History: entries, undo, rollback and what it would do, checkpoints."""

from itertools import islice

from quire.context import Context
from quire.errors import NoSuchPage
from quire.model.page_json import STATES
from quire.model.pages import Page, PageIndex
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.system import Entry

_LOOKED_AT = 20_000
"""Entries that a filtered list looks at before it leaves the rest to the next."""
_LISTED = 1_000
_DIGITS = 15


def list_entries(desk: Desk, request: Asked) -> told.Entries:
    """The journal, in parts."""
    query: asked.HistoryQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        newest_first = query.order == "desc"
        end = context.seq + 1 if query.before is None else min(query.before, context.seq + 1)
        first, last = query.after, end
        if newest_first:
            first = max(query.after, end - 1 - _LOOKED_AT)
        else:
            last = min(end, query.after + 1 + _LOOKED_AT)
        filters = {"actor": query.actor, "operation": query.operation, "page": query.page}
        entries = context.history(first, before=last, reverse=newest_first, **filters)  # type: ignore[arg-type]
        found = list(islice(entries, query.limit + 1))
        listed = found[: query.limit]
        following: int | None = None
        if len(found) > query.limit:
            following = listed[-1].seq
        elif newest_first and first > query.after:
            following = first + 1
        elif not newest_first and last < end:
            following = last - 1
        if listed:
            opened.undone.know(context, min(entry.seq for entry in listed))
        undone = opened.undone.among()
        names = {seq: name for name, seq in context.pages.checkpoints().items()} if listed else {}
        lines = [_line(entry, undone, names) for entry in listed]
        return told.Entries(entries=lines, next=following, seq=context.seq)


def undo(desk: Desk, request: Asked) -> told.Done:
    """Undo one operation and keep what came after."""
    with desk.shelf.use(request.path["c"]) as opened:
        return told.Done(seq=opened.context.undo(request.body.seq))


def rollback(desk: Desk, request: Asked) -> told.Done:
    """Bring the whole context back to a checkpoint or an entry."""
    with desk.shelf.use(request.path["c"]) as opened:
        return told.Done(seq=opened.context.rollback(request.body.to))


def checkpoint(desk: Desk, request: Asked) -> told.Done:
    """Name the state of the context."""
    with desk.shelf.use(request.path["c"]) as opened:
        return told.Done(seq=opened.context.checkpoint(request.body.name))


def preview(desk: Desk, request: Asked) -> told.Preview:
    """What a rollback would do. Nothing is written."""
    query: asked.RollbackQuery = request.query
    to = int(query.to) if query.to.isascii() and query.to.isdigit() and len(query.to) <= _DIGITS else query.to
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        past = context.as_of(to)
        seq = to if isinstance(to, int) else context.pages.checkpoints()[to]
        entries, touched = 0, dict[PageIndex, None]()
        for entry in context.history(seq):
            entries += 1
            touched.update(dict.fromkeys(entry.pages))
        pages = [_turned(context, past, index) for index in touched]
        differing = [page for page in pages if page.now != page.then]
        return told.Preview(
            seq=seq,
            entries=entries,
            pages=differing[:_LISTED],
            more=max(0, len(differing) - _LISTED),
            messages_before=len(context.messages()),
            messages_after=len(past.messages()),
        )


def _line(entry: Entry, undone: set[int], checkpoints: dict[int, str]) -> told.EntryLine:
    return told.EntryLine(
        seq=entry.seq,
        time=entry.time,
        actor=entry.actor,
        operation=entry.operation,
        pages=list(entry.pages),
        segments=list(entry.segments),
        undone=entry.seq in undone,
        undoes=entry.undoes,
        checkpoint=checkpoints.get(entry.seq),
    )


def _turned(context: Context, past: Context, index: PageIndex) -> told.Turned:
    return told.Turned(index=index, now=_brief(context, index), then=_brief(past, index))


def _brief(context: Context, index: PageIndex) -> told.Brief | None:
    try:
        page: Page = context.pages.get_page(index)
    except NoSuchPage:
        return None
    return told.Brief(
        name=page.name,
        parent=page.parent,
        lifecycle=STATES[page.effective],
        visibility="hidden" if page.visibility.name == "HIDDEN" else "expanded",
        tokens=page.tokens,
    )
