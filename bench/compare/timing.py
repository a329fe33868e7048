"""What is timed: workers of both sides and of the raw floor measure in turns, a few operations each time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copytree, rmtree
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

from bench.compare.figures import STATISTICS, Row, compare, flat, plain
from bench.compare.sides import Side, Worker

Sides = tuple[Side, Side]
Series = dict[str, list[list[float]]]
_CROWD = 8
_STATISTICS = {"turn": ("median", "mean", "p99", "worst"), "processor": ("mean",)}
"""What is reported of a series; of the others only the median."""


class Timed(NamedTuple):
    """A timed program of the workers, its options, the names of its series, and how long it runs.

    `where` is the store, with a new folder for `{}`. Several `processes` run, as one may be slower by chance.
    """

    program: str
    options: Mapping[str, Any]
    names: Mapping[str, str]
    rounds: int = 12
    batch: int = 25
    processes: int = 3
    where: str = "sqlite:{}/store.db"


def measure(plan: Timed, group: str, sides: Sides, folder: Path) -> list[Row]:
    """Return the rows of a timed program. Raises `MeasureError`."""
    found = [Series(), Series(), Series()]
    built = [_build(plan, side, folder) for side in sides]
    for _ in range(plan.processes):
        places = [copytree(each, folder / uuid4().hex) for each in built]
        starts = [(plan.program, {**plan.options, "where": plan.where.format(place)}) for place in places]
        raw = folder / f"{uuid4().hex}.db"
        starts.append(("floor", {"where": str(raw), "budget": plan.options.get("budget", 0)}))
        _alternate(sides, starts, plan, found)
    return _rows(plan, group, found)


def _build(plan: Timed, side: Side, folder: Path) -> Path:
    """Return a folder with the conversation that a program begins with, which every process gets a copy of."""
    place = folder / uuid4().hex
    place.mkdir()
    if "messages" in plan.options:
        with Worker(side) as worker:
            worker.ask(once="build", options={**plan.options, "where": plan.where.format(place)})
    return place


def _alternate(sides: Sides, starts: Sequence[tuple[str, Any]], plan: Timed, found: Sequence[Series]) -> None:
    """Prepare all workers at once, then ask one after the other for a batch. The sides change places every time."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(side)) for side in (*sides, sides[0])]
        for worker, (program, options) in zip(workers, starts, strict=True):
            worker.send(start=program, options=options)
        for worker in workers:
            worker.answer()
            worker.ask(more=plan.batch)  # what is imported late is there when the clock starts
        pairs = list(zip(workers, found, strict=True))
        for number in range(plan.rounds):
            for worker, series in pairs if number % 2 else (pairs[1], pairs[0], pairs[2]):
                times = worker.ask(more=plan.batch)
                for name in times.keys() | plan.names.keys():
                    series.setdefault(name, []).append(times.get(name, []))


def _rows(plan: Timed, group: str, found: Sequence[Series]) -> list[Row]:
    old, new, raw = found
    floor, rows = median(flat(raw["floor"])), []
    for series, name in plan.names.items():
        statistics = _STATISTICS.get(series, ("median",))
        for statistic in statistics if any(old[series]) and any(new[series]) else ():
            one, other = (STATISTICS[statistic](flat(side[series])) for side in (old, new))
            full = name if len(statistics) == 1 else f"{name}: {statistic}"
            ratio, noise = compare(statistic, old[series], new[series], plan.processes)
            rows.append(Row(group, full, "s", one, other, ratio, noise, floor))
            if series == "fold":  # work that is done in advance counts too
                one, other = (sum(flat(side["processor"])) / len(flat(side["fold"])) for side in (old, new))
                _, noise = compare("mean", old["processor"], new["processor"], plan.processes)
                rows.append(Row(group, f"{name}, and all since", "s", one, other, other / one, noise, floor))
    return rows


