"""The window as a map for a terminal: one cell for so many tokens, with what fills it and what the cache has of it.

A cell is a letter, so that the map says the same without colours: a capital is a token that the view before began with
too, a small letter a new one, a dot is free.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from quire import View
from quire.cli.paint import Paint
from quire.cli.width import width
from quire.cli.words import counted

_FREE = "free"
_KINDS = {
    "system": ("s", "magenta", "system"),
    "preamble": ("p", "red", "preamble"),
    "segment": ("g", "green", "segments"),
    "folded": ("f", "blue", "folded lines"),
    "opening": ("p", "red", "opening"),
    "note": ("n", "green", "notes"),
    "opened": ("o", "cyan", "opened pages"),
    "exchange": ("e", "yellow", "exchanges"),
    _FREE: (".", "dim", "free"),
}
"""The letter, the colour and the name of each kind of piece."""
_OTHER = ("t", "cyan", "tail")
_SIZES = (1, 2, 5)
_MOST_ROWS = 4


class _Span(NamedTuple):
    kind: str
    cached: bool
    tokens: int


def draw_bar(view: View, cells: int, paint: Paint) -> str:
    """The window in one line of so many cells."""
    return _row(_cells(view, cells, _room(view) / cells), paint)


def draw_grid(view: View, paint: Paint, columns: int) -> Iterator[str]:
    """The window in a few lines with a legend, in a terminal of so many columns."""
    size = _cell_size(_room(view), columns * _MOST_ROWS)
    cells = _cells(view, _parts(_room(view), size), size)
    row = _parts(len(cells), _parts(len(cells), columns))
    for start in range(0, len(cells), row):
        yield _row(cells[start : start + row], paint)
    yield from _wrapped(list(_legend(view, size, paint)), columns)


def _legend(view: View, size: int, paint: Paint) -> Iterator[tuple[str, int]]:
    """The entries of the legend, each with its width."""
    shares = view.by_kind()
    shares[_FREE] = max(0, view.budget - view.tokens)
    for kind, tokens in shares.items():
        letter, colour, name = _KINDS.get(kind, _OTHER)
        words = f" {name} {tokens:,}"
        yield paint.colour(colour, letter.upper()) + words, width(letter + words)
    for words in (f"a cell is {counted(size, 'token')}", f"CAPITALS: {view.shared_prefix:,} from the cache"):
        yield paint.dim(words), width(words)


def _wrapped(entries: list[tuple[str, int]], columns: int) -> Iterator[str]:
    line, used = "", 0
    for text, wide in entries:
        if line and used + 3 + wide > columns:
            yield line
            line, used = "", 0
        line, used = (f"{line}   {text}", used + 3 + wide) if line else (text, wide)
    if line:
        yield line


def _cells(view: View, number: int, size: float) -> list[tuple[str, bool]]:
    """For each cell what takes the most of it: the kind, and whether it comes from the cache."""
    spans = list(_spans(view))
    cells = []
    for cell in range(number):
        start, end, place = cell * size, (cell + 1) * size, 0
        most, found = 0.0, (_FREE, False)
        for span in spans:
            overlap = min(end, place + span.tokens) - max(start, place)
            place += span.tokens
            if overlap > most:
                most, found = overlap, (span.kind, span.cached)
        cells.append(found)
    return cells


def _spans(view: View) -> Iterator[_Span]:
    """What stands in the window in order, neighbours of one kind together; what is free last."""
    pieces: list[_Span] = []
    cached = view.shared_prefix
    for part in view.parts:
        known = min(part.tokens, cached)
        cached -= known
        pieces += [_Span(part.kind, True, known), _Span(part.kind, False, part.tokens - known)]
    pieces.append(_Span(_FREE, False, max(0, view.budget - view.tokens)))
    filled = (piece for piece in pieces if piece.tokens)
    for (kind, known_before), run in groupby(filled, key=lambda piece: piece[:2]):
        yield _Span(kind, known_before, sum(piece.tokens for piece in run))


def _row(cells: list[tuple[str, bool]], paint: Paint) -> str:
    row = ""
    for (kind, cached), run in groupby(cells):
        letter, colour, _ = _KINDS.get(kind, _OTHER)
        row += paint.colour(colour, (letter.upper() if cached else letter) * len(list(run)))
    return row


def _room(view: View) -> int:
    return max(view.budget, view.tokens, 1)


def _cell_size(tokens: int, most: int) -> int:
    """The smallest round number of tokens for a cell with which the map has at most so many cells."""
    size = 1
    while True:
        for step in _SIZES:
            if size * step * most >= tokens:
                return size * step
        size *= 10


def _parts(whole: int, size: int) -> int:
    """How many parts of a size a whole has, the last one perhaps smaller."""
    return -(-whole // size)
