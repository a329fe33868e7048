"""Connections that the caller has: SQLite with the caller's own tables, one PostgreSQL connection, and a pool."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import apsw
import psycopg
import pytest
from psycopg.rows import dict_row

import quire
from quire import (
    Busy,
    Conflict,
    InvalidOperation,
    InvalidValue,
    PostgresStorage,
    Storage,
    StorageClosed,
    StorageFailure,
)
from quire.errors import ReadOnly
from quire.storage.sqlite import SQLiteConnectionStorage
from tests.servers.postgres import new_schema, server_url


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, check_same_thread=False)


@pytest.fixture(params=[sqlite3.connect, lambda path: apsw.Connection(str(path))], ids=["sqlite3", "apsw"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Any]":
    connect: Callable[[Path], Any] = request.param
    with closing(connect(tmp_path / "app.db")) as made:
        made.execute("CREATE TABLE page (title TEXT)")
        yield made


def test_contexts_are_beside_the_tables_of_the_caller(connection: Any, tmp_path: Path) -> None:
    with quire.open(connection, "agent") as ctx:
        ctx.system("You are a travel agent.")
        ctx.user("我想去西雅图")
        ctx.pages.create_detail_page("Seat", "Window", "The passenger wants a window seat.", "mem-0")
        assert [hit.name for hit in ctx.find("西雅图")]
        assert ctx.check() == []
    connection.execute("INSERT INTO page VALUES ('mine')")  # it is still open
    if isinstance(connection, sqlite3.Connection):
        connection.commit()
    with quire.Library(connection) as library:
        assert list(library.list()) == ["agent"]
        assert library.open("agent").messages()[-1].text == "我想去西雅图"
        library.fork("agent", "what-if")
        assert [message.text for message in library.open("what-if").messages()] == [
            message.text for message in library.open("agent").messages()
        ]
        library.delete("what-if")
    assert quire.doctor(connection).symptoms == ()
    quire.migrate(connection, tmp_path / "copy.db")
    with quire.open(tmp_path / "copy.db", "agent", create=False) as copy:
        assert len(copy.messages()) == 2
    assert list(connection.execute("SELECT title FROM page")) == [("mine",)]


def test_a_write_inside_a_transaction_of_the_caller_is_refused(connection: Any) -> None:
    ctx = quire.open(connection, "agent")
    ctx.user("before")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO page VALUES ('mine')")
    with pytest.raises(InvalidOperation):
        ctx.user("inside")
    assert [message.text for message in ctx.messages()] == ["before"]
    connection.execute("ROLLBACK")
    assert list(connection.execute("SELECT title FROM page")) == []
    ctx.user("after")
    assert [message.text for message in quire.open(connection, "agent").messages()] == ["before", "after"]


def test_the_settings_of_a_sqlite3_connection_do_not_matter(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level="EXCLUSIVE")) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16'")
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        with quire.Library(connection) as library:
            for name in ("z", "é", "汉", "😀", "a"):
                library.open(name).user(name)
            assert list(library.list()) == ["a", "z", "é", "汉", "😀"]
        assert not connection.in_transaction
        assert connection.row_factory is sqlite3.Row


def test_two_connections_to_one_file_conflict(tmp_path: Path) -> None:
    with closing(_connect(tmp_path / "app.db")) as one, closing(_connect(tmp_path / "app.db")) as two:
        first, second = quire.open(one, "agent"), quire.open(two, "agent")
        first.user("first")
        with pytest.raises(Conflict):
            second.user("second")
        second.refresh()
        second.user("second")
        one.execute("BEGIN IMMEDIATE")
        two.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(Busy):
            second.user("third")
        one.rollback()
        assert [message.text for message in second.messages()] == ["first", "second"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("connect", [sqlite3.connect, apsw.Connection])
def test_an_erasure_names_the_bytes_that_the_owner_has_to_remove(
    connect: Callable[[str], Any], mode: str, tmp_path: Path
) -> None:
    with closing(connect(str(tmp_path / "app.db"))) as connection:
        connection.execute("PRAGMA secure_delete = OFF").fetchall()
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        library = quire.Library(connection)
        ctx = library.create("ada")
        for number in range(20):
            ctx.user(f"wxyzzy {number} " * 200)
        assert not ctx.pages.purge("usr-1").scrubbed
        done = library.erase("ada")
        assert (done.scrubbed, done.remains[0].code) == (False, "server")
        assert library.scrub() == done.remains[:1]
        assert any(b"wxyzzy" in file.read_bytes() for file in tmp_path.iterdir())
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert not any(b"wxyzzy" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("connect", [sqlite3.connect, apsw.Connection])
def test_a_closed_connection_is_refused(connect: Callable[[str], Any], tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "app.db"))
    connection.close()
    with pytest.raises(StorageClosed):
        quire.open(connection)


def write_in_threads(storages: list[Storage]) -> None:
    """Let each storage write a context of its own in a thread of its own, at the same time."""

    def work(number: int) -> None:
        try:
            with quire.open(storages[number], f"agent-{number}") as ctx:
                for step in range(20):
                    ctx.user(f"message {step}")
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    threads = [Thread(target=work, args=(number,)) for number in range(len(storages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_several_storages_share_one_sqlite_connection(tmp_path: Path) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads change within a transaction
    try:
        with closing(_connect(tmp_path / "app.db")) as connection:
            write_in_threads([SQLiteConnectionStorage(connection) for _ in range(3)])
    finally:
        sys.setswitchinterval(interval)


def test_what_quire_cannot_use_is_refused(tmp_path: Path) -> None:
    quire.open(tmp_path / "agents.db").close()
    with closing(sqlite3.connect(tmp_path / "agents.db")) as own, pytest.raises(InvalidValue):
        quire.open(own)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        with pytest.raises(StorageFailure):
            quire.open(connection, create=False)
        connection.execute("PRAGMA synchronous = NORMAL")
        with pytest.raises(InvalidValue):
            quire.open(connection, durability="full")
        ctx = quire.open(connection, "agent")
        ctx.user("kept")
    with pytest.raises(StorageClosed):
        ctx.user("lost")
    with closing(sqlite3.connect(f"file:{tmp_path / 'app.db'}?mode=ro", uri=True)) as reading:
        ctx = quire.open(reading, "agent")
        assert ctx.messages()[0].text == "kept"
        with pytest.raises(ReadOnly):
            ctx.user("no")
    with pytest.raises(InvalidValue):
        quire.open(3)  # type: ignore[arg-type]


@contextmanager
def _postgres(**options: Any) -> "Iterator[psycopg.Connection[Any]]":
    with closing(psycopg.connect(server_url(), **options)) as connection:
        yield connection


@pytest.mark.servers
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_postgres_connection_is_used_between_transactions(autocommit: bool) -> None:
    notices: list[str] = []
    with _postgres(autocommit=autocommit, row_factory=dict_row) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        storage = PostgresStorage(connection, tenant="lent", schema=new_schema())
        ctx = quire.open(storage, "agent")
        ctx.user("我想去西雅图")
        assert [hit.name for hit in ctx.find("西雅图")]
        assert connection.info.transaction_status.name == "IDLE"
        with connection.transaction():
            connection.execute("CREATE TABLE IF NOT EXISTS mine (a int)")
            with pytest.raises(InvalidOperation):
                ctx.user("inside")
        ctx.user("after")
        connection.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
        assert notices[-1] == "hello"
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
        connection.rollback()
        assert connection.autocommit is autocommit
        with connection.pipeline(), pytest.raises(InvalidOperation):
            ctx.user("inside")
        connection.rollback()
        assert quire.doctor(storage).symptoms == ()
        ctx.close()
        storage.close()
        assert not connection.closed
        with pytest.raises(StorageClosed):
            quire.open(storage, "agent")


@pytest.mark.servers
def test_quire_open_takes_a_postgres_connection_and_a_pool() -> None:
    pool = pytest.importorskip("psycopg_pool")
    with _postgres(options="-c search_path=public") as connection, quire.open(connection, "by-connection") as ctx:
        ctx.user("one")
        assert "by-connection" in list(quire.Library(connection).list())
        quire.Library(connection).delete("by-connection")
    with pool.ConnectionPool(server_url(), min_size=1, max_size=2) as connections:
        with quire.open(connections, "by-pool") as ctx:
            threads = [Thread(target=ctx.user, args=(f"from thread {n}",)) for n in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(ctx.messages()) == 6
        library = quire.Library(connections)
        assert "by-pool" in list(library.list())
        library.delete("by-pool")
        with connections.connection(), connections.connection(), pytest.raises(Busy):
            PostgresStorage(connections, busy_seconds=0.1)
        assert connections.get_stats()["pool_available"] >= 1
    with pytest.raises(StorageClosed):
        library.exists("by-pool")


@pytest.mark.servers
def test_a_lost_postgres_connection_is_reported() -> None:
    with _postgres() as connection, _postgres(autocommit=True) as other:
        storage = PostgresStorage(connection, schema=new_schema(), busy_seconds=0.3)
        ctx = quire.open(storage, "agent")
        ctx.user("one")
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        with pytest.raises(quire.QuireError):
            ctx.user("two")
    with pytest.raises(InvalidValue):
        PostgresStorage(connection)
