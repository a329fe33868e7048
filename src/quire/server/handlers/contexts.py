"""Contexts: listing, making, forking, deleting, counting."""

from msgspec import to_builtins

from quire.context import Context
from quire.errors import NoSuchContext
from quire.maintenance.context_usage import ContextInfo
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.view.explain import Stats

_SMALL = 2_000
"""Pages of a context that is counted whenever somebody looks at it."""
_ENOUGH = 4_000
"""Pages that one list of contexts counts; the others stay uncounted until somebody looks at them."""


def list_contexts(desk: Desk, request: Asked) -> told.Contexts:
    """The contexts by name."""
    query: asked.ContextsQuery = request.query
    found = list(desk.library.list(query.after, limit=query.limit + 1, prefix=query.prefix))
    lines, left = [], _ENOUGH
    for name in found[: query.limit]:
        try:
            info = desk.library.info(name)
        except NoSuchContext:  # deleted a moment ago
            continue
        stats, pages = desk.counts.get(name, info.seq), sum(info.numbered.values())
        if stats is None and pages <= left and info.finished:
            left -= pages
            stats = _counted(desk, name)
        lines.append(_line(info, stats))
    return told.Contexts(contexts=lines, next=found[query.limit - 1] if len(found) > query.limit else None)


def create(desk: Desk, request: Asked) -> told.OneContext:
    """Make a context."""
    body: asked.NewContext = request.body
    desk.library.create(body.name)
    return show(desk, Asked({"c": body.name}, None, None))


def show(desk: Desk, request: Asked) -> told.OneContext:
    """A context with its segments."""
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        info = desk.library.info(context.name)
        stats = desk.counts.get(context.name, context.seq)
        if stats is None and sum(info.numbered.values()) <= _SMALL:
            stats = _count(desk, context)
        return told.OneContext(
            name=context.name,
            seq=context.seq,
            budget=context.budget,
            created=info.created_at,
            updated=info.updated_at,
            segments=_segments(context, info, stats),
            stats=None if stats is None else _stats(stats),
        )


def delete(desk: Desk, request: Asked) -> told.Done:
    """Remove a context with all its pages and history."""
    with desk.shelf.use(request.path["c"]) as opened:
        desk.library.delete(opened.context.name)
        desk.shelf.forget(opened.context.name)
        return told.Done(seq=0)


def fork(desk: Desk, request: Asked) -> told.OneContext:
    """Make another context of one."""
    body: asked.NewFork = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        opened.context.pages.fork(body.name, body.at)
    return show(desk, Asked({"c": body.name}, None, None))


def stats(desk: Desk, request: Asked) -> told.Counted:
    """Count everything in a context."""
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        return _stats(desk.counts.get(context.name, context.seq) or _count(desk, context))


def _counted(desk: Desk, name: str) -> Stats | None:
    try:
        with desk.shelf.use(name) as opened:
            return _count(desk, opened.context)
    except NoSuchContext:
        return None


def _count(desk: Desk, context: Context) -> Stats:
    found = context.stats()
    desk.counts.keep(context.name, context.seq, found)
    return found


def _line(info: ContextInfo, stats: Stats | None) -> told.ContextLine:
    return told.ContextLine(
        name=info.name,
        seq=info.seq,
        pages=sum(info.numbered.values()),
        messages=info.messages,
        tokens=None if stats is None else stats.estimated_tokens,
        created=info.created_at,
        updated=info.updated_at,
    )


def _segments(context: Context, info: ContextInfo, stats: Stats | None) -> list[told.SegmentLine]:
    return [
        told.SegmentLine(
            id=segment.id,
            name=segment.name,
            description=segment.description,
            type=segment.type.name,
            permission=segment.permission.name,
            max_capacity=segment.max_capacity,
            root=segment.root_index,
            pages=info.numbered.get(segment.id, 0),
            tokens=None if stats is None else stats.segments.get(segment.id, 0),
        )
        for segment in context.pages.list_segments()
    ]


def _stats(stats: Stats) -> told.Counted:
    return told.Counted(
        total_items=stats.total_items,
        active_items=stats.active_items,
        obsolete_items=stats.obsolete_items,
        window_items=stats.window_items,
        estimated_tokens=stats.estimated_tokens,
        segments=dict(stats.segments),
        usage=to_builtins(dict(stats.usage)),
    )