def postgres(group: str, sides: Sides, rounds: int) -> list[Row]:
    """Return a commit to PostgreSQL, and the rate of eight workers as a share of eight that insert bare rows."""
    plan = Timed("append", {}, {"append": "append, PostgreSQL without fsync"}, rounds, 25, 1)
    found = [Series(), Series(), Series()]
    with _postgres() as (*urls, bare):
        starts = [("append", {"where": url, "messages": 0}) for url in urls]
        _alternate(sides, [*starts, ("bare_postgres", {"where": bare})], plan, found)
        old, new, raw = _crowds(sides, urls, bare, rounds)
    one, other = (median(rate / most for [rate], [most] in zip(side, raw, strict=True)) for side in (old, new))
    rate = Row(group, f"rate of {_CROWD} workers, of bare inserts", "share", one, other, *compare("median", old, new))
    return [*_rows(plan, group, found), rate]


def _crowds(sides: Sides, urls: Sequence[str], bare: str, rounds: int) -> list[list[list[float]]]:
    """Return the rates of eight workers of each side, and of eight that insert bare rows, round by round."""
    rates: list[list[list[float]]] = [[], [], []]
    with ExitStack() as stack:
        crowds = [[stack.enter_context(Worker(side)) for _ in range(_CROWD)] for side in (*sides, sides[0])]
        for number in range(_CROWD):
            for crowd, url in zip(crowds, urls, strict=False):
                crowd[number].ask(start="append", options={"where": url, "messages": 0, "name": f"crowd-{number}"})
            crowds[2][number].ask(start="bare_postgres", options={"where": bare})
        for number in range(rounds + 1):
            for crowd, values in zip(crowds, rates, strict=True):
                start = time.perf_counter()
                for worker in crowd:
                    worker.send(more=100)
                for worker in crowd:
                    worker.answer()
                values += [[_CROWD * 100 / (time.perf_counter() - start)]] if number else []
    return rates


def s3(group: str, sides: Sides) -> list[Row]:
    """Return the requests of each operation on S3, counted between the client and the server."""
    with _s3() as (variables, bucket, seen):
        old, new = (_requests(side, variables, bucket, seen) for side in sides)
    return [plain(group, f"S3 requests, {name}", "", old[name], new[name]) for name in old]


def _requests(side: Side, variables: dict[str, str], bucket: str, seen: Sequence[object]) -> dict[str, float]:
    found: dict[str, float] = {}
    with Worker(side, **variables) as worker:
        worker.ask(start="operations", options={"where": f"s3://{bucket}/{uuid4().hex}"})
        before = len(seen)
        while answer := worker.ask(more=1):
            time.sleep(0.3)  # work in the background belongs to its operation
            [(name, [repeats])] = answer.items()
            found[name] = (len(seen) - before) / repeats
            before = len(seen)
    return found


@contextmanager
def _postgres() -> Iterator[list[str]]:
    """Start a server and yield the URLs of three new databases. Raises what pytest raises to skip a test."""
    import psycopg

    from tests.servers.postgres import new_server

    server = new_server()
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            for name in ("old", "new", "bare"):
                db.execute(f'CREATE DATABASE "{name}"')
        yield [server.url(database=name) for name in ("old", "new", "bare")]
    finally:
        server.stop()
        rmtree(server.folder, ignore_errors=True)


@contextmanager
def _s3() -> Iterator[tuple[dict[str, str], str, list[tuple[str, str]]]]:
    """Yield the environment of clients of an S3 server, a bucket, and the requests so far. Raises like `_postgres`."""
    from tests.servers.s3 import server
    from tests.servers.s3_proxy import Proxy, serving

    there = server()
    with serving(proxy := Proxy(there.endpoint)) as address:
        keys = {"AWS_ACCESS_KEY_ID": there.access_key_id, "AWS_SECRET_ACCESS_KEY": there.secret_access_key}
        yield {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1", **keys}, there.bucket, proxy.seen
