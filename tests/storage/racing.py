"""Processes that write one context, while a test kills them or disturbs the server."""

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from random import Random

import quire
from quire import EstimateCounter
from tests.storage.writer import REPEATED

PROGRAM = Path(__file__).with_name("writer.py")
PATIENCE = 120.0


class Race:
    """Writers of a store, and what each of them acknowledged, in files of a folder."""

    def __init__(self, url: str, folder: Path, seed: int, *, steps: int) -> None:
        self.random = Random(seed)
        self._url, self._folder, self._seed, self._steps = url, folder / "race", seed, steps
        self._folder.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, writers: int, disturbances: int, disturb: Callable[[int], object] | None = None) -> None:
        """Run the writers to their end. In between, disturb them, or kill one and start another."""
        for _ in range(writers):
            self._start()
        for number in range(disturbances):
            self._wait(len(self.acknowledged()) + self.random.randint(1, 9))
            disturb(number) if disturb else self._kill()
        for process in self._processes:
            process.wait(PATIENCE)
        for life, process in enumerate(self._processes):
            assert process.returncode in (0, -9), (self._folder / f"{life}.errors").read_text()

    def acknowledged(self) -> list[str]:
        """Return the names of the pages and messages that were acknowledged."""
        return [name for path in self._folder.glob("*.names") for name in path.read_text().split("\n")[:-1]]

    def check(self, url: str) -> None:
        """Check that everything acknowledged is stored once, whole and together, and that the journal has no gaps."""
        with quire.open(url, "book", counter=EstimateCounter()) as book:
            texts = [(page.name, book.pages.detail(page.index)) for page in book.pages.children("mem-0")]
            texts += [(message.text.split()[2], message.text) for message in book.messages()]
            assert book.check() == []
            assert [entry.seq for entry in book.history()] == list(range(1, book.seq + 1))
        names = [name for name, _ in texts]
        assert len(set(names)) == len(names), "doubled"
        assert set(self.acknowledged()) <= set(names), "lost"
        assert [name for name, text in texts if text not in {f"text of {name} " * often for often in REPEATED}] == []
        for step, group in groupby((name for name in names if "/" in name), key=lambda name: name.partition(".")[0]):
            found = list(group)
            assert found == [f"{step}.{part}/{len(found)}" for part in range(1, len(found) + 1)], "torn"

    def _start(self) -> None:
        life = len(self._processes)
        command = [sys.executable, str(PROGRAM), self._url, str(life), str(self._steps), str(self._seed)]
        with (self._folder / f"{life}.names").open("wb") as names, (self._folder / f"{life}.errors").open("wb") as told:
            self._processes.append(subprocess.Popen(command, stdout=names, stderr=told))

    def _kill(self) -> None:
        running = [process for process in self._processes if process.poll() is None]
        assert running, "the writers ended before they could be killed"
        self.random.choice(running).kill()  # at a random point of its next write
        self._start()

    def _wait(self, count: int) -> None:
        """Wait until so many names are acknowledged, or all writers ended."""
        deadline = time.monotonic() + PATIENCE
        while len(self.acknowledged()) < count and any(process.poll() is None for process in self._processes):
            assert time.monotonic() < deadline, "the writers hang"
            time.sleep(0.005)
