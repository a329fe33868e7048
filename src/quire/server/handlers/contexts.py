"""Handlers for contexts: list, create, fork, delete, count; and the sessions of gateways."""

from contextlib import closing

from msgspec import to_builtins

from quire.context import Context
from quire.errors import Corrupt, NewerFormat, NoSuchContext, OlderFormat
from quire.maintenance.context_usage import ContextInfo
from quire.server import responses
from quire.server.context_pool import ContextPool, OpenContext
from quire.server.gateway_ledger import Ledger, Mode
from quire.server.handlers import Budget, Limit, Name, Seq
from quire.server.responses import fill
from quire.system.checkpoints import parse_point
from quire.view.explain import Stats

_SMALL = 2_000
"""A context of at most this many pages is counted whenever it is shown."""
_COUNTED_PAGES = 4_000
"""The number of pages that one list of contexts counts. The other contexts have no token count in the list."""


def list_contexts(pool: ContextPool, *, after: str = "", limit: Limit = 100, prefix: str = "") -> responses.Contexts:
    """List contexts by name."""
    names = list(pool.library.list(after, limit=limit + 1, prefix=prefix))
    lines: list[responses.ContextLine] = []
    left = _COUNTED_PAGES
    for name in names[:limit]:
        try:
            info = pool.library.info(name)
        except NoSuchContext:  # deleted a moment ago
            continue
        except (Corrupt, NewerFormat, OlderFormat):  # it must not hide the others; a request for it reports the error
            lines.append(responses.ContextLine(name, 0, 0, 0, None, None, None))
            continue
        stats, pages = pool.known_stats(name, info.seq, info.updated_at), sum(info.numbered.values())
        if stats is None and pages <= left:
            left -= pages
            stats = _count(pool, name)
        lines.append(
            fill(
                responses.ContextLine,
                info,
                pages=pages,
                tokens=None if stats is None else stats.estimated_tokens,
                created=info.created_at,
                updated=info.updated_at,
            )
        )
    return responses.Contexts(lines, names[limit - 1] if len(names) > limit else None)


def create_context(pool: ContextPool, *, name: Name, budget: Budget | None = None) -> responses.OneContext:
    """Create a context. By default it has the server's budget."""
    pool.library.create(name, budget=pool.budget if budget is None else budget)
    return _show(pool, name)


def show_context(opened: OpenContext) -> responses.OneContext:
    """Show a context with its segments."""
    context = opened.context
    info = opened.pool.library.info(context.name)
    stats = opened.known_stats()
    if stats is None and sum(info.numbered.values()) <= _SMALL:
        stats = opened.stats()
    return fill(
        responses.OneContext,
        context,
        created=info.created_at,
        updated=info.updated_at,
        segments=_segment_lines(context, info, stats),
        stats=None if stats is None else _stats_body(stats),
    )


def delete_context(opened: OpenContext) -> responses.CommitResult:
    """Delete a context with all its pages and history."""
    opened.pool.library.delete(opened.context.name)
    opened.pool.discard(opened.context.name)
    return responses.CommitResult(0)


def fork_context(opened: OpenContext, *, name: Name, at: Seq | str | None = None) -> responses.OneContext:
    """Create a fork of a context, as it is now or at an entry or a checkpoint."""
    opened.context.pages.fork(name, None if at is None else parse_point(str(at)))
    return _show(opened.pool, name)


def count_context(opened: OpenContext) -> responses.ContextStats:
    """Count the pages and tokens of a context."""
    return _stats_body(opened.stats())


def _show(pool: ContextPool, name: str) -> responses.OneContext:
    with pool.use(name) as opened:
        return show_context(opened)


def _count(pool: ContextPool, name: str) -> Stats | None:
    try:
        with pool.use(name) as opened:
            return opened.stats()
    except (Corrupt, NewerFormat, NoSuchContext, OlderFormat):
        return None


def _segment_lines(context: Context, info: ContextInfo, stats: Stats | None) -> list[responses.SegmentLine]:
    return [
        fill(
            responses.SegmentLine,
            segment,
            type=segment.type.name,
            permission=segment.permission.name,
            root=segment.root_index,
            pages=info.numbered.get(segment.id, 0),
            tokens=None if stats is None else stats.segments.get(segment.id, 0),
        )
        for segment in context.pages.list_segments()
    ]


def _stats_body(stats: Stats) -> responses.ContextStats:
    return fill(responses.ContextStats, stats, segments=dict(stats.segments), usage=to_builtins(dict(stats.usage)))


def list_sessions(pool: ContextPool) -> responses.GatewaySessions:
    """List the sessions of the gateway, the newest first."""
    with closing(Ledger(pool.library)) as ledger:
        return responses.GatewaySessions(ledger.sessions())


def choose_mode(pool: ContextPool, *, name: Name, mode: Mode | None) -> responses.GatewaySessions:
    """Choose the mode of a session; null is the mode of its gateway. A running gateway follows within seconds."""
    with closing(Ledger(pool.library)) as ledger:
        ledger.choose_mode(name, mode)
        return responses.GatewaySessions(ledger.sessions())
