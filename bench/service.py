"""The example service: four workers, 200 users, 12 requests at a time, with and without kills of workers."""

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from tests.servers.postgres import postgres_url
from tests.service_workers import BUDGET, IN_FLIGHT, USERS, WORKERS, Workers, answer, count_losses
from tests.strict_provider.requests import State
from tests.strict_provider.server import StrictProvider

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))


def run(folder: Path, size: int) -> list[Figure]:
    """Return the figures of both stores. A small size means a few seconds each."""
    seconds = 60.0 if size >= 1_000_000 else 10.0
    stores = {"SQLite": str(folder / "service.db"), "PostgreSQL": postgres_url()}
    return [
        figure
        for name, store in stores.items()
        for kills in (False, True)
        for figure in measure(name, f"{store}{'-killed' if kills and name == 'SQLite' else ''}", folder, seconds, kills)
    ]


def measure(name: str, store: str, folder: Path, seconds: float, kills: bool) -> Iterator[Figure]:
    """Send a load for so long, and look into the store afterwards."""
    from service import load

    with StrictProvider(State(limit=BUDGET + 100), answer) as provider:
        workers = Workers(store, provider, folder)
        ended = threading.Event()

        def disturb() -> None:
            while kills and not ended.wait(random.uniform(0.5, 2.0)):
                workers.kill(random.randrange(WORKERS))

        killer = threading.Thread(target=disturb)
        killer.start()
        start = time.monotonic()
        done = asyncio.run(load.run(workers.urls, USERS, IN_FLIGHT, 10_000, until=start + seconds, seed=int(kills)))
        taken = time.monotonic() - start
        ended.set()
        killer.join()
        workers.wait()
        workers.stop()
        refused = len(provider.refused)
    lost, doubled = count_losses(store, done.answered)
    where = f"{name}, {workers.kills} kills" if kills else name
    total, sorted_seconds = len(done.seconds), sorted(done.seconds)
    yield Figure(
        f"requests a second, {where}", total / taken, "", None, f"{total:,} answered, {done.repeats:,} repeats"
    )
    yield Figure(f"median of a request, {where}", 1_000 * sorted_seconds[total // 2], "ms")
    yield Figure(f"lost, doubled or refused, {where}", lost + doubled + refused + len(done.failures), "", 0)
