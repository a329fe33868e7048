"""The SQLite backend's search index: one FTS5 table for all contexts of a file, with terms that quire cut.

A document's row id is its context's number and its page's key in one integer, as in the other tables, so a viewer's
pages are stretches of row ids. The table keeps no text. Beside it stand, per context, the state it reflects and the
sizes of its documents, 512 in a row. All of it is derived: what is missing or damaged is made anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from heapq import merge
from itertools import islice
from typing import Any

import apsw

from quire.storage.base import KEY_BITS, MAX_KEY
from quire.storage.search_protocol import (
    Amount,
    Blocks,
    Document,
    Found,
    IndexLost,
    IndexSealed,
    Misshapen,
    Phrase,
    Score,
    Sizes,
    Span,
    Standing,
    Wanted,
)
from quire.storage.sqlite.schema import SEARCH

_MOST_COUNTS = 1_024
_STATE = "SELECT version, identity, reached, serial FROM search_state WHERE id = ?"
_MOVE = """INSERT INTO search_state (id, version, identity, reached, serial) VALUES (?, ?, ?, ?, random() >> 1)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, identity = excluded.identity,
    reached = excluded.reached, serial = serial + 1 RETURNING serial"""
_SIZES = "SELECT id, sizes FROM search_size WHERE id BETWEEN ? AND ?"
_PUT_SIZES = "INSERT INTO search_size (id, sizes) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET sizes = excluded.sizes"
_DELETE = "DELETE FROM search WHERE rowid = ?"
_KEPT = "SELECT id FROM search_docsize WHERE id BETWEEN ? AND ?"
_UNLIST = "DELETE FROM sqlite_schema WHERE name = 'search'"
_SHADOWS = ("search_data", "search_idx", "search_content", "search_docsize", "search_config")
_INSERT = "INSERT INTO search (rowid, body, name, description, parts) VALUES (?, ?, ?, ?, ?)"
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)"
_BEST = """SELECT quire_score(search) AS score, rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ?
    ORDER BY score DESC, rowid LIMIT ?"""


DAMAGED = (apsw.SQLError, apsw.CorruptError, Misshapen)
"""What a damaged index ends in: FTS5 answers with either of the first two."""


class FtsIndexes:
    """The indexes of all contexts in one file.

    The serial number of an index is another one after every change, whoever made it and even if the index was emptied
    between two looks: what was read at one serial number holds as long as it is the same.
    """

    def __init__(self, db: apsw.Connection, guard: AbstractContextManager[None]) -> None:
        self.db = db
        self.guard = guard
        self._known: dict[int, tuple[int, Sizes, dict[Any, int]]] = {}

    def ask(self, score: Score) -> None:
        """Let SQLite ask this function for scores from now on."""
        asked: Any = score  # SQLite's view of a row has what `Place` asks for
        self.db.register_fts5_function("quire_score", asked)

    def clear(self, number: int) -> None:
        """Take out all documents of a context, in the open transaction."""
        base = number << KEY_BITS
        self.db.executemany(_DELETE, self.db.execute(_KEPT, (base, base | MAX_KEY)).fetchall())
        self.db.execute("DELETE FROM search_state WHERE id = ?", (number,))
        self.db.execute("DELETE FROM search_size WHERE id BETWEEN ? AND ?", (base, base | MAX_KEY))
        self._known.pop(number, None)

    @contextmanager
    def sound(self) -> Iterator[None]:
        """A block that ends in `IndexLost` if the index turns out to be missing or damaged; then it was emptied.

        If it cannot be written, the block ends in `IndexSealed`.
        """
        try:
            yield
        except apsw.ReadOnlyError as error:
            raise _sealed(error) from error
        except DAMAGED as error:
            try:
                self.make_anew()
            except apsw.ReadOnlyError:
                raise _sealed(error) from error
            raise IndexLost(f"The search index was damaged ({error}) and is made anew.") from error

    def make_anew(self) -> None:
        """Empty the whole index: what is asked for next fills it again."""
        with self.db:
            self._drop()
            for table in ("search_state", "search_size"):
                self.db.execute(f"DROP TABLE IF EXISTS {table}")
            self.db.execute(SEARCH)
        self._known.clear()

    def _drop(self) -> None:
        """Take the FTS5 table away. One that FTS5 itself cannot open any more is taken from the list of tables."""
        try:
            with self.db:
                self.db.execute("DROP TABLE IF EXISTS search")
        except DAMAGED:
            self.db.execute("PRAGMA writable_schema = ON")
            try:
                self.db.execute(_UNLIST)
            finally:
                self.db.execute("PRAGMA writable_schema = RESET")
        for table in _SHADOWS:
            self.db.execute(f"DROP TABLE IF EXISTS {table}")

    def state(self, number: int) -> tuple[int, bytes, int, int] | None:
        """Where the index of a context stands, and its serial number. Raises `Misshapen`."""
        row = self.db.execute(_STATE, (number,)).fetchone()
        if row is None:
            return None
        version, identity, reached, serial = row
        if type(identity) is not bytes or not all(type(value) is int for value in (version, reached, serial)):
            raise Misshapen(f"it does not say where context {number} stands")
        return version, identity, reached, serial

    def sizes(self, number: int) -> Sizes:
        """The sizes of a context's documents as they are kept now."""
        return self._current(number)[1]

    def read_sizes(self, number: int) -> Sizes:
        """The same, read anew. Raises `Misshapen`."""
        sizes = Sizes()
        base = number << KEY_BITS
        rows = self.db.execute(_SIZES, (base, base | MAX_KEY))
        sizes.load({row[0] & MAX_KEY: row[1] for row in rows})
        return sizes

    def counts(self, number: int) -> dict[Any, int]:
        """What was counted in this state of the index."""
        return self._current(number)[2]

    def moved(self, number: int, serial: int, sizes: Sizes) -> None:
        """Note what was just written."""
        self._known[number] = (serial, sizes, {})

    def forget(self, number: int) -> None:
        """Read the sizes anew next time."""
        self._known.pop(number, None)

    def _current(self, number: int) -> tuple[int, Sizes, dict[Any, int]]:
        row = self.state(number)
        serial = row[3] if row else 0
        known = self._known.get(number)
        if known is None or known[0] != serial:
            known = self._known[number] = (serial, self.read_sizes(number), {})
        return known


