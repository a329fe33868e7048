"""A program that lets processes write one context on S3 and kills some of them. `test_s3_race.py` runs it.

The program itself uses no server, so it can fork. Each child opens the store, adds pages and reports every page through
a pipe until it is done or killed. A killed child is replaced. A last child reads the store. The result is printed as
JSON.
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, NoReturn

import quire
from quire import Busy, Conflict, EstimateCounter
from quire.errors import OutcomeUnknown
from quire.storage.s3 import S3Storage, commit


def open_book(place: dict[str, Any]) -> quire.Context:
    commit.LOG_BYTES, commit.MERGE_BYTES = 4_000, 60_000  # type: ignore[misc]
    storage = S3Storage(**place, probe=False, grace_seconds=120)  # so that chunks are removed during the race
    return quire.open(storage, "book", counter=EstimateCounter())


def write(place: dict[str, Any], pipe: int, life: int, pages: int) -> None:
    """Add pages and report each. After a conflict, pause, refresh and try again.

    If the outcome is unknown, because an overloaded server answers with an error, look for the page first.
    """
    book, random = open_book(place), Random(life)
    for number in range(pages):
        name = f"{life}-{number}"
        text = f"text of {name} " * random.choice([1, 1, 10, 300])
        for attempt in count():
            try:
                book.pages.create_detail_page(name, "", text, "mem-0")
                break
            except (Conflict, Busy):
                time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
                book.refresh()
            except OutcomeUnknown:
                book.refresh()
                if any(page.name == name for page in book.pages.children("mem-0")):
                    break
        os.write(pipe, f"{name}\n".encode())


def look(place: dict[str, Any], pipe: int) -> None:
    """Report the pages in the store, problems and gaps."""
    book = open_book(place)
    pages = book.pages
    names = [page.name for page in pages.children("mem-0")]
    torn = [
        page.name
        for page in pages.children("mem-0")
        if not pages.detail(page.index).startswith(f"text of {page.name} ")
    ]
    seqs = [entry.seq for entry in pages.history()]
    report = {
        "names": names,
        "torn": torn,
        "problems": [str(p) for p in pages.check()],
        "gaps": seqs != list(range(1, pages.seq + 1)),
    }
    os.write(pipe, json.dumps(report).encode())


def start(work: Callable[[int], None]) -> tuple[int, int]:
    """Start a child that does the work. Return its process id and the pipe it writes to."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _finish(work, writing)
    os.close(writing)
    return child, reading


def _finish(work: Callable[[int], None], pipe: int) -> NoReturn:
    try:
        work(pipe)
    except BaseException:
        os.write(pipe, b"!" + traceback.format_exc().encode())
    os._exit(0)


class Race:
    """A number of concurrent writers and a number of kills."""

    def __init__(self, place: dict[str, Any], seed: int) -> None:
        self.place = place
        self.random = Random(seed)
        self.lives = 0
        self.received: dict[int, bytes] = {}
        self._running: dict[int, tuple[int, int]] = {}
        """By pipe: the process id and the number of the writer."""

    def run(self, writers: int, each: int, kills: int) -> int:
        for _ in range(writers):
            self._start(each)
        moments = sorted(self.random.randrange(1 + writers * each * 3 // 4) for _ in range(kills))
        reported = 0
        while self._running:
            for pipe in select.select(list(self._running), [], [])[0]:
                received = self._receive(pipe)
                reported += received
                if received and moments and moments[0] <= reported:
                    moments.pop(0)
                    os.kill(self._running[pipe][0], signal.SIGKILL)  # at a random point of its next write
                    self._start(each)
        return kills - len(moments)

    def _start(self, each: int) -> None:
        self.lives += 1
        life = self.lives
        child, pipe = start(lambda pipe: write(self.place, pipe, life, each))
        self._running[pipe] = (child, life)
        self.received[life] = b""

    def _receive(self, pipe: int) -> int:
        """Read what a child reports. Return the number of pages, or 0 if it ended or was killed."""
        child, life = self._running[pipe]
        data = os.read(pipe, 65_536)
        self.received[life] += data
        if not data:
            os.close(pipe)
            os.waitpid(child, 0)
            del self._running[pipe]
        return data.count(b"\n")


def main(place: str, writers: str, each: str, kills: str, seed: str) -> None:
    race = Race(json.loads(place), int(seed))
    killed = race.run(int(writers), int(each), int(kills))
    for life, received in race.received.items():
        if b"!" in received:
            raise AssertionError(f"writer {life} failed by itself:\n{received.decode()}")
    promised = {life: data.decode().split("\n")[:-1] for life, data in race.received.items()}
    child, pipe = start(lambda pipe: look(race.place, pipe))
    with os.fdopen(pipe, "rb") as found:
        report = json.loads(found.read().decode().partition("!")[0] or "{}")
    os.waitpid(child, 0)
    sys.stdout.write(json.dumps({"killed": killed, "promised": promised, **report}))


if __name__ == "__main__":
    main(*sys.argv[1:])
