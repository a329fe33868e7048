"""Examining the SQLite backend's search index: against itself, and term by term against the documents it should hold.

FTS5's own integrity check cannot know what a table without text should hold: one that lost its list of segments is an
empty one to it. So every place of every term is added up in the index, and added up again from the documents.

The upkeep of an SQLite file: copied while in use, examined below the level of contexts, cleared of old bytes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from errno import EIO, ENOSPC
from itertools import islice
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from quire.errors import Busy, Corrupt, short_repr
from quire.storage.base import FAMILIES, IMMUTABLE, JOURNAL, KEY_BITS, MAX_KEY, Symptom
from quire.storage.search_protocol import FIELDS, Document, Misshapen, Sizes, Standing
from quire.storage.sqlite.forks import Shares
from quire.storage.sqlite.search import FtsIndexes

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
                return f"it holds a term that is no text ({short_repr(error.object)})"

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


_STEP = 2_000
_MOST_LINES = 100
_FROM_BACKUP = "Restore a backup, or migrate() what can still be read into a new store."


def copy_file(source: Path, target: Path, report: Callable[[int], None] | None) -> list[str]:
    """Copy an SQLite file that others write to, as it is at one moment, and check the copy; what is wrong with it.

    What is derived and damaged is made anew in the copy. Raises `Corrupt`, and `OSError` if the copy cannot be written.
    """
    with closing(apsw.Connection(str(source))) as reading, closing(apsw.Connection(str(target))) as writing:
        reading.set_busy_timeout(5_000)
        reading.execute("BEGIN")
        reading.execute(
            "SELECT 1 FROM sqlite_schema"
        ).fetchone()  # fixes the moment: nothing makes the copy start again
        with _full_disk():
            _copy_pages(reading, writing, report)
        reading.execute("ROLLBACK")
        with _full_disk():
            found = _mended(writing, source)
            writing.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return found


def _copy_pages(reading: apsw.Connection, writing: apsw.Connection, report: Callable[[int], None] | None) -> None:
    size: Any = reading.pragma("page_size")
    with writing.backup("main", reading, "main") as copy:
        while not copy.done:
            copy.step(_STEP)
            if report is not None:
                report((copy.page_count - copy.remaining) * size)


@contextmanager
def _full_disk() -> Iterator[None]:
    """A block in which only the copy is written: SQLite's error does not say to which file."""
    try:
        yield
    except apsw.FullError as error:
        raise OSError(ENOSPC, "the disk is full") from error
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_WRITE:
            raise
        raise OSError(EIO, "the disk does not take it") from error


def _mended(db: apsw.Connection, source: Path) -> list[str]:
    """Make anew what is derived and damaged in a copy; what was, and contexts that nothing leads to."""
    lines = _integrity(db)
    search = [line for line in lines if _is_search(line)]
    order = [line for line in lines if not _is_search(line)]
    found: list[str] = []
    if search:
        FtsIndexes(db, nullcontext()).make_anew()
        found.append(f"search index: {search[0]}. It is empty in the copy; the next search fills it again.")
    if order and all("index" in line for line in order):
        db.execute("REINDEX")
        found.append(f"file: {order[0]}. The order of pages was made anew in the copy.")
    left = _integrity(db) if lines else []
    if left:
        raise Corrupt(f"The copy of {str(source)!r} is damaged, as its original is: {left[0]}. Run doctor().")
    lost = (symptom for symptom in _orphans(db, repair=False) if symptom.code == "head_lost")
    return [*found, *(f"{symptom.where}: {symptom.text}" for symptom in lost)]


def examine_file(db: apsw.Connection, indexes: FtsIndexes, *, repair: bool) -> list[Symptom]:
    """Everything that is wrong with the file itself: its structure, rows that nobody owns, the search index."""
    try:
        lines = _integrity(db)
        return [
            *_structure(db, [line for line in lines if not _is_search(line)], repair),
            *_orphans(db, repair),
            *_search(db, indexes, [line for line in lines if _is_search(line)], repair),
        ]
    except apsw.CorruptError as error:
        return [_damaged(str(error))]


