"""A program that lets processes write one context and kills some of them. `test_racing_processes.py` runs it.

The program itself uses no server, so it can fork. Each child opens the store, adds pages and messages, and reports each
through a pipe until it is done or killed. A killed child is replaced. A last child reads the store. The result is
printed as JSON.

    writers.py URL WRITERS EACH KILLS SEED
"""

import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count, groupby
from random import Random
from typing import Any, NoReturn

import quire
from quire import Busy, Conflict, EstimateCounter, OutcomeUnknown

_REPEATED = (1, 1, 10, 30)
"""How often a text is repeated."""


def open_book(url: str) -> quire.Context:
    return quire.open(url, "book", counter=EstimateCounter())


def write(url: str, pipe: int, life: int, operations: int) -> None:
    """Add pages and messages until there are as many as `operations`, and report each commit.

    A step is one commit: a page, or up to 16 messages.
    """
    book, random = open_book(url), Random(life)
    done = 0
    for number in count():
        if done >= operations:
            return
        step = f"{life}-{number}"
        size = 0 if random.random() < 0.5 else min(random.randint(1, 16), operations - done)
        names = [f"{step}.{part}/{size}" for part in range(1, size + 1)] or [step]
        add(book, step, [f"text of {name} " * random.choice(_REPEATED) for name in names], size > 0, random)
        os.write(pipe, "".join(f"{name}\n" for name in names).encode())
        done += len(names)


def add(book: quire.Context, step: str, texts: list[str], are_messages: bool, random: Random) -> None:
    """Add a page or messages. After a conflict, pause, refresh and try again.

    If the outcome is unknown, because a server answers with an error, look for the page first; messages are added again
    with the same id, which must not double them.
    """
    for attempt in count():
        try:
            if are_messages:
                book.add([{"role": "user", "content": text} for text in texts], id=step)
            else:
                book.pages.create_detail_page(step, "", texts[0], "mem-0")
            return
        except (Conflict, Busy):
            time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
            book.refresh()
        except OutcomeUnknown:
            book.refresh()
            if not are_messages and any(page.name == step for page in book.pages.children("mem-0")):
                return


def look(url: str, pipe: int) -> None:
    """Report the pages and messages in the store, in their order, and problems and gaps."""
    book = open_book(url)
    pages = book.pages
    texts = [(page.name, pages.detail(page.index)) for page in pages.children("mem-0")]
    texts += [(message.text.split()[2], message.text) for message in book.messages()]
    torn = [name for name, text in texts if text not in {f"text of {name} " * often for often in _REPEATED}]
    report = {
        "names": [name for name, _ in texts],
        "torn": torn,
        "problems": [str(p) for p in pages.check()],
        "gaps": [entry.seq for entry in pages.history()] != list(range(1, pages.seq + 1)),
    }
    os.write(pipe, json.dumps(report).encode())


def findings(report: dict[str, Any]) -> list[str]:
    """Return what is wrong with the pages and messages that the writers left."""
    names = report["names"]
    times = Counter(names)
    reported = {name for life in report["promised"].values() for name in life}
    found = [f"check: {problem}" for problem in report["problems"]] + [f"torn: {name}" for name in report["torn"]]
    found += [f"twice: {name}" for name, often in times.items() if often > 1]
    found += [f"lost: {name}" for name in sorted(reported - set(times))]
    found += _unreported(report, {_step(name) for name in set(times) - reported})
    for step, group in groupby((name for name in names if "/" in name), key=_step):
        places = [name.rpartition(".")[2] for name in group]
        if places != [f"{place + 1}/{len(places)}" for place in range(len(places))]:
            found.append(f"not added together: {step} {places}")
    last: dict[tuple[str, bool], int] = {}
    for name in names:
        life, _, number = _step(name).partition("-")
        kind = (life, "/" in name)
        if int(number) < last.get(kind, 0):
            found.append(f"out of order: {name}")
        last[kind] = int(number)
    return found + (["the journal has gaps"] if report["gaps"] else [])


def _unreported(report: dict[str, Any], steps: set[str]) -> list[str]:
    """Return the writers that left something unreported, except one step of a killed writer after its last report."""
    found = []
    for life, names in report["promised"].items():
        last = int(_step(names[-1]).partition("-")[2]) if names else -1
        own = {step for step in steps if step.partition("-")[0] == life}
        if int(life) not in report["killed"] and (own or len(names) != report["each"]):
            found.append(f"writer {life} reported {len(names)} of {report['each']} operations")
        elif own - {f"{life}-{last + 1}"}:
            found.append(f"unreported: {sorted(own)}, writer {life} was killed after step {last}")
    return found


def _step(name: str) -> str:
    return name.partition(".")[0]


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

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.random = Random(seed)
        self.lives = 0
        self.killed: list[int] = []
        self.received: dict[int, bytes] = {}
        self._running: dict[int, tuple[int, int]] = {}
        """By pipe: the process id and the number of the writer."""

    def run(self, writers: int, each: int, kills: int) -> None:
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
                    process, life = self._running[pipe]
                    os.kill(process, signal.SIGKILL)  # at a random point of its next write
                    self.killed.append(life)
                    self._start(each)

    def _start(self, each: int) -> None:
        self.lives += 1
        life = self.lives
        child, pipe = start(lambda pipe: write(self.url, pipe, life, each))
        self._running[pipe] = (child, life)
        self.received[life] = b""

    def _receive(self, pipe: int) -> int:
        """Read what a child reports. Return the number of operations, or 0 if it ended or was killed."""
        child, life = self._running[pipe]
        data = os.read(pipe, 65_536)
        self.received[life] += data
        if not data:
            os.close(pipe)
            os.waitpid(child, 0)
            del self._running[pipe]
        return data.count(b"\n")


def main(url: str, writers: str, each: str, kills: str, seed: str) -> None:
    race = Race(url, int(seed))
    race.run(int(writers), int(each), int(kills))
    for life, received in race.received.items():
        if b"!" in received:
            raise AssertionError(f"writer {life} failed by itself:\n{received.decode()}")
    promised = {life: data.decode().split("\n")[:-1] for life, data in race.received.items()}
    child, pipe = start(lambda pipe: look(url, pipe))
    with os.fdopen(pipe, "rb") as found:
        report = found.read().decode()
    os.waitpid(child, 0)
    if report.startswith("!"):
        raise AssertionError(f"the store cannot be read:\n{report}")
    known = {"each": int(each), "killed": race.killed, "promised": promised}
    sys.stdout.write(json.dumps({**known, **json.loads(report)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
