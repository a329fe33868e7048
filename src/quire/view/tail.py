"""The tail of a view: what stands after the conversation and changes from view to view, so that no cache breaks.

What stands there gives way when space is short, each after its standing: obsolete ones first, pinned ones never.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

from quire.core.records import segment_number
from quire.core.state import State
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import PageIndex
from quire.view.part_builder import Sizes
from quire.view.parts import Granularity, Kind, Part, Shown

_LEAST_CLIP = 160
"""Fewer tokens of something are not worth showing: it goes down to its line."""
_CHARACTERS_A_TOKEN = 4


class Standing(IntEnum):
    """Who gives way first."""

    OBSOLETE = 0
    UNIMPORTANT = 1
    IMPORTANT = 2
    PINNED = 3


class Volatile:
    """One thing that stands in the tail: its text, and what it is like with less room.

    `clipped` gives it in about so many characters, `line` as little as can be said of it (None: it can only go). `at`
    is the journal entry that gave it its place. `holds` says whether it still is what it was when it was made.
    """

    __slots__ = ("at", "clipped", "holds", "index", "key", "kind", "line", "standing", "text")

    def __init__(
        self,
        kind: Kind,
        key: int,
        index: PageIndex,
        text: str,
        *,
        at: int = 0,
        standing: Standing = Standing.UNIMPORTANT,
        clipped: Callable[[int], str] | None = None,
        line: Callable[[], str] | None = None,
        holds: Callable[[State], bool] | None = None,
    ) -> None:
        self.kind: Kind = kind
        self.key = key
        self.index = index
        self.text = text
        self.at = at
        self.standing = standing
        self.clipped = clipped
        self.line = line
        self.holds = holds


class Tail:
    """The things after the conversation as they are shown in one view."""

    def __init__(self, sizes: Sizes, pieces: Iterable[Volatile] = ()) -> None:
        self._sizes = sizes
        self._pieces = list(pieces)
        self._parts: list[Part | None] = [self._part(piece, piece.text, "whole") for piece in self._pieces]
        self.tokens = sum(part.tokens for part in self._parts if part is not None)

    def parts(self) -> list[Part]:
        """What is shown, in order."""
        return [part for part in self._parts if part is not None]

    def placed(self) -> list[tuple[int, Part]]:
        """What is shown, with the entries that gave it its place."""
        pairs = zip(self._pieces, self._parts, strict=True)
        return [(piece.at, part) for piece, part in pairs if part is not None]

    def tokens_of(self, kind: Kind) -> int:
        """What is shown of one kind takes so many tokens."""
        return sum(part.tokens for part in self.parts() if part.kind == kind)

    def drop_obsolete(self) -> None:
        """Take out what is obsolete."""
        for n, piece in enumerate(self._pieces):
            if piece.standing is Standing.OBSOLETE:
                self._put(n, None)

    def could_free(self) -> int:
        """The tokens that it could give up, lines and all."""
        pairs = zip(self._pieces, self._parts, strict=True)
        return sum(part.tokens for piece, part in pairs if part is not None and piece.standing is not Standing.PINNED)

    def keep_within(self, segment: int, capacity: int) -> None:
        """Let what belongs to a segment take no more than its capacity."""
        used = sum(self._tokens(n) for n, piece in enumerate(self._pieces) if segment_number(piece.key) == segment)
        self.give_way(used - capacity, segment)

    def give_way(self, excess: int, segment: int | None = None) -> None:
        """Make room for so many tokens, if that can be: the unimportant first, the oldest first, a step at a time."""
        aim = self.tokens - excess
        for standing in (Standing.OBSOLETE, Standing.UNIMPORTANT, Standing.IMPORTANT):
            row = [
                n
                for n, piece in enumerate(self._pieces)
                if piece.standing is standing and segment in (None, segment_number(piece.key))
            ]
            for step in (self._shorten, self._remove):
                for n in sorted(row, key=lambda n: self._pieces[n].at):
                    if self.tokens <= aim:
                        return
                    step(n, self.tokens - aim)

    def clip_pinned(self, excess: int) -> None:
        """Shorten what is pinned, the largest most, when nothing else is left; it never goes."""
        row = [n for n, piece in enumerate(self._pieces) if piece.standing is Standing.PINNED]
        aim = self.tokens - excess
        for n in sorted(row, key=lambda n: -self._tokens(n)):
            if self.tokens <= aim:
                return
            self._shorten(n, self.tokens - aim)

    def _shorten(self, n: int, excess: int) -> None:
        """Clip one thing by so much, or let it be its line."""
        piece, used = self._pieces[n], self._tokens(n)
        room = used - excess
        if piece.clipped is not None and room >= _LEAST_CLIP:
            characters = room * _CHARACTERS_A_TOKEN
            while characters > _LEAST_CLIP:
                part = self._part(piece, piece.clipped(characters), "clipped")
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

    def _put(self, n: int, part: Part | None) -> None:
        self.tokens += (part.tokens if part is not None else 0) - self._tokens(n)
        self._parts[n] = part

    def _part(self, piece: Volatile, text: str, granularity: Granularity) -> Part:
        tokens = self._sizes.size(text) + PER_MESSAGE
        shown = Shown(piece.key, piece.index, granularity, tokens)
        return Part(piece.kind, [Message(role="user", content=text)], tokens, [shown])
