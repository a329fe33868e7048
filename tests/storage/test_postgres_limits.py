"""PostgreSQL: locks, time limits, connections and transactions that run again."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import monotonic
from typing import Any

import psycopg
import pytest

from quire import (
    Busy,
    PostgresStorage,
    StorageFailure,
)
from quire.storage.base import PAGE, Commit, Head, Put
from quire.storage.postgres.connection import Pool
from tests.servers.postgres import new_schema, postgres_url

HEAD = b"head"


def test_a_lock_held_too_long_is_busy_and_nothing_is_written(db: psycopg.Connection[Any]) -> None:
    storage = PostgresStorage(postgres_url(), busy_seconds=0.15)
    storage.commit("c", Commit(0, 1, HEAD, [Put(PAGE, 1, b"1")]))
    with db.transaction():
        db.execute("SELECT 1 FROM quire.context WHERE tenant = %s FOR UPDATE", (storage.tenant,))
        with pytest.raises(Busy):
            storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 2, b"2")]))
        with pytest.raises(Busy):
            storage.drop("c")
        with pytest.raises(Busy):
            storage.fork("c", "f", Commit(1, 1, HEAD, []), {})
    assert ([r.key for r in storage.scan("c", PAGE)], storage.head("c")) == ([1], Head(1, HEAD))
    storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 2, b"2")]))
    storage.close()


def test_opening_waits_for_a_lock_and_then_is_busy(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    PostgresStorage(postgres_url(schema=name)).close()
    with ThreadPoolExecutor(2) as pool:
        with db.transaction():
            db.execute(f"LOCK TABLE {name}.meta IN ACCESS EXCLUSIVE MODE")
            refused = pool.submit(PostgresStorage, postgres_url(schema=name), busy_seconds=0.15)
            assert isinstance(refused.exception(timeout=60), Busy)
            patient = pool.submit(PostgresStorage, postgres_url(schema=name), busy_seconds=60)
            with pytest.raises(TimeoutError):
                patient.result(timeout=0.2)
        patient.result(timeout=60).close()
    db.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.parametrize(("options", "limit"), [("", 2), ("?connect_timeout=7", "7")])
def test_one_attempt_to_connect_is_bounded(options: str, limit: object, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def connect(**settings: Any) -> None:
        asked.append(settings["connect_timeout"])
        raise psycopg.errors.ConnectionTimeout("connection timeout expired")

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    with pytest.raises(StorageFailure):
        PostgresStorage(f"postgresql://127.0.0.1:1/db{options}", busy_seconds=0.3)
    assert asked == [limit]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.OperationalError("the database system is starting up"), True),
        (psycopg.errors.TooManyConnections("remaining connection slots are reserved"), True),
        (psycopg.OperationalError('password authentication failed for user "u"'), False),
        (psycopg.OperationalError('database "d" does not exist'), False),
    ],
)
def test_a_server_that_was_reachable_is_waited_for_unless_it_denies_access(
    error: psycopg.Error, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[None] = []

    def connect(**_: Any) -> None:
        attempts.append(None)
        raise error if len(attempts) < 3 else psycopg.OperationalError("password authentication failed")

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    pool = Pool("postgresql://127.0.0.1:1/db", "db", 1, 0.1)
    pool._was_connected = True
    with pytest.raises(psycopg.OperationalError):
        pool.take(monotonic() + 30)
    assert len(attempts) == (3 if waits else 1)


def test_a_commit_waits_for_a_context_that_another_writer_creates(db: psycopg.Connection[Any]) -> None:
    storage = PostgresStorage(postgres_url(), busy_seconds=0.15)
    with db.transaction(force_rollback=True):
        db.execute(
            "INSERT INTO quire.context (tenant, name, version, head, commit_id) VALUES (%s, 'c', 1, 'theirs', 'id')",
            (storage.tenant,),
        )
        with pytest.raises(Busy):
            storage.commit("c", Commit(0, 1, HEAD, []))
    storage.commit("c", Commit(0, 1, HEAD, []))
    storage.close()


def test_the_servers_own_time_limit_is_busy(storage: PostgresStorage) -> None:
    with pytest.raises(Busy, match="statement_timeout"):
        storage._session.transact(
            lambda db: (db.execute("SET LOCAL statement_timeout = '20ms'"), db.execute("SELECT pg_sleep(5)"))
        )
    assert storage.head("c") is None


def test_when_all_connections_are_in_use_the_next_is_busy() -> None:
    storage = PostgresStorage(postgres_url(), connections=1, busy_seconds=0.1)
    storage.commit("c", Commit(0, 1, HEAD, []))
    with storage.snapshot("c") as still:
        with pytest.raises(Busy, match="All 1 connections"):
            storage.head("c")
        assert still.head("c") == Head(1, HEAD)
    assert storage.head("c") == Head(1, HEAD)
    storage.close()


def test_a_transaction_that_the_server_rolled_back_is_run_again(storage: PostgresStorage) -> None:
    tries: list[int] = []

    def work(db: psycopg.Connection[Any]) -> int:
        tries.append(1)
        if len(tries) < 3:
            db.execute(b"DO $$ BEGIN RAISE EXCEPTION 'crowded' USING ERRCODE = '40001'; END $$")
        return len(tries)

    assert storage._session.transact(work) == 3


def test_two_deadlocked_transactions_both_succeed(db: psycopg.Connection[Any]) -> None:
    """The server rolls one of two deadlocked transactions back. It is run again."""
    storage = PostgresStorage(postgres_url(), busy_seconds=20)
    for name in "ab":
        storage.commit(name, Commit(0, 1, HEAD, []))
    lock = "SELECT 1 FROM quire.context WHERE tenant = %s AND name = %s FOR UPDATE"
    met = Barrier(2)
    first: set[str] = set()

    def work(own: str, other: str) -> None:
        def both(db: psycopg.Connection[Any]) -> None:
            db.execute(lock, (storage.tenant, own))
            if own not in first:
                first.add(own)
                met.wait(10)
            db.execute(lock, (storage.tenant, other))

        storage._session.transact(both)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, *pair) for pair in ("ab", "ba")]:
            done.result()
    storage.close()
