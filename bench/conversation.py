"""Measure the conversation: append, import, rollback, fork, undo."""

import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import quire
from bench.figures import Figure
from bench.measure import CountingStorage, Floor, NoTokens, Timer, prose
from quire.context import Context
from quire.open_context import Setup, open_in
from quire.testing import FaultyStorage

ROUNDS = 40
BATCH = 100
CHANGES = 1_000


def run(folder: Path, messages: int) -> list[Figure]:
    """Return all figures of the conversation."""
    middle = max(messages // 100, 200)
    tenth = max(messages // 10, 1_000)
    return [
        *appending(folder, (100, middle, messages)),
        *importing(folder, tenth),
        *forking(folder / "import.db", tenth),
        *undoing(folder / "import.db", tenth),
        *rolling_back(folder),
    ]


def importing(folder: Path, messages: int) -> list[Figure]:
    """Measure the import of a long history from a stream."""
    ctx = opened(folder / "import.db")
    start = time.perf_counter()
    report = ctx.import_messages(history(messages))
    seconds = time.perf_counter() - start
    assert report.messages == messages
    ctx.close()
    note = f"{seconds / messages * 1e6:.0f} µs a message, {(report.findings and 'with findings') or 'nothing to heal'}"
    return [Figure(f"import of {messages:,} messages", seconds, "s", None, note)]


def forking(file: Path, messages: int) -> list[Figure]:
    """Measure a fork of the imported context: its time, and the bytes it adds per page."""
    ctx = opened(file)
    sizes, seconds = [stored(ctx)], []
    for number in range(5):
        start = time.perf_counter()
        ctx.fork(f"fork {number}")
        seconds.append(time.perf_counter() - start)
        sizes.append(stored(ctx))
    ctx.close()
    milliseconds = statistics.median(seconds) * 1e3
    added = statistics.median(after - before for before, after in pairwise(sizes))
    return [
        Figure(f"fork of {messages:,} messages", milliseconds, "ms", 500),
        Figure("bytes on disk that a fork adds, a page", added / messages, "bytes", 150, "bodies are shared"),
    ]


def undoing(file: Path, messages: int) -> list[Figure]:
    """Measure the undo of one compression of twenty messages among many."""
    ctx = opened(file)
    chance = random.Random(5)
    seconds = []
    for _ in range(50):
        first = chance.randrange(messages - 20)
        ctx.conversation.compress(range(first, first + 20))
        start = time.perf_counter()
        ctx.undo(ctx.seq)
        seconds.append(time.perf_counter() - start)
    ctx.close()
    milliseconds = statistics.median(seconds) * 1e3
    return [Figure(f"undo of a compression among {messages:,} messages", milliseconds, "ms", 10, "20 messages")]


def rolling_back(folder: Path) -> list[Figure]:
    """Measure the rollback of a thousand changes."""
    storage = FaultyStorage(CountingStorage(folder / "rollback.db"))
    ctx = quire.open(storage, "bench", counter=NoTokens())
    ctx.import_messages(history(CHANGES))
    target = ctx.checkpoint("before")
    for number in range(CHANGES):
        ctx.pages.hide(f"usr-{number + 1}")
    storage.arm(0)
    start = time.perf_counter()
    ctx.rollback(target)
    seconds = time.perf_counter() - start
    commits = storage.calls.count("commit")
    storage.close()
    return [
        Figure(f"commits of a rollback of {CHANGES:,} changes", commits, "", 1, f"{seconds * 1e3:.0f} ms"),
    ]


def appending(folder: Path, sizes: tuple[int, int, int]) -> list[Figure]:
    """Measure one append to a short, a medium and a long conversation, each alternating with the raw floor.

    The short ones come first: the heap of a process that has built a million messages slows the others down.
    """
    times = {size: _append_some(folder, size) for size in sizes}
    first = times[sizes[0]].ratio
    return [
        *(
            Figure(f"append a message of 1 kB to {size:,}, × raw INSERT", found.ratio, "×", 8, found.note)
            for size, found in times.items()
        ),
        *(
            Figure(f"append a message to {size:,} against {sizes[0]}, both × raw", times[size].ratio / first, "×", 1.3)
            for size in sizes[1:]
        ),
    ]


class _Appended(NamedTuple):
    """Return the medians of one conversation: seconds per message, seconds of the floor, and the bytes of both."""

    message: float
    floor: float
    carried: int

    @property
    def ratio(self) -> float:
        return self.message / self.floor

    @property
    def note(self) -> str:
        return f"median; {self.message * 1e6:.0f} µs against {self.floor * 1e6:.0f} µs for {self.carried:,} bytes"


def _append_some(folder: Path, size: int) -> _Appended:
    sys.stderr.write(f"building a conversation of {size:,} messages …\n")
    ctx = opened(folder / f"messages-{size}.db")
    ctx.import_messages(history(size))
    os.sync()  # otherwise the disk still writes the built data while the clock runs
    timer, chance, floor = Timer(), random.Random(3), Floor(folder / f"floor-{size}.db")
    carried = carried_by(ctx, prose(chance, 1_024))
    for _ in range(ROUNDS):
        for _ in range(BATCH):
            timer.time("message", ctx.user, prose(chance, 1_024))
        for _ in range(BATCH):
            timer.time("floor", floor.insert, bytes(carried))
    ctx.close()
    return _Appended(statistics.median(timer.seconds["message"]), statistics.median(timer.seconds["floor"]), carried)


def history(messages: int) -> Iterator[dict[str, str]]:
    """Yield the messages of an invented dialogue."""
    chance = random.Random(11)
    for number in range(messages):
        yield {"role": "user" if number % 2 == 0 else "assistant", "content": prose(chance, 240)}


def opened(file: Path) -> Context:
    """A context that records the bytes of its commits."""
    storage = CountingStorage(file)
    return open_in(storage, "bench", Setup(counter=NoTokens()), storage)


def carried_by(ctx: Context, text: str) -> int:
    """Return the bytes of the commit that adds a message."""
    storage = ctx.pages.storage
    assert isinstance(storage, CountingStorage)
    storage.counts = True
    ctx.user(text)
    storage.counts = False
    return storage.carried


def stored(ctx: Context) -> int:
    """Return the size of the database file with its WAL."""
    storage = ctx.pages.storage
    assert isinstance(storage, CountingStorage)
    storage._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return storage.path.stat().st_size
