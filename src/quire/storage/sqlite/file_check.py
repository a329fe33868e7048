"""The check of an SQLite file by SQLite itself, and the removal of tables and indexes that it cannot read."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import apsw

from quire.storage.sqlite.schema import transaction

_MAX_LINES = 100
_TREE = re.compile(r"Tree (\d+) ")
_UNUSED = re.compile(r"Page \d+: never used")


class FileCheck(NamedTuple):
    """The problems of a file.

    `trees` has the first problem of each table and index with damaged pages, by name. `lines` are the other problems.
    `unused` is the number of pages that belong to nothing and are not free.
    """

    trees: dict[str, str]
    lines: list[str]
    unused: int


def check_file(db: apsw.Connection) -> FileCheck:
    """Check a file. If it has a problem, check each table too, because SQLite ends the check at some problems."""
    pages: int = db.pragma("page_count")
    lines, error = _check(db, pages + _MAX_LINES)
    if not lines and not error:
        return FileCheck({}, [], 0)
    rows: list[Any] = db.execute("SELECT rootpage, name, type FROM sqlite_schema WHERE rootpage > 0").fetchall()
    roots: dict[int, str] = {root: name for root, name, _ in rows}
    trees: dict[str, str] = {}
    others: dict[str, None] = {}

    def add(line: str) -> None:
        tree = _TREE.match(line)
        if tree and int(tree[1]) in roots:
            trees.setdefault(roots[int(tree[1])], line)
        elif not _UNUSED.match(line):
            others[line] = None

    for line in lines:
        add(line)
    for table in (name for _, name, kind in rows if kind == "table"):
        table_lines, table_error = _check(db, table)
        for line in table_lines:
            add(line)
        if table_error and not table_lines:
            trees.setdefault(table, table_error)
    if error and not trees and not others:
        others[error] = None
    return FileCheck(trees, list(others)[:_MAX_LINES], sum(_UNUSED.match(line) is not None for line in lines))


def find_damaged(db: apsw.Connection, tables: Iterable[str]) -> set[str]:
    """Return the tables among these that SQLite cannot read. Call it before a transaction.

    When SQLite has found damage in a transaction, it refuses every later write of the transaction.
    """
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    return {table for table in tables if table in there and _check(db, table) != ([], "")}


def remove_from_schema(db: apsw.Connection, name: str) -> None:
    """Remove a damaged table or index from the schema, in the open transaction.

    It is not dropped, because its pages may lead to pages of other tables. Its pages stay in the file, unused, until
    `VACUUM`.
    """
    db.execute("PRAGMA writable_schema = ON")
    try:
        db.execute("DELETE FROM sqlite_schema WHERE name = ?", (name,))
    finally:
        db.execute("PRAGMA writable_schema = RESET")


def create_again(db: apsw.Connection, name: str) -> bool:
    """Replace a damaged table by an empty one, or a damaged index by a new one. Return False if this is impossible."""
    sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).get
    if not isinstance(sql, str):  # SQLite itself made this index
        return False
    try:
        with transaction(db):
            remove_from_schema(db, name)
            db.execute(sql)
    except apsw.CorruptError:
        return False
    return True


def _check(db: apsw.Connection, what: int | str) -> tuple[list[str], str]:
    """Return the lines of SQLite's check of a table, or of the file up to a limit, and the error that ended it."""
    lines: list[str] = []
    error = ""
    try:
        for (text,) in db.execute(f"PRAGMA integrity_check({what})"):
            lines += str(text).splitlines()
    except apsw.CorruptError as found:
        error = str(found)
    except apsw.SQLError as found:  # FTS5 cannot open its table
        if "search" not in str(found) and _opens_search(db):
            raise
        lines.append(f"table search: {found}")
    return [line for line in lines if line and line != "ok" and not line.startswith("*** in database")], error


def _opens_search(db: apsw.Connection) -> bool:
    try:
        db.execute("SELECT 1 FROM search LIMIT 0")
    except apsw.SQLError:
        return False
    return True
