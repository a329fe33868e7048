"""The tail of a view: the parts after the conversation. They change from view to view and break no prompt cache.

All open windows together have a share of the view. Windows that do not fit it are shown as lines, the least recently
used first, and lines that do not fit are counted in one line. A fold can shrink more windows to lines; it stores only
up to which entry, so that every process draws the same tail.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from sys import maxsize

from msgspec import Struct

from quire.core.state import State
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import PageIndex
from quire.view.options import LINES_SHARE
from quire.view.parts import Granularity, PartKind, ShownPage, TokenCache, ViewPart

_MIN_CLIP = 160
"""Fewer tokens of a piece are not worth showing: it is reduced to its line."""
_CHARACTERS_PER_TOKEN = 4

LastLines = tuple[int, int]
"""Windows are lines if they were last used by this entry or an earlier one: unimportant windows, important windows."""
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
    piece its place, `used` of the one that last used it. `is_current` returns whether it still agrees with a state.
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
        self._parts: list[ViewPart | None] = []
        self._gathered: list[int] = []
        self._more: ViewPart | None = None
        self.tokens = 0
        self.last_lines = NO_LINES
        self.lay_out()

    def lay_out(self, last_lines: LastLines = NO_LINES) -> None:
        """Show every piece whole, but for windows up to `last_lines` and windows above the share."""
        self.last_lines = last_lines
        row = self._shrinkable()
        others = sum(part.tokens for part, one in zip(self._whole, self._pieces, strict=True) if one.line is None)
        aim = self._share + others
        if self._arrange(row, 0) <= aim:
            return
        lines = 1 + bisect_left(range(1, len(row)), True, key=lambda count: self._arrange(row, count) <= aim)
        if lines == len(row) and self._clip(row[-1], self._arrange(row, lines - 1) - aim):
            return
        if self._arrange(row, lines) > aim:
            self._gather_lines(row, aim)

    def parts(self) -> list[ViewPart]:
        """Return the parts that are shown, in order."""
        return [part for part in (self._more, *self._parts) if part is not None]

    def parts_by_entry(self) -> list[tuple[int, ViewPart]]:
        """Return the parts that are shown, each with the entry that gave it its place."""
        pairs = zip(self._pieces, self._parts, strict=True)
        placed = [(piece.entry, part) for piece, part in pairs if part is not None]
        if self._more is not None:
            placed.append((max(self._pieces[n].entry for n in self._gathered), self._more))
        return placed

    def drop_obsolete(self) -> None:
        """Remove the obsolete pieces."""
        kept = [n for n, piece in enumerate(self._pieces) if piece.priority is not Priority.OBSOLETE]
        self._pieces, self._whole = [self._pieces[n] for n in kept], [self._whole[n] for n in kept]
        self.lay_out(self.last_lines)

    @property
    def has_open_windows(self) -> bool:
        """Return whether a window is shown with its content that may shrink to a line."""
        return any(self._is_open(n) for n in range(len(self._pieces)))

    def least_tokens(self) -> int:
        """Return the tokens that are left if everything shrinks that may: pinned pieces, and a line for the others."""
        kept = sum(part.tokens for n, part in enumerate(self._whole) if self._pieces[n].priority is Priority.PINNED)
        more = self._more_part(self._shrinkable())
        return kept + (more.tokens if more is not None else 0)

    def shrink(self, excess: int) -> None:
        """Show windows as lines to free `excess` tokens: by priority, then the least recently used first."""
        aim = self.tokens - excess
        steps, last = [self.last_lines], self.last_lines
        for piece in (self._pieces[n] for n in sorted(self._shrinkable(), key=self._rank)):
            if piece.priority is Priority.OBSOLETE or piece.used <= last[piece.priority is Priority.IMPORTANT]:
                continue
            last = (last[0], piece.used) if piece.priority is Priority.IMPORTANT else (piece.used, last[1])
            steps.append(last)

        def tokens_at(step: LastLines) -> int:
            self.lay_out(step)
            return self.tokens

        found = bisect_left(steps, True, key=lambda step: tokens_at(step) <= aim)
        self.lay_out(steps[min(found, len(steps) - 1)])

    def squeeze(self, excess: int) -> None:
        """Free `excess` tokens if possible: show windows as lines, remove what has no line, gather the lines."""
        aim = self.tokens - excess
        self.shrink(excess)
        for n, piece in enumerate(self._pieces):
            if self.tokens > aim and piece.line is None:
                self._put(n, None)
        self._gather_lines(self._shrinkable(), aim)

    def drop_lines(self) -> None:
        """Remove the line that counts windows."""
        self.tokens -= self._more.tokens if self._more is not None else 0
        self._more = None

    def clip_pinned(self, excess: int) -> None:
        """Shorten pinned pieces, the largest first. A pinned piece is never removed."""
        row = [n for n, piece in enumerate(self._pieces) if piece.priority is Priority.PINNED]
        aim = self.tokens - excess
        for n in sorted(row, key=lambda n: -self._tokens(n)):
            if self.tokens > aim and not self._clip(n, self.tokens - aim):
                self._reduce(n)

    def _shrinkable(self) -> list[int]:
        """Return the pieces that may shrink, in the order of the share: the window that was used last is the last."""
        row = [n for n, piece in enumerate(self._pieces) if piece.line and piece.priority is not Priority.PINNED]
        newest = max((one.used for one in self._pieces if one.priority and not one.is_hidden), default=0)
        return sorted(row, key=lambda n: (self._pieces[n].used == newest, self._rank(n)))

    def _arrange(self, row: Sequence[int], lines: int) -> int:
        """Show the first `lines` pieces of a row and the windows up to `last_lines` as lines; return the tokens."""
        self._parts, self._gathered, self._more = [*self._whole], [], None
        self.tokens = sum(part.tokens for part in self._whole)
        for place, n in enumerate(row):
            piece = self._pieces[n]
            last = self.last_lines[piece.priority is Priority.IMPORTANT] if piece.priority else -1
            if place < lines or piece.used <= last:
                self._reduce(n)
        self._gather_lines(row)
        return self.tokens

    def _rank(self, n: int) -> tuple[int, int, int]:
        piece = self._pieces[n]
        return piece.priority, piece.used, piece.key

    def _is_open(self, n: int) -> bool:
        part, priority = self._parts[n], self._pieces[n].priority
        is_window = self._pieces[n].line is not None and priority in (Priority.UNIMPORTANT, Priority.IMPORTANT)
        return is_window and part is not None and part.pages[0].granularity != "line"

    def _reduce(self, n: int) -> None:
        """Show a piece as its line; remove an obsolete piece."""
        piece = self._pieces[n]
        line = None if piece.priority is Priority.OBSOLETE else piece.line
        self._put(n, None if line is None else self._part(piece, line(), "line"))

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

    def _gather_lines(self, row: Sequence[int], aim: int | None = None) -> None:
        """Count the first lines of `row` in one line: those above the share of lines, or until the tail has `aim`."""
        lines = [n for n in row if (part := self._parts[n]) is not None and part.pages[0].granularity == "line"]
        used, room = sum(map(self._tokens, lines)), int(self._share * LINES_SHARE)
        if len(lines) + len(self._gathered) == 1:  # a line that counts one window would say less than its own
            return
        for n in lines:
            is_enough = used <= room if aim is None else self.tokens <= aim
            if is_enough and len(self._gathered) != 1:
                break
            used -= self._tokens(n)
            self._put(n, None)
            self._gathered.append(n)
            if aim is not None:
                self._count_gathered()
        if self._gathered:
            self._count_gathered()

    def _count_gathered(self) -> None:
        self.drop_lines()
        self._more = self._more_part(self._gathered)
        self.tokens += self._more.tokens if self._more is not None else 0

    def _more_part(self, row: Sequence[int]) -> ViewPart | None:
        """Return the part that counts pieces instead of showing them."""
        pieces = [self._pieces[n] for n in sorted(row) if self._pieces[n].priority is not Priority.OBSOLETE]
        gather = pieces[0].gather if pieces else None
        if gather is None:
            return None
        text = gather(pieces)
        tokens = self._cache.count(text) + PER_MESSAGE
        shown = [ShownPage(piece.key, piece.index, "line", tokens // len(pieces)) for piece in pieces]
        return ViewPart("window", [Message(role="user", content=text)], tokens, shown)

    def _tokens(self, n: int) -> int:
        part = self._parts[n]
        return part.tokens if part is not None else 0

    def _put(self, n: int, part: ViewPart | None) -> None:
        self.tokens += (part.tokens if part is not None else 0) - self._tokens(n)
        self._parts[n] = part

    def _part(self, piece: TailPiece, text: str, granularity: Granularity) -> ViewPart:
        tokens = self._cache.count(text) + PER_MESSAGE
        shown = ShownPage(piece.key, piece.index, granularity, tokens)
        return ViewPart(piece.kind, [Message(role="user", content=text)], tokens, [shown])
