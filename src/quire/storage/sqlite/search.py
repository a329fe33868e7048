"""The search index of the SQLite backend: one FTS5 table for all contexts of a file, with terms that quire tokenized.

A document's row id is its context's number and its page's key in one integer, as in the other tables. So the pages of
a viewer are ranges of row ids. The FTS5 table stores no text. Two more tables hold, per context, the state that the
index reflects and the sizes of its documents, 512 per row. All of this is derived data: missing or damaged parts
are created again.

FTS5's own integrity check does not know which documents a table without text should hold: a table that lost its list of
segments looks empty to it. So `FtsCheck` computes a checksum over all terms in the index and over the documents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from heapq import merge
from itertools import islice
from operator import mul
from typing import Any

import apsw

from quire.errors import short_repr
from quire.storage.base import KEY_BITS, MAX_KEY
from quire.storage.search_protocol import (
    FIELDS,
    Amount,
    Blocks,
    Document,
    IndexLost,
    IndexQuery,
    IndexReadOnly,
    IndexState,
    MalformedIndex,
    Phrase,
    Score,
    ScoredKey,
    Sizes,
    Span,
    join_terms,
)
from quire.storage.sqlite.file_check import find_damaged, remove_from_schema
from quire.storage.sqlite.schema import SEARCH, context_numbers, reading, transaction

_MAX_COUNTS = 1_024
_STATE = "SELECT version, identity, reached, serial FROM search_state WHERE id = ?"
_MOVE = """INSERT INTO search_state (id, version, identity, reached, serial) VALUES (?, ?, ?, ?, random() >> 1)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, identity = excluded.identity,
    reached = excluded.reached, serial = serial + 1 RETURNING serial"""
_SIZES = "SELECT id, sizes FROM search_size WHERE id BETWEEN ? AND ?"
_PUT_SIZES = "INSERT INTO search_size (id, sizes) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET sizes = excluded.sizes"
_DELETE = "DELETE FROM search WHERE rowid = ?"
_STORED = "SELECT id FROM search_docsize WHERE id BETWEEN ? AND ?"
_TABLES = (
    "search_data",
    "search_idx",
    "search_content",
    "search_docsize",
    "search_config",
    "search_state",
    "search_size",
)
_HASH_SIZE = f"INSERT INTO search (search, rank) VALUES ('hashsize', {8 << 20})"
"""Lets FTS5 collect up to 8 MB of new terms: one segment for a batch of pages takes half the time of several."""
_SIZE = "SELECT sz FROM search_docsize WHERE id = ?"
_INSERT = "INSERT INTO search (rowid, body, name, description, parts) VALUES (?, ?, ?, ?, ?)"
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)"
_BEST = """SELECT quire_score(search) AS score, rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY score DESC, rowid LIMIT ?"""


_PRIME = 1_000_003
_SIGNS = tuple(ord(field[0]) for field in FIELDS)
"""The number of a field in the checksum: the code of its first letter."""
_TERMS = "CREATE VIRTUAL TABLE temp.search_terms USING fts5vocab(main, search, instance)"
_TERM_SUMS = f"""SELECT term, coalesce(sum(doc % {_PRIME} * unicode(col) + offset) FILTER (
        WHERE (doc >> {KEY_BITS}) IN (SELECT id FROM temp.search_checked)), 0), count(*)
    FROM temp.search_terms GROUP BY term"""
_FIELD_SIZES = "SELECT id & ?, sz FROM search_docsize WHERE id BETWEEN ? AND ?"
_LOST_LEAVES = f"""WITH leaf AS MATERIALIZED (SELECT id >> 37 AS segment, id & {0x7FFF_FFFF} AS number,
        hex(substr(block, 3, 2)) <> printf('%04X', length(block)) AS begins
    FROM search_data WHERE id BETWEEN {1 << 37} AND {(1 << 53) - 1} AND id & {63 << 31} = 0)
    SELECT segment, number FROM leaf JOIN (SELECT segment, min(number) AS first FROM leaf GROUP BY segment)
        USING (segment) WHERE begins AND number > first
    EXCEPT SELECT segid, pgno >> 1 FROM search_idx"""
"""The leaves of the index on which a term begins and to which no row of search_idx leads, except the first leaf of each
segment. The third and fourth byte of a leaf are the position of its list of terms: its end if no term begins on it."""

DAMAGED = (apsw.SQLError, apsw.CorruptError, MalformedIndex)
"""The errors of a damaged index; FTS5 raises either of the first two."""


class FtsIndexes:
    """The indexes of all contexts in one file.

    Every change of an index, by any process, gives it a new serial number, also after it was emptied. So a value that
    was read at one serial number is valid while the number stays the same.
    """

    def __init__(self, db: apsw.Connection, lock: AbstractContextManager[None]) -> None:
        self.db = db
        self.lock = lock
        self.cache: dict[int, tuple[int, Sizes, dict[Any, int]]] = {}
        """For each context: a serial number, and the sizes of documents and the counts of phrases read at it."""

    def clear(self, number: int) -> None:
        """Remove all documents of a context, in the open transaction."""
        base = number << KEY_BITS
        self.db.executemany(_DELETE, self.db.execute(_STORED, (base, base | MAX_KEY)).fetchall())
        self.db.execute("DELETE FROM search_state WHERE id = ?", (number,))
        self.db.execute("DELETE FROM search_size WHERE id BETWEEN ? AND ?", (base, base | MAX_KEY))
        self.cache.pop(number, None)

    @contextmanager
    def repairing(self) -> Iterator[None]:
        """Run a block; if the index is missing or damaged, empty it and raise `IndexLost`.

        Raises `IndexReadOnly` if the index cannot be written.
        """
        try:
            yield
        except apsw.ReadOnlyError as error:
            raise _read_only(error) from error
        except DAMAGED as error:
            try:
                self.reset()
            except apsw.ReadOnlyError:
                raise _read_only(error) from error
            raise IndexLost(f"The search index was damaged ({error}) and was emptied.") from error

    def reset(self) -> None:
        """Empty all indexes and create the tables again, also if they are damaged. The next search fills them."""
        damaged = find_damaged(self.db, _TABLES)
        with transaction(self.db):
            for name in ("search", *damaged):  # `search` has no pages of its own, and FTS5 may be unable to drop it
                remove_from_schema(self.db, name)
            for table in _TABLES:
                self.db.execute(f"DROP TABLE IF EXISTS {table}")
            self.db.execute(SEARCH)
        self.cache.clear()

    def state(self, number: int) -> tuple[IndexState, int] | None:
        """Return the state of the index of a context and its serial number. Raises `MalformedIndex`."""
        row = self.db.execute(_STATE, (number,)).fetchone()
        if row is None:
            return None
        version, identity, reached, serial = row
        if type(identity) is not bytes or not all(type(value) is int for value in (version, reached, serial)):
            raise MalformedIndex(f"the state of context {number} is {short_repr(row)}")
        return IndexState(version, identity, reached), serial

    def read_sizes(self, number: int) -> Sizes:
        """Read the sizes of a context's documents without the cache. Raises `MalformedIndex`."""
        base = number << KEY_BITS
        rows = self.db.execute(_SIZES, (base, base | MAX_KEY))
        return Sizes({row[0] & MAX_KEY: row[1] for row in rows})

    def find_damage(self) -> str:
        """Check that the counts of FTS5, the sizes of quire and the leaves of the index agree; return the damage."""
        try:
            with reading(self.db):
                return self._find_damage()
        except (apsw.Error, MalformedIndex) as error:
            return str(error)

    def _find_damage(self) -> str:
        for (number,) in self.db.execute("SELECT id FROM search_state"):
            self.state(number)
        numbers = context_numbers(self.db, "search_size")
        known = sum(self.read_sizes(number).amount([(0, MAX_KEY)]).documents for number in numbers)
        documents = terms = 0
        for (sizes,) in self.db.execute("SELECT sz FROM search_docsize"):
            documents += 1
            terms += sum(_varints(sizes))
        if documents != known or (documents, terms) != self.totals():
            return "the counts of its documents do not agree"
        lost = self.db.execute(f"SELECT count(*) FROM ({_LOST_LEAVES})").get
        return f"{lost:,} of its leaves cannot be reached" if lost else ""

    def totals(self) -> tuple[int, int]:
        """Return the number of documents and of terms as FTS5 stores them."""
        block: Any = self.db.execute("SELECT block FROM search_data WHERE id = 1").get
        found = list(_varints(block))
        return (found[0], sum(found[1:])) if found else (0, 0)

    def current(self, number: int) -> tuple[Sizes, dict[Any, int]]:
        """Return the current sizes of a context's documents, and a cache for counts of phrases."""
        row = self.state(number)
        serial = row[1] if row else 0
        known = self.cache.get(number)
        if known is None or known[0] != serial:
            known = self.cache[number] = (serial, self.read_sizes(number), {})
        return known[1:]


