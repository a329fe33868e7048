"""Failures between quire and PostgreSQL: cut connections, proxies, servers that die or hang, full disks."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from random import Random, SystemRandom
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

import quire
from quire import Conflict, EstimateCounter, OutcomeUnknown, PostgresStorage, QuireError, StorageFailure
from quire.storage.base import BODY, JOURNAL, PAGE, Commit, Head, Put
from quire.storage.postgres.connection import Db
from tests.servers.postgres import Server, new_server
from tests.servers.postgres_proxy import CuttingProxy, PoolingProxy

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))
HEAD = b"head"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = new_server()
    PostgresStorage(made.url()).close()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


class Outcomes:
    """The outcome that each write reported, to compare with the store."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()

    def add(self, storage: PostgresStorage, writer: str, number: int) -> None:
        """Try to add one page and note the outcome."""
        name = f"{writer}-{number}"
        try:
            pages = quire.open(storage, "book", counter=EstimateCounter()).pages
        except QuireError:
            return
        try:
            pages.create_detail_page(name, "", f"text of {name}", "mem-0")
        except OutcomeUnknown:
            self.unknown.add(name)
        except (Conflict, StorageFailure, quire.Busy):
            self.refused.add(name)
        else:
            self.done.add(name)

    def check(self, url: str) -> None:
        """Every acknowledged page exists once, no refused page exists, and the journal has no gap."""
        with quire.open(url, "book", counter=EstimateCounter()) as book:
            found = [page.name for page in book.pages.list_pages("mem") if page.parent]
            assert len(set(found)) == len(found), "doubled"
            assert self.done <= set(found), f"lost: {sorted(self.done - set(found))}"
            assert not self.refused & set(found), f"refused and written: {sorted(self.refused & set(found))}"
            assert set(found) <= self.done | self.unknown, "written by no writer"
            assert book.pages.check() == []
            assert [entry.seq for entry in book.pages.history()] == list(range(1, book.pages.seq + 1))


def write_through_cuts(server: Server, each: int, writers: int, seed: int) -> tuple[Outcomes, int]:
    outcomes, tenant = Outcomes(), f"cut {seed}"
    with CuttingProxy(server.socket, seed) as proxy:

        def work(writer: int) -> None:
            storage = None
            for number in range(each):
                while storage is None:
                    with suppress(StorageFailure):
                        storage = PostgresStorage(proxy.url(), tenant=tenant, busy_seconds=10)
                outcomes.add(storage, f"w{writer}", number)
            if storage is not None:
                storage.close()

        with ThreadPoolExecutor(writers) as pool:
            for done in [pool.submit(work, writer) for writer in range(writers)]:
                done.result()
        cuts = proxy.cuts
    outcomes.check(server.url(tenant=tenant))
    return outcomes, cuts


def test_a_connection_that_is_cut_at_random_loses_and_doubles_nothing(server: Server, request: Any) -> None:
    long = request.config.getoption("--long")
    for turn in range(20 if long else 1):
        print(f"QUIRE_SEED={SEED + turn}")  # noqa: T201 - shown when it fails
        outcomes, cuts = write_through_cuts(server, 100 if long else 25, 3, SEED + turn)
        assert cuts > 5
        assert len(outcomes.done) > 5


@contextmanager
def answer_lost(storage: PostgresStorage, then: Callable[[], object] = lambda: None) -> Iterator[list[int]]:
    """The next commit succeeds, but the connection is lost before the answer arrives. Then `then` is called."""
    pool: Any = storage._session._pool
    lost: list[int] = []
    real = pool.take

    class Losing:
        def __init__(self, db: Db) -> None:
            self._db = db

        def execute(self, *values: Any, **options: Any) -> Any:
            return self._lose(self._db.execute(*values, **options), values[0])

        def run(self, sql: Any) -> Any:
            return self._lose(self._db.run(sql), sql[0])

        def _lose(self, done: Any, text: str) -> Any:
            if "commit_id" not in text:
                return done
            lost.append(1)
            self._db.close()
            then()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._db, name)

    pool.take = lambda deadline: Losing(real(deadline)) if not lost else real(deadline)
    try:
        yield lost
    finally:
        pool.take = real


