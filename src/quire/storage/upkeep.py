"""The upkeep of an SQLite file: copied while in use, examined below the level of contexts, cleared of old bytes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import apsw

from quire.errors import Busy, Corrupt
from quire.storage.base import FAMILIES, IMMUTABLE, JOURNAL, KEY_BITS, MAX_KEY
from quire.storage.fts import FtsIndexes
from quire.storage.ftscheck import unlike_itself
from quire.storage.searching import Misshapen
from quire.storage.shares import Shares
from quire.storage.symptoms import Symptom

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
    for number in sorted(set(_numbers(db, JOURNAL)) - named):
        text = f"A context has its records (number {number}), but not the row that names it and says where it stands."
        yield Symptom(code="head_lost", severity="error", where="table context", text=text, remedy=_FROM_BACKUP)
        named.add(number)
    shares: dict[int, int] = {row[0]: row[1] for row in db.execute("SELECT id, origin FROM shared")}
    read = _read_by_forks(named, shares)
    strays = [("shared", {number for number in shares if number not in named | read}, 0)]
    for family in FAMILIES:
        owners = named | read if family in IMMUTABLE else named
        strays.append((family, set(_numbers(db, family)) - owners, KEY_BITS))
    others = (*(f"gone_{family}" for family in sorted(IMMUTABLE)), "search_size")
    strays += [(table, set(_numbers(db, table)) - named, KEY_BITS) for table in others]
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


def _numbers(db: apsw.Connection, table: str) -> Iterator[int]:
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
                indexes.read_sizes(number).amount([(0, MAX_KEY)]).documents for number in _numbers(db, "search_size")
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
