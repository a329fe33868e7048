"""A viewer of the tables in one SQLite database: read-only, with pages, sorting and filters."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from quire import App, action
from quire.errors import InvalidValue, short_repr
from quire.model.text import collapse_whitespace

_ROWS = 20
_MAX_WIDTH = 60
_STEPS = 2_000_000  # SQLite's steps for one query, at most
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "contains": "LIKE"}
_TABLE_NAMES = (
    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*' ORDER BY name"
)
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "contains"]


class Query(Protocol):
    """Runs one SQL query and returns its rows."""

    def __call__(self, sql: str, values: tuple[str, ...] = (), /) -> list[tuple[Any, ...]]: ...


class Tables(App):
    """Shows the tables of a database, or one page of rows of a table. It writes nothing."""

    name = "tables"
    description = "A viewer of database tables"

    def __init__(self, database: str | os.PathLike[str]) -> None:
        self._database = Path(database).resolve()
        self._table = ""
        self._page = 1
        self._order: tuple[str, bool] | None = None
        self._filter: tuple[str, str, str] | None = None

    def open(self, table: str = "") -> None:
        if table:
            self.show(table)

    def content(self) -> str:
        with self._connect() as query:
            return self._rows(query) if self._table else _listing(query)

    @action("Show a table; without a name, the list of tables")
    def show(self, table: str = "") -> str:
        with self._connect() as query:
            if table and table not in _tables(query):
                raise InvalidValue(
                    f"There is no table {short_repr(table)}. Tables: {', '.join(_tables(query)) or 'none'}."
                )
        self._table, self._page, self._order, self._filter = table, 1, None, None
        return f"Showing {table or 'the tables'}."

    @action("Show another page of rows")
    def page(self, number: int) -> str:
        self._page = max(1, number)
        return f"Page {self._page}."

    @action("Order the rows by a column")
    def sort(self, column: str, descending: bool = False) -> str:
        self._check(column)
        self._order, self._page = (column, descending), 1
        return f"Ordered by {column}."

    @action("Show only rows whose column compares so; without a column, all rows")
    def filter(self, column: str = "", operator: Operator = "=", value: str = "") -> str:
        if column:
            self._check(column)
        self._filter, self._page = ((column, operator, value) if column else None), 1
        return f"Only rows with {column} {operator} {short_repr(value)}." if column else "All rows."

    def save(self) -> dict[str, Any]:
        return {
            "table": self._table,
            "page": self._page,
            "order": list(self._order) if self._order else None,
            "filter": list(self._filter) if self._filter else None,
        }

    def restore(self, saved: Any) -> None:
        self._table, self._page = str(saved["table"]), int(saved["page"])
        order, condition = saved["order"], saved["filter"]
        self._order = (str(order[0]), bool(order[1])) if order else None
        self._filter = (str(condition[0]), str(condition[1]), str(condition[2])) if condition else None

    def _check(self, column: str) -> None:
        if not self._table:
            raise InvalidValue("No table is shown. Show a table first.")
        with self._connect() as query:
            known = _columns(query, self._table)
        if column not in known:
            raise InvalidValue(f"{self._table} has no column {short_repr(column)}. Columns: {', '.join(known)}.")

    def _rows(self, query: Query) -> str:
        where, values = self._where()
        table = _name(self._table)
        columns = _columns(query, self._table)
        (count,) = query(f"SELECT count(*) FROM {table}{where}", values)[0]
        pages = max(1, -(-count // _ROWS))
        page = min(self._page, pages)
        order = f" ORDER BY {_name(self._order[0])}{' DESC' if self._order[1] else ''}" if self._order else ""
        rows = query(f"SELECT * FROM {table}{where}{order} LIMIT {_ROWS} OFFSET {(page - 1) * _ROWS}", values)
        lines = [" | ".join(map(_cell, row)) for row in rows]
        return "\n".join([f"{self._table}: page {page} of {pages}, {count:,} rows", " | ".join(columns), *lines])

    def _where(self) -> tuple[str, tuple[str, ...]]:
        if self._filter is None:
            return "", ()
        column, operator, value = self._filter
        if operator == "contains":
            safe = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            return f" WHERE {_name(column)} LIKE ? ESCAPE '\\'", (f"%{safe}%",)
        return f" WHERE {_name(column)} {_OPERATORS[operator]} ?", (value,)

    @contextmanager
    def _connect(self) -> Iterator[Query]:
        """Open the database for one block, which gets a function that queries it."""
        try:
            connection = sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=0.5)
        except sqlite3.Error as error:
            raise InvalidValue(f"The database cannot be opened: {error}.") from None
        try:
            connection.set_progress_handler(lambda: True, _STEPS)
            yield lambda sql, values=(): connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise InvalidValue("The query takes too long here. Filter by a column with an index.") from None
            raise InvalidValue(f"The database cannot be read: {error}.") from None
        finally:
            connection.close()


def _listing(query: Query) -> str:
    tables = _tables(query)
    return "\n".join([f"{len(tables)} tables", *(f"{name} ({', '.join(_columns(query, name))})" for name in tables)])


def _tables(query: Query) -> list[str]:
    return [str(name) for (name,) in query(_TABLE_NAMES)]


def _columns(query: Query, table: str) -> list[str]:
    return [str(name) for (name,) in query("SELECT name FROM pragma_table_info(?)", (table,))]


def _name(name: str) -> str:
    """Return a name quoted for SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    text = "" if value is None else collapse_whitespace(str(value))
    return text if len(text) <= _MAX_WIDTH else f"{text[:_MAX_WIDTH]}… ({len(text):,} characters)"