def test_a_commit_whose_answer_is_lost_is_made_once(server: Server) -> None:
    storage = PostgresStorage(server.url(tenant="answer"))
    for version in range(3):
        with answer_lost(storage) as lost:
            storage.commit("c", Commit(version, version + 1, b"%d" % version, [Put(PAGE, version, b"x")]))
        assert lost == [1]
        assert storage.head("c") == Head(version + 1, b"%d" % version)
    assert [r.key for r in storage.scan("c", PAGE)] == [0, 1, 2]
    storage.close()


def test_a_commit_whose_answer_is_lost_is_known_by_its_entry_after_others_wrote(server: Server) -> None:
    storage, other = (PostgresStorage(server.url(tenant="entry")) for _ in range(2))
    storage.commit("c", Commit(0, 1, HEAD, []))

    def move_on() -> None:
        other.commit("c", Commit(2, 3, b"theirs", [Put(JOURNAL, 3, b"theirs")]))

    with answer_lost(storage, move_on):
        storage.commit("c", Commit(1, 2, HEAD, [Put(JOURNAL, 2, b"mine"), Put(BODY, 1, b"x")]))
    assert [r.value for r in storage.scan("c", JOURNAL)] == [b"mine", b"theirs"]
    for each in (storage, other):
        each.close()


def test_a_commit_without_an_entry_that_others_wrote_over_is_of_unknown_outcome(server: Server) -> None:
    storage, other = (PostgresStorage(server.url(tenant="unknown")) for _ in range(2))
    storage.commit("c", Commit(0, 1, HEAD, []))
    with (
        answer_lost(storage, lambda: other.commit("c", Commit(2, 3, b"theirs", []))),
        pytest.raises(OutcomeUnknown),
    ):
        storage.commit("c", Commit(1, 2, HEAD, []))
    assert storage.head("c") == Head(3, b"theirs")
    for each in (storage, other):
        each.close()


def test_a_write_that_never_happened_because_another_came_first_is_a_conflict(server: Server) -> None:
    storage, other = (PostgresStorage(server.url(tenant="first")) for _ in range(2))
    storage.commit("c", Commit(0, 1, HEAD, []))
    other.commit("c", Commit(1, 2, b"theirs", [Put(JOURNAL, 2, b"theirs")]))
    with answer_lost(storage), pytest.raises(Conflict):
        storage.commit("c", Commit(1, 2, HEAD, [Put(JOURNAL, 2, b"mine")]))
    for each in (storage, other):
        each.close()


def test_idle_connections_that_died_are_replaced(server: Server) -> None:
    storage = PostgresStorage(server.url(tenant="idle"))
    storage.commit("c", Commit(0, 1, HEAD, [Put(PAGE, 1, b"1")]))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(storage.head, "c" * 24))
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'quire'")
    assert storage.head("c") == Head(1, HEAD)
    storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 2, b"2")]))
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(storage.head, "c" * 24)) == {Head(2, HEAD)}
    storage.close()


def test_behind_a_proxy_that_pools_sessions_everything_works(server: Server) -> None:
    """Three clients share two sessions. Each transaction gets any of them."""
    with PoolingProxy(server.socket, sessions=2) as proxy:

        def work(number: int) -> None:
            storage = PostgresStorage(proxy.url(), tenant="lent")
            ctx = quire.open(storage, f"c{number}", counter=EstimateCounter())
            for turn in range(6):
                index = ctx.pages.create_detail_page(f"{number}-{turn}", "", f"pump {turn} 水泵", "mem-0")
                ctx.pages.hide(index)
                ctx.user(f"hello {number}")
            assert len(ctx.find("水泵", limit=30)) == 6
            fork = ctx.fork(f"fork {number}")
            assert fork.pages.check() == []
            storage.drop(f"fork {number}")
            storage.close()

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(work, number) for number in range(3)]:
                done.result()
        assert len(proxy.used) == 2
    with quire.Library(server.url(tenant="lent")) as library:
        assert list(library.list()) == ["c0", "c1", "c2"]
        for number in range(3):
            pages = library.open(f"c{number}", counter=EstimateCounter()).pages
            assert [page.name for page in pages.children("mem-0")] == [f"{number}-{turn}" for turn in range(6)]


