"""Handlers for the journal: entries, undo, rollback with its preview, checkpoints; and the text of an entry."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

from quire.context import Context
from quire.core.records import PageRecord
from quire.core.state import State
from quire.errors import NoSuchPage, QuireError
from quire.model.messages import Message
from quire.model.pages import STATES, PageIndex
from quire.server import responses
from quire.server.context_pool import OpenContext
from quire.server.handlers import Index, Limit, Name, Seq
from quire.server.responses import CommitResult, fill
from quire.system.checkpoints import parse_point
from quire.system.journal import Change, Entry, stored_entry, to_entry

_SEARCHED_ENTRIES = 20_000
"""The number of entries that one filtered request reads at most; the next request continues."""
_MAX_PREVIEW_PAGES = 1_000


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
        fill(
            responses.EntryLine,
            entry,
            text=texts[entry.seq],
            undone=entry.seq in undone,
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
    return CommitResult(opened.context.rollback(parse_point(str(to))))


def checkpoint(opened: OpenContext, *, name: Name) -> CommitResult:
    """Name the current state of the context."""
    return CommitResult(opened.context.checkpoint(name))


def preview_rollback(opened: OpenContext, *, to: str) -> responses.Preview:
    """Preview a rollback to a checkpoint or an entry without writing."""
    target = parse_point(to)
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


_WIDTH = 200
_MOST_NAMES = 3
_MOST_MESSAGES = 3
_SEARCHED = 64
"""The newest messages of a page that are searched for those of an entry."""


def entry_texts(state: State, entries: Iterable[Entry]) -> dict[int, str]:
    """Return one line of text for each entry, by seq. It is "" if the entry has no text, or if the text was removed."""
    return {entry.seq: _entry_text(state, entry) for entry in entries}


def _entry_text(state: State, entry: Entry, *, follows: bool = True) -> str:
    if entry.operation == "undo" and entry.undoes and follows:
        undone = to_entry(state, entry.undoes, stored_entry(state, entry.undoes))
        return _entry_text(state, undone, follows=False) or _entry_text(state, entry, follows=False)
    messages = list(_messages(state, entry))
    if messages:
        return _clip(" · ".join(map(_message_text, messages)))
    made = [change for change in entry.changes if change.index and change.before is None]
    changes = made if entry.operation == "fold" and made else [change for change in entry.changes if change.index]
    names = [name for change in changes[:_MOST_NAMES] if (name := _name(state, change))]
    more = len(changes) - _MOST_NAMES
    if more > 0 and names:
        names.append(f"+{more}")
    return _clip(", ".join(names) or ", ".join(entry.segments))


def _messages(state: State, entry: Entry) -> Iterator[Message]:
    """Yield the first messages that an entry added."""
    found = 0
    for index in entry.pages[:_MOST_MESSAGES]:
        key = state.key_of(index)
        page = None if key is None else state.page(key)
        if not isinstance(page, PageRecord):
            continue
        for number in page.header.numbers[-_SEARCHED:]:
            if state.numbering().index(number) is None:
                continue
            record = state.message(number)
            if record.seq == entry.seq and found < _MOST_MESSAGES:
                found += 1
                yield record.message


def _message_text(message: Message) -> str:
    calls = [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return " ".join([*([message.text] if message.text else []), *calls])


def _name(state: State, change: Change) -> str:
    """Return the name of a page now, or before the change if it was removed."""
    key = state.key_of(change.index)
    try:
        page = None if key is None else state.page(key)
    except QuireError:  # a damaged page must not hide the journal
        return ""
    if isinstance(page, PageRecord):
        return page.header.name
    return str((change.before or {}).get("name", ""))


def _clip(text: str) -> str:
    line = " ".join(text[: 4 * _WIDTH].split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
