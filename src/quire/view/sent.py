"""The last view that was sent to a model: what a reply stores of it, and how another process draws it again.

Windows and recalled pages exist only in the process that renders. So a reply is stored with the tail and the figures of
its view, and the context stores the tools of the last view. All other parts can be drawn again from the journal.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.records import LAST_FOLD, RENDERER, SENT_TOOLS, MessageRecord, NoteRecord, SentView
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue
from quire.model.messages import Message
from quire.system.journal import history
from quire.view.parts import Request, ViewPart
from quire.view.view import View

_CHUNK = 64
_SEARCHED = 1_024
"""The number of newest messages that are searched for a reply."""


class LastSent(Struct, frozen=True, kw_only=True):
    """The last view that a model answered.

    `reply` is the index of the reply, None if it was removed. `entry` is the journal entry that the view shows.
    `tokens`, `budget` and `reserved` are the figures of the view when it was sent; `reserved` includes the tools.
    `tools` are the tools that were sent with it, with their tokens. `view` is the view, drawn again; None if the
    journal no longer reaches back to it. `is_exact` is False if that view has another number of tokens than the one
    that was sent: the program uses another counter or preamble, or a fold has changed the layout of a segment since.
    """

    reply: int | None
    entry: int
    tokens: int
    budget: int
    reserved: int
    tools: dict[str, int]
    view: View | None
    is_exact: bool


class StoredView(Struct, frozen=True):
    """What is stored of a view, and what is needed to draw it again."""

    record: SentView
    entry: int
    reply: int | None
    tools: tuple[tuple[str, int], ...]
    last_fold: int
    tail: tuple[ViewPart, ...]


class Past(Protocol):
    """A context at an earlier entry, as far as it is needed here."""

    budget: int

    @property
    def pages(self) -> "_Pages": ...

    def render(self, /, *, preview: bool, reserve: int) -> View: ...


class _Pages(Protocol):
    _engine: Engine


def record_sent(state: State, view: View, request: Request, reply: Message) -> tuple[SentView, NoteRecord | None]:
    """Return what a reply is stored with, and the note of the tools if they are not those of the last view."""
    noted, seq = state.note(SENT_TOOLS), state.version + 1
    changed = request.tools != (() if noted is None else noted.tools)
    sent = SentView()
    if view.tail or reply.has_thinking:
        from quire.view.thinking import sent_view  # late: most replies need no digest

        sent = sent_view(request, view.parts[: len(view.parts) - len(view.tail)], view.tail, reply)
    found = replace(sent, behind=seq - view.seq, tokens=view.tokens, budget=view.budget, reserved=request.reserved)
    return found, NoteRecord(seq, tools=request.tools) if changed else None


def newest_sent(state: State) -> StoredView | None:
    """Return what is stored of the last view that a reply answers; None if none of the newest messages does."""
    end = state.next_message
    while end > max(0, state.next_message - _SEARCHED):
        start = max(0, end - _CHUNK)
        records = list(state.message_records(start, end - 1))
        for number, record in reversed(records):
            if record.sent is not None and record.sent.behind:
                return _stored_view(state, number, record, record.sent)
        end = start
    return None


def _stored_view(state: State, number: int, record: MessageRecord, sent: SentView) -> StoredView:
    from quire.view.tail import draw_text, may_be_shown

    tools, fold = state.note(SENT_TOOLS), state.note(LAST_FOLD)
    return StoredView(
        record=sent,
        entry=record.seq - sent.behind,
        reply=state.numbering().index(number),
        tools=() if tools is None else tools.tools,
        last_fold=0 if fold is None else fold.seq,
        tail=tuple(draw_text(state, piece, is_new=True) for piece in sent.tail if may_be_shown(state, piece)),
    )


def draw_sent(stored: StoredView, past_of: Callable[[], Past]) -> LastSent:
    """Draw a stored view again in the context as it was: `past_of` returns it, and changes to it stay in memory."""
    sent = stored.record
    view = None
    try:
        past = past_of()
        _restore_last_fold(past.pages._engine, stored)
        past.budget = sent.budget
        drawn = past.render(preview=True, reserve=sent.reserved)
        parts = drawn.parts[: len(drawn.parts) - len(drawn.tail)]
        opening = [part for part in drawn.tail if part.kind == "opening"]
        view = View(parts, budget=sent.budget, seq=stored.entry, tail=[*opening, *stored.tail])
    except (InvalidOperation, InvalidValue):  # a purge or a cleanup has ended the journal after that entry
        pass
    return LastSent(
        reply=stored.reply,
        entry=stored.entry,
        tokens=sent.tokens,
        budget=sent.budget,
        reserved=sent.reserved,
        tools=dict(stored.tools),
        view=view,
        is_exact=view is not None and view.tokens == sent.tokens,
    )


def _restore_last_fold(past: Engine, stored: StoredView) -> None:
    """Set the last fold to the last one before the view: a fold ends the tails of all views before it."""
    if stored.last_fold <= stored.entry:
        return
    with past.lock:
        folds = history(past.current(), before=stored.entry + 1, operation="fold", reverse=True)
        plan = past.begin(RENDERER)
        plan.notes[LAST_FOLD] = NoteRecord(next((entry.seq for entry in folds), 0))
        past.commit(plan, "fold")