def test_a_server_that_is_killed_and_comes_back_lost_nothing(server: Server) -> None:
    random, outcomes, over = Random(SEED), Outcomes(), Event()
    storage = PostgresStorage(server.url(tenant="killed"), busy_seconds=10)

    def work(writer: int) -> None:
        number = 0
        while not over.is_set():
            outcomes.add(storage, f"w{writer}", number)
            number += 1

    writers = [Thread(target=work, args=(writer,)) for writer in range(2)]
    for thread in writers:
        thread.start()
    for _ in range(3):
        over.wait(random.uniform(0.05, 0.3))
        server.kill()
        server.start()
    over.wait(0.1)
    over.set()
    for thread in writers:
        thread.join()
    storage.close()
    outcomes.check(server.url(tenant="killed"))
    assert outcomes.done, f"QUIRE_SEED={SEED}"


def test_a_server_that_is_away_is_a_failure_and_then_works_again(server: Server) -> None:
    storage = PostgresStorage(server.url(tenant="away"), busy_seconds=0.3)
    storage.commit("c", Commit(0, 1, HEAD, []))
    server.stop()
    with pytest.raises(StorageFailure, match="lost or refused"):
        storage.head("c")
    with pytest.raises(StorageFailure):
        storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 1, b"1")]))
    server.start()
    assert storage.head("c") == Head(1, HEAD)
    storage.commit("c", Commit(1, 2, HEAD, [Put(PAGE, 1, b"1")]))
    storage.close()


def test_a_full_disk_is_a_failure_and_changes_nothing(server: Server) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small disk can be made by root only")
    small = server.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        owner = server.data.stat()
        os.chown(small, owner.st_uid, owner.st_gid)
        (small / "pg").mkdir(mode=0o700)
        os.chown(small / "pg", owner.st_uid, owner.st_gid)
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute(f"CREATE TABLESPACE small LOCATION '{small}/pg'".encode())
            db.execute("CREATE DATABASE little TABLESPACE small")
        storage = PostgresStorage(server.url(database="little"))
        fill(storage)
        storage.close()
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("DROP DATABASE little WITH (FORCE)")
            db.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def fill(storage: PostgresStorage) -> None:
    """Write until the disk is full. The failed write changes nothing, and small writes still succeed."""
    random, version = Random(1), 0
    message = ""
    while version < 100 and not message:
        put = Put(BODY, version, random.randbytes(500_000))
        try:
            storage.commit("c", Commit(version, version + 1, HEAD, [Put(PAGE, version, b"x"), put]))
            version += 1
        except StorageFailure as error:
            message = str(error)
    assert "nothing was changed" in message
    assert "No space left" in message or "could not" in message
    assert version > 1
    assert storage.head("c") == Head(version, HEAD)
    assert [r.key for r in storage.scan("c", PAGE)] == list(range(version))
    assert [r.key for r in storage.scan("c", BODY)] == list(range(version))
    storage.commit("c", Commit(version, version + 1, HEAD, []))
    assert storage.head("c") == Head(version + 1, HEAD)


def test_a_server_that_hangs_is_noticed(server: Server) -> None:
    url = server.url(connect_timeout="2")  # the time to answer a new connection after `busy_seconds`
    with closing(PostgresStorage(url, tenant="hangs", busy_seconds=0.3)) as storage:
        book = quire.open(storage, "书", counter=EstimateCounter())
        with server.hanging():
            with pytest.raises(StorageFailure, match="was lost or refused"):
                book.refresh()
            with pytest.raises((StorageFailure, OutcomeUnknown)):
                book.user("一")
        assert book.refresh() in (True, False)
        book.user("二")
        assert book.check() == []


def test_a_slow_statement_is_not_cut_off(server: Server) -> None:
    with closing(PostgresStorage(server.url(), tenant="slow", busy_seconds=0.1)) as storage:
        assert storage._session.read("SELECT 7 FROM pg_sleep(0.8)") == [(7,)]
        assert storage.head("nothing") is None
