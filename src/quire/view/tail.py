"""The tail of a view: the parts after the conversation. They change from view to view and break no prompt cache.

When space is short, they shrink by priority: obsolete ones first, pinned ones never.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

from msgspec import Struct

from quire.core.records import segment_number
from quire.core.state import State
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import PageIndex
from quire.view.parts import Granularity, PartKind, ShownPage, TokenCache, ViewPart

_MIN_CLIP = 160
"""Fewer tokens of a piece are not worth showing: it is reduced to its line."""
_CHARACTERS_PER_TOKEN = 4


class Priority(IntEnum):
    """The order in which pieces of the tail shrink, the lowest first."""

    OBSOLETE = 0
    UNIMPORTANT = 1
    IMPORTANT = 2
    PINNED = 3


class TailPiece(Struct, frozen=True):
    """One piece of the tail: its text, and its shorter forms.

    `clip` returns it in about so many characters, `line` returns its shortest form; where `line` is None, the piece can
    only be removed. `entry` is the seq of the journal entry that gave the piece its place. `is_current` returns whether
    the piece still agrees with a state.
    """

    kind: PartKind
    key: int
    index: PageIndex
    text: str
    entry: int = 0
    priority: Priority = Priority.UNIMPORTANT
    clip: Callable[[int], str] | None = None
    line: Callable[[], str] | None = None
    is_current: Callable[[State], bool] | None = None


class Tail:
    """The pieces after the conversation in one view."""

    def __init__(self, cache: TokenCache, pieces: Iterable[TailPiece] = ()) -> None:
        self._cache = cache
        self._pieces = list(pieces)
        self._parts: list[ViewPart | None] = [self._part(piece, piece.text, "whole") for piece in self._pieces]
        self.tokens = sum(part.tokens for part in self._parts if part is not None)

    def parts(self) -> list[ViewPart]:
        """Return the parts that are shown, in order."""
        return [part for part in self._parts if part is not None]

    def parts_by_entry(self) -> list[tuple[int, ViewPart]]:
        """Return the parts that are shown, each with the entry that gave it its place."""
        pairs = zip(self._pieces, self._parts, strict=True)
        return [(piece.entry, part) for piece, part in pairs if part is not None]

    def drop_obsolete(self) -> None:
        """Remove the obsolete pieces."""
        for n, piece in enumerate(self._pieces):
            if piece.priority is Priority.OBSOLETE:
                self._put(n, None)

    def removable_tokens(self) -> int:
        """Return the tokens of the pieces that could be removed: all but the pinned ones."""
        pairs = zip(self._pieces, self._parts, strict=True)
        return sum(part.tokens for piece, part in pairs if part is not None and piece.priority is not Priority.PINNED)

    def limit_segment(self, segment: int, capacity: int) -> None:
        """Shrink the pieces of a segment to its capacity."""
        used = sum(self._tokens(n) for n, piece in enumerate(self._pieces) if segment_number(piece.key) == segment)
        self.shrink(used - capacity, segment)

    def shrink(self, excess: int, segment: int | None = None) -> None:
        """Free `excess` tokens if possible: by priority, then the oldest first; clip before removing."""
        aim = self.tokens - excess
        for priority in (Priority.OBSOLETE, Priority.UNIMPORTANT, Priority.IMPORTANT):
            row = [
                n
                for n, piece in enumerate(self._pieces)
                if piece.priority is priority and segment in (None, segment_number(piece.key))
            ]
            for step in (self._shorten, self._remove):
                for n in sorted(row, key=lambda n: self._pieces[n].entry):
                    if self.tokens <= aim:
                        return
                    step(n, self.tokens - aim)

    def clip_pinned(self, excess: int) -> None:
        """Shorten pinned pieces, the largest first. A pinned piece is never removed."""
        row = [n for n, piece in enumerate(self._pieces) if piece.priority is Priority.PINNED]
        aim = self.tokens - excess
        for n in sorted(row, key=lambda n: -self._tokens(n)):
            if self.tokens <= aim:
                return
            self._shorten(n, self.tokens - aim)

    def _shorten(self, n: int, excess: int) -> None:
        """Clip one piece by `excess` tokens, or reduce it to its line."""
        piece, used = self._pieces[n], self._tokens(n)
        room = used - excess
        if piece.clip is not None and room >= _MIN_CLIP:
            characters = room * _CHARACTERS_PER_TOKEN
            while characters > _MIN_CLIP:
                part = self._part(piece, piece.clip(characters), "clipped")
                if part.tokens <= room:
                    self._put(n, part)
                    return
                characters = min(int(characters * room / part.tokens * 0.95), characters - 1)
        if piece.line is not None:
            part = self._part(piece, piece.line(), "line")
            if part.tokens < used:
                self._put(n, part)

    def _remove(self, n: int, _: int) -> None:
        self._put(n, None)

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
