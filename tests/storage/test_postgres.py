"""The PostgreSQL storage: tenants, roles, schemas, locks and connections."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import quire
from quire import Busy, Corrupt, EstimateCounter, Library, PostgresStorage, StorageFailure
from tests.servers.postgres import new_schema, postgres_url, server_url, wait_for_locks

pytestmark = pytest.mark.servers


@pytest.fixture
def db() -> Iterator[psycopg.Connection[Any]]:
    """A connection that does not go through quire."""
    with psycopg.connect(server_url(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def schema(db: psycopg.Connection[Any]) -> Iterator[str]:
    """The name of a schema, which is removed after the test."""
    name = new_schema()
    yield name
    db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def tables_of(db: psycopg.Connection[Any], schema: str) -> list[str]:
    found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,)).fetchall()
    return [row[0] for row in found]


def test_a_tenant_sees_its_own_contexts_only() -> None:
    name = uuid4().hex
    one, two = (Library(PostgresStorage(postgres_url(tenant=f"{name} {who}"))) for who in ("甲", "乙"))
    one.create("c").user("one")
    assert (two.exists("c"), list(two.list())) == (False, [])
    two.create("c").user("two")
    two.create("d")
    assert [library.open("c").messages()[0].text for library in (one, two)] == ["one", "two"]
    with pytest.raises(quire.NoSuchContext):
        one.fork("d", "e")
    two.delete("c")
    assert (list(one.list()), list(two.list())) == (["c"], ["d"])
    for library in (one, two):
        library.storage.close()


def test_the_repr_of_a_storage_has_no_password() -> None:
    storage = PostgresStorage(postgres_url())
    assert repr(storage).startswith("PostgresStorage('postgresql://postgres@")
    storage.close()


# Schemas


def test_a_schema_is_made_once_however_many_open_it(schema: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        storages = list(pool.map(lambda _: PostgresStorage(postgres_url(schema=schema)), range(6)))
    quire.open(storages[0], "c").user("hello")
    assert [Library(storage).exists("c") for storage in storages] == [True] * 6
    for each in storages:
        each.close()


def test_a_store_that_is_not_there_is_not_made_when_that_is_not_wanted(
    db: psycopg.Connection[Any], schema: str
) -> None:
    with pytest.raises(StorageFailure):
        quire.open_storage(postgres_url(schema=schema), create=False)
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None


def test_a_store_that_lost_a_table_is_never_taken_for_a_new_one(db: psycopg.Connection[Any], schema: str) -> None:
    url = postgres_url(schema=schema)
    with quire.open(url, "c") as ctx:
        ctx.user("hello")
    refused = 0
    for table in tables_of(db, schema):
        db.execute(f"ALTER TABLE {schema}.{table} RENAME TO hidden")
        try:
            with quire.open(url, "c") as ctx:
                assert [message.text for message in ctx.messages()] == ["hello"]
        except (Corrupt, StorageFailure):
            refused += 1
        db.execute(f"DROP TABLE IF EXISTS {schema}.{table}")  # a derived one was made anew
        db.execute(f"ALTER TABLE {schema}.hidden RENAME TO {table}")
    assert refused
    with quire.open(url, "c") as ctx:
        assert [message.text for message in ctx.messages()] == ["hello"]


def test_full_durability_is_not_promised_by_a_server_that_does_not_sync(db: psycopg.Connection[Any]) -> None:
    if db.execute("SELECT current_setting('fsync')").fetchone() == ("on",):
        PostgresStorage(postgres_url(), durability="full").close()
        return
    with pytest.raises(StorageFailure):
        PostgresStorage(postgres_url(), durability="full")


# A role without the right to create tables

PAGE_OF_DOCS = Path(__file__).parent.parent.parent / "docs" / "postgres.md"


def grants(schema: str, role: str) -> list[str]:
    """The statements that the documentation gives for such a role."""
    block = PAGE_OF_DOCS.read_text("utf-8").partition("```sql\n")[2].partition("```")[0]
    return [line.replace("quire_app", role).replace("quire", schema) for line in block.splitlines()]


def test_a_role_that_may_only_use_the_tables_does_everything_but_make_them(
    db: psycopg.Connection[Any], schema: str
) -> None:
    url = postgres_url(schema=schema).replace("postgres@", f"{schema}@", 1)
    PostgresStorage(postgres_url(schema=schema)).close()
    for statement in grants(schema, schema):
        db.execute(statement.encode())
    with quire.open(url, "agent", counter=EstimateCounter()) as ctx:
        index = ctx.pages.create_detail_page("Pump", "", "the pump moves water", "mem-0")
        ctx.user("hello 水泵")
        assert ctx.find("水泵")
        assert ctx.fork("fork").pages.detail(index) == "the pump moves water"
        ctx.pages.remove_page(index)
    with Library(url) as library:
        library.delete("agent")
        assert library.open("fork", counter=EstimateCounter()).find("pump")
        assert library.open("fork").check() == []
    with pytest.raises(StorageFailure):
        PostgresStorage(url.replace(f"schema={schema}", f"schema={new_schema()}"))
    db.execute(f"DROP SCHEMA {schema} CASCADE")
    db.execute(f"DROP OWNED BY {schema}")
    db.execute(f"DROP ROLE {schema}")


# Forks, connections, locks


def test_forks_that_are_dropped_at_once_leave_nothing(db: psycopg.Connection[Any], schema: str) -> None:
    storage = PostgresStorage(postgres_url(schema=schema))
    library = Library(storage)

    def rows() -> dict[str, int]:
        counts = ((table, db.execute(f"SELECT count(*) FROM {schema}.{table}")) for table in tables_of(db, schema))
        return {table: int((found.fetchone() or (0,))[0]) for table, found in counts}

    empty = rows()
    for turn in range(3):
        with library.create("a") as ctx:
            ctx.user("hello")
            ctx.find("hello")
        for name in "bcd":
            library.fork("a", name)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(library.delete, "abcd" if turn % 2 else "dcba"))
        assert rows() == empty
    storage.close()


def test_a_commit_beside_a_drop_says_that_the_context_is_gone(db: psycopg.Connection[Any], schema: str) -> None:
    with quire.open(postgres_url(schema=schema), "c") as ctx, ThreadPoolExecutor() as pool:
        ctx.user("hello")
        with db.transaction():
            db.execute(f"DELETE FROM {schema}.context")
            said = pool.submit(ctx.user, "too late")
            wait_for_locks(db, 1)
        assert isinstance(said.exception(), quire.NoSuchContext)


def test_a_storage_that_is_dropped_unclosed_frees_its_connections_at_once(db: psycopg.Connection[Any]) -> None:
    name = f"quire-{uuid4().hex[:8]}"
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    storage = PostgresStorage(postgres_url(application_name=name))
    assert db.execute(count, (name,)).fetchone() != (0,)
    gc.disable()
    try:
        with pytest.warns(ResourceWarning):
            del storage
    finally:
        gc.enable()
    while db.execute(count, (name,)).fetchone() != (0,):  # the server needs a moment
        Event().wait(0.01)


def test_a_call_waits_for_a_locked_table_no_longer_than_it_may(db: psycopg.Connection[Any], schema: str) -> None:
    storage = PostgresStorage(postgres_url(schema=schema), busy_seconds=0.3)
    ctx = quire.open(storage, "c")
    with db.transaction():
        for table in tables_of(db, schema):
            db.execute(f"LOCK TABLE {schema}.{table} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Busy):
            ctx.refresh()
        with pytest.raises(Busy):
            ctx.user("hello")
    assert ctx.messages() == []
    ctx.user("hello")
    assert ctx.check() == []
    storage.close()
