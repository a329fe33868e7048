"""Failures between quire and PostgreSQL: cut connections, proxies, servers that die or hang, full disks."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import pytest

import quire
from quire import EstimateCounter, PostgresStorage, StorageFailure
from tests.seeds import SEED
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Server, new_server, wait_for_locks
from tests.servers.postgres_proxy import CuttingProxy, LosingProxy
from tests.storage.racing import Race

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = new_server()
    PostgresStorage(made.url()).close()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


def test_connections_that_are_cut_at_random_lose_and_double_nothing(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with CuttingProxy(server.socket, SEED) as proxy:
        race = Race(proxy.url(tenant="cut"), tmp_path, SEED, steps=200 if request.config.getoption("--long") else 10)
        race.run(3, 0)
        assert proxy.cuts > 2
    race.check(server.url(tenant="cut"))


def disturb(server: Server, number: int) -> None:
    """End all connections of the server, or kill and restart it."""
    if number % 2:
        server.kill()
        server.start()
        return
    with suppress(psycopg.OperationalError), psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")


def test_a_server_that_is_killed_and_comes_back_lost_nothing(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    long = request.config.getoption("--long")
    race = Race(server.url(tenant="killed"), tmp_path, SEED, steps=300 if long else 15)
    race.run(2, 30 if long else 4, partial(disturb, server))
    race.check(server.url(tenant="killed"))


@pytest.fixture
def bouncer(server: Server) -> Iterator[PgBouncer]:
    made = PgBouncer(server)
    made.start()
    yield made
    made.kill()


def test_behind_pgbouncer_nothing_is_lost_or_doubled_when_everything_dies(
    server: Server, bouncer: PgBouncer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It is in transaction mode: sessions are shared."""
    with psycopg.connect(bouncer.url(), autocommit=True) as one, psycopg.connect(bouncer.url(), autocommit=True) as two:
        assert len({db.execute("SELECT pg_backend_pid()").fetchone() for db in (one, two)}) == 1

    def restart(number: int) -> None:
        if number % 3 == 2:
            bouncer.kill()
            bouncer.start()
        else:
            disturb(server, number)

    long = request.config.getoption("--long")
    race = Race(bouncer.url(tenant="service"), tmp_path, SEED, steps=300 if long else 15)
    race.run(4, 30 if long else 3, restart)
    race.check(server.url(tenant="service"))


@pytest.fixture
def losing(server: Server) -> Iterator[LosingProxy]:
    with LosingProxy(server.socket) as proxy:
        yield proxy


def texts(url: str) -> list[str]:
    with quire.open(url, "c") as ctx:
        assert ctx.check() == []
        return [message.text for message in ctx.messages()]


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


def test_a_commit_made_after_its_connection_was_lost_is_no_conflict(server: Server, losing: LosingProxy) -> None:
    url = losing.url(tenant="late")
    with quire.open(url, "c") as ctx, psycopg.connect(server.url()) as db, ThreadPoolExecutor() as pool:
        ctx.user("early")
        db.execute("LOCK TABLE quire.entry IN SHARE MODE")
        said = pool.submit(ctx.user, "late")
        wait_for_locks(db, 1)
        losing.cut()
        wait_for_locks(db, 2)  # it is sent again while the server can still make the first one
        db.commit()
        said.result()
    assert texts(server.url(tenant="late")) == ["early", "late"]


def test_idle_connections_that_died_are_replaced(server: Server) -> None:
    with quire.Library(server.url(tenant="idle")) as library:
        for number in range(2):
            library.open(f"c{number}").user("hello")
            with ThreadPoolExecutor(6) as pool:
                assert all(pool.map(library.exists, [f"c{number}"] * 24))
            with psycopg.connect(server.url(), autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")
        assert list(library.list()) == ["c0", "c1"]


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
