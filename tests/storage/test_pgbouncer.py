"""A service behind PgBouncer in transaction mode: nothing is lost or doubled when connections and servers die."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from threading import Thread

import psycopg
import pytest

import quire
from tests.servers.pgbouncer import PgBouncer, find_pgbouncer
from tests.servers.postgres import Server, new_server

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))
WORKERS, CONTEXTS, PATIENCE = 4, 6, 120.0
"""Of seconds: a lease that was not released ends after 30."""
pytestmark = pytest.mark.servers
SAFE = {"Busy", "Conflict", "LeaseLost", "OutcomeUnknown"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    find_pgbouncer()  # before a server is started for nothing
    made = new_server()
    yield made
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def bouncer(server: Server) -> Iterator[PgBouncer]:
    made = PgBouncer(server)
    made.start()
    yield made
    made.kill()


def test_it_is_transaction_mode_and_sessions_are_shared(bouncer: PgBouncer) -> None:
    with psycopg.connect(bouncer.url(), autocommit=True) as one, psycopg.connect(bouncer.url(), autocommit=True) as two:
        sessions = {db.execute("SELECT pg_backend_pid()").fetchone() for db in (one, two)}
        assert len(sessions) == 1
    with quire.open(bouncer.url(tenant="one"), "one") as ctx:
        for number in range(20):  # more often than a driver needs to prepare a statement
            ctx.user(f"question {number}")
            ctx.render()
        assert len(ctx.messages()) == 20
        assert ctx.find("question 7")


class Workers:
    """Worker processes of a service, and the lines that they print."""

    def __init__(self, url: str) -> None:
        program = Path(__file__).with_name("turn_workers.py")
        self._lines: list[str] = []
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(program), url, f"w{number}", str(CONTEXTS), str(SEED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(WORKERS)
        ]
        self._readers = [Thread(target=self._read, args=(process,)) for process in self._processes]
        for reader in self._readers:
            reader.start()
        self._wait_until(lambda: self._lines.count("+\n") == WORKERS)

    def wait_for(self, turns: int) -> None:
        """Wait until the workers acknowledged so many turns, or cannot."""
        self._wait_until(lambda: len(self.acknowledged()) >= turns)

    def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_reached() and time.monotonic() < deadline:
            if any(process.poll() is not None for process in self._processes):
                raise AssertionError(self.stop())
            time.sleep(0.01)

    def stop(self) -> str:
        """End the workers after their current turns. Return their complaints."""
        complaints = []
        for process in self._processes:
            assert process.stdin is not None
            assert process.stderr is not None
            with suppress(OSError):
                process.stdin.close()
            if not process.stderr.closed:  # it was stopped before, because it ended early
                with process.stderr:
                    complaints.append(process.stderr.read())
            process.wait()
        for reader in self._readers:
            reader.join()
        return "".join(complaints)

    def acknowledged(self) -> list[tuple[str, ...]]:
        return [tuple(line.split()) for line in list(self._lines) if line[0] not in "!+"]

    def errors(self) -> Counter[str]:
        return Counter(line[1:].strip() for line in list(self._lines) if line.startswith("!"))

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            self._lines.extend(process.stdout)


@pytest.mark.slow
def test_no_turn_is_lost_or_doubled_when_everything_dies(
    server: Server, bouncer: PgBouncer, request: pytest.FixtureRequest
) -> None:
    url = bouncer.url(tenant="service")
    quire.Library(url).close()
    chance, workers = Random(SEED), Workers(url)
    turns = 0
    try:
        for number in range(30 if request.config.getoption("--long") else 3):
            turns += chance.randrange(8, 20)
            workers.wait_for(turns)
            _disturb(server, bouncer, number)
        workers.wait_for(turns + 10)
    finally:
        complaints = workers.stop()
    acknowledged, errors = workers.acknowledged(), workers.errors()
    print(f"QUIRE_SEED={SEED}: {len(acknowledged)} turns, errors {dict(errors)}")  # noqa: T201 - shown when it fails
    assert complaints == ""
    assert errors.keys() <= SAFE
    assert len(acknowledged) == len(set(acknowledged)) >= turns + 10
    _check(url, acknowledged)


def _disturb(server: Server, bouncer: PgBouncer, number: int) -> None:
    """End all connections of the server, crash and restart it, or kill and restart PgBouncer."""
    if number % 3 == 0:
        with suppress(psycopg.OperationalError), psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")
    elif number % 3 == 1:
        server.kill()
        server.start()
    else:
        bouncer.kill()
        bouncer.start()


def _check(url: str, acknowledged: list[tuple[str, ...]]) -> None:
    """Check that every acknowledged turn is stored once and whole, and that no other one is doubled."""
    with quire.Library(url) as library:
        stored: Counter[tuple[str, str]] = Counter()
        for name in library.list():
            ctx = library.open(name)
            assert ctx.check() == []
            stored.update((name, message.text) for message in ctx.messages())
    expected = {(context, f"{what} {key}.") for context, key in acknowledged for what in ("question", "answer")}
    assert expected - stored.keys() == set()
    assert {text: times for text, times in stored.items() if times > 1} == {}
