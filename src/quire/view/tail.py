"""The tail of a view: the parts after the conversation. A tail has only what changed since the tails before it.

All open windows together have a share of the view. Windows that do not fit it are shown as lines, the least recently
used first, and lines that do not fit are counted in one line. A fold can shrink more windows to lines. It stores only
an entry: windows that were last used by this entry or an earlier one are lines. So every process draws the same tail.

A tail stays in the conversation as a prelude, before the reply that it led to, until the next fold: the provider has
cached it with the rest of the request, and thinking is bound to it. So a tail is stored with the reply (`SentView`),
and the next tail has only what changed: a window if its text differs from its newest prelude, and recalled pages once
for each user message.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from itertools import zip_longest
from sys import maxsize
from typing import Any

from msgspec import Struct

from quire.core.reader import Reader
from quire.core.records import LAST_FOLD, PageRecord, TailText, segment_number
from quire.core.state import State
from quire.model.clock import to_datetime
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import Form, Lifecycle, Mark, PageIndex, Permission
from quire.view.options import LINES_SHARE
from quire.view.parts import Granularity, PartKind, RecalledPage, Reply, ShownPage, TokenCache, ViewPart

_MIN_CLIP = 160
"""Fewer tokens of a piece are not worth showing: it is reduced to its line."""
_CHARACTERS_PER_TOKEN = 4
_MORE_TOKENS = 60
"""About the size of the line that counts windows."""

LastLines = tuple[int, int]
"""Two entries, for unimportant and important windows: windows that were last used by then are shown as lines."""
NO_LINES: LastLines = (0, 0)


class Priority(IntEnum):
    """The order in which pieces of the tail shrink, the lowest first."""

    OBSOLETE = 0
    UNIMPORTANT = 1
    IMPORTANT = 2
    PINNED = 3


class TailPiece(Struct, frozen=True):
    """One piece of the tail: its text, and its shorter forms.

    `clip` returns it in about so many characters, `line` returns its line, and `gather` returns one line for several
    pieces; where `line` is None, the piece can only be removed. `entry` is the seq of the journal entry that gave the
    piece its place, `used` of the one that last used it. `is_current` returns whether it still agrees with a state. The
    text of a hidden piece is its line. `name` is the id of a window.
    """

    kind: PartKind
    key: int
    index: PageIndex
    text: str
    entry: int = 0
    used: int = 0
    priority: Priority = Priority.UNIMPORTANT
    clip: Callable[[int], str] | None = None
    line: Callable[[], str] | None = None
    gather: "Callable[[Sequence[TailPiece]], str] | None" = None
    is_current: Callable[[State], bool] | None = None
    is_hidden: bool = False
    name: str = ""


class Tail:
    """The pieces after the conversation in one view. All windows together take at most `share` tokens."""

    def __init__(self, cache: TokenCache, pieces: Iterable[TailPiece] = (), share: int = maxsize) -> None:
        self._cache = cache
        self._share = share
        self._pieces = list(pieces)
        self._whole = [self._part(piece, piece.text, "line" if piece.is_hidden else "whole") for piece in self._pieces]
        self._lines: dict[int, ViewPart] = {}
        self._parts: list[ViewPart | None] = []
        self._gathered: list[int] = []
        self._more = ""
        self.tokens = 0
        self.last_lines = NO_LINES
        if self._pieces:
            self.lay_out()

    def lay_out(self, last_lines: LastLines = NO_LINES) -> None:
        """Show every piece whole, except windows that `last_lines` or the share reduces to lines."""
        self.last_lines = last_lines
        self._show_lines([])
        row = self._shrinkable()
        lines, rest = [n for n in row if self._is_line(n)], [n for n in row if not self._is_line(n)]
        aim = self._share + sum(self._tokens(n) for n, piece in enumerate(self._pieces) if piece.line is None)
        whole, count = self.tokens - sum(map(self._tokens, lines)), 0
        if whole + self._lines_cost(lines) > aim:
            whole, count = whole - sum(map(self._tokens, rest)), len(rest)
            while count and whole + self._tokens(rest[count - 1]) + self._lines_cost(lines + rest[: count - 1]) <= aim:
                count -= 1
                whole += self._tokens(rest[count])
        if count and count == len(rest):
            self._show_lines(lines + rest[:-1])
            self._gather_lines(lines + rest[:-1], aim)
            if self.tokens <= aim or self._clip(rest[-1], self.tokens - aim):
                return
        self._show_lines(lines + rest[:count])
        self._gather_lines(lines + rest[:count], aim)

    def parts(self) -> list[ViewPart]:
        """Return the parts that are shown, in order."""
        return [part for part in (self._more_part(), *self._parts) if part is not None]

    def parts_by_entry(self) -> list[tuple[int, ViewPart]]:
        """Return the windows that are shown, each with the entry that gave it its place."""
        pairs = zip(self._pieces, self._parts, strict=True)
        placed = [(piece.entry, part) for piece, part in pairs if part is not None and part.kind == "window"]
        more = self._more_part()
        if more is not None:
            placed.append((max(self._pieces[n].entry for n in self._gathered), more))
        return placed

    def drop_obsolete(self) -> None:
        """Remove the obsolete pieces."""
        kept = [n for n, piece in enumerate(self._pieces) if piece.priority is not Priority.OBSOLETE]
        self._pieces, self._whole = [self._pieces[n] for n in kept], [self._whole[n] for n in kept]
        self._lines.clear()
        self.lay_out(self.last_lines)

    @property
    def has_open_windows(self) -> bool:
        """True if a window that may shrink to a line is shown with its content."""
        return any(self._is_open(n) for n in range(len(self._pieces)))

    def least_tokens(self) -> int:
        """Return the fewest tokens of this tail: those of the pinned pieces, and of one line for the others."""
        kept = sum(part.tokens for n, part in enumerate(self._whole) if self._pieces[n].priority is Priority.PINNED)
        return kept + self._text_tokens(self._gather_text([n for n in self._shrinkable() if self._pieces[n].priority]))

    def shrink(self, excess: int) -> None:
        """Show windows as lines to free `excess` tokens: by priority, then the least recently used first."""
        aim = self.tokens - excess
        steps, last = [self.last_lines], self.last_lines
        for piece in (self._pieces[n] for n in sorted(self._shrinkable(), key=self._rank)):
            if piece.priority is Priority.OBSOLETE or piece.used <= last[piece.priority is Priority.IMPORTANT]:
                continue
            last = (last[0], piece.used) if piece.priority is Priority.IMPORTANT else (piece.used, last[1])
            steps.append(last)

        def fits(step: LastLines) -> bool:
            self.lay_out(step)
            return self.tokens <= aim

        self.lay_out(steps[min(bisect_left(steps, True, key=fits), len(steps) - 1)])

    def squeeze(self, excess: int) -> None:
        """Free `excess` tokens if possible: show windows as lines, remove pieces without a line, gather lines."""
        aim = self.tokens - excess
        self.shrink(excess)
        for n, piece in enumerate(self._pieces):
            if self.tokens > aim and piece.line is None:
                self._put(n, None)
        self._gather_lines(self._shrinkable(), aim)

    def drop_lines(self) -> None:
        """Remove the line that counts windows."""
        self.tokens -= self._text_tokens(self._more)
        self._more = ""

    def clip_pinned(self, excess: int) -> None:
        """Shorten pinned pieces, the largest first. A pinned piece is never removed."""
        row = [n for n, piece in enumerate(self._pieces) if piece.priority is Priority.PINNED]
        aim = self.tokens - excess
        for n in sorted(row, key=lambda n: -self._tokens(n)):
            if self.tokens > aim and not self._clip(n, self.tokens - aim):
                self._put(n, self._line(n))

    def _shrinkable(self) -> list[int]:
        """Return the pieces that may shrink, in the order of shrinking. The window that was used last is the last."""
        row = [n for n, piece in enumerate(self._pieces) if piece.line and piece.priority is not Priority.PINNED]
        newest = max((one.used for one in self._pieces if one.priority and not one.is_hidden), default=0)
        return sorted(row, key=lambda n: (self._pieces[n].used == newest, self._rank(n)))

    def _is_line(self, n: int) -> bool:
        """Return whether a window is shown as a line whatever room there is."""
        piece = self._pieces[n]
        last = self.last_lines[piece.priority is Priority.IMPORTANT] if piece.priority else -1
        return piece.is_hidden or piece.used <= last

    def _lines_cost(self, row: Sequence[int]) -> int:
        """Return about how many tokens the lines of a row take. Lines that exceed their share become one line."""
        cost, room = 0, int(self._share * LINES_SHARE)
        for n in reversed(row):
            line = self._line(n)
            cost += line.tokens if line is not None else 0
            if cost > room:
                return room + _MORE_TOKENS
        return cost

    def _show_lines(self, row: Sequence[int]) -> None:
        """Show the pieces of a row as lines. If the lines exceed their share, the first pieces become one line."""
        self._parts, self._gathered, self._more = [*self._whole], [], ""
        self.tokens = sum(part.tokens for part in self._whole)
        room, kept = int(self._share * LINES_SHARE), 0
        for place in range(len(row) - 1, -1, -1):
            line = self._line(row[place])
            kept += line.tokens if line is not None else 0
            if kept > room and (place or place + 1 < len(row)):
                self._gather(row[: max(place + 1, 2)])
                break
            self._put(row[place], line)

    def _rank(self, n: int) -> tuple[int, int, int]:
        piece = self._pieces[n]
        return piece.priority, piece.used, piece.key

    def _is_open(self, n: int) -> bool:
        part, priority = self._parts[n], self._pieces[n].priority
        is_window = self._pieces[n].line is not None and priority in (Priority.UNIMPORTANT, Priority.IMPORTANT)
        return is_window and part is not None and part.pages[0].granularity != "line"

    def _line(self, n: int) -> ViewPart | None:
        """Return the line of a piece; None if it has none or is obsolete."""
        piece = self._pieces[n]
        if piece.line is None or piece.priority is Priority.OBSOLETE:
            return None
        if n not in self._lines:
            self._lines[n] = self._part(piece, piece.line(), "line")
        return self._lines[n]

    def _clip(self, n: int, excess: int) -> bool:
        """Clip a piece by `excess` tokens; return False if too little of it would be left."""
        piece, room = self._pieces[n], self._tokens(n) - excess
        characters = room * _CHARACTERS_PER_TOKEN if piece.clip is not None and room >= _MIN_CLIP else 0
        while piece.clip is not None and characters > _MIN_CLIP:
            part = self._part(piece, piece.clip(characters), "clipped")
            if part.tokens <= room:
                self._put(n, part)
                return True
            characters = min(int(characters * room / part.tokens * 0.95), characters - 1)
        return False

    def _gather_lines(self, row: Sequence[int], aim: int) -> None:
        """Count the first lines of a row in one line until the tail has `aim` tokens."""
        lines = [n for n in row if (part := self._parts[n]) is not None and part.pages[0].granularity == "line"]
        while lines and self.tokens > aim and len(lines) + len(self._gathered) > 1:
            first = 1 if self._gathered else 2
            self._gather(lines[:first])
            del lines[:first]

    def _gather(self, row: Sequence[int]) -> None:
        """Count pieces in one line instead of showing them."""
        for n in row:
            self._put(n, None)
        self.drop_lines()
        self._gathered += [n for n in row if self._pieces[n].priority is not Priority.OBSOLETE]
        self._more = self._gather_text(self._gathered)
        self.tokens += self._text_tokens(self._more)

    def _gather_text(self, row: Sequence[int]) -> str:
        """Return the line that counts pieces instead of showing them; "" if there are none."""
        pieces = [self._pieces[n] for n in sorted(row)]
        gather = pieces[0].gather if pieces else None
        return gather(pieces) if gather is not None else ""

    def _more_part(self) -> ViewPart | None:
        if not self._more:
            return None
        tokens, pieces = self._text_tokens(self._more), [self._pieces[n] for n in sorted(self._gathered)]
        shown = [ShownPage(piece.key, piece.index, "line", tokens // len(pieces)) for piece in pieces]
        return ViewPart("window", [Message(role="user", content=self._more)], tokens, shown)

    def _text_tokens(self, text: str) -> int:
        return self._cache.count(text) + PER_MESSAGE if text else 0

    def _tokens(self, n: int) -> int:
        part = self._parts[n]
        return part.tokens if part is not None else 0

    def _put(self, n: int, part: ViewPart | None) -> None:
        self.tokens += (part.tokens if part is not None else 0) - self._tokens(n)
        self._parts[n] = part

    def _part(self, piece: TailPiece, text: str, granularity: Granularity) -> ViewPart:
        tokens = self._text_tokens(text)
        shown = ShownPage(piece.key, piece.index, granularity, tokens)
        return ViewPart(piece.kind, [Message(role="user", content=text)], tokens, [shown])


def new_parts(tail: Tail, preludes: Iterable[ViewPart]) -> list[ViewPart]:
    """Return the parts of a tail without the windows that a prelude shows with the same text."""
    parts = tail.parts()
    if not parts:
        return parts
    newest = _newest_windows(preludes)
    return [
        part
        for part in parts
        if part.kind != "window" or not all(_is_same(part, newest.get(shown.key)) for shown in part.pages)
    ]


def closed_windows(state: State, pieces: Iterable[TailPiece], preludes: Iterable[ViewPart]) -> list[TailPiece]:
    """Return a piece for every window in a prelude that was closed since: the model must not take it for open."""
    present = {piece.key for piece in pieces}
    closed = []
    for key, prelude in _newest_windows(preludes).items():
        head, _, rest = prelude.messages[0].text.partition(">")
        is_window = head.startswith("<Window ") and bool(rest)  # the piece of a closed window has no text after the tag
        if key not in present and is_window and not _is_open(state, key):
            closed.append(TailPiece("window", key, state.index(key), f'{head} closed="true"/>'))
    return closed


def _newest_windows(preludes: Iterable[ViewPart]) -> dict[int, ViewPart]:
    """Return the newest prelude of each window."""
    return {shown.key: part for part in preludes if part.kind == "window" for shown in part.pages}


def _is_same(part: ViewPart, prelude: ViewPart | None) -> bool:
    return prelude is not None and prelude.messages[0].content == part.messages[0].content


def _is_open(state: State, key: int) -> bool:
    page = state.page(key)
    if not isinstance(page, PageRecord) or page.header.form is not Form.WINDOW or page.header.closed:
        return False
    return state.effective_lifecycle(page) is Lifecycle.ACTIVE


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


def draw_text(reader: Reader, piece: TailText, *, is_new: bool = False) -> ViewPart:
    """Return a stored text of a tail as a part of a view."""
    kind: PartKind = "window" if piece.kind == "window" else "recalled" if piece.kind == "recalled" else "budget"
    tokens = piece.tokens // max(1, len(piece.pages))
    shown: list[ShownPage] = []
    if kind == "recalled":
        found = zip_longest(piece.pages, piece.scores, piece.reasons)  # older records have no scores
        paths: Paths = {}
        for key, score, reason in found:
            size = None if is_new else tokens
            shown += recalled_page(reader, key, paths, reason or _REASON, score or 0.0, size)
    else:
        shown += [ShownPage(key, reader.index(key), "whole", tokens) for key in piece.pages]
    return ViewPart(kind, [Message(role="user", content=piece.text)], piece.tokens, shown)


Paths = dict[int | None, tuple[PageIndex, ...]]
"""The path of the pages in a folder, by the folder."""


def recalled_page(
    reader: Reader, key: int, paths: Paths, reason: str, score: float, tokens: int | None = None
) -> list[RecalledPage]:
    """Return a page as a recalled one; nothing if it was removed. `paths` are reused.

    `tokens` are those of a page of an earlier view; a new page has its own.
    """
    page = reader.page(key) or reader.current_page(key)
    if not isinstance(page, PageRecord):
        return []
    header = page.header
    folder = None if header.lifecycle is Lifecycle.COLD_ARCHIVED else page.parent
    if folder not in paths:
        paths[folder] = tuple(reader.index(above.key) for above in reader.ancestors(page))[::-1]
    when, is_new = to_datetime(header.created), tokens is None
    size = header.tokens if tokens is None else tokens
    return [RecalledPage(key, reader.index(key), "whole", size, reason, paths[folder], when, score, is_new)]


def may_be_shown(reader: Reader, piece: TailText) -> bool:
    """Return whether a text shows only pages that still exist and that the agent may see."""
    return piece.kind != "recalled" or all(_is_visible(reader, key) for key in piece.pages)


def _is_visible(reader: Reader, key: int) -> bool:
    page = reader.page(key) or reader.current_page(key)  # a new note is in its place only after the next fold
    segment = reader.segment(segment_number(key))
    if not isinstance(page, PageRecord) or page.header.mark in _REMOVED:
        return False
    return segment is not None and not segment.gone and segment.permission is not Permission.PRIVATE
