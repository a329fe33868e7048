"""Maintenance of an SQLite file: copy it while it is in use, check it below the level of contexts, erase old bytes."""

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import closing, contextmanager
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any

import apsw

from quire.errors import Busy
from quire.storage.base import DERIVED, FAMILIES, IMMUTABLE, JOURNAL, KEY_BITS, MAX_KEY, Symptom
from quire.storage.search_protocol import search_symptom
from quire.storage.sqlite.file_check import FileCheck, check_file, create_again
from quire.storage.sqlite.forks import ForkSharing
from quire.storage.sqlite.schema import context_numbers, reading, transaction
from quire.storage.sqlite.search import FtsIndexes

_STEP = 2_000
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
        check = check_file(db)
        symptoms = [
            *_check_structure(db, check, repair),
            *_orphans(db, check.trees.keys(), repair),
            *_check_search(indexes, check, repair),
        ]
        left = check_file(db) if repair and check.trees else check
        return [*symptoms, *_unused_pages(left)]
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


def _is_search(text: str) -> bool:
    """Return whether a problem, or the table with this name, concerns the search index."""
    return "fts5" in text.lower() or "search" in text


def _file_damaged(text: str) -> Symptom:
    return Symptom("file_damaged", "error", "file", f"{text}.", _FROM_BACKUP)


def _check_structure(db: apsw.Connection, check: FileCheck, repair: bool) -> Iterator[Symptom]:
    """Yield the damage of tables. With `repair`, empty tables of derived records and create indexes again."""
    trees = {name: line for name, line in check.trees.items() if not _is_search(name)}
    for name, line in trees.items():
        yield _damaged_tree(db, name, line, repair)
    lines = [line for line in check.lines if not _is_search(line)]
    if lines and repair and not trees and all("index" in line for line in lines):
        db.execute("REINDEX")  # creates the indexes again from their tables
        left = [line for line in check_file(db).lines if not _is_search(line)]
        if not left:
            yield Symptom("order_damaged", "error", "file", f"{lines[0]} and more.", repaired=True)
            return
        lines = left
    for line in lines:
        yield _order_damaged(line) if "index" in line else _file_damaged(line)


def _damaged_tree(db: apsw.Connection, name: str, line: str, repair: bool) -> Symptom:
    """Return the symptom of a damaged table or index; with `repair`, create it again if its content is derived."""
    if name in DERIVED:
        repaired = repair and create_again(db, name)
        remedy = "A repair empties the table and derives its records again."
        return Symptom("file_damaged", "error", "file", f"table {name}: {line}.", remedy, repaired=repaired)
    if _is_index(db, name):
        return _order_damaged(f"index {name}: {line}", repaired=repair and create_again(db, name))
    return _file_damaged(f"table {name}: {line}")


def _is_index(db: apsw.Connection, name: str) -> bool:
    return bool(db.execute("SELECT type = 'index' FROM sqlite_schema WHERE name = ?", (name,)).get)


def _order_damaged(text: str, *, repaired: bool = False) -> Symptom:
    remedy = "A repair creates the index again."
    return Symptom("order_damaged", "error", "file", f"{text}.", remedy, repaired=repaired)


def _unused_pages(check: FileCheck) -> Iterator[Symptom]:
    """Yield a note about unused pages. If a table is damaged, they may belong to it."""
    if check.unused and not check.trees:
        text = f"{check.unused:,} pages of the file belong to no table."
        remedy = "They only take space. A repair rewrites the file without them if nothing else is damaged."
        yield Symptom("unused_pages", "note", "file", text, remedy)


def _orphans(db: apsw.Connection, damaged: Set[str], repair: bool) -> Iterator[Symptom]:
    """Yield contexts without a head, which are never removed, and rows that belong to no context and no fork.

    Damaged tables are left out.
    """
    if not damaged & {"context", "shared", JOURNAL}:
        with transaction(db) if repair else reading(db):
            yield from _find_orphans(db, damaged, repair)


def _find_orphans(db: apsw.Connection, damaged: Set[str], repair: bool) -> Iterator[Symptom]:
    named = {row[0] for row in db.execute("SELECT id FROM context NOT INDEXED")}
    for number, name in db.execute("SELECT id, name FROM context WHERE name = '' OR typeof(name) <> 'text'").fetchall():
        yield _head_lost(f"The context with number {number} has records, but its name is {name!r}.")
    for number in sorted(set(context_numbers(db, JOURNAL)) - named):
        yield _head_lost(f"The context with number {number} has records, but no row with its name and its version.")
        named.add(number)
    origins: dict[int, int] = {row[0]: row[1] for row in db.execute("SELECT id, origin FROM shared NOT INDEXED")}
    read = _read_by_forks(named, origins)
    orphans = [("shared", {number for number in origins if number not in named | read}, 0)]
    others = (*(f"gone_{family}" for family in sorted(IMMUTABLE)), "search_size", "commit_log")
    for table in (*FAMILIES, *others):
        if table not in damaged:
            owners = named | read if table in IMMUTABLE else named
            orphans.append((table, set(context_numbers(db, table)) - owners, KEY_BITS))
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


def _check_search(indexes: FtsIndexes, check: FileCheck, repair: bool) -> Iterator[Symptom]:
    """Yield the damage of the search index; with `repair`, empty it."""
    trees = [f"table {name}: {line}" for name, line in check.trees.items() if _is_search(name)]
    found = [*trees, *filter(_is_search, check.lines)]
    damage = found[0] if found else indexes.find_damage()
    if damage:
        if repair:
            indexes.reset()
        yield search_symptom("search_damaged", damage, repaired=repair)