class FtsIndex:
    """The index of one context."""

    def __init__(self, indexes: FtsIndexes, number: Callable[[], int]) -> None:
        self._all = indexes
        self._db = indexes.db
        self._number = number

    def state(self) -> IndexState | None:
        with self._all.lock, self._all.repairing():
            row = self._all.state(self._number())
            return row[0] if row else None

    def sizes(self) -> Blocks:
        with self._all.lock, self._all.repairing():
            return self._all.current(self._number())[0].blocks

    def amount(self, spans: Sequence[Span]) -> Amount:
        with self._all.lock, self._all.repairing():
            return self._all.current(self._number())[0].amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        with self._all.lock, self._all.repairing():
            number = self._number()
            known = self._all.current(number)[1]
            question = (phrase, tuple(spans), most)
            if question not in known:
                if len(known) > _MAX_COUNTS:
                    known.clear()
                known[question] = self._count(number << KEY_BITS, _expression(phrase), spans, most)
            return known[question]

    def best(self, wanted: IndexQuery, spans: Sequence[Span], score: Score, limit: int) -> list[ScoredKey]:
        match = _match(wanted)
        with self._all.lock, self._all.repairing():
            base = self._number() << KEY_BITS
            state = self.state()
            if state is None or state.reached < MAX_KEY:
                raise IndexLost("The search index was emptied and is not filled yet.")
            function: Any = score  # SQLite's row object has the methods of `ScoredDocument`
            self._db.register_fts5_function("quire_score", function)
            found = [
                [(row[0], row[1] & MAX_KEY) for row in self._db.execute(_BEST, (match, base | a, base | b, limit))]
                for a, b in spans
            ]
        if len(found) == 1:
            return found[0]
        return list(islice(merge(*found, key=lambda item: (-item[0], item[1])), limit))

    def update(
        self, seen: IndexState | None, then: IndexState, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        new = list(documents)
        with self._all.lock, self._all.repairing():
            with transaction(self._db):
                number = self._number()
                if not number or self.state() != seen:
                    return False
                sizes = self._all.current(number)[0]
                self._all.cache.pop(number, None)  # its sizes change before the commit, which can fail
                if seen is None:
                    self._db.execute(_HASH_SIZE)
                self._write(number, sizes, new, gone)
                serial: Any = self._db.execute(_MOVE, (number, then.version, then.identity, then.reached)).get
            self._all.cache[number] = (serial, sizes, {})
            return True

    def clear(self) -> None:
        with self._all.lock, self._all.repairing(), transaction(self._db):
            self._all.clear(self._number())

    def reset(self) -> None:
        """Empty the indexes of all contexts: they share one FTS5 table, so damage concerns all of them."""
        with self._all.lock, self._all.repairing():
            self._all.reset()

    def _write(self, number: int, sizes: Sizes, documents: Sequence[Document], gone: Iterable[int]) -> None:
        base = number << KEY_BITS
        old = [key for key in (*gone, *(document.key for document in documents)) if sizes.get(key) >= 0]
        blocks = {sizes.put(key, -1) for key in old}
        if old:
            self._db.executemany(_DELETE, ((base | key,) for key in old))
        rows = ((base | document.key, *map(join_terms, document.fields)) for document in documents)
        self._db.executemany(_INSERT, rows)
        for document in documents:  # FTS5 has counted the terms
            counts = self._db.execute(_SIZE, (base | document.key,)).get
            blocks.add(sizes.put(document.key, next(_varints(counts), 0)))
        self._db.executemany(_PUT_SIZES, ((base | block, sizes.block(block)) for block in sorted(blocks)))

    def _count(self, base: int, match: str, spans: Sequence[Span], most: int) -> int:
        found = 0
        for first, last in spans:
            if found < most:
                found += self._db.execute(_COUNT, (match, base | first, base | last, most - found)).get
        return found


class FtsCheck:
    """One check of the indexes in a file against their documents."""

    def __init__(self, indexes: FtsIndexes, number: Callable[[str], int]) -> None:
        self._all = indexes
        self._db = indexes.db
        self._number = number
        self._expected: dict[int, tuple[int, int]] = {}
        """For each context: the serial number of its index, and the checksum of its terms."""

    def matches(self, context: str, state: IndexState, documents: Iterable[Document]) -> bool:
        with self._all.lock:
            number = self._number(context)
            serial = self._serial(number, state)
        if serial is None:
            return True
        sizes: dict[int, tuple[int, ...]] = {}
        checksum = 0
        for document in documents:
            sizes[document.key] = tuple(map(len, document.fields))
            checksum += _checksum(number << KEY_BITS | document.key, document)
        with self._all.lock, reading(self._db):
            if self._serial(number, state) != serial:
                return True
            is_same = self._has_sizes(number, sizes)
        if is_same:
            self._expected[number] = (serial, checksum)
        return is_same

    def find_damage(self) -> str:
        with self._all.lock, reading(self._db):
            try:
                self._db.execute(_TERMS)
                return self._compare_terms()
            except (apsw.SQLError, apsw.CorruptError) as error:
                return str(error)
            except UnicodeDecodeError as error:
                return f"it holds a term that is no text ({short_repr(error.object)})"

    def reset(self) -> None:
        with self._all.lock, self._all.repairing():
            self._all.reset()

    def _serial(self, number: int, state: IndexState) -> int | None:
        """Return the serial number of the index of a context if it is at this state."""
        try:
            row = self._all.state(number)
        except MalformedIndex:  # `FtsIndexes.find_damage` reports it
            return None
        return row[1] if row and row[0] == state else None

    def _has_sizes(self, number: int, sizes: dict[int, tuple[int, ...]]) -> bool:
        """Return whether the sizes of all fields, in FTS5 and in quire's own table, are these."""
        base = number << KEY_BITS
        rows = self._db.execute(_FIELD_SIZES, (MAX_KEY, base, base | MAX_KEY))
        if {key: tuple(_varints(found)) for key, found in rows} != sizes:
            return False
        try:
            bodies = dict(self._all.read_sizes(number).items())
        except MalformedIndex:
            return False
        return bodies == {key: min(found[0], Sizes.MOST) for key, found in sizes.items()}

    def _compare_terms(self) -> str:
        rows: list[Any] = self._db.execute("SELECT id, serial FROM search_state").fetchall()
        serials: dict[int, int] = dict(rows)
        expected = {
            number: value for number, (serial, value) in self._expected.items() if serials.get(number) == serial
        }
        self._db.execute("CREATE TEMP TABLE search_checked (id INTEGER PRIMARY KEY)")
        self._db.executemany("INSERT INTO search_checked VALUES (?)", ((number,) for number in expected))
        checksum = count = 0
        for term, value, occurrences in self._db.execute(_TERM_SUMS):
            checksum += hash(term) * value
            count += occurrences
        if count != self._all.totals()[1] or checksum != sum(expected.values()):
            return "its terms are not those of its documents"
        return ""


def _checksum(row: int, document: Document) -> int:
    """Return the checksum of the terms of a document, as `_TERM_SUMS` computes it."""
    total = 0
    for sign, field in zip(_SIGNS, document.fields, strict=True):
        hashes = list(map(hash, field))
        total += row % _PRIME * sign * sum(hashes) + sum(map(mul, hashes, range(len(hashes))))
    return total


def _varints(value: object) -> Iterator[int]:
    """Yield the integers in a row of FTS5, which may be damaged: seven bits per byte, the highest first."""
    number = 0
    for byte in islice(value, 1 << 20) if isinstance(value, bytes) else ():
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            yield number
            number = 0


def _expression(phrase: Phrase) -> str:
    """Return a phrase as an FTS5 expression. Terms have letters and digits only, so they contain no operator."""
    return f'"{" ".join(phrase.terms)}"{" *" if phrase.prefix else ""}'


def _match(wanted: IndexQuery) -> str:
    """Return a query as an FTS5 expression, with the phrases in the order of their numbers."""
    groups = [" AND ".join(map(_expression, wanted.every))] if wanted.every else []
    if wanted.some:
        groups.append(f"({' OR '.join(map(_expression, wanted.some))})")
    if wanted.also:  # every selected document matches this; it makes FTS5 locate the phrases
        groups.append(f"({' OR '.join(map(_expression, (*wanted.some, *wanted.also)))})")
    return " AND ".join(groups)


def _read_only(error: Exception) -> IndexReadOnly:
    return IndexReadOnly(f"The search index cannot be written here ({error}).")
