"""PostgreSQL: a durable operation against a bare round trip, and eight workers against eight bare writers.

The server is one of our own, with everything synced as a server in earnest does it. What is bare writes the same bytes
in one row and one transaction through psycopg, prepared by its driver.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quire
from bench.figures import Figure
from bench.measure import NoTokens, prose
from quire.storage.base import Commit, Delete

_TEXT = 300
_WORKERS = 8
_TABLE = "CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value bytea NOT NULL)"
_INSERT = "INSERT INTO floor (value) VALUES (%b)"
_WORKER = """
import sys, time
from bench.postgres import bare_writer, quire_writer
write = {"bare": bare_writer, "quire": quire_writer}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
for _ in range(20):
    write()
print("ready", flush=True)
end = float(sys.stdin.readline()) + time.monotonic()
count = 0
while time.monotonic() < end:
    write()
    count += 1
print(count)
"""


def run(folder: Path, size: int) -> list[Figure]:
    """All figures of PostgreSQL; none if no server can be started."""
    import psycopg

    from tests.servers.postgres import Refused, Server

    try:
        server = Server(folder, durable=True)
        server.start()
    except Refused as error:
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        return []
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute(_TABLE)
        carried = _carried(server.url())
        turns = 100 if size < 1_000_000 else 1_000
        return [_operation(server.url(), carried, turns), _workers(server.url(), carried, turns / 400)]
    finally:
        server.stop()


def bare_writer(url: str, name: str, carried: int) -> Callable[[], object]:
    """Writes so many bytes in one row and one transaction."""
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    data = random.Random(name).randbytes(carried)
    return lambda: db.execute(_INSERT, (data,))


def quire_writer(url: str, name: str, carried: int) -> Callable[[], object]:
    """Makes a small page in a context of its own."""
    ctx = quire.open(url, name, counter=NoTokens())
    chance = random.Random(name)
    return lambda: ctx.pages.create_detail_page("page", "", prose(chance, _TEXT), "mem-0")


def _carried(url: str) -> int:
    """The bytes that a small operation commits."""
    storage: Any = quire.open_storage(url)
    sizes: list[int] = []
    write = storage.commit

    def counted(context: str, commit: Commit) -> None:
        values = (each.value for each in commit.writes if not isinstance(each, Delete))
        sizes.append(len(commit.head) + sum(map(len, values)))
        write(context, commit)

    storage.commit = counted
    ctx = quire.open(storage, "counted", counter=NoTokens())
    for _ in range(20):
        ctx.pages.create_detail_page("page", "", prose(random.Random(1), _TEXT), "mem-0")
    storage.close()
    return sizes[-1]


def _operation(url: str, carried: int, turns: int) -> Figure:
    bare, ours = bare_writer(url, "bare", carried), quire_writer(url, "one", carried)
    seconds: dict[str, list[float]] = {"bare": [], "quire": []}
    for _ in range(turns):  # turn by turn: the machine is not always equally fast
        for name, write in (("bare", bare), ("quire", ours)):
            start = time.perf_counter()
            write()
            seconds[name].append(time.perf_counter() - start)
    took, least = (statistics.median(seconds[name]) * 1e3 for name in ("quire", "bare"))
    note = f"{took:.2f} ms against {least:.2f} ms, {carried} bytes"
    return Figure("a small durable operation against a bare round trip", took / least, "×", 2, note)


def _workers(url: str, carried: int, seconds: float) -> Figure:
    """Turn by turn, and each turn is compared with itself: a disk is not always equally fast."""
    pairs = [[_rate(url, kind, carried, seconds, turn) for kind in ("bare", "quire")] for turn in range(5)]
    bare, ours = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    note = f"{ours:,.0f} operations a second against {bare:,.0f}"
    name = f"{_WORKERS} bare writers against {_WORKERS} workers on different contexts, rates"
    return Figure(name, statistics.median(pair[0] / pair[1] for pair in pairs), "×", 1.25, note)


def _rate(url: str, kind: str, carried: int, seconds: float, turn: int) -> float:
    """Operations a second of all workers together, each a process."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, kind, url, f"{turn}-{number}", str(carried)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(_WORKERS)
    ]
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline() != "ready\n":
            raise RuntimeError(f"A {kind} worker did not start.")
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{seconds}\n")
        worker.stdin.flush()
    return sum(int(worker.communicate()[0]) for worker in workers) / seconds
