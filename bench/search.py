"""Search over 100,000 pages against a bare FTS5 query of the same index, and the cost of indexing."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import quire
from bench.figures import Figure
from bench.measure import NoTokens
from quire.context import Context

PAGES = 100_000
WORDS = 200
QUERIES = {
    "one rare word": (-777,),
    "two words": (40, 55),
    "three words": (30, 80, 120),
    "a common word": (1,),
    "a common and a rarer word": (2, 300),
    "some of five words": (200, 900, 2_000, 5_000, 9_000),
}
_RANGE = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rank LIMIT 10"


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of search."""
    return [*index(folder, min(PAGES, size)), *chinese(folder)]


def index(folder: Path, pages: int) -> list[Figure]:
    """Write, index and search many pages of about a kilobyte, with words as rare as in real text."""
    chance = random.Random(7)
    worth = [1 / (rank + 2) for rank in range(20_000)]
    ctx = quire.open(folder / "search.db", counter=NoTokens())
    texts = [_text(chance, worth, number) for number in range(pages)]
    writing = _seconds(lambda: [ctx.pages.create_detail_page("page", "", text, "mem-0") for text in texts])
    indexing = _seconds(lambda: ctx.find(_word(-777)))
    written = sum(len(text) for text in texts)
    figures = [
        Figure("indexing a page against writing it", indexing / writing, "×", 0.5, f"{indexing / pages * 1e6:,.0f} µs"),
        Figure("index a byte of text", _bytes(ctx, "search_%") / written, "bytes", 0.8, f"{pages:,} pages of 1 kB"),
        _size(ctx, written),
        *(_search(ctx, name, ranks, pages) for name, ranks in QUERIES.items()),
    ]
    ctx.close()
    return figures


def chinese(folder: Path) -> list[Figure]:
    """Search words of two characters: the index returns the same hits as a scan."""
    chance = random.Random(3)
    signs = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面"
    ctx = quire.open(folder / "chinese.db", counter=NoTokens())
    texts = {}
    for _ in range(2_000):
        text = "".join(chance.choices(signs + "，。 a1", k=60))
        texts[ctx.pages.create_detail_page("x", "", text, "mem-0")] = text
    wrong = 0
    for _ in range(200):
        word = "".join(chance.choices(signs, k=2))
        found = {hit.index for hit in ctx.find(word, limit=3_000)}
        wrong += found != {page for page, text in texts.items() if word in text}
    ctx.close()
    return [Figure("two-character Chinese queries that differ from a scan", wrong, "", 0, "of 200, 2,000 pages")]


def _search(ctx: Context, name: str, ranks: Sequence[int], pages: int) -> Figure:
    storage: Any = ctx.pages.storage
    query = " ".join(map(_word, ranks))
    words = [f'"{word}"' for word in query.split()]
    match = " OR ".join(words) if name.startswith("some") else " ".join(words)

    def bare() -> object:
        return storage._db.execute(_RANGE, (match,)).fetchall()

    floor, ours = [], []
    for _ in range(9):  # alternate: the speed of the machine varies
        floor.append(_seconds(bare))
        ours.append(_seconds(lambda: ctx.find(query)))
    least, took = statistics.median(floor) * 1e3, statistics.median(ours) * 1e3
    note = f"{took:.2f} ms against {least:.2f} ms"
    return Figure(
        f"find in {pages:,} pages, {name}: beyond 1 ms, × bare FTS5", max(took - 1, 0) / least, "×", 1.5, note
    )


def _text(chance: random.Random, worth: list[float], number: int) -> str:
    return " ".join(map(_word, (*chance.choices(range(len(worth)), worth, k=WORDS), -number)))


@cache
def _word(rank: int) -> str:
    """Return a word of letters: the more common, the shorter. A number below 0 gives a word of one page only."""
    number, letters = abs(rank) + 5, "q" if rank < 0 else ""
    while number:
        number, place = divmod(number, 24)
        letters += "anarasatedelenerilinitofonorourestindalo"[place : place + 2]
    return letters


def _size(ctx: Context, written: int) -> Figure:
    """Return the bytes of the whole store per byte of text."""
    tables = ("body", "page%", "journal", "search_%")
    texts, headers, journal, terms = (_bytes(ctx, table) / written for table in tables)
    note = f"texts {texts:.2f}, headers of pages {headers:.2f}, journal {journal:.2f}, index {terms:.2f}"
    return Figure("a store with journal and index, a byte of text", _bytes(ctx, "%") / written, "bytes", 1.6, note)


def _bytes(ctx: Context, tables: str) -> int:
    """Return the bytes of the tables and indexes with names that match a pattern of `LIKE`."""
    storage: Any = ctx.pages.storage
    return int(storage._db.execute("SELECT sum(pgsize) FROM dbstat WHERE name LIKE ?", (tables,)).get or 0)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
