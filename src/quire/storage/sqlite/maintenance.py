"""Maintenance of an SQLite file: copy it while it is in use, check it below the level of contexts, erase old bytes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import apsw

from quire.errors import Busy
from quire.storage.base import FAMILIES, IMMUTABLE, JOURNAL, KEY_BITS, MAX_KEY, Symptom
from quire.storage.search_protocol import search_symptom
from quire.storage.sqlite.forks import ForkSharing
from quire.storage.sqlite.schema import context_numbers, reading, transaction
from quire.storage.sqlite.search import FtsIndexes

_STEP = 2_000
_MAX_LINES = 100
_FROM_BACKUP = "Restore a backup, or copy the readable contexts into a new store."


def copy_file(source: apsw.Connection, target: Path, report: Callable[[int], None] | None) -> None:
    """Copy an SQLite file as it is at one moment, while others may write to it. Close `source`.

    Raises `OSError` if the copy cannot be written.
    """
    with closing(source) as reading, closing(apsw.Connection(str(target))) as writing:
        reading.set_busy_timeout(5_000)
        reading.execute("BEGIN")
        reading.execute("SELECT 1 FROM sqlite_schema").fetchone()  # starts the transaction, so the copy never restarts
        with _write_errors():
            _copy_pages(reading, writing, report)
        reading.execute("ROLLBACK")


def _copy_pages(reading: apsw.Connection, writing: apsw.Connection, report: Callable[[int], None] | None) -> None:
    size: Any = reading.pragma("page_size")
    with writing.backup("main", reading, "main") as copy:
        while not copy.done:
            copy.step(_STEP)
            if report is not None:
                report((copy.page_count - copy.remaining) * size)


@contextmanager
def _write_errors() -> Iterator[None]:
    """Turn SQLite's write errors into `OSError`, in a block that writes only the copy."""
    try:
        yield
    except apsw.FullError as error:
        raise OSError(ENOSPC, "the disk is full") from error
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_WRITE:
            raise
        raise OSError(EIO, "the disk cannot be written") from error


def examine_file(db: apsw.Connection, indexes: FtsIndexes, *, repair: bool) -> list[Symptom]:
    """Return the problems of the file itself: its structure, rows without a context, the search index."""
    try:
        structure, search = _integrity_lines(db)
        return [
            *_check_structure(db, structure, repair),
            *_orphans(db, repair),
            *_check_search(indexes, search, repair),
        ]
    except apsw.CorruptError as error:
        return [_file_damaged(str(error))]


def scrub_file(db: apsw.Connection, sharing: ForkSharing, indexes: FtsIndexes) -> None:
    """Delete shared rows that no context reads, then rewrite the whole file: free space still holds old bytes."""
    with transaction(db):
        sharing.sweep_unread()
    try:
        db.execute("INSERT INTO search (search) VALUES ('optimize')")  # merging removes the terms of deleted documents
    except (apsw.SQLError, apsw.CorruptError):
        indexes.reset()
    try:
        db.execute("VACUUM")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Busy(f"{db.filename!r} is in use by other processes, perhaps readers. Retry later.") from error


def _integrity_lines(db: apsw.Connection) -> tuple[list[str], list[str]]:
    """Return the problems that SQLite finds: those of the file, and those of the search index."""
    try:
        rows = db.execute(f"PRAGMA integrity_check({_MAX_LINES})").fetchall()
    except apsw.CorruptError as error:
        rows = [(str(error),)]
    except apsw.SQLError as error:  # FTS5 cannot open its table, which ends the check of the other tables too
        if not _is_search(str(error)) and _opens_search(db):
            raise
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0").fetchall()
        rows = [
            (f"table search: {error}",),
            *(row for (name,) in tables for row in db.execute(f"PRAGMA integrity_check({name})")),
        ]
    lines = [line for (text,) in rows for line in str(text).splitlines() if line and line != "ok"]
    return [line for line in lines if not _is_search(line)], [line for line in lines if _is_search(line)]


