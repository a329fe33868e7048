"""PostgreSQL: a durable operation against a bare one, eight workers against eight bare writers, and many contexts.

The benchmark starts a server with fsync on. A bare writer inserts the same rows with the same number of bytes in one
transaction through psycopg, with prepared statements: one INSERT into a table with a key like quire's. If eight
processes and the server share a few cores, this compares processor work. One more baseline has all bytes in one row.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

import quire
from bench.figures import Figure
from bench.measure import NoTokens, prose
from quire.storage.contract import Commit, Id

_TEXT = 300
_WORKERS = 8
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


_STORER = """
import sys
from bench.contexts import langgraph_backend, messages, quire_backend
kind, url, number = sys.argv[1:]
backend = (langgraph_backend if kind == "langgraph" else quire_backend)(url)
for context in range(3):
    backend.store(-1 - 8 * context - int(number), list(messages(context)))
for line in sys.stdin:
    if line == "store\\n":
        for context, talk in talks.items():
            backend.store(context, talk)
    else:
        first, last = map(int, line.split())
        talks = {context: list(messages(context)) for context in range(first + int(number), last, 8)}
    print("ready", flush=True)
"""
_PARTS = 8
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s AND relkind = 'r' AND relname NOT LIKE 'floor%%'"""
_NEWEST = """SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    ORDER BY backend_start DESC LIMIT 1"""


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
        return [
            _operation(server.url(), turns),
            *_processor_time(server.url(), turns),
            *_workers(server.url(), turns / 400),
            *_many_contexts(server.url(), 2 * turns),
        ]
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


WRITERS: Final = {"bare": bare_writer, "one row": one_row_writer, "quire": quire_writer}


def _commits(number: int) -> list[Commit]:
    """Return the commits that create this many small pages."""
    storage: Any = quire.MemoryStorage()
    commits: list[Commit] = []
    write = storage.commit

    def record(context: Id, commit: Commit) -> None:
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
    return [len(last.head) + len(last.entry), *(len(record.value) for _, record in last.put)]


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
    turns = [{kind: _rate(url, kind, seconds, turn) for kind in WRITERS} for turn in range(3)]
    rates = {kind: statistics.median(turn[kind] for turn in turns) for kind in WRITERS}

    def against(kind: str, name: str, limit: float | None = None) -> Figure:
        note = f"{rates['quire']:,.0f} operations a second against {rates[kind]:,.0f}"
        return Figure(name, statistics.median(turn[kind] / turn["quire"] for turn in turns), "×", limit, note)

    workers = f"{_WORKERS} workers on different contexts, rates"
    return [
        against("bare", f"{_WORKERS} bare writers of the same rows and bytes against {workers}", 1.25),
        against("one row", f"{_WORKERS} bare writers of the same bytes in one row against {workers}"),
    ]


def _processor_time(url: str, turns: int) -> list[Figure]:
    """Return the processor time of an operation, in the client and in its server process, where Linux tells it."""
    import psycopg

    if not Path("/proc/self/schedstat").exists():
        return []
    writers: dict[str, tuple[Callable[[], object], Path]] = {}
    with psycopg.connect(url, autocommit=True) as db:
        for kind in WRITERS:
            write = WRITERS[kind](url, f"time {kind}")
            write()
            row = db.execute(_NEWEST).fetchone()
            assert row is not None
            writers[kind] = write, Path(f"/proc/{row[0]}/schedstat")
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in WRITERS}
    for _ in range(10):
        for kind, (write, server) in writers.items():
            start, served = time.process_time(), int(server.read_text().split()[0])
            for _ in range(turns // 10):
                write()
            served = int(server.read_text().split()[0]) - served
            spent[kind].append((time.process_time() - start, served / 1e9))
    return [
        Figure(f"processor time of an operation, {kind}", (client + server) * 1e6, "µs", None, note)
        for kind in WRITERS
        for client, server in [[statistics.median(each) / (turns // 10) for each in zip(*spent[kind], strict=True)]]
        for note in [f"{client * 1e6:.0f} µs in the client, {server * 1e6:.0f} µs in the server"]
    ]


def _many_contexts(url: str, number: int) -> list[Figure]:
    """Store new contexts of twenty messages with quire and with LangGraph's checkpointer, by turns."""
    from bench.contexts import langgraph_tables

    if find_spec("langgraph.checkpoint") is None or find_spec("langgraph.checkpoint.postgres") is None:
        print("LangGraph's checkpointer is not installed.", file=sys.stderr)
        return []
    langgraph_tables(url)
    kinds = ("quire", "langgraph")
    workers = {kind: [_start_worker(_STORER, kind, url, str(worker)) for worker in range(_WORKERS)] for kind in kinds}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    before = {kind: _stored_bytes(url, kind) for kind in kinds}
    part = number // _PARTS
    for first in range(0, part * _PARTS, part):
        for kind in kinds:
            _tell(workers[kind], f"{first} {first + part}")
            start = time.perf_counter()
            _tell(workers[kind], "store")
            seconds[kind].append((time.perf_counter() - start) / part)
    sizes = {kind: (_stored_bytes(url, kind) - before[kind]) / (part * _PARTS) for kind in kinds}
    for worker in (*workers["quire"], *workers["langgraph"]):
        worker.communicate()
    took = {kind: statistics.median(seconds[kind]) * 1e3 for kind in kinds}
    ratio = statistics.median(one / other for one, other in zip(*seconds.values(), strict=True))
    name = f"{part * _PARTS:,} new contexts of 20 messages against LangGraph's checkpointer"
    times = f"{took['quire']:.2f} ms against {took['langgraph']:.2f} ms each, {_WORKERS} workers"
    bytes_each = f"{sizes['quire']:,.0f} bytes against {sizes['langgraph']:,.0f} each"
    return [
        Figure(f"{name}, time", ratio, "×", 2, times),
        Figure(f"{name}, size", sizes["quire"] / sizes["langgraph"], "×", 3, bytes_each),
    ]


def _stored_bytes(url: str, kind: str) -> int:
    """Return the size of the tables of quire, or of LangGraph."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CHECKPOINT")
        row = db.execute(_SIZE, ("quire" if kind == "quire" else "public",)).fetchone()
    return int(row[0]) if row else 0


def _rate(url: str, kind: str, seconds: float, turn: int) -> float:
    """Return the operations per second of all worker processes together."""
    workers = [_start_worker(_WORKER, kind, url, f"{kind} {turn}-{number}") for number in range(_WORKERS)]
    for worker in workers:
        _read_line(worker)
    for worker in workers:
        _write_line(worker, f"{seconds}")
    return sum(int(worker.communicate()[0]) for worker in workers) / seconds


def _start_worker(code: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _tell(workers: Sequence["subprocess.Popen[str]"], line: str) -> None:
    """Send a line to all workers and wait until all are ready again."""
    for worker in workers:
        _write_line(worker, line)
    for worker in workers:
        _read_line(worker)


def _write_line(worker: "subprocess.Popen[str]", line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n")
    worker.stdin.flush()


def _read_line(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdout is not None
    if worker.stdout.readline() != "ready\n":
        raise RuntimeError("A worker failed.")
