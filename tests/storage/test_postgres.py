"""The PostgreSQL storage: the contract, addresses, tenants, roles, schemas and time limits."""

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import ref

import psycopg
import pytest

import quire
from quire import (
    Busy,
    Conflict,
    EstimateCounter,
    InvalidOperation,
    InvalidValue,
    PostgresStorage,
    Storage,
    StorageClosed,
    StorageFailure,
)
from quire.errors import NewerFormat
from quire.storage.base import BODY, JOURNAL, MESSAGE, PAGE, Commit, Delete, Head, Put, snapshot_of
from quire.storage.postgres import schema
from quire.storage.postgres.address import parse
from quire.storage.postgres.commit import CommitBuilder, merge_writes
from quire.storage.search_protocol import IndexState
from quire.testing import StorageContract
from tests.servers.postgres import new_schema, postgres_url

HEAD = b"head"


class TestPostgres(StorageContract):
    """The contract. Its slow tests read everything many times."""

    def open_storage(self, place: Path) -> Storage:
        return PostgresStorage(postgres_url(tenant=sha256(str(place).encode()).hexdigest()))

    @pytest.mark.slow
    def test_a_fork_holds_everything_but_the_journal(self) -> None:
        super().test_a_fork_holds_everything_but_the_journal()

    @pytest.mark.slow
    def test_a_fork_takes_only_the_keys_below(self) -> None:
        super().test_a_fork_takes_only_the_keys_below()

    @pytest.mark.slow
    def test_what_either_deletes_the_other_keeps(self) -> None:
        super().test_what_either_deletes_the_other_keeps()

    @pytest.mark.slow
    def test_whatever_is_done_to_a_family_of_forks_memory_agrees(self) -> None:
        super().test_whatever_is_done_to_a_family_of_forks_memory_agrees()

    @pytest.mark.slow
    def test_forks_of_forks_can_be_dropped_in_any_order(self) -> None:
        super().test_forks_of_forks_can_be_dropped_in_any_order()


# Addresses


def test_a_url_opens_it_for_open_and_library(db: psycopg.Connection[Any]) -> None:
    url = postgres_url()
    with quire.open(url, "agent", counter=EstimateCounter()) as ctx:
        index = ctx.pages.create_detail_page("Seat", "", "乘客想要靠窗的座位。", "mem-0")
        assert [hit.index for hit in ctx.find("座位")] == [index]
    with quire.Library(url) as library:
        assert list(library.list()) == ["agent"]
        assert library.open("agent", counter=EstimateCounter()).pages.detail(index) == "乘客想要靠窗的座位。"


