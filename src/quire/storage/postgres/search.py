"""The search index of the PostgreSQL backend: one table for all contexts of a schema. quire supplies the terms.

PostgreSQL's full-text engine finds the candidates. The terms of a document are a `tsvector` with an extra term for its
context, so one GIN index finds the documents of one context that have a word. The positions of a phrase are found in
the fields of the document, which are stored as terms between spaces. quire's scorer ranks the candidates, as on every
backend. The index is derived from the records: a missing part is created again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from threading import RLock
from typing import Any, Final

from quire.errors import InvalidOperation, QuireError
from quire.storage.base import MAX_KEY
from quire.storage.postgres.connection import Db, Row, Session
from quire.storage.postgres.schema import CLEAR_SEARCH, DENIED, UNDEFINED, create_search_tables, sqlstate
from quire.storage.search_protocol import (
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
)

_MAX_COUNTS = 1_024
_MAX_CACHED = 256
_WIDE_BYTES = 900_000
"""A `tsvector` holds at most a megabyte. A document with more terms gets the term `WIDE` and is always a candidate."""
WIDE = "*"
_MAX_BYTES = 8 << 20

STATE: Final = "SELECT version, identity, reached, serial FROM {q}.search_state WHERE context = %s"
_SIZES: Final = "SELECT block, sizes FROM {q}.search_size WHERE context = %s"
_LOCK: Final = "SELECT 1 FROM {q}.context WHERE id = %s FOR KEY SHARE"
_START: Final = """INSERT INTO {q}.search_state (context, version, identity, reached, serial)
    VALUES (%s, %s, %b, %s, txid_current()) ON CONFLICT DO NOTHING RETURNING serial"""
_MOVE: Final = """UPDATE {q}.search_state SET version = %s, identity = %b, reached = %s, serial = txid_current()
    WHERE context = %s AND version = %s AND identity = %b AND reached = %s RETURNING serial"""
"""The serial number is that of the transaction, so no two states of an index have the same one."""
_PUT_SIZES: Final = """INSERT INTO {q}.search_size (context, block, sizes)
    SELECT %s, block, sizes FROM unnest(%b::bigint[], %b::bytea[]) AS new (block, sizes)
    ON CONFLICT (context, block) DO UPDATE SET sizes = excluded.sizes"""
_DELETE: Final = "DELETE FROM {q}.search WHERE context = %s AND key = ANY(%b::bigint[])"
VECTOR: Final = """array_to_tsvector(CASE WHEN new.wide THEN ARRAY[%s, %s] ELSE array_append(string_to_array(
        btrim(replace(new.body || new.name || new.description || new.parts, '  ', ' ')), ' '), %s) END)"""
"""The terms of a row of `new`. Its parameters are the context's term, `WIDE`, and the context's term again."""
_INSERT: Final = f"""INSERT INTO {{q}}.search (context, key, terms, body, name, description, parts)
    SELECT %s, key, {VECTOR}, body, name, description, parts
    FROM unnest(%b::bigint[], %b::bool[], %b::text[], %b::text[], %b::text[], %b::text[])
        AS new (key, wide, body, name, description, parts)"""
_MATCHING: Final = "FROM {q}.search WHERE context = %s AND terms @@ %s::tsquery AND ({spans})"
_COUNT: Final = f"SELECT count(*) FROM (SELECT 1 {_MATCHING} LIMIT %s) AS counted"
_FIELDS: Final = f"SELECT key, body, name, description, parts {_MATCHING}"
_BEST: Final = f"""{_FIELDS}
    AND EXISTS (SELECT 1 FROM {{q}}.search_state WHERE context = %s AND reached = {MAX_KEY})"""
"""No rows if the index was emptied meanwhile and is not complete."""

_Cached = tuple[int, Sizes, dict[Any, int]]
"""The serial number of a state of an index, the sizes of its documents, and counts of phrases."""


class PostgresIndexes:
    """A cache for the indexes of all contexts in one schema."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = RLock()
        self._cache: dict[int, _Cached] = {}

    def current(self, number: int, serial: int) -> tuple[Sizes, dict[Any, int]]:
        """Return the sizes of a context's documents, and cached counts, for this state of its index."""
        with self._lock:
            cached = self._cache.get(number)
        if cached is None or cached[0] != serial:
            cached = self.put(number, serial, Sizes(dict(self.session.read(_SIZES, (number,)))))
        return cached[1], cached[2]

    def put(self, number: int, serial: int, sizes: Sizes) -> _Cached:
        """Cache the sizes of a state that was read or written just now."""
        with self._lock:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            cached = self._cache[number] = (serial, sizes, {})
        return cached


