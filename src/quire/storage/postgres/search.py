"""The PostgreSQL backend's search index: one table for all contexts of a schema, with terms that quire cut.

PostgreSQL's full-text engine gives the candidates: a document's terms are a `tsvector` with a further term that stands
for its context, so that one GIN index leads straight to the documents of one context that hold a word. How often and
where a phrase stands is read off the document's fields, which are kept as terms between blanks; quire's scorer does
the rest, as on every backend. All of it is derived: what is missing is made anew.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nsmallest
from threading import RLock
from typing import Any, Final, TypeVar

from psycopg import errors

from quire.errors import InvalidOperation, QuireError
from quire.storage.base import MAX_KEY
from quire.storage.postgres.connection import Db, Row, Session
from quire.storage.postgres.migrations import make_search
from quire.storage.postgres.schema import CLEAR_SEARCH
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

T = TypeVar("T")
_MOST_COUNTS = 1_024
_MOST_KNOWN = 256
_WIDE_BYTES = 900_000
"""A `tsvector` holds a megabyte. What has more terms stands under one sign instead, and is looked at every time."""
WIDE = "*"
_MOST_BYTES = 8 << 20

STATE: Final = "SELECT version, identity, reached, serial FROM {q}.search_state WHERE context = %s"
_SIZES: Final = "SELECT block, sizes FROM {q}.search_size WHERE context = %s"
_HOLD: Final = "SELECT 1 FROM {q}.context WHERE id = %s FOR KEY SHARE"
_BEGIN: Final = """INSERT INTO {q}.search_state (context, version, identity, reached, serial)
    VALUES (%s, %s, %b, %s, txid_current()) ON CONFLICT DO NOTHING RETURNING serial"""
_MOVE: Final = """UPDATE {q}.search_state SET version = %s, identity = %b, reached = %s, serial = txid_current()
    WHERE context = %s AND version = %s AND identity = %b AND reached = %s RETURNING serial"""
"""The serial is that of the transaction, so no two states of an index ever have the same."""
_PUT_SIZES: Final = """INSERT INTO {q}.search_size (context, block, sizes)
    SELECT %s, block, sizes FROM unnest(%b::bigint[], %b::bytea[]) AS new (block, sizes)
    ON CONFLICT (context, block) DO UPDATE SET sizes = excluded.sizes"""
_DELETE: Final = "DELETE FROM {q}.search WHERE context = %s AND key = ANY(%b::bigint[])"
VECTOR: Final = """array_to_tsvector(CASE WHEN new.wide THEN ARRAY[%s, %s] ELSE array_append(string_to_array(
        btrim(replace(new.body || new.name || new.description || new.parts, '  ', ' ')), ' '), %s) END)"""
"""What leads to a document that comes in as `new`; takes the context's mark, `WIDE`, and the mark again."""
_INSERT: Final = f"""INSERT INTO {{q}}.search (context, key, terms, body, name, description, parts)
    SELECT %s, key, {VECTOR}, body, name, description, parts
    FROM unnest(%b::bigint[], %b::bool[], %b::text[], %b::text[], %b::text[], %b::text[])
        AS new (key, wide, body, name, description, parts)"""
_MATCHING: Final = "FROM {q}.search WHERE context = %s AND terms @@ %s::tsquery AND ({spans})"
_COUNT: Final = f"SELECT count(*) FROM (SELECT 1 {_MATCHING} LIMIT %s) AS counted"
_FIELDS: Final = f"SELECT key, body, name, description, parts {_MATCHING}"
_BEST: Final = f"""{_FIELDS}
    AND EXISTS (SELECT 1 FROM {{q}}.search_state WHERE context = %s AND reached = {MAX_KEY})"""
"""Nothing, if the index was emptied meanwhile and is not filled again."""

_NOT_THERE = (errors.UndefinedTable, errors.UndefinedColumn)
_NOT_ALLOWED = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)


class PostgresIndexes:
    """The indexes of all contexts in one schema, with what is remembered of them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = RLock()
        self._known: dict[int, tuple[int, Sizes, dict[Any, int]]] = {}

    def current(self, number: int, serial: int) -> tuple[Sizes, dict[Any, int]]:
        """The sizes of a context's documents in this state of its index, and what was counted in it."""
        with self._lock:
            known = self._known.get(number)
        if known is None or known[0] != serial:
            sizes = Sizes()
            sizes.load(dict(self.session.read(_SIZES, (number,))))
            known = (serial, sizes, {})
            self._remember(number, known)
        return known[1], known[2]

    def moved(self, number: int, serial: int, sizes: Sizes) -> None:
        """Note what was just written."""
        self._remember(number, (serial, sizes, {}))

    def _remember(self, number: int, known: tuple[int, Sizes, dict[Any, int]]) -> None:
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[number] = known