def _opens_search(db: apsw.Connection) -> bool:
    try:
        db.execute("SELECT 1 FROM search LIMIT 0")
    except apsw.SQLError:
        return False
    return True


def _is_search(line: str) -> bool:
    return "fts5" in line.lower() or "search" in line


def _file_damaged(text: str) -> Symptom:
    return Symptom("file_damaged", "error", "file", f"{text}.", _FROM_BACKUP)


def _check_structure(db: apsw.Connection, lines: list[str], repair: bool) -> Iterator[Symptom]:
    """Yield the damage of tables. With `repair`, rebuild indexes that disagree with their tables."""
    if lines and repair and all("index" in line for line in lines):
        db.execute("REINDEX")  # creates the indexes again from their tables
        left, _ = _integrity_lines(db)
        if not left:
            yield Symptom("order_damaged", "error", "file", f"{lines[0]} and more.", repaired=True)
            return
        lines = left
    for line in lines:
        if "index" in line:
            remedy = "A repair rebuilds the index that orders the pages."
            yield Symptom("order_damaged", "error", "file", f"{line}.", remedy)
        else:
            yield _file_damaged(line)


def _orphans(db: apsw.Connection, repair: bool) -> Iterator[Symptom]:
    """Yield contexts without a head, which are never removed, and rows that belong to no context and no fork."""
    with transaction(db) if repair else reading(db):
        yield from _find_orphans(db, repair)


def _find_orphans(db: apsw.Connection, repair: bool) -> Iterator[Symptom]:
    named = {row[0] for row in db.execute("SELECT id FROM context")}
    for number, name in db.execute("SELECT id, name FROM context WHERE name = '' OR typeof(name) <> 'text'").fetchall():
        yield _head_lost(f"The context with number {number} has records, but its name is {name!r}.")
    for number in sorted(set(context_numbers(db, JOURNAL)) - named):
        yield _head_lost(f"The context with number {number} has records, but no row with its name and its version.")
        named.add(number)
    origins: dict[int, int] = {row[0]: row[1] for row in db.execute("SELECT id, origin FROM shared")}
    read = _read_by_forks(named, origins)
    orphans = [("shared", {number for number in origins if number not in named | read}, 0)]
    for family in FAMILIES:
        owners = named | read if family in IMMUTABLE else named
        orphans.append((family, set(context_numbers(db, family)) - owners, KEY_BITS))
    others = (*(f"gone_{family}" for family in sorted(IMMUTABLE)), "search_size", "commit_log")
    orphans += [(table, set(context_numbers(db, table)) - named, KEY_BITS) for table in others]
    for table, numbers, bits in orphans:
        if not numbers:
            continue
        spans = [(number << bits, (number << bits) | (MAX_KEY if bits else 0)) for number in sorted(numbers)]
        count = sum(_count(db, table, span) for span in spans)
        if repair:
            db.executemany(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", spans)
        text, remedy = f"{count:,} rows belong to no context.", "A repair removes them."
        yield Symptom("orphan_rows", "warning", f"table {table}", text, remedy, repaired=repair)


def _head_lost(text: str) -> Symptom:
    return Symptom("head_lost", "error", "table context", text, _FROM_BACKUP)


def _read_by_forks(named: Iterable[int], origins: dict[int, int]) -> set[int]:
    """Return the numbers of all contexts, with or without a name, that a named context reads from."""
    found: set[int] = set()
    for number in named:
        while number in origins and origins[number] not in found:
            number = origins[number]
            found.add(number)
    return found


def _count(db: apsw.Connection, table: str, span: tuple[int, int]) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table} WHERE id BETWEEN ? AND ?", span).get or 0)


def _check_search(indexes: FtsIndexes, lines: list[str], repair: bool) -> Iterator[Symptom]:
    """Yield the damage of the search index; with `repair`, empty it."""
    damage = lines[0] if lines else indexes.find_damage()
    if damage:
        if repair:
            indexes.reset()
        yield search_symptom("search_damaged", damage, repaired=repair)