def scrub_file(db: apsw.Connection, shares: Shares, indexes: FtsIndexes) -> None:
    """Take out shared rows that nobody reads any more, then write the whole file anew: freed space keeps old bytes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        shares.sweep_unread()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    try:
        db.execute("INSERT INTO search (search) VALUES ('optimize')")  # terms of deleted ones go when parts are merged
    except (apsw.SQLError, apsw.CorruptError):
        indexes.make_anew()
    try:
        db.execute("VACUUM")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Busy(f"{db.filename!r} is in use by others, perhaps readers: retry when they are done.") from error


def _integrity(db: apsw.Connection) -> list[str]:
    """What SQLite finds wrong with the file, its search index included; nothing if all is well."""
    try:
        rows = db.execute(f"PRAGMA integrity_check({_MOST_LINES})").fetchall()
    except apsw.CorruptError as error:
        return [str(error)]
    except apsw.SQLError as error:  # FTS5 cannot open its own table, which ends the look at the others too
        if not _is_search(str(error)) and _opens_search(db):
            raise
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0").fetchall()
        rows = [
            (f"table search: {error}",),
            *(row for (name,) in tables for row in db.execute(f"PRAGMA integrity_check({name})")),
        ]
    return [line for (text,) in rows for line in str(text).splitlines() if line and line != "ok"]


def _opens_search(db: apsw.Connection) -> bool:
    try:
        db.execute("SELECT 1 FROM search LIMIT 0")
    except apsw.SQLError:
        return False
    return True


def _is_search(line: str) -> bool:
    return "fts5" in line.lower() or "search" in line


def _damaged(text: str) -> Symptom:
    return Symptom(code="file_damaged", severity="error", where="file", text=f"{text}.", remedy=_FROM_BACKUP)


def _structure(db: apsw.Connection, lines: list[str], repair: bool) -> Iterator[Symptom]:
    """Damage to the tables; an order that disagrees with its table is made anew."""
    if lines and repair and all("index" in line for line in lines):
        db.execute("REINDEX")
        left = [line for line in _integrity(db) if not _is_search(line)]
        if not left:
            yield Symptom(
                code="order_damaged", severity="error", where="file", text=f"{lines[0]} and more.", repaired=True
            )
            return
        lines = left
    for line in lines:
        if "index" in line:
            remedy = "repair=True makes the order of pages anew."
            yield Symptom(code="order_damaged", severity="error", where="file", text=f"{line}.", remedy=remedy)
        else:
            yield _damaged(line)


def _orphans(db: apsw.Connection, repair: bool) -> Iterator[Symptom]:
    """Rows of contexts that no name and no fork leads to. One with its history has lost its head only: it stays."""
    named = {row[0] for row in db.execute("SELECT id FROM context")}
    for number, name in db.execute("SELECT id, name FROM context WHERE name = '' OR typeof(name) <> 'text'").fetchall():
        text = f"A context has its records (number {number}), but its name is {name!r}: nothing leads to it."
        yield Symptom(code="head_lost", severity="error", where="table context", text=text, remedy=_FROM_BACKUP)
    for number in sorted(set(_numbers_upkeep(db, JOURNAL)) - named):
        text = f"A context has its records (number {number}), but not the row that names it and says where it stands."
        yield Symptom(code="head_lost", severity="error", where="table context", text=text, remedy=_FROM_BACKUP)
        named.add(number)
    shares: dict[int, int] = {row[0]: row[1] for row in db.execute("SELECT id, origin FROM shared")}
    read = _read_by_forks(named, shares)
    strays = [("shared", {number for number in shares if number not in named | read}, 0)]
    for family in FAMILIES:
        owners = named | read if family in IMMUTABLE else named
        strays.append((family, set(_numbers_upkeep(db, family)) - owners, KEY_BITS))
    others = (*(f"gone_{family}" for family in sorted(IMMUTABLE)), "search_size")
    strays += [(table, set(_numbers_upkeep(db, table)) - named, KEY_BITS) for table in others]
    for table, numbers, bits in strays:
        if not numbers:
            continue
        spans = [(number << bits, (number << bits) | (MAX_KEY if bits else 0)) for number in sorted(numbers)]
        count = sum(_count(db, table, span) for span in spans)
        if repair:
            with db:
                db.executemany(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", spans)
        yield Symptom(
            code="orphan_rows",
            severity="warning",
            where=f"table {table}",
            text=f"{count:,} rows belong to no context.",
            remedy="repair=True removes them.",
            repaired=repair,
        )


def _read_by_forks(named: Iterable[int], shares: dict[int, int]) -> set[int]:
    """The contexts, named or not, whose rows a named one reads."""
    found: set[int] = set()
    for number in named:
        while number in shares and shares[number] not in found:
            number = shares[number]
            found.add(number)
    return found


def _numbers_upkeep(db: apsw.Connection, table: str) -> Iterator[int]:
    """The numbers of the contexts that have rows in a table, each found by one step in it."""
    number = -1
    while (
        row := db.execute(f"SELECT min(id) FROM {table} WHERE id >= ?", ((number + 1) << KEY_BITS,)).get
    ) is not None:
        number = int(row) >> KEY_BITS
        yield number


def _count(db: apsw.Connection, table: str, span: tuple[int, int]) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table} WHERE id BETWEEN ? AND ?", span).get or 0)


def _search(db: apsw.Connection, indexes: FtsIndexes, lines: list[str], repair: bool) -> Iterator[Symptom]:
    """Damage to the search index, which is derived from the pages and can be made anew."""
    if not lines:
        try:
            kept: Any = db.execute("SELECT count(*) FROM search_docsize").get
            known = sum(
                indexes.read_sizes(number).amount([(0, MAX_KEY)]).documents
                for number in _numbers_upkeep(db, "search_size")
            )
            for number in db.execute("SELECT id FROM search_state"):
                indexes.state(*number)
            if kept != known:
                lines = [f"it holds {kept:,} documents where {known:,} are noted"]
            elif found := unlike_itself(db):
                lines = [found]
        except (apsw.Error, Misshapen) as error:
            lines = [str(error)]
    if lines:
        if repair:
            indexes.make_anew()
        yield Symptom(
            code="search_damaged",
            severity="warning",
            where="search index",
            text=f"{lines[0]}. Searches may miss pages; the pages themselves are not touched by it.",
            remedy="repair=True empties it; the next search fills it again.",
            repaired=repair,
        )
