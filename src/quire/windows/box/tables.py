"""A viewer of the tables in one SQLite database: read-only, with pages, order and filters."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from quire.errors import InvalidValue, short_repr
from quire.model.text import in_one_line
from quire.windows.actions import action
from quire.windows.app import App

_ROWS = 20
_MOST_WIDTH = 60
_STEPS = 2_000_000  # what one look may cost; an index or a filter makes it cheaper
_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "contains": "LIKE"}
_LISTED = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*' ORDER BY name"
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "contains"]


class Query(Protocol):
    """A way to ask the database."""

    def __call__(self, sql: str, values: tuple[str, ...] = (), /) -> list[tuple[Any, ...]]: ...


class Tables(App):
    """Shows the tables of a database, or a page of rows of one. Nothing is written."""

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
        with self._look() as query:
            return self._rows(query) if self._table else _listing(query)

    @action("Show a table; without a name, the list of tables")
    def show(self, table: str = "") -> str:
        with self._look() as query:
            if table and table not in _tables(query):
                raise InvalidValue(
                    f"There is no table {short_repr(table)}; tables are {', '.join(_tables(query)) or 'none'}."
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
        order, kept = saved["order"], saved["filter"]
        self._order = (str(order[0]), bool(order[1])) if order else None
        self._filter = (str(kept[0]), str(kept[1]), str(kept[2])) if kept else None

    def _check(self, column: str) -> None:
        if not self._table:
            raise InvalidValue("No table is shown; show(table) first.")
        with self._look() as query:
            known = _columns(query, self._table)
        if column not in known:
            raise InvalidValue(f"{self._table} has no column {short_repr(column)}; columns are {', '.join(known)}.")

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
    def _look(self) -> Iterator[Query]:
        """A way to ask the database, which is closed again after it."""
        import apsw

        try:
            uri = f"{self._database.as_uri()}?mode=ro"
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        except apsw.Error as error:
            raise InvalidValue(f"The database cannot be opened: {error}.") from None
        try:
            connection.set_progress_handler(lambda: True, _STEPS)
            connection.set_busy_timeout(500)
            yield lambda sql, values=(): [tuple(row) for row in connection.execute(sql, values)]
        except apsw.InterruptError:
            raise InvalidValue("The table is too large to look at so: filter by a column with an index.") from None
        except apsw.Error as error:
            raise InvalidValue(f"The database cannot be read: {error}.") from None
        finally:
            connection.close()


def _listing(query: Query) -> str:
    tables = _tables(query)
    return "\n".join([f"{len(tables)} tables", *(f"{name} ({', '.join(_columns(query, name))})" for name in tables)])


def _tables(query: Query) -> list[str]:
    return [str(name) for (name,) in query(_LISTED)]


def _columns(query: Query, table: str) -> list[str]:
    return [str(name) for (name,) in query("SELECT name FROM pragma_table_info(?)", (table,))]


def _name(name: str) -> str:
    """A name as SQL has it, whatever stands in it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    text = "" if value is None else in_one_line(str(value))
    return text if len(text) <= _MOST_WIDTH else f"{text[:_MOST_WIDTH]}… ({len(text):,} characters)"
