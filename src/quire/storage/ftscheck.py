"""Examining the SQLite backend's search index: against itself, and term by term against the documents it should hold.

FTS5's own integrity check cannot know what a table without text should hold: one that lost its list of segments is an
empty one to it. So every place of every term is added up in the index, and added up again from the documents.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import mul
from typing import Any, NamedTuple

import apsw

from quire.errors import shown
from quire.storage.base import KEY_BITS, MAX_KEY
from quire.storage.fts import FtsIndexes
from quire.storage.searching import FIELDS, Document, Misshapen, Sizes, Standing

_PRIME = 1_000_003
_TERMS = "CREATE VIRTUAL TABLE temp.search_terms USING fts5vocab(main, search, instance)"
_SUMS = f"""SELECT term, sum(doc % {_PRIME} * unicode(col) + offset), count(*)
    FROM temp.search_terms WHERE {{among}} GROUP BY term"""
_AMONG = f"(doc >> {KEY_BITS}) IN (SELECT id FROM temp.search_examined)"
_SIGNS = tuple(map(ord, (field[0] for field in FIELDS)))
"""What stands for a field in the sums: the first letters differ."""
_LEAVES = f"""WITH leaf AS MATERIALIZED (SELECT id >> 37 AS segment, id & {0x7FFF_FFFF} AS number,
        hex(substr(block, 3, 2)) <> printf('%04X', length(block)) AS begins
    FROM search_data WHERE id BETWEEN {1 << 37} AND {(1 << 53) - 1} AND id & {63 << 31} = 0)
    SELECT segment, number FROM leaf JOIN (SELECT segment, min(number) AS first FROM leaf GROUP BY segment)
        USING (segment) WHERE begins AND number > first
    EXCEPT SELECT segid, pgno >> 1 FROM search_idx"""
"""Leaves of the tree on which terms begin, the first of each segment aside, that nothing leads to. A leaf's third and
fourth byte say where the list of its terms is: at its end if it has none."""
_TOTALS = "SELECT block FROM search_data WHERE id = 1"
_KEPT = "SELECT id & ?, sz FROM search_docsize WHERE id BETWEEN ? AND ?"


class _Noted(NamedTuple):
    """What the terms of a context add up to, in one state of its index."""

    serial: int
    total: int


class FtsCheck:
    """One examination of the indexes in a file."""

    def __init__(self, indexes: FtsIndexes, number: Callable[[str], int]) -> None:
        self._all = indexes
        self._db = indexes.db
        self._number = number
        self._noted: dict[int, _Noted] = {}

    def differs(self, context: str, at: Standing, documents: Iterable[Document]) -> str:
        with self._all.guard:
            number = self._number(context)
            serial = _serial(self._all, number, at)
        if serial is None:
            return ""
        sizes: dict[int, tuple[int, ...]] = {}
        total = 0
        for document in documents:
            sizes[document.key] = tuple(map(len, document.fields))
            total += _added(number << KEY_BITS | document.key, document)
        with self._all.guard:
            if _serial(self._all, number, at) != serial:
                return ""
            found = _unlike(self._kept(number), sizes) or self._unlike_sizes(number, sizes)
        if not found:
            self._noted[number] = _Noted(serial, total)
        return found

    def rest(self) -> str:
        with self._all.guard, _one_moment(self._db):
            try:
                return self._unlike_documents()
            except (apsw.SQLError, apsw.CorruptError) as error:
                return str(error)
            except UnicodeDecodeError as error:  # a bit of a term of several bytes
                return f"it holds a term that is no text ({shown(error.object)})"

    def make_anew(self) -> None:
        with self._all.guard, self._all.sound():
            self._all.make_anew()

    def _kept(self, number: int) -> dict[int, tuple[int, ...]]:
        """The sizes of the fields of every document, as FTS5 keeps them."""
        base = number << KEY_BITS
        rows = self._db.execute(_KEPT, (MAX_KEY, base, base | MAX_KEY))
        return {key: tuple(_numbers(sizes)) for key, sizes in rows}

    def _unlike_sizes(self, number: int, there: dict[int, tuple[int, ...]]) -> str:
        """Whether what quire itself notes of the bodies is right."""
        try:
            noted = self._all.read_sizes(number)
        except Misshapen as error:
            return str(error)
        wrong = set(noted.keys()) ^ there.keys()
        wrong.update(key for key, sizes in there.items() if noted.get(key) != min(sizes[0], Sizes.MOST))
        return f"it notes {len(wrong):,} bodies of another length than they have" if wrong else ""

    def _unlike_documents(self) -> str:
        rows: list[Any] = self._db.execute("SELECT id, serial FROM search_state").fetchall()
        standing: dict[int, int] = dict(rows)
        examined = {number: noted for number, noted in self._noted.items() if standing.get(number) == noted.serial}
        expected = sum(noted.total for noted in examined.values())
        if set(examined) == set(standing):
            found, count = self._sums("1")
        else:
            self._db.execute("CREATE TEMP TABLE search_examined (id INTEGER PRIMARY KEY)")
            self._db.executemany("INSERT INTO search_examined VALUES (?)", ((number,) for number in examined))
            found, _ = self._sums(_AMONG)
            count = self._sums("1")[1]
        documents, terms = _totals(self._db)
        if count != terms:
            return f"it leads to {count:,} places of terms where {terms:,} are noted in {documents:,} documents"
        return "" if found == expected else "it leads to other terms than its documents have"

    def _sums(self, among: str) -> tuple[int, int]:
        """What the terms add up to, and how many places they have in all."""
        total = places = 0
        for term, value, count in self._db.execute(_SUMS.format(among=among)):
            total += hash(term) * value
            places += count
        return total, places


def unlike_itself(db: apsw.Connection) -> str:
    """Whether what FTS5 notes of documents one by one is what it notes of all of them; "" if it is."""
    noted = [0, 0]
    for (sizes,) in db.execute("SELECT sz FROM search_docsize"):
        noted[0] += 1
        noted[1] += sum(_numbers(sizes))
    documents, terms = _totals(db)
    if noted == [documents, terms]:
        lost = db.execute(f"SELECT count(*) FROM ({_LEAVES})").get
        return f"nothing leads to {lost:,} of its leaves" if lost else ""
    return f"it notes {documents:,} documents with {terms:,} terms, and has {noted[0]:,} with {noted[1]:,}"


def _serial(indexes: FtsIndexes, number: int, at: Standing) -> int | None:
    """The serial number of the index of a context if it stands there."""
    try:
        row = indexes.state(number)
    except Misshapen:  # the examination of the file tells
        return None
    return row[3] if row and Standing(*row[:3]) == at else None


def _unlike(kept: dict[int, tuple[int, ...]], there: dict[int, tuple[int, ...]]) -> str:
    if len(kept.keys() & there.keys()) < max(len(kept), len(there)):
        return f"it holds {len(kept):,} pages where {len(there):,} can be found"
    others = sum(kept[key] != sizes for key, sizes in there.items())
    return f"it holds {others:,} pages with more or fewer terms than they have" if others else ""


def _added(row: int, document: Document) -> int:
    """What the terms of a document add up to: as `_SUMS` has it, term by term."""
    total = 0
    for sign, field in zip(_SIGNS, document.fields, strict=True):
        hashes = list(map(hash, field))
        total += row % _PRIME * sign * sum(hashes) + sum(map(mul, hashes, range(len(hashes))))
    return total


def _totals(db: apsw.Connection) -> tuple[int, int]:
    """The number of documents and of terms, as FTS5 keeps them."""
    block: Any = db.execute(_TOTALS).get
    found = list(_numbers(block or b""))
    return (found[0], sum(found[1:])) if found else (0, 0)


def _numbers(value: object) -> Iterator[int]:
    """The numbers in one of FTS5's rows, whatever is left of it: seven bits a byte, the highest first."""
    number = 0
    for byte in islice(value, 1 << 20) if isinstance(value, bytes) else ():
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            yield number
            number = 0


@contextmanager
def _one_moment(db: apsw.Connection) -> Iterator[None]:
    """A state of the file that no writer changes, with its terms as a table; nothing of it stays."""
    db.execute("BEGIN")
    try:
        db.execute(_TERMS)
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
