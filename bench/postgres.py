"""PostgreSQL: a durable operation against a bare round trip, and eight workers against eight bare writers.

The benchmark starts a server with fsync on. A bare writer inserts the same rows with the same number of bytes in one
transaction through psycopg, with prepared statements: one INSERT into a table with a key like quire's. If eight
processes and the server share a few cores, this compares processor work. Two more baselines show the parts: all bytes
in one row, and quire's own statements, built in advance.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import quire
from bench.figures import Figure
from bench.measure import NoTokens, prose
from quire.storage.base import Commit, Delete

_TEXT = 300
_WORKERS = 8
_READY = 6_000
"""More statements than one worker can send."""
_TABLES = """
CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE floor_rows (context bigint, family smallint, key bigint, value bytea NOT NULL,
    PRIMARY KEY (context, family, key));"""
_INSERT = "INSERT INTO floor (value) VALUES (%b)"
_WORKER = """
import sys, time
from bench.postgres import WRITERS
write = WRITERS[sys.argv[1]](sys.argv[2], sys.argv[3])
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
    """Return all figures of PostgreSQL; none if no server can be started."""
    import psycopg

    from tests.servers.postgres import Server, StartFailed

    try:
        server = Server(folder, durable=True)
        server.start()
    except StartFailed as error:
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        return []
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute(_TABLES)
        turns = 100 if size < 1_000_000 else 1_000
        return [_operation(server.url(), turns), *_workers(server.url(), turns / 400)]
    finally:
        server.stop()


def bare_writer(url: str, name: str) -> Callable[[], object]:
    """Return a function that inserts the rows of a small operation in one transaction."""
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    chance, numbers = random.Random(name), count(1)
    context, sizes = chance.getrandbits(62), _sizes_of_commit()
    values = [chance.randbytes(size) for size in sizes]
    sql = f"INSERT INTO floor_rows VALUES {', '.join(['(%s, %s, %s, %b)'] * len(sizes))}"

    def write() -> None:
        key = next(numbers)
        db.execute(sql, [each for family, value in enumerate(values) for each in (context, family, key, value)])

    return write


def one_row_writer(url: str, name: str) -> Callable[[], object]:
    """Return a function that writes the bytes of a small operation in one row and one transaction."""
    import psycopg

    db = psycopg.connect(url, autocommit=True)
    data = random.Random(name).randbytes(sum(_sizes_of_commit()))
    return lambda: db.execute(_INSERT, (data,))


def quire_writer(url: str, name: str) -> Callable[[], object]:
    """Return a function that creates a small page in a context of its own."""
    ctx = quire.open(url, name, counter=NoTokens())
    chance = random.Random(name)
    return lambda: ctx.pages.create_detail_page("page", "", prose(chance, _TEXT), "mem-0")


def ready_writer(url: str, name: str) -> Callable[[], object]:
    """Return a function that sends the statements of the same operations, built in advance."""
    from quire.storage.postgres.commit import CommitBuilder, merge_writes
    from quire.storage.postgres.connection import WatchedConnection

    builder = CommitBuilder('"quire"', "", 5_000, full=False)
    statements = [
        statement
        for number, commit in enumerate(_commits(_READY))
        for statement in builder.statements(
            name, commit, number.to_bytes(16), merge_writes(commit.writes), limited=False
        )
    ]
    db = WatchedConnection.connect(url, autocommit=True)
    waiting = iter(statements)
    return lambda: db.run(next(waiting))


WRITERS: Final = {"bare": bare_writer, "one row": one_row_writer, "ready": ready_writer, "quire": quire_writer}


def _commits(number: int) -> list[Commit]:
    """Return the commits that create this many small pages."""
    storage: Any = quire.MemoryStorage()
    commits: list[Commit] = []
    write = storage.commit

    def record(context: str, commit: Commit) -> None:
        commits.append(commit)
        write(context, commit)

    storage.commit = record
    ctx, chance = quire.open(storage, "ready", counter=NoTokens()), random.Random(1)
    for _ in range(number):
        ctx.pages.create_detail_page("page", "", prose(chance, _TEXT), "mem-0")
    return commits


def _sizes_of_commit() -> list[int]:
    """Return the sizes of the head and the records that a small operation commits."""
    last = _commits(20)[-1]
    return [len(last.head), *(len(each.value) for each in last.writes if not isinstance(each, Delete))]


def _operation(url: str, turns: int) -> Figure:
    bare, ours = bare_writer(url, "bare"), quire_writer(url, "one")
    seconds: dict[str, list[float]] = {"bare": [], "quire": []}
    for _ in range(turns):  # alternate: the speed of the machine varies
        for name, write in (("bare", bare), ("quire", ours)):
            start = time.perf_counter()
            write()
            seconds[name].append(time.perf_counter() - start)
    took, least = (statistics.median(seconds[name]) * 1e3 for name in ("quire", "bare"))
    sizes = _sizes_of_commit()
    note = f"{took:.2f} ms against {least:.2f} ms, {len(sizes)} rows, {sum(sizes)} bytes"
    return Figure("a small durable operation against a bare round trip", took / least, "×", 2, note)


def _workers(url: str, seconds: float) -> list[Figure]:
    """Compare the kinds within each turn, because the speed of a disk varies."""
    turns = [{kind: _rate(url, kind, seconds, turn) for kind in WRITERS} for turn in range(5)]
    rates = {kind: statistics.median(turn[kind] for turn in turns) for kind in WRITERS}

    def against(kind: str, name: str, limit: float | None = None) -> Figure:
        note = f"{rates['quire']:,.0f} operations a second against {rates[kind]:,.0f}"
        return Figure(name, statistics.median(turn[kind] / turn["quire"] for turn in turns), "×", limit, note)

    workers = f"{_WORKERS} workers on different contexts, rates"
    return [
        against("bare", f"{_WORKERS} bare writers of the same rows and bytes against {workers}", 1.25),
        against("one row", f"{_WORKERS} bare writers of the same bytes in one row against {workers}"),
        against("ready", f"{_WORKERS} writers of the same statements made beforehand against {workers}"),
    ]


def _rate(url: str, kind: str, seconds: float, turn: int) -> float:
    """Return the operations per second of all worker processes together."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, kind, url, f"{kind} {turn}-{number}"],
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