def test_tenant_and_schema_are_given_in_the_url_or_as_arguments() -> None:
    here = "postgresql://me@host:5/db?sslmode=disable"
    assert parse(f"{here}&tenant=a%20b&schema=s") == parse(here, "a b", "s")
    assert parse(f"{here}&tenant=a", "a").tenant == "a"
    found = parse("postgres://host/db")
    assert (found.tenant, found.schema) == ("", "quire")
    assert "tenant" not in parse(f"{here}&tenant=a").url
    with pytest.raises(InvalidValue, match="tenant='a'") as caught:
        parse(f"{here}&tenant=a", "b")
    assert caught.value.argument == "tenant"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mysql://x/y", {}),
        ("postgresql", {}),
        ("postgresql://a/b?tenant", {}),
        ("postgresql://a/b\n", {}),
        (7, {}),
        ("postgresql://a/b?schema=A", {}),
        ("postgresql://a/b", {"schema": 'x"; DROP'}),
        ("postgresql://a/b", {"schema": "pg_catalog"}),
        ("postgresql://a/b", {"schema": "x" * 64}),
        ("postgresql://a/b", {"tenant": " a"}),
        ("postgresql://a/b", {"tenant": "a\0"}),
        ("postgresql://a/b", {"tenant": 3}),
        ("postgresql://a/b", {"connections": 0}),
        ("postgresql://a/b", {"connections": True}),
        ("postgresql://a/b", {"busy_seconds": 0}),
        ("postgresql://a/b", {"busy_seconds": float("nan")}),
        ("postgresql://a/b", {"busy_seconds": "5"}),
        ("postgresql://a/b", {"durability": "some"}),
        ("postgresql://a/b?nonsense=1", {}),
    ],
)
def test_an_invalid_address_or_option_is_refused(url: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        PostgresStorage(url, **options)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/db",
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?nonsense=1",
        f"postgresql://me:{SECRET}@127.0.0.1:x/db",
        f"postgresql://me:{SECRET}@[::1/db",
        f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}",
        f"postgresql://127.0.0.1:1/db?passfile=/{SECRET}",
        f"postgresql+other://me:{SECRET}@h/db",
        f"postgresql://me:{SECRET}@127.0.0.1:1/db?tenant=%20x",
    ],
)
def test_no_message_contains_the_password(url: str) -> None:
    with pytest.raises(quire.QuireError) as caught:
        quire.open_storage(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert SECRET not in repr(error)
        error = error.__cause__


def test_the_repr_of_a_storage_has_no_password(storage: PostgresStorage) -> None:
    assert repr(storage).startswith("PostgresStorage('postgresql://postgres@")
    name = parse(f"postgresql://me:{SECRET}@host:5432/db?sslmode=require&password={SECRET}&sslkey={SECRET}").name
    assert name == "postgresql://me@host:5432/db?sslmode=require"


def test_without_the_driver_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidOperation, match=r"pip install .*\[postgres\]'"):
        PostgresStorage("postgresql://host/db")


def test_a_missing_server_is_a_failure_that_names_it() -> None:
    with pytest.raises(StorageFailure, match=r"127\.0\.0\.1:1/db"):
        PostgresStorage("postgresql://127.0.0.1:1/db", busy_seconds=0.1)


# Tenants


def test_a_tenant_sees_its_own_contexts_only() -> None:
    name = uuid4().hex
    one, two = (PostgresStorage(postgres_url(tenant=f"{name} {who}")) for who in ("甲", "乙"))
    one.commit("c", Commit(0, 1, b"one", [Put(PAGE, 1, b"one", 1, b"a"), Put(BODY, 1, b"one")]))
    assert (two.head("c"), two.get("c", PAGE, 1), list(two.contexts())) == (None, None, [])
    two.commit("c", Commit(0, 1, b"two", [Put(PAGE, 2, b"two", 1, b"a"), Put(BODY, 1, b"two")]))
    two.commit("d", Commit(0, 1, b"two", []))
    assert [r.value for r in one.scan("c", BODY)] == [b"one"]
    assert [r.value for r in two.scan("c", BODY)] == [b"two"]
    with pytest.raises(Conflict):
        one.fork("d", "e", Commit(1, 1, b"x", []), {})
    two.drop("c")
    assert (one.head("c"), list(one.contexts()), list(two.contexts())) == (Head(1, b"one"), ["c"], ["d"])
    for each in (one, two):
        each.close()


# Schemas


