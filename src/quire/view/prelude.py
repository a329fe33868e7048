"""Preludes: the tail of a view stays in the conversation, before the reply that it led to, until the next fold.

The provider has cached the tail with the rest of the request, and thinking is bound to it. So a tail is stored with the
reply (`SentView`), and the next tail has only what changed: a window if its text differs from its newest prelude, and
recalled pages once for each user message.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from quire.core.reader import Reader
from quire.core.records import LAST_FOLD, PageRecord, TailText, segment_number
from quire.model.messages import Message
from quire.model.pages import Mark, Permission
from quire.view.parts import PartKind, Reply, ShownPage, ViewPart

GetOrBuild = Callable[[tuple[Any, ...], Callable[[], ViewPart]], ViewPart]
"""Returns the cached part under a key, or builds it."""

_REASON = "it was recalled for an earlier message and stays until the next fold"
_REMOVED = (Mark.DELETED, Mark.REPLACED, Mark.ENDED)


def draw_tail(reader: Reader, reply: Reply, get_or_build: GetOrBuild) -> list[ViewPart]:
    """Return the parts of the tail that a reply answers; none if a fold came after it."""
    folded = reader.note(LAST_FOLD)
    if folded is not None and reply.seq <= folded.seq:
        return []
    shown = [(n, piece) for n, piece in enumerate(reply.sent.tail) if may_be_shown(reader, piece)]
    return [get_or_build(("prelude", reply.number, n), partial(draw_text, reader, piece)) for n, piece in shown]


def to_tail_text(part: ViewPart) -> TailText:
    """Return a part of a tail as it is stored."""
    pages = tuple(shown.key for shown in part.pages)
    return TailText(part.kind, part.messages[0].text, part.tokens, pages)


def draw_text(reader: Reader, piece: TailText) -> ViewPart:
    """Return a stored text of a tail as a part of a view."""
    kind: PartKind = "window" if piece.kind == "window" else "recalled" if piece.kind == "recalled" else "budget"
    reason = _REASON if kind == "recalled" else ""
    tokens = piece.tokens // max(1, len(piece.pages))
    shown = [ShownPage(key, reader.index(key), "whole", tokens, reason) for key in piece.pages]
    return ViewPart(kind, [Message(role="user", content=piece.text)], piece.tokens, shown)


def may_be_shown(reader: Reader, piece: TailText) -> bool:
    """Return whether a text shows only pages that still exist and that the agent may see."""
    return piece.kind != "recalled" or all(_is_visible(reader, key) for key in piece.pages)


def _is_visible(reader: Reader, key: int) -> bool:
    page = reader.page(key) or reader.current_page(key)  # a new note is in its place only after the next fold
    segment = reader.segment(segment_number(key))
    if not isinstance(page, PageRecord) or page.header.mark in _REMOVED:
        return False
    return segment is not None and not segment.gone and segment.permission is not Permission.PRIVATE