class PostgresIndex:
    """The index of one context, by its number."""

    def __init__(self, indexes: PostgresIndexes, number: Callable[[], int]) -> None:
        self._all = indexes
        self._session = indexes.session
        self._number = number
        self._serial: int | None = None

    def standing(self) -> Standing | None:
        with self._sound():
            rows = self._session.read(STATE, (self._number(),))
        self._serial = rows[0][3] if rows else 0
        return Standing(*rows[0][:3]) if rows else None

    def sizes(self) -> Blocks:
        return self._current()[0].blocks

    def holds(self, key: int) -> bool:
        return self._current()[0].get(key) >= 0

    def amount(self, spans: Sequence[Span]) -> Amount:
        return self._current()[0].amount(spans)

    def count(self, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        number = self._number()
        known = self._current()[1]
        asked = (phrase, tuple(spans), most)
        if asked not in known:
            if len(known) > _MOST_COUNTS:
                known.clear()
            with self._sound():
                known[asked] = self._count(number, phrase, spans, most) if spans else 0
        return known[asked]

    def best(self, wanted: Wanted, spans: Sequence[Span], score: Score, limit: int) -> list[Found]:
        phrases = [_Looked(phrase) for phrase in wanted.phrases]
        every, some = len(wanted.every), len(wanted.some)

        def scored(rows: Iterator[Row]) -> list[Found]:
            found = []
            for row in rows:
                here = _Here(row, phrases)
                if all(map(here.has, range(every))) and (not some or any(map(here.has, range(every, every + some)))):
                    found.append((-score(here), here.rowid))
            return [(-value, key) for value, key in nsmallest(limit, found)]

        number = self._number()
        if not spans or not number:
            return []
        with self._sound():
            found = self._session.stream(*_query(_BEST, number, _matching(wanted), spans, (number,)), scored)
        if not found and ((stands := self.standing()) is None or stands.reached < MAX_KEY):
            raise IndexLost("The search index was emptied and is made anew.")
        return found

    def update(
        self, seen: Standing | None, then: Standing, documents: Iterable[Document], gone: Iterable[int] = ()
    ) -> bool:
        taken, left = list(documents), list(gone)
        number = self._number()
        if not number:
            return False

        def write(db: Db) -> bool:
            serial = self._move(db, number, seen, then)
            if serial is None:
                return False
            sizes = self._sizes(db, number)
            self._write(db, number, sizes, taken, left)
            moved.append((serial, sizes))
            return True

        moved: list[tuple[int, Sizes]] = []
        with self._sound():
            done = self._session.transact(write)
        if not done:
            return False
        self._serial, sizes = moved[-1]
        self._all.moved(number, self._serial, sizes)
        return True

    def clear(self) -> None:
        number = self._number()

        def write(db: Db) -> None:
            for sql in CLEAR_SEARCH:
                db.execute(self._session.sql(sql), (number,))

        with self._sound():
            self._session.transact(write)
        self._serial = None

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """A block that ends in `IndexLost` if the index turns out to be missing or damaged; then it was emptied.

        If this role or server may not write it, or not even read it, the block ends in `IndexSealed`.
        """
        try:
            yield
        except Misshapen as error:
            self.clear()
            raise IndexLost(f"The search index was damaged ({error}) and is made anew.") from error
        except QuireError as error:
            if isinstance(error.__cause__, _NOT_THERE):
                with allowed():
                    make_search(self._session)
                raise IndexLost("The tables of the search index were missing and are made anew.") from error
            with allowed():
                raise

    def _current(self) -> tuple[Sizes, dict[Any, int]]:
        """What is known of the state that was looked at last: whoever asks looks where the index stands first."""
        if self._serial is None:
            self.standing()
        with self._sound():
            return self._all.current(self._number(), self._serial or 0)

    def _move(self, db: Db, number: int, seen: Standing | None, then: Standing) -> int | None:
        """Go on to where the index will stand; None if it does not stand at `seen`, or its context is gone."""
        sql, new = self._session.sql, (then.version, then.identity, then.reached)
        if db.execute(sql(_HOLD), (number,)).fetchone() is None:
            return None
        if seen is None:
            row = db.execute(sql(_BEGIN), (number, *new)).fetchone()
        else:
            row = db.execute(sql(_MOVE), (*new, number, seen.version, seen.identity, seen.reached)).fetchone()
        return row[0] if row else None

    def _sizes(self, db: Db, number: int) -> Sizes:
        """The sizes as they are now, in the transaction that holds the state."""
        sizes = Sizes()
        sizes.load(dict(db.execute(self._session.sql(_SIZES), (number,), binary=True).fetchall()))
        return sizes

    def _write(self, db: Db, number: int, sizes: Sizes, documents: Sequence[Document], gone: Sequence[int]) -> None:
        sql = self._session.sql
        old = [key for key in (*gone, *(document.key for document in documents)) if sizes.get(key) >= 0]
        blocks = {sizes.put(key, -1) for key in old}
        if old:
            db.execute(sql(_DELETE), (number, old))
        blocks.update(sizes.put(document.key, len(document.body)) for document in documents)
        term = mark(number)
        for rows in portions(documents):
            db.execute(sql(_INSERT), (number, term, WIDE, term, *map(list, zip(*rows, strict=True))))
        if blocks:
            numbers = sorted(blocks)
            db.execute(sql(_PUT_SIZES), (number, numbers, [sizes.block(block) for block in numbers]))

    def _count(self, number: int, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        asked = _term(phrase.terms[-1], prefix=phrase.prefix)
        if len(phrase.terms) == 1:
            certain = self._session.read(*_query(_COUNT, number, asked, spans, (most,)))[0][0]
            if certain >= most:
                return int(certain)
            return min(int(certain) + self._held(number, _quoted(WIDE), phrase, spans, most), most)
        both = " & ".join([*map(_quoted, phrase.terms[:-1]), asked])
        return self._held(number, f"({both}) | {_quoted(WIDE)}", phrase, spans, most)

    def _held(self, number: int, match: str, phrase: Phrase, spans: Sequence[Span], most: int) -> int:
        """How many of the matching documents hold the phrase, looked at one by one."""
        looked = [_Looked(phrase)]

        def count(rows: Iterator[Row]) -> int:
            found = 0
            for row in rows:
                found += _Here(row, looked).has(0)
                if found >= most:
                    break
            return found

        return self._matching(number, match, spans, count)

    def _matching(
        self,
        number: int,
        match: str,
        spans: Sequence[Span],
        take: Callable[[Iterator[Row]], T],
    ) -> T:
        return self._session.stream(*_query(_FIELDS, number, match, spans), take)


@contextmanager
def allowed() -> Iterator[None]:
    """A block in which what may not be done ends in `IndexSealed`."""
    try:
        yield
    except QuireError as error:
        if isinstance(error.__cause__, _NOT_ALLOWED) or isinstance(error, InvalidOperation):  # that is a snapshot
            raise IndexSealed(f"The search index cannot be used here. {error}") from error
        raise


class _Looked:
    """A phrase as it is looked for in a field: every term stands between two blanks of its own."""

    def __init__(self, phrase: Phrase) -> None:
        text = "".join(f" {term} " for term in phrase.terms)
        self._text = text[:-1] if phrase.prefix else text
        self._in_row = len(phrase.terms) > 1

    def places(self, fields: Row) -> tuple[Sequence[int], ...]:
        """Where it stands in each field, one entry a place."""
        if not self._in_row:
            return tuple(range(field.count(self._text)) for field in fields)
        return tuple(map(self._rows, fields))

    def _rows(self, field: str) -> list[int]:
        """The places, those that overlap included."""
        found, at = [], field.find(self._text)
        while at >= 0:
            found.append(at)
            at = field.find(self._text, at + 1)
        return found


class _Here:
    """The document at hand while it is scored."""

    def __init__(self, row: Row, phrases: Sequence[_Looked]) -> None:
        self.rowid: int = row[0]
        self._fields = row[1:]
        self._phrases = phrases
        self._places: dict[int, tuple[Sequence[int], ...]] = {}

    def phrase_locations(self, phrase: int, /) -> tuple[Sequence[int], ...]:
        places = self._places.get(phrase)
        if places is None:
            places = self._places[phrase] = self._phrases[phrase].places(self._fields)
        return places

    def has(self, phrase: int) -> bool:
        return any(self.phrase_locations(phrase))


def portions(documents: Iterable[Document]) -> Iterator[list[Row]]:
    """Rows to insert, in statements of bearable size."""
    rows: list[Row] = []
    size = 0
    for document in documents:
        fields = ["".join(f" {term} " for term in field) for field in document.fields]
        length = sum(map(len, fields))
        wide = length > _WIDE_BYTES // 4 and _width(document) > _WIDE_BYTES
        rows.append((document.key, wide, *fields))
        size += length
        if size > _MOST_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _width(document: Document) -> int:
    """The bytes of a document's distinct terms, with what a `tsvector` adds to each."""
    return sum(len(term.encode()) + 8 for term in {term for field in document.fields for term in field})


def mark(number: int) -> str:
    """The term that stands for a context: no term of a text holds such a sign."""
    return f"#{number}"


def _query(
    text: str, number: int, match: str, spans: Sequence[Span], more: tuple[int, ...] = ()
) -> tuple[str, list[Any]]:
    stretches = " OR ".join(["key BETWEEN %s AND %s"] * len(spans))
    ends = [end for span in spans for end in span]
    return text.replace("{spans}", stretches), [number, f"{_quoted(mark(number))} & ({match})", *ends, *more]


def _matching(wanted: Wanted) -> str:
    """What is wanted in the words of a tsquery: documents that hold the terms, wherever they stand."""
    groups = [f"({_terms(phrase)})" for phrase in wanted.every]
    if wanted.some:
        groups.append(f"({' | '.join(f'({_terms(phrase)})' for phrase in wanted.some)})")
    return f"({' & '.join(groups)}) | {_quoted(WIDE)}"


def _terms(phrase: Phrase) -> str:
    last = _term(phrase.terms[-1], prefix=phrase.prefix)
    return " & ".join(dict.fromkeys([*map(_quoted, phrase.terms[:-1]), last]))


def _term(term: str, *, prefix: bool) -> str:
    return f"{_quoted(term)}:*" if prefix else _quoted(term)


def _quoted(term: str) -> str:
    doubled = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
