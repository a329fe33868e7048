"""A call of the SQLite backends that ends while its transaction is open leaves no transaction behind."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import apsw
import pytest

import quire
from quire import SQLiteStorage
from quire.storage.base import BODY, Commit, Put, Write
from quire.storage.sqlite import schema
from quire.storage.sqlite.connection import Connection, SQLiteConnectionStorage
from quire.testing.case import HEAD

Execute = Callable[..., Any]


def interrupt_after(execute: Execute, texts: list[str]) -> Execute:
    """Return a function that runs a statement, then raises KeyboardInterrupt if it is the first of these texts.

    SQLite waits for a lock without looking for signals, so Python raises when the statement returns.
    """

    def run(sql: str, *arguments: Any) -> Any:
        result = execute(sql, *arguments)
        if texts and sql == texts[0]:
            texts.clear()
            raise KeyboardInterrupt
        return result

    return run


def connect(kind: str, path: Path, texts: list[str]) -> Connection:
    if kind == "apsw":

        class ApswCursor(apsw.Cursor):
            def execute(self, *arguments: Any) -> Any:  # type: ignore[override]
                return interrupt_after(super().execute, texts)(*arguments)

        connection = apsw.Connection(str(path))
        connection.cursor_factory = ApswCursor
        return connection

    class Cursor(sqlite3.Cursor):
        def execute(self, *arguments: Any) -> Any:
            return interrupt_after(super().execute, texts)(*arguments)

    class Sqlite3Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

    return sqlite3.connect(path, factory=Sqlite3Connection)


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
@pytest.mark.parametrize("kind", ["sqlite3", "apsw"])
def test_ctrl_c_leaves_no_transaction_in_a_connection_of_the_caller(kind: str, statement: str, tmp_path: Path) -> None:
    texts: list[str] = []
    with closing(connect(kind, tmp_path / "app.db", texts)) as connection:
        ctx = quire.open(connection, "agent")
        ctx.user("before")
        texts.append(statement)
        with pytest.raises(KeyboardInterrupt):
            ctx.user("interrupted")
        assert not connection.in_transaction
        ctx.user("after")
        found = [message.text for message in ctx.messages()]
        assert found == ["before", *(["interrupted"] if statement == "COMMIT" else []), "after"]


def test_a_transaction_that_began_meanwhile_is_not_rolled_back(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as connection:
        storage = SQLiteConnectionStorage(connection)
        connection.execute("BEGIN")
        storage._is_in_transaction = lambda: False  # type: ignore[method-assign]  # the caller's other thread was late
        with pytest.raises(quire.StorageFailure, match="within a transaction"):
            storage.commit("c", Commit(0, 1, HEAD, ()))
        assert connection.in_transaction


def test_ctrl_c_leaves_no_transaction_in_a_store(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "agents.db")
    ctx = quire.open(storage, "agent")
    ctx.user("before")
    storage._tables.execute = interrupt_after(storage._tables.execute, ["BEGIN IMMEDIATE"])
    with pytest.raises(KeyboardInterrupt):
        ctx.user("interrupted " * 2_000)  # a large commit does not go to the commit log
    ctx.user("after")
    with quire.open(tmp_path / "agents.db", "agent") as other:  # the file is not locked
        other.user("from another handle")
        assert [message.text for message in other.messages()] == ["before", "after", "from another handle"]


@pytest.mark.parametrize(("block", "statement"), [(schema.transaction, "BEGIN IMMEDIATE"), (schema.reading, "BEGIN")])
def test_ctrl_c_leaves_no_transaction_of_a_block(block: Any, statement: str) -> None:
    class InterruptedConnection(apsw.Connection):
        def execute(self, *arguments: Any) -> Any:  # type: ignore[override]
            return interrupt_after(super().execute, texts)(*arguments)

    texts = [statement]
    with closing(InterruptedConnection(":memory:")) as db:
        with pytest.raises(KeyboardInterrupt), block(db):
            pytest.fail("The block must not run.")
        assert not db.in_transaction


def test_closing_in_another_thread_waits_for_the_commit() -> None:
    class Writes(list[Write]):
        def __iter__(self) -> Iterator[Write]:
            for number, write in enumerate(super().__iter__()):
                if number == 1 and connection.in_transaction:
                    closer.start()
                    closer.join(0.1)
                yield write

    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        storage = SQLiteConnectionStorage(connection)
        closer = Thread(target=storage.close)
        storage.commit("c", Commit(0, 1, HEAD, Writes([Put(BODY, key, b"x") for key in range(1, 4)])))
        closer.join()
        assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM quire_record").fetchone() == (3,)
        with pytest.raises(quire.StorageClosed):
            storage.head("c")