def test_a_schema_is_made_once_however_many_open_it(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    with ThreadPoolExecutor(6) as pool:
        opened = [pool.submit(PostgresStorage, postgres_url(schema=name)) for _ in range(6)]
        storages = [each.result() for each in opened]
    storages[0].commit("c", Commit(0, 1, HEAD, []))
    assert storages[5].head("c") == Head(1, HEAD)
    for each in storages:
        each.close()
    assert db.execute(f"SELECT version FROM {name}.meta").fetchall() == [(len(schema.MIGRATIONS),)]
    db.execute(f"DROP SCHEMA {name} CASCADE")


def test_a_store_that_is_not_there_is_not_made_when_that_is_not_wanted(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    with pytest.raises(StorageFailure, match=name):
        quire.open_storage(postgres_url(schema=name), create=False)
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchone() is None


def test_an_older_schema_is_brought_forward_and_a_newer_one_refused(
    db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_schema()
    url = postgres_url(schema=name)
    old = PostgresStorage(url)
    old.commit("c", Commit(0, 1, HEAD, []))
    steps = (*schema.MIGRATIONS, "ALTER TABLE {q}.meta ADD COLUMN later text")
    with monkeypatch.context() as newer:
        newer.setattr(schema, "MIGRATIONS", steps)
        newer.setattr(schema, "quire_version", lambda: "7.1")
        again = PostgresStorage(url)
        assert again.head("c") == Head(1, HEAD)
        again.close()
    assert db.execute(f"SELECT version, quire, later FROM {name}.meta").fetchall() == [(len(steps), "7.1", None)]
    with pytest.raises(NewerFormat, match=r"Install quire 7\.1 or newer"):
        PostgresStorage(url)
    old.close()
    db.execute(f"DROP SCHEMA {name} CASCADE")


def test_a_step_that_fails_leaves_the_schema_as_it_was(
    db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_schema()
    PostgresStorage(postgres_url(schema=name)).close()
    with monkeypatch.context() as newer:
        newer.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE {q}.more (x int); SELECT 1/0"))
        with pytest.raises(StorageFailure):
            PostgresStorage(postgres_url(schema=name))
    assert db.execute("SELECT to_regclass(%s)", (f"{name}.more",)).fetchone() == (None,)
    PostgresStorage(postgres_url(schema=name)).close()
    db.execute(f"DROP SCHEMA {name} CASCADE")


def test_missing_tables_are_a_failure_that_names_them(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    storage = PostgresStorage(postgres_url(schema=name))
    storage.commit("c", Commit(0, 1, HEAD, []))
    db.execute(f"DROP SCHEMA {name} CASCADE")
    with pytest.raises(StorageFailure, match="lost some of quire's tables"):
        storage.head("c")
    storage.close()


def test_tables_without_the_version_table_are_corrupt(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    url = postgres_url(schema=name)
    PostgresStorage(url).close()
    db.execute(f"DROP TABLE {name}.meta")
    for create in (True, False):
        with pytest.raises(quire.Corrupt, match=rf"{name}\.meta"):
            PostgresStorage(url, create=create)
    db.execute(f"DROP SCHEMA {name} CASCADE")


def test_full_durability_is_not_promised_by_a_server_that_does_not_sync(db: psycopg.Connection[Any]) -> None:
    row = db.execute("SELECT current_setting('fsync')").fetchone()
    if row == ("on",):
        PostgresStorage(postgres_url(), durability="full").close()
        return
    with pytest.raises(StorageFailure, match="fsync"):
        PostgresStorage(postgres_url(), durability="full")


# A role without the right to create tables

PAGE_OF_DOCS = Path(__file__).parent.parent.parent / "docs" / "postgres.md"


def grants(schema_name: str, role: str) -> list[str]:
    """The statements that the documentation gives for such a role."""
    block = PAGE_OF_DOCS.read_text("utf-8").partition("```sql\n")[2].partition("```")[0]
    return [line.replace("quire_app", role).replace("quire", schema_name) for line in block.splitlines()]


def test_a_role_that_may_only_use_the_tables_does_everything_but_make_them(db: psycopg.Connection[Any]) -> None:
    name = new_schema()
    url = postgres_url(schema=name).replace("postgres@", f"{name}@", 1)
    PostgresStorage(postgres_url(schema=name)).close()
    for statement in grants(name, name):
        db.execute(statement.encode())
    with quire.open(url, "agent", counter=EstimateCounter()) as ctx:
        index = ctx.pages.create_detail_page("Pump", "", "the pump moves water", "mem-0")
        ctx.user("hello 水泵")
        assert ctx.find("水泵")
        fork = ctx.fork("fork")
        assert fork.pages.detail(index) == "the pump moves water"
        ctx.pages.remove_page(index)
    with quire.Library(url) as library:
        library.delete("agent")
        assert library.open("fork", counter=EstimateCounter()).find("pump")
        with snapshot_of(library.storage, "fork") as still:
            assert still.head("fork") is not None
    with pytest.raises(StorageFailure, match="as their owner"):
        PostgresStorage(url.replace(f"schema={name}", f"schema={new_schema()}"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(parse(url).url) as own:
        own.execute(f"CREATE TABLE {name}.mine (x int)".encode())
    db.execute(f"DROP SCHEMA {name} CASCADE")
    db.execute(f"DROP OWNED BY {name}")
    db.execute(f"DROP ROLE {name}")


# Snapshots and sizes


def test_a_snapshot_stays_as_it_was_and_cannot_be_written(storage: PostgresStorage) -> None:
    storage.commit("c", Commit(0, 1, HEAD, [Put(PAGE, 1, b"1")]))
    with storage.snapshot("c") as still:
        storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 2, b"2"), Delete(PAGE, 1)]))
        assert (still.head("c"), [r.key for r in still.scan("c", PAGE)]) == (Head(1, HEAD), [1])
        with pytest.raises(InvalidOperation):
            still.commit("c", Commit(1, 2, HEAD, []))
        with pytest.raises(InvalidOperation):
            still.drop("c")
    assert [r.key for r in storage.scan("c", PAGE)] == [2]


def test_a_commit_too_large_for_one_statement_is_still_one_commit(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.storage.postgres.commit._MAX_BYTES", 1_000)
    writes = [Put(BODY, key, bytes(300)) for key in range(20)]
    commit = Commit(0, 1, HEAD, [*writes, Put(PAGE, 1, b"1")])
    assert (
        len(list(CommitBuilder("q", "", 1, full=False).statements("c", commit, b"id", merge_writes(commit.writes)))) > 5
    )
    storage.commit("c", commit)
    assert [r.key for r in storage.scan("c", BODY)] == list(range(20))
    with pytest.raises(Conflict):
        storage.commit("c", Commit(7, 8, HEAD, [*writes, Delete(PAGE, 1)]))
    storage.commit("c", Commit(1, 2, HEAD, [*(Delete(BODY, key) for key in range(20)), *[Put(PAGE, 2, bytes(5_000))]]))
    assert ([r.key for r in storage.scan("c", BODY)], [r.key for r in storage.scan("c", PAGE)]) == ([], [1, 2])
    assert storage.head("c") == Head(2, HEAD)


def test_a_document_with_too_many_words_for_the_engine_is_found_all_the_same(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.storage.postgres.search._WIDE_BYTES", 400)
    ctx = quire.open(storage, "c", counter=EstimateCounter())
    wide = ctx.pages.create_detail_page("Wide", "", " ".join(f"word{n}" for n in range(200)) + " 数据库", "mem-0")
    ctx.pages.create_detail_page("Narrow", "", "word7 alone", "mem-0")
    assert {hit.index for hit in ctx.find("word7")} == {"mem-1", "mem-2"}
    assert next(hit.index for hit in ctx.find("word7 word8")) == wide
    assert [hit.index for hit in ctx.find('"word8 word7"')] == []
    assert [hit.index for hit in ctx.find("数据库")] == [wide]
    assert [hit.index for hit in ctx.find("nowhere")] == []


def test_dropping_the_last_fork_removes_shared_records(storage: PostgresStorage, db: psycopg.Connection[Any]) -> None:
    new = [Put(BODY, 1, b"1"), Put(MESSAGE, 1, b"1"), Put(PAGE, 1, b"1"), Put(JOURNAL, 1, b"1")]
    storage.commit("a", Commit(0, 1, HEAD, new))
    storage.fork("a", "b", Commit(1, 1, HEAD, []), {})
    storage.fork("b", "c", Commit(1, 1, HEAD, [Delete(BODY, 1)]), {})
    numbers = [storage._number(name) for name in "abc"]
    storage.search("a").update(None, IndexState(1, b"x"), ())
    for name in "abc":
        storage.drop(name)
    for table in ("record", "gone", "search", "search_state", "search_size"):
        assert db.execute(f"SELECT * FROM quire.{table} WHERE context = ANY(%s)", (numbers,)).fetchall() == []
    assert db.execute("SELECT * FROM quire.shared WHERE id = ANY(%s)", (numbers,)).fetchall() == []


def test_forks_that_are_dropped_at_once_leave_nothing(storage: PostgresStorage, db: psycopg.Connection[Any]) -> None:
    for turn in range(6):
        storage.commit("a", Commit(0, 1, HEAD, [Put(BODY, 1, b"1")]))
        for name in "bcde":
            storage.fork("a", name, Commit(1, 1, HEAD, []), {})
        numbers = [storage._number(name) for name in "abcde"]
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(storage.drop, "abcde" if turn % 2 else "edcba"))
        assert db.execute("SELECT * FROM quire.record WHERE context = ANY(%s)", (numbers,)).fetchall() == []
        assert db.execute("SELECT * FROM quire.shared WHERE id = ANY(%s)", (numbers,)).fetchall() == []


def test_closing_wakes_threads_that_wait_for_a_connection() -> None:
    storage = PostgresStorage(postgres_url(), connections=1)
    with storage.snapshot("c"), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(storage.head, "c")
        storage.close()
        with pytest.raises(StorageClosed):
            waiting.result(10)


def test_a_storage_that_is_dropped_unclosed_frees_its_connections_at_once() -> None:
    storage = PostgresStorage(postgres_url())
    connection = ref(storage._session._pool._idle[-1][0])
    gc.disable()
    try:
        with pytest.warns(ResourceWarning):
            del storage
        assert connection() is None
    finally:
        gc.enable()


def test_opening_drawing_and_adding_take_few_round_trips(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    session: Any = storage._session

    def noted(name: str, real: Any) -> Any:
        def ask(*values: Any) -> Any:
            asked.append(name)
            return real(*values)

        return ask

    for name in ("read", "write_once"):
        monkeypatch.setattr(session, name, noted(name, getattr(session, name)))
    for count, trips in ((20, ["read", "read", "read", "write_once"]), (200, None)):  # many records are not prefetched
        asked.clear()
        ctx = quire.open(storage, f"trips-{count}", budget=100_000, counter=EstimateCounter())
        ctx.add([{"role": "assistant" if n % 2 else "user", "content": f"line {n}"} for n in range(count)])
        assert asked == ["read", "write_once", "write_once"]  # is it new? create it; store the messages
        expected = ctx.render().openai()
        asked.clear()
        assert (
            quire.open(storage, f"trips-{count}", budget=100_000, counter=EstimateCounter()).render().openai()
            == expected
        )
        quire.open(storage, f"trips-{count}", counter=EstimateCounter()).user("one more")
        assert trips is None or asked == trips
        assert quire.open(storage, f"trips-{count}").check() == []


def test_a_read_waits_for_a_locked_table_no_longer_than_it_may(db: psycopg.Connection[Any]) -> None:
    impatient = PostgresStorage(postgres_url(), busy_seconds=0.3)
    impatient.commit("c", Commit(0, 1, HEAD, []))
    with db.transaction():
        db.execute(f'LOCK TABLE "{impatient.schema}".context IN ACCESS EXCLUSIVE MODE')
        with pytest.raises(Busy, match="lock"):
            impatient.head("c")
    assert impatient.head("c") == Head(1, HEAD)
    impatient.close()


def test_a_record_that_exists_against_the_hint_is_replaced(storage: PostgresStorage) -> None:
    storage.commit("c", Commit(0, 1, HEAD, [Put(PAGE, 1, b"old", 2, b"a", is_new=True)]))
    storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 1, b"new", 3, b"b", is_new=True), Put(BODY, 1, b"1")]))
    storage.commit("c", Commit(2, 3, HEAD, [Put(PAGE, key, b"newer", is_new=True) for key in range(30)]))
    storage.commit("c", Commit(3, 4, HEAD, [Put(PAGE, 1, b"newest", is_new=True), Put(JOURNAL, 4, b"4", is_new=True)]))
    assert [record.value for record in storage.scan("c", PAGE)] == [b"newer", b"newest", *[b"newer"] * 28]
    assert storage.head("c") == Head(4, HEAD)
    with pytest.raises(Conflict):
        storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 1, b"late", is_new=True)]))
