"""Handlers for the journal: entries, undo, rollback with its preview, checkpoints."""

from itertools import islice
from typing import Literal

from quire.context import Context
from quire.conversation.entry_texts import entry_texts
from quire.errors import NoSuchPage
from quire.model.page_json import STATES
from quire.model.pages import PageIndex
from quire.server import responses
from quire.server.context_pool import OpenContext
from quire.server.requests import Index, Limit, Name, Seq
from quire.server.responses import CommitResult, fill

_SEARCHED_ENTRIES = 20_000
"""The number of entries that one filtered request reads at most; the next request continues."""
_MAX_PREVIEW_PAGES = 1_000
_MAX_DIGITS = 15


def list_entries(
    opened: OpenContext,
    *,
    after: Seq = 0,
    before: Seq | None = None,
    limit: Limit = 100,
    order: Literal["asc", "desc"] = "asc",
    actor: str | None = None,
    operation: str | None = None,
    page: Index | None = None,
) -> responses.Entries:
    """List journal entries above `after` and below `before` that pass every filter."""
    context = opened.context
    newest_first = order == "desc"
    end = context.seq + 1 if before is None else min(before, context.seq + 1)
    first, last = after, end
    if newest_first:
        first = max(after, end - 1 - _SEARCHED_ENTRIES)
    else:
        last = min(end, after + 1 + _SEARCHED_ENTRIES)
    entries = context.history(first, before=last, reverse=newest_first, actor=actor, operation=operation, page=page)
    found = list(islice(entries, limit + 1))
    listed = found[:limit]
    following: int | None = None
    if len(found) > limit:
        following = listed[-1].seq
    elif newest_first and first > after:
        following = first + 1
    elif not newest_first and last < end:
        following = last - 1
    undone = opened.undone.since(context, min(entry.seq for entry in listed)) if listed else set()
    names = {seq: name for name, seq in context.pages.checkpoints().items()} if listed else {}
    texts = context.pages._engine.read(lambda state: entry_texts(state, listed))
    lines = [
        responses.EntryLine(
            seq=entry.seq,
            time=entry.time,
            actor=entry.actor,
            operation=entry.operation,
            text=texts[entry.seq],
            pages=entry.pages,
            segments=entry.segments,
            undone=entry.seq in undone,
            undoes=entry.undoes,
            checkpoint=names.get(entry.seq),
        )
        for entry in listed
    ]
    return responses.Entries(lines, following, context.seq)


def undo(opened: OpenContext, *, seq: Seq) -> CommitResult:
    """Undo one operation and keep later changes."""
    return CommitResult(opened.context.undo(seq))


def rollback(opened: OpenContext, *, to: Seq | str) -> CommitResult:
    """Roll the whole context back to a checkpoint or an entry."""
    return CommitResult(opened.context.rollback(to))


def checkpoint(opened: OpenContext, *, name: Name) -> CommitResult:
    """Name the current state of the context."""
    return CommitResult(opened.context.checkpoint(name))


def preview_rollback(opened: OpenContext, *, to: str) -> responses.Preview:
    """Preview a rollback to a checkpoint or an entry without writing."""
    target = int(to) if to.isascii() and to.isdigit() and len(to) <= _MAX_DIGITS else to
    context = opened.context
    past = context.as_of(target)
    seq = target if isinstance(target, int) else context.pages.checkpoints()[target]
    entries, touched = 0, dict[PageIndex, None]()
    for entry in context.history(seq):
        entries += 1
        touched.update(dict.fromkeys(entry.pages))
    pages = [responses.PageRollback(index, _brief(context, index), _brief(past, index)) for index in touched]
    changed = [page for page in pages if page.now != page.then]
    return responses.Preview(
        seq=seq,
        entries=entries,
        pages=changed[:_MAX_PREVIEW_PAGES],
        more=max(0, len(changed) - _MAX_PREVIEW_PAGES),
        messages_before=len(context.messages()),
        messages_after=len(past.messages()),
    )


def _brief(context: Context, index: PageIndex) -> responses.Brief | None:
    try:
        page = context.pages.get_page(index)
    except NoSuchPage:
        return None
    return fill(responses.Brief, page, lifecycle=STATES[page.effective], visibility=page.visibility.name.lower())