class FtsIndex:
    """The index of one context, by its number."""

    def __init__(self, indexes: FtsIndexes, number: Callable[[], int]) -> None:
        self._all = indexes
        self._db = indexes.db
        self._number = number

    def standing(self) -> Standing | None:
        with self._all.guard, self._all.sound():
            row = self._all.state(self._number())
            return Standing(*row[:3]) if row else None

    def sizes(self) -> Blocks:
        with self._all.guard, self._all.sound():
            return self._all.sizes(self._number()).blocks

    def holds(self, key: int) -> bool:
        with self._all.guard, self._all.sound():
            return self._all.sizes(self._number()).get(key) >= 0

    def amount(self, spans: Sequence[Span]) -> Amount:
        with self._all.guard, self._all.sound():
            return self._all.sizes(self._number()).amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        with self._all.guard, self._all.sound():
            number = self._number()
            known = self._all.counts(number)
            asked = (phrase, tuple(spans), most)
            if asked not in known:
                if len(known) > _MOST_COUNTS:
                    known.clear()
                known[asked] = self._count(number << KEY_BITS, _expression(phrase), spans, most)
            return known[asked]

    def best(self, wanted: Wanted, spans: Sequence[Span], score: Score, limit: int) -> list[Found]:
        match = _matching(wanted)
        with self._all.guard, self._all.sound():
            base = self._number() << KEY_BITS
            stands = self.standing()
            if stands is None or stands.reached < MAX_KEY:
                raise IndexLost("The search index was emptied and is made anew.")
            self._all.ask(score)
            found = [
                [(row[0], row[1] & MAX_KEY) for row in self._db.execute(_BEST, (match, base | a, base | b, limit))]
                for a, b in spans
            ]
        if len(found) == 1:
            return found[0]
        return list(islice(merge(*found, key=lambda item: (-item[0], item[1])), limit))

    def update(
        self, seen: Standing | None, then: Standing, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        taken = list(documents)
        with self._all.guard, self._all.sound():
            self._db.execute("BEGIN IMMEDIATE")
            number = 0
            try:
                number = self._number()
                if not number or self.standing() != seen:
                    self._db.execute("ROLLBACK")
                    return False
                sizes = self._all.sizes(number)
                self._write(number, sizes, taken, gone)
                serial: Any = self._db.execute(_MOVE, (number, then.version, then.identity, then.reached)).get
                self._db.execute("COMMIT")
                self._all.moved(number, serial, sizes)
                return True
            except BaseException:
                self._all.forget(number)
                _roll_back(self._db)
                raise

    def clear(self) -> None:
        with self._all.guard, self._all.sound():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._all.clear(self._number())
                self._db.execute("COMMIT")
            except BaseException:
                _roll_back(self._db)
                raise

    def make_anew(self) -> None:
        """Empty the indexes of all contexts: they are one table, and what is wrong with one is wrong with that."""
        with self._all.guard, self._all.sound():
            self._all.make_anew()

    def _write(self, number: int, sizes: Sizes, documents: Sequence[Document], gone: Iterable[int]) -> None:
        base = number << KEY_BITS
        old = [key for key in (*gone, *(document.key for document in documents)) if sizes.get(key) >= 0]
        blocks = {sizes.put(key, -1) for key in old}
        if old:
            self._db.executemany(_DELETE, ((base | key,) for key in old))
        blocks.update(sizes.put(document.key, len(document.body)) for document in documents)
        rows = ((base | document.key, *map(" ".join, document.fields)) for document in documents)
        self._db.executemany(_INSERT, rows)
        self._db.executemany(_PUT_SIZES, ((base | block, sizes.block(block)) for block in sorted(blocks)))

    def _count(self, base: int, match: str, spans: Sequence[Span], most: int) -> int:
        found = 0
        for first, last in spans:
            if found < most:
                found += self._db.execute(_COUNT, (match, base | first, base | last, most - found)).get
        return found


def _expression(phrase: Phrase) -> str:
    """A phrase in FTS5's words. Terms hold letters and digits only, so nothing in them is an operator."""
    return f'"{" ".join(phrase.terms)}"{" *" if phrase.prefix else ""}'


def _matching(wanted: Wanted) -> str:
    """What is wanted in FTS5's words; the phrases stand in the order of their numbers."""
    groups = [" AND ".join(map(_expression, wanted.every))] if wanted.every else []
    if wanted.some:
        groups.append(f"({' OR '.join(map(_expression, wanted.some))})")
    if wanted.also:  # true of every document that is left: it brings nothing in and lets its phrases be located
        groups.append(f"({' OR '.join(map(_expression, (*wanted.some, *wanted.also)))})")
    return " AND ".join(groups)


def _sealed(error: Exception) -> IndexSealed:
    return IndexSealed(f"The search index cannot be written here ({error}).")


def _roll_back(db: apsw.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")
