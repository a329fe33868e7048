"""S3: the requests of operations and of opening, and their times compared with a bare PUT.

The server is that of the tests. `QUIRE_TEST_S3_URL` names another one. Without a server there are no figures.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import quire
from bench.figures import Figure
from bench.measure import NoTokens, prose
from quire import Context, S3Storage, ToolCall


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures. The large context has 10,000 commits."""
    commits = 10_000 if size >= 1_000_000 else 1_500
    try:
        from tests.servers.s3 import fresh_prefix, open_s3, server

        server()
    except BaseException as reason:  # no server: pytest.skip raises
        print(f"s3: {reason}")
        return []
    prefix = fresh_prefix()
    storage = open_s3(prefix, upkeep="off")
    figures = _operations(storage, commits)
    figures += _opening(lambda: open_s3(prefix, upkeep="off", probe=False), storage, commits)
    storage.close()
    return figures


def _book(storage: S3Storage) -> Context:
    return quire.open(storage, "agent", counter=NoTokens())


def _operations(storage: S3Storage, commits: int) -> list[Figure]:
    """Run operations in sequence. Compaction runs between them and is counted separately."""
    ctx, chance = _book(storage), Random(7)
    bare, ours, requests, compaction = [], [], [], 0
    while ctx.seq < commits:
        before, start = _sent(storage), time.perf_counter()
        _speak(ctx, chance)
        ours.append(time.perf_counter() - start)
        requests.append(_sent(storage) - before)
        if requests[-1] > 1:
            compaction += _compact(storage)
        if len(ours) % 10 == 0:
            bare.append(_bare(storage))
    steady = requests[10:]
    mine, floor = statistics.median(ours[10:]), statistics.median(bare)
    note = f"median; {mine * 1e3:.2f} ms against {floor * 1e3:.2f} ms, of the head's bytes"
    flushes = f"{sum(count > 1 for count in steady):,} of {len(steady):,} flushed"
    return [
        Figure("requests of one operation in steady state, at most", max(steady), "", 2),
        Figure("requests of one operation on average", statistics.mean(steady), "×", note=flushes),
        Figure("requests of compaction for each 1,000 operations", compaction / len(ours) * 1_000, ""),
        Figure("one operation, × a bare PUT", mine / floor, "×", note=note),
    ]


def _compact(storage: S3Storage) -> int:
    """Do the work of the background thread after a flush. Return the number of requests."""
    before, state = _sent(storage), storage._states.get("agent")
    if state.snapshot is not None:
        storage._compactor.run_after_flush(state, state.snapshot)
    return _sent(storage) - before


def _bare(storage: S3Storage) -> float:
    """Return the time of a PUT with as many bytes as the head."""
    found = storage.objects.get(next(storage.objects.list("heads")).key)
    start = time.perf_counter()
    storage.objects.put("floor", found.data if found else b"")
    return time.perf_counter() - start


def _speak(ctx: Context, chance: Random) -> None:
    """Add a typical message of an agent: a question, a call, its result or an answer."""
    waiting = ctx.pending_calls()
    if waiting:
        ctx.tool_result(waiting[0].id, prose(chance, chance.choice([80, 800, 6_000])))
    elif chance.random() < 0.4:
        ctx.assistant("I will look.", [ToolCall(f"call-{ctx.seq}", "look", f'{{"at": {ctx.seq}}}')])
    elif chance.random() < 0.5:
        ctx.user(prose(chance, 300))
    else:
        ctx.assistant(prose(chance, 900))


def _sent(storage: S3Storage) -> int:
    return sum(storage.objects.requests.values())


def _opening(opener: Callable[[], S3Storage], storage: S3Storage, commits: int) -> list[Figure]:
    before, _, _ = _open(opener)
    start = time.perf_counter()
    storage.compact("agent")
    seconds = time.perf_counter() - start
    opened, took, added = _open(opener)
    return [
        Figure(f"requests to open a context with {commits:,} commits after compaction", opened, "", 5),
        Figure("requests to open it before", before, ""),
        Figure("requests to open it and add a message", added, ""),
        Figure("opening it, after compaction", took * 1e3, "ms"),
        Figure("compacting it", seconds * 1e3, "ms"),
    ]


def _open(opener: Callable[[], S3Storage]) -> tuple[int, float, int]:
    """Return the requests and the time to open the context, and the requests until a message is added."""
    start = time.perf_counter()
    storage = opener()
    ctx = _book(storage)
    took, opened = time.perf_counter() - start, _sent(storage)
    ctx.user("Where were we?")
    added = _sent(storage)
    storage.close()
    return opened, took, added
