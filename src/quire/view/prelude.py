"""Preludes: the tail of a view stays in the conversation, before the reply that it led to, until the next fold.

The provider has cached the tail with the rest of the request, and thinking is bound to it. So a tail is stored with the
reply (`SentView`), and the next tail has only what changed: a window if its text differs from its newest prelude, and
recalled pages once for each user message.
"""

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

from quire.core.reader import Reader
from quire.core.records import LAST_FOLD, PageRecord, TailText, segment_number
from quire.model.clock import to_datetime
from quire.model.messages import Message
from quire.model.pages import Mark, Permission
from quire.view.parts import PartKind, RecalledPage, Reply, ShownPage, ViewPart

GetOrBuild = Callable[[tuple[Any, ...], Callable[[], ViewPart]], ViewPart]
"""Returns the cached part under a key, or builds it."""

_REASON = "the reason is not stored"
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
    recalled = [shown for shown in part.pages if isinstance(shown, RecalledPage)]
    scores, reasons = tuple(one.score for one in recalled), tuple(one.reason for one in recalled)
    return TailText(part.kind, part.messages[0].text, part.tokens, pages, scores, reasons)


def draw_text(reader: Reader, piece: TailText) -> ViewPart:
    """Return a stored text of a tail as a part of a view."""
    kind: PartKind = "window" if piece.kind == "window" else "recalled" if piece.kind == "recalled" else "budget"
    tokens = piece.tokens // max(1, len(piece.pages))
    shown: list[ShownPage] = []
    if kind == "recalled":
        found = zip_longest(piece.pages, piece.scores, piece.reasons)  # older records have no scores
        for key, score, reason in found:
            shown += recalled_page(reader, key, tokens, reason or _REASON, score or 0.0, is_new=False)
    else:
        shown += [ShownPage(key, reader.index(key), "whole", tokens) for key in piece.pages]
    return ViewPart(kind, [Message(role="user", content=piece.text)], piece.tokens, shown)


def recalled_page(
    reader: Reader, key: int, tokens: int, reason: str, score: float, *, is_new: bool = True
) -> list[RecalledPage]:
    """Return a page as a recalled one; nothing if it was removed."""
    page = reader.page(key) or reader.current_page(key)
    if not isinstance(page, PageRecord):
        return []
    path = tuple(reader.index(folder.key) for folder in reader.ancestors(page))[::-1]
    when = to_datetime(page.header.created)
    return [RecalledPage(key, reader.index(key), "whole", tokens, reason, path, when, score, is_new)]


def may_be_shown(reader: Reader, piece: TailText) -> bool:
    """Return whether a text shows only pages that still exist and that the agent may see."""
    return piece.kind != "recalled" or all(_is_visible(reader, key) for key in piece.pages)


def _is_visible(reader: Reader, key: int) -> bool:
    page = reader.page(key) or reader.current_page(key)  # a new note is in its place only after the next fold
    segment = reader.segment(segment_number(key))
    if not isinstance(page, PageRecord) or page.header.mark in _REMOVED:
        return False
    return segment is not None and not segment.gone and segment.permission is not Permission.PRIVATE
