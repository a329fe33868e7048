"""A map of the model's window for a terminal: each cell is a number of tokens, its letter the kind of content.

The letters carry the meaning without colours: a capital is cached (the view before started with the same tokens), a
small letter is new, a dot is free.
"""

from collections.abc import Iterator
from itertools import groupby
from math import ceil

from quire import View
from quire.cli.terminal import Paint, count_of, width

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
"""The letter, the colour and the name of each kind of content."""
_OTHER = ("t", "cyan", "tail")
_STEPS = (1, 2, 5)
_MAX_ROWS = 4


def draw_bar(view: View, cells: int, paint: Paint) -> str:
    """Return the map as one line of `cells` cells."""
    return _row(_cells(view, cells, _total(view) / cells), paint)


def draw_map(view: View, paint: Paint, columns: int) -> Iterator[str]:
    """Yield the lines of the map and its legend for a terminal of `columns` columns."""
    size = _cell_size(_total(view), columns * _MAX_ROWS)
    cells = _cells(view, ceil(_total(view) / size), size)
    row = ceil(len(cells) / ceil(len(cells) / columns))
    for start in range(0, len(cells), row):
        yield _row(cells[start : start + row], paint)
    yield from _wrap(list(_legend(view, size, paint)), columns)


def _legend(view: View, size: int, paint: Paint) -> Iterator[tuple[str, int]]:
    """Yield the entries of the legend, each with its width."""
    tokens_of = view.by_kind()
    tokens_of[_FREE] = max(0, view.budget - view.tokens)
    for kind, tokens in tokens_of.items():
        letter, colour, name = _KINDS.get(kind, _OTHER)
        words = f" {name} {tokens:,}"
        yield paint.colour(colour, letter.upper()) + words, width(letter + words)
    for words in (f"a cell is {count_of(size, 'token')}", f"CAPITALS: {view.shared_prefix:,} from the cache"):
        yield paint.dim(words), width(words)


def _wrap(entries: list[tuple[str, int]], columns: int) -> Iterator[str]:
    line, used = "", 0
    for text, wide in entries:
        if line and used + 3 + wide > columns:
            yield line
            line, used = "", 0
        line, used = (f"{line}   {text}", used + 3 + wide) if line else (text, wide)
    if line:
        yield line


def _cells(view: View, number: int, size: float) -> list[tuple[str, bool]]:
    """Return for each cell the kind that takes most of it, and whether it is cached."""
    spans = list(_spans(view))
    cells = []
    for cell in range(number):
        start, end, place = cell * size, (cell + 1) * size, 0
        most, content = 0.0, (_FREE, False)
        for kind, cached, tokens in spans:
            overlap = min(end, place + tokens) - max(start, place)
            place += tokens
            if overlap > most:
                most, content = overlap, (kind, cached)
        cells.append(content)
    return cells


def _spans(view: View) -> Iterator[tuple[str, bool, int]]:
    """Yield the content of the window in order, neighbours of one kind together, free space last.

    Each span is a kind, whether it is cached, and its tokens.
    """
    pieces: list[tuple[str, bool, int]] = []
    cached = view.shared_prefix
    for part in view.parts:
        known = min(part.tokens, cached)
        cached -= known
        pieces += [(part.kind, True, known), (part.kind, False, part.tokens - known)]
    pieces.append((_FREE, False, max(0, view.budget - view.tokens)))
    filled = (piece for piece in pieces if piece[2])
    for (kind, is_cached), run in groupby(filled, key=lambda piece: piece[:2]):
        yield kind, is_cached, sum(tokens for _, _, tokens in run)


def _row(cells: list[tuple[str, bool]], paint: Paint) -> str:
    row = ""
    for (kind, cached), run in groupby(cells):
        letter, colour, _ = _KINDS.get(kind, _OTHER)
        row += paint.colour(colour, (letter.upper() if cached else letter) * len(list(run)))
    return row


def _total(view: View) -> int:
    return max(view.budget, view.tokens, 1)


def _cell_size(tokens: int, limit: int) -> int:
    """Return the smallest round number of tokens for a cell such that the map has at most `limit` cells."""
    size = 1
    while True:
        for step in _STEPS:
            if size * step * limit >= tokens:
                return size * step
        size *= 10