class PostgresIndex:
    """The index of one context. `number` returns the context's number, or 0."""

    def __init__(self, indexes: PostgresIndexes, number: Callable[[], int]) -> None:
        self._indexes = indexes
        self._session = indexes.session
        self._number = number
        self._serial: int | None = None

    def state(self) -> IndexState | None:
        with self._recover_index():
            rows = self._session.read(STATE, (self._number(),))
        self._serial = rows[0][3] if rows else 0
        return IndexState(*rows[0][:3]) if rows else None

    def sizes(self) -> Blocks:
        return self._current()[0].blocks

    def amount(self, spans: Sequence[Span]) -> Amount:
        return self._current()[0].amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        number = self._number()
        counts = self._current()[1]
        query = (phrase, tuple(spans), most)
        if query not in counts:
            if len(counts) > _MAX_COUNTS:
                counts.clear()
            with self._recover_index():
                counts[query] = self._count(number, phrase, spans, most) if spans else 0
        return counts[query]

    def best(self, wanted: IndexQuery, spans: Sequence[Span], score: Score, limit: int) -> list[ScoredKey]:
        phrases = [_PhraseFinder(phrase) for phrase in wanted.phrases]
        every, some = len(wanted.every), len(wanted.some)

        def rank(rows: Iterator[Row]) -> list[ScoredKey]:
            found = []
            for row in rows:
                match = _Match(row, phrases)
                if all(map(match.has, range(every))) and (not some or any(map(match.has, range(every, every + some)))):
                    found.append((-score(match), match.rowid))
            return [(-value, key) for value, key in nsmallest(limit, found)]

        number = self._number()
        if not spans or not number:
            return []
        with self._recover_index():
            found = self._session.stream(*_query(_BEST, number, _make_tsquery(wanted), spans, (number,)), rank)
        if not found and ((state := self.state()) is None or state.reached < MAX_KEY):
            raise IndexLost("The search index was emptied and is built again.")
        return found

    def update(
        self, seen: IndexState | None, then: IndexState, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        added, removed = list(documents), list(gone)
        number = self._number()
        if not number:
            return False

        def write(db: Db) -> bool:
            serial = self._move(db, number, seen, then)
            if serial is None:
                return False
            stored = db.execute(self._session.sql(_SIZES), (number,), binary=True).fetchall()
            sizes = Sizes(dict(stored))
            self._write(db, number, sizes, added, removed)
            states.append((serial, sizes))
            return True

        states: list[tuple[int, Sizes]] = []
        with self._recover_index():
            is_moved = self._session.transact(write)
        if not is_moved:
            return False
        self._serial, sizes = states[-1]
        self._indexes.put(number, self._serial, sizes)
        return True

    def clear(self) -> None:
        number = self._number()

        def write(db: Db) -> None:
            for sql in CLEAR_SEARCH:
                db.execute(self._session.sql(sql), (number,))

        with self._recover_index():
            self._session.transact(write)
        self._serial = None

    @contextmanager
    def _recover_index(self) -> Iterator[None]:
        """Run a block. If the index is missing or damaged, empty it and raise `IndexLost`.

        Raises `IndexReadOnly` if this role or server may not write or read the index.
        """
        try:
            yield
        except MalformedIndex as error:
            self.clear()
            raise IndexLost(f"The search index was damaged ({error}) and is built again.") from error
        except QuireError as error:
            with checking_access():
                if sqlstate(error) not in UNDEFINED:
                    raise
                create_search_tables(self._session)
            raise IndexLost("The tables of the search index were missing. They were created again.") from error

    def _current(self) -> tuple[Sizes, dict[Any, int]]:
        """Return the cached data of the state that `state` read last."""
        if self._serial is None:
            self.state()
        with self._recover_index():
            return self._indexes.current(self._number(), self._serial or 0)

    def _move(self, db: Db, number: int, seen: IndexState | None, then: IndexState) -> int | None:
        """Move the state from `seen` to `then` and return its serial; None if another writer or a drop was first."""
        sql, new = self._session.sql, (then.version, then.identity, then.reached)
        if db.execute(sql(_LOCK), (number,)).fetchone() is None:
            return None
        if seen is None:
            row = db.execute(sql(_START), (number, *new)).fetchone()
        else:
            row = db.execute(sql(_MOVE), (*new, number, seen.version, seen.identity, seen.reached)).fetchone()
        return row[0] if row else None

    def _write(self, db: Db, number: int, sizes: Sizes, documents: Sequence[Document], gone: Sequence[int]) -> None:
        sql = self._session.sql
        old = [key for key in (*gone, *(document.key for document in documents)) if sizes.get(key) >= 0]
        blocks = {sizes.put(key, -1) for key in old}
        if old:
            db.execute(sql(_DELETE), (number, old))
        blocks.update(sizes.put(document.key, len(document.body)) for document in documents)
        term = context_term(number)
        for rows in batch_rows(documents):
            db.execute(sql(_INSERT), (number, term, WIDE, term, *map(list, zip(*rows, strict=True))))
        if blocks:
            numbers = sorted(blocks)
            db.execute(sql(_PUT_SIZES), (number, numbers, [sizes.block(block) for block in numbers]))

    def _count(self, number: int, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        if len(phrase.terms) == 1:
            exact = self._session.read(*_query(_COUNT, number, _terms(phrase), spans, (most,)))[0][0]
            if exact >= most:
                return int(exact)
            return min(int(exact) + self._count_rows(number, _quote_term(WIDE), phrase, spans, most), most)
        return self._count_rows(number, f"({_terms(phrase)}) | {_quote_term(WIDE)}", phrase, spans, most)

    def _count_rows(self, number: int, match: str, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        """Return how many of the candidates have the phrase, by reading each one."""
        finders = [_PhraseFinder(phrase)]

        def count(rows: Iterator[Row]) -> int:
            found = 0
            for row in rows:
                found += _Match(row, finders).has(0)
                if found >= most:
                    break
            return found

        return self._session.stream(*_query(_FIELDS, number, match, spans), count)


@contextmanager
def checking_access() -> Iterator[None]:
    """Run a block. Raises `IndexReadOnly` if the role, the server or a snapshot does not allow it."""
    try:
        yield
    except QuireError as error:
        if sqlstate(error) in DENIED or isinstance(error, InvalidOperation):  # a snapshot raises `InvalidOperation`
            raise IndexReadOnly(f"The search index cannot be used here. {error}") from error
        raise


class _PhraseFinder:
    """Finds a phrase in the fields of a row. Each term has a space of its own on both sides."""

    def __init__(self, phrase: Phrase) -> None:
        text = "".join(f" {term} " for term in phrase.terms)
        self._text = text[:-1] if phrase.prefix else text
        self._has_several = len(phrase.terms) > 1

    def find(self, fields: Row) -> tuple[Sequence[int], ...]:
        """Return the positions of the phrase in each field. For one term, only their count is correct."""
        if not self._has_several:
            return tuple(range(field.count(self._text)) for field in fields)
        return tuple(map(self._find_all, fields))

    def _find_all(self, field: str) -> list[int]:
        """Return all positions, including those that overlap."""
        found, at = [], field.find(self._text)
        while at >= 0:
            found.append(at)
            at = field.find(self._text, at + 1)
        return found


class _Match:
    """A candidate while it is scored."""

    def __init__(self, row: Row, phrases: Sequence[_PhraseFinder]) -> None:
        self.rowid: int = row[0]
        self._fields = row[1:]
        self._phrases = phrases
        self._found: dict[int, tuple[Sequence[int], ...]] = {}

    def phrase_locations(self, phrase: int, /) -> tuple[Sequence[int], ...]:
        found = self._found.get(phrase)
        if found is None:
            found = self._found[phrase] = self._phrases[phrase].find(self._fields)
        return found

    def has(self, phrase: int) -> bool:
        return any(self.phrase_locations(phrase))


def batch_rows(documents: Iterable[Document]) -> Iterator[list[Row]]:
    """Yield the rows of documents in batches that fit one statement each."""
    rows: list[Row] = []
    size = 0
    for document in documents:
        fields = ["".join(f" {term} " for term in field) for field in document.fields]
        length = sum(map(len, fields))
        wide = length > _WIDE_BYTES // 4 and _width(document) > _WIDE_BYTES
        rows.append((document.key, wide, *fields))
        size += length
        if size > _MAX_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _width(document: Document) -> int:
    """Return the bytes of a document's distinct terms, with what a `tsvector` adds to each."""
    return sum(len(term.encode()) + 8 for term in {term for field in document.fields for term in field})


def context_term(number: int) -> str:
    """Return the term of a context. No term of a text has a `#`."""
    return f"#{number}"


def _query(
    text: str, number: int, match: str, spans: Sequence[Span], more: tuple[int, ...] = ()
) -> tuple[str, list[Any]]:
    ranges = " OR ".join(["key BETWEEN %s AND %s"] * len(spans))
    ends = [end for span in spans for end in span]
    return text.replace("{spans}", ranges), [number, f"{_quote_term(context_term(number))} & ({match})", *ends, *more]


def _make_tsquery(wanted: IndexQuery) -> str:
    """Return a tsquery for documents that have the terms, at any position."""
    groups = [f"({_terms(phrase)})" for phrase in wanted.every]
    if wanted.some:
        groups.append(f"({' | '.join(f'({_terms(phrase)})' for phrase in wanted.some)})")
    return f"({' & '.join(groups)}) | {_quote_term(WIDE)}"


def _terms(phrase: Phrase) -> str:
    """Return a tsquery for the terms of a phrase."""
    *others, last = map(_quote_term, phrase.terms)
    return " & ".join(dict.fromkeys([*others, f"{last}:*" if phrase.prefix else last]))


def _quote_term(term: str) -> str:
    doubled = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
