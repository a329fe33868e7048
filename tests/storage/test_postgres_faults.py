"""Failures between quire and PostgreSQL: cut connections, proxies, servers that die or hang, full disks."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from random import Random, SystemRandom
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

import quire
from quire import Conflict, EstimateCounter, OutcomeUnknown, PostgresStorage, QuireError, StorageFailure
from tests.servers.postgres import Server, new_server
from tests.servers.postgres_proxy import CuttingProxy, LosingProxy, PoolingProxy

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))
pytestmark = pytest.mark.servers


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


@pytest.fixture
def losing(server: Server) -> Iterator[LosingProxy]:
    with LosingProxy(server.socket) as proxy:
        yield proxy


def texts(url: str) -> list[str]:
    with quire.open(url, "c") as ctx:
        assert ctx.check() == []
        return [message.text for message in ctx.messages()]


def test_a_commit_whose_answer_is_lost_is_made_once(server: Server, losing: LosingProxy) -> None:
    with quire.open(losing.url(tenant="answer"), "c") as ctx:
        for number in range(3):
            losing.marker = f"message {number}".encode()
            ctx.user(f"message {number}")
            assert losing.marker == b""
    assert texts(server.url(tenant="answer")) == [f"message {number}" for number in range(3)]


def test_a_commit_whose_answer_is_lost_is_known_after_others_wrote(server: Server, losing: LosingProxy) -> None:
    tenant = {"tenant": "entry"}
    with quire.open(losing.url(**tenant), "c") as ctx, quire.open(server.url(**tenant), "c") as other:
        other.refresh()

        def move_on() -> None:
            other.refresh()
            other.user("theirs")

        losing.marker, losing.then = b"mine", move_on
        ctx.user("mine")
        ctx.refresh()
        assert [message.text for message in ctx.messages()] == ["mine", "theirs"]
    assert texts(server.url(**tenant)) == ["mine", "theirs"]


def test_idle_connections_that_died_are_replaced(server: Server) -> None:
    with quire.Library(server.url(tenant="idle")) as library:
        for number in range(2):
            library.open(f"c{number}").user("hello")
            with ThreadPoolExecutor(6) as pool:
                assert all(pool.map(library.exists, [f"c{number}"] * 24))
            with psycopg.connect(server.url(), autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")
        assert list(library.list()) == ["c0", "c1"]


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
            quire.Library(storage).delete(f"fork {number}")
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
    ctx = quire.open(storage, "c")
    server.stop()
    with pytest.raises(StorageFailure):
        ctx.refresh()
    with pytest.raises(StorageFailure):
        ctx.user("lost")
    server.start()
    ctx.refresh()
    ctx.user("back")
    assert [message.text for message in ctx.messages()] == ["back"]
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
    random, ctx = Random(1), quire.open(storage, "c", counter=EstimateCounter())
    written = 0
    with suppress(StorageFailure):
        while written < 100:
            ctx.user(f"{written} {random.randbytes(250_000).hex()}")
            written += 1
    assert 1 < written < 100
    for each in (ctx, quire.open(storage, "c")):
        assert [message.text.split()[0] for message in each.messages()] == [f"{n}" for n in range(written)]
        assert each.check() == []
    ctx.user("a small one")


def test_a_server_that_hangs_is_noticed(server: Server) -> None:
    url = server.url(connect_timeout="2")  # the time to answer a new connection after `busy_seconds`
    with closing(PostgresStorage(url, tenant="hangs", busy_seconds=0.3)) as storage:
        book = quire.open(storage, "书", counter=EstimateCounter())
        with server.hanging():
            with pytest.raises(StorageFailure):
                book.refresh()
            with pytest.raises((StorageFailure, OutcomeUnknown)):
                book.user("一")
        assert book.refresh() in (True, False)
        book.user("二")
        assert book.check() == []
