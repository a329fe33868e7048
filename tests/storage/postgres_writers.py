"""A program with many writer processes on one store, killed at random, or two processes that race on one context.

`test_postgres_concurrency.py` runs it. It has no threads, so it can fork. It prints JSON.

    postgres_writers.py write URL WRITERS OPERATIONS KILLS SEED [apart]    all on one context, or each on its own
    postgres_writers.py race URL TURNS
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import NamedTuple, NoReturn

import quire
from quire import Busy, Conflict, EstimateCounter, Storage, open_storage
from quire.storage.base import BODY, JOURNAL, PAGE, Commit, Delete, Family, Head, Put
from quire.storage.search_protocol import Document, IndexState

HEAD = b"head"
FAMILIES: tuple[Family, ...] = (PAGE, BODY)


# Writers that are killed


class Child(NamedTuple):
    """A forked writer: its process id, the pipe to report pages, and its name."""

    process: int
    pipe: int
    name: str


def write_until_killed(url: str, context: str, name: str, pipe: int) -> NoReturn:
    """Add pages and report each through the pipe."""
    try:
        book = quire.open(url, context, counter=EstimateCounter())
        random = Random(name)
        for number in count():
            for attempt in count():
                try:
                    book.pages.create_detail_page(f"{name}-{number}", "", f"text of {name}-{number}", "mem-0")
                    break
                except (Conflict, Busy):
                    time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
                    book.refresh()
            os.write(pipe, f"{name}-{number}\n".encode())
    except BaseException:
        os.write(pipe, b"!" + traceback.format_exc().encode())
    os._exit(1)


class WriterGroup:
    """Starts and kills writers, and collects the pages they report."""

    def __init__(self, url: str, apart: bool, seed: int) -> None:
        self.url = url
        self.apart = apart
        self.random = Random(seed)
        self.children: list[Child] = []
        self.reported: dict[str, bytes] = {}
        self.killed = 0

    def run(self, writers: int, operations: int, kills: int) -> None:
        with quire.open(self.url, "book", counter=EstimateCounter()):
            pass
        for _ in range(writers):
            self._start()
        moments = sorted(self.random.randrange(operations) for _ in range(kills))
        while self._acknowledged() < operations:
            self._receive()
            while moments and moments[0] <= self._acknowledged():
                moments.pop(0)
                self._kill(self.random.choice(self.children))
                self._start()
        for child in list(self.children):
            self._kill(child)

    def check(self) -> dict[str, int]:
        """Check that every reported page exists once, and that each writer has at most one page it did not report."""
        names = sorted({self._context(writer) for writer in self.reported})
        for context in names:
            with quire.open(self.url, context, counter=EstimateCounter()) as book:
                self._check(book.pages, [writer for writer in self.reported if self._context(writer) == context])
        return {"acknowledged": self._acknowledged(), "killed": self.killed, "contexts": len(names)}

    def _check(self, pages: quire.ContextSystem, writers: list[str]) -> None:
        found = [page.name for page in pages.list_pages("mem") if page.parent]
        assert len(set(found)) == len(found), "doubled"
        for writer in writers:
            numbers = sorted(int(name.rpartition("-")[2]) for name in found if name.startswith(f"{writer}-"))
            acknowledged = self.reported[writer].count(b"\n")
            assert numbers == list(range(len(numbers))), f"{writer} has a gap: {numbers}"
            assert acknowledged <= len(numbers) <= acknowledged + 1, f"{writer}: {acknowledged}, {len(numbers)}"
        assert pages.check() == []
        assert [entry.seq for entry in pages.history()] == list(range(1, pages.seq + 1))

    def _context(self, writer: str) -> str:
        return writer if self.apart else "book"

    def _acknowledged(self) -> int:
        return sum(data.count(b"\n") for data in self.reported.values())

    def _start(self) -> None:
        name = f"w{len(self.reported)}"
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            write_until_killed(self.url, self._context(name), name, writing)
        os.close(writing)
        self.reported[name] = b""
        self.children.append(Child(process, reading, name))

    def _kill(self, child: Child) -> None:
        os.kill(child.process, signal.SIGKILL)
        os.waitpid(child.process, 0)
        with os.fdopen(child.pipe, "rb") as pipe:
            self.reported[child.name] += pipe.read()
        self.children.remove(child)
        self.killed += 1

    def _receive(self) -> None:
        ready, _, _ = select.select([child.pipe for child in self.children], [], [], 60)
        assert ready, "no writer reports any more"
        for child in self.children:
            if child.pipe in ready:
                self.reported[child.name] += os.read(child.pipe, 1 << 16)
                assert b"!" not in self.reported[child.name], self.reported[child.name].decode()


# Two processes at the same moment


class Race(NamedTuple):
    """The preparation, the operations of both processes, and the check of the outcome."""

    prepare: Callable[[Storage, str], object]
    left: Callable[[Storage, str], object]
    right: Callable[[Storage, str], object]
    judge: Callable[[Storage, str, str, str], bool]


def make(storage: Storage, name: str) -> None:
    """Create a context with three pages and bodies."""
    new = [Put(family, key, b"%d" % key) for key in range(3) for family in FAMILIES]
    storage.commit(name, Commit(0, 1, HEAD, [*new, Put(JOURNAL, 1, b"made")]))


def commit(storage: Storage, name: str, by: bytes) -> None:
    storage.commit(name, Commit(1, 2, by, [Put(JOURNAL, 2, by), Put(PAGE, 9, by)]))


def fork(storage: Storage, name: str) -> None:
    storage.fork(name, f"{name} fork", Commit(1, 1, b"fork", []), {})


def index(storage: Storage, name: str, by: str) -> bool:
    made = storage.search(name).update(None, IndexState(1, b"x"), [Document(1, (by,))])  # type: ignore[attr-defined]
    if not made:
        raise Conflict("another was first")
    return True


def one_wins(storage: Storage, name: str, left: str, right: str) -> bool:
    return {left, right} == {"done", "Conflict"}


def commit_wins(storage: Storage, name: str, left: str, right: str) -> bool:
    """The store has exactly the records of the winner."""
    found, head = storage.get(name, PAGE, 9), storage.head(name)
    winner = b"left" if left == "done" else b"right"
    return one_wins(storage, name, left, right) and head == Head(2, winner) and bool(found and found.value == winner)


def fork_is_whole(storage: Storage, name: str, *, bodies: int = 3) -> bool:
    target = f"{name} fork"
    keys = [[record.key for record in storage.scan(target, family)] for family in FAMILIES]
    return storage.head(target) == Head(1, b"fork") and keys == [[0, 1, 2], list(range(bodies))]


def both_or_late_fork(storage: Storage, name: str, left: str, right: str) -> bool:
    """The left side always succeeds. The fork is complete, or it was too late and does not exist."""
    early = right == "done" and fork_is_whole(storage, name)
    late = right == "Conflict" and storage.head(f"{name} fork") is None
    return left == "done" and (early or late)


def gone(storage: Storage, name: str, left: str, right: str) -> bool:
    return left == "done" and right in ("done", "Conflict") and storage.head(name) is None


def fork_of(storage: Storage, name: str) -> None:
    make(storage, name)
    fork(storage, name)


def erase(storage: Storage, name: str) -> None:
    storage.commit(name, Commit(1, 2, b"left", [Delete(BODY, 1), Put(JOURNAL, 2, b"left")]))


def erased_here_only(storage: Storage, name: str, left: str, right: str) -> bool:
    return storage.get(name, BODY, 1) is None and both_or_late_fork(storage, name, left, right)


def erased_and_dropped(storage: Storage, name: str, left: str, right: str) -> bool:
    keys = [record.key for record in storage.scan(name, BODY)]
    return left == right == "done" and keys == [0, 2] and storage.head(f"{name} fork") is None


def both_dropped(storage: Storage, name: str, left: str, right: str) -> bool:
    return left == right == "done" and storage.head(name) is storage.head(f"{name} fork") is None


RACES: dict[str, Race] = {
    "create": Race(lambda s, n: None, make, make, one_wins),
    "commit": Race(make, lambda s, n: commit(s, n, b"left"), lambda s, n: commit(s, n, b"right"), commit_wins),
    "fork": Race(make, fork, fork, lambda s, n, a, b: one_wins(s, n, a, b) and fork_is_whole(s, n)),
    "commit and fork": Race(make, lambda s, n: commit(s, n, b"left"), fork, both_or_late_fork),
    "erase and fork": Race(make, erase, fork, erased_here_only),
    "drop and fork": Race(make, lambda s, n: s.drop(n), fork, both_or_late_fork),
    "drop and commit": Race(make, lambda s, n: s.drop(n), lambda s, n: commit(s, n, b"right"), gone),
    "drop": Race(make, lambda s, n: s.drop(n), lambda s, n: s.drop(n), both_dropped),
    "drop both": Race(fork_of, lambda s, n: s.drop(n), lambda s, n: s.drop(f"{n} fork"), both_dropped),
    "erase and drop": Race(fork_of, erase, lambda s, n: s.drop(f"{n} fork"), erased_and_dropped),
    "index": Race(make, lambda s, n: index(s, n, "left"), lambda s, n: index(s, n, "right"), one_wins),
}


def runner(url: str, side: int, reading: int, writing: int) -> NoReturn:
    """Run the requested races and report how each ended."""
    storage = open_storage(url)
    with os.fdopen(reading) as requests:
        for line in requests:
            kind, _, name = line.rstrip("\n").partition("|")
            try:
                what = RACES[kind]
                (what.right if side else what.left)(storage, name)
                outcome = "done"
            except (Conflict, Busy) as error:
                outcome = type(error).__name__
            except BaseException:
                outcome = traceback.format_exc().replace("\n", " | ")
            os.write(writing, f"{outcome}\n".encode())
    os._exit(0)


@contextmanager
def runners(url: str) -> Iterator[list[tuple[int, int]]]:
    """Start two processes, each with a pipe for requests and one for outcomes."""
    pipes: list[tuple[int, int]] = []
    processes: list[int] = []
    for side in range(2):
        (requests, send), (receive, outcomes) = os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            for parent_end in (send, receive, *(end for pair in pipes for end in pair)):
                os.close(parent_end)
            runner(url, side, requests, outcomes)
        os.close(requests)
        os.close(outcomes)
        pipes.append((send, receive))
        processes.append(process)
    try:
        yield pipes
    finally:
        for send, receive in pipes:
            os.close(send)
            os.close(receive)
        for process in processes:
            os.waitpid(process, 0)


def race(url: str, turns: int) -> dict[str, int]:
    """Run every race this many times. Return how often each outcome occurred."""
    counts: dict[str, int] = {}
    with runners(url) as pipes:
        storage = open_storage(url)
        for turn in range(turns):
            for kind, what in RACES.items():
                name = f"{kind} {turn}"
                what.prepare(storage, name)
                for send, _ in pipes if turn % 2 else reversed(pipes):
                    os.write(send, f"{kind}|{name}\n".encode())
                left, right = (os.read(receive, 1 << 16).decode().strip() for _, receive in pipes)
                fresh = open_storage(url)
                assert what.judge(fresh, name, left, right), f"{kind}: {left}, {right}"
                fresh.close()
                counts[f"{kind}: {left}, {right}"] = counts.get(f"{kind}: {left}, {right}", 0) + 1
        storage.close()
    return counts


def main(what: str, url: str, *more: str) -> None:
    if what == "race":
        report = race(url, int(more[0]))
    else:
        writers, operations, kills, seed = map(int, more[:4])
        group = WriterGroup(url, len(more) > 4, seed)
        group.run(writers, operations, kills)
        report = group.check()
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
