"""Shared parts of the benchmarks: a counter that counts nothing, a raw floor, a timer, text, and new processes."""

import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from hashlib import sha256
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import apsw

from quire import SQLiteStorage
from quire.storage.contract import Commit, Id

_SENTENCE = "the pump moves water through a valve and back into the tank until the gauge reads zero again"
_PROSE = " ".join(random.Random(1).choices(_SENTENCE.split(), k=60_000))


class NoTokens:
    """A counter that counts nothing: token counting is measured separately."""

    name = "none"
    exact = False

    def count(self, text: str) -> int:
        return 0


class CountingStorage(SQLiteStorage):
    """SQLite storage that reports the bytes of its last commit on request, because counting takes time."""

    carried = 0
    counts = False

    def commit(self, context: Id, commit: Commit) -> None:
        if self.counts:
            self.carried = len(commit.head) + len(commit.entry) + sum(len(record.value) for _, record in commit.put)
        super().commit(context, commit)


def prose(chance: random.Random, size: int) -> str:
    """Return text of exactly this many bytes."""
    start = chance.randrange(len(_PROSE) - 100_000)
    return _PROSE[start : start + size]


def varied_text(chance: random.Random, size: int) -> str:
    """Return this many bytes of words from a vocabulary of 20,000, the common ones more often."""
    words, weights = _vocabulary()
    return " ".join(chance.choices(words, cum_weights=weights, k=size // 3))[:size]


@cache
def _vocabulary() -> tuple[list[str], list[float]]:
    """Return made-up words and their cumulative weights, as of words in a natural text."""
    chance = random.Random(1)
    starts = [*"bdfgklmnprstvw", "st", "tr", "br"]
    ends = ["", *"nrst"]
    syllables = [start + vowel + end for start in starts for vowel in "aeiou" for end in ends]
    words = ["".join(chance.choices(syllables, k=chance.choice((1, 2, 2, 3)))) for _ in range(20_000)]
    return words, list(accumulate(1 / (rank + 10) for rank in range(len(words))))


class Timer:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def time(self, name: str, action: Callable[..., object], *arguments: object) -> None:
        start = time.perf_counter()
        action(*arguments)
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)


class Floor:
    """The raw floor of a durable write: one INSERT and commit through apsw."""

    def __init__(self, file: Path) -> None:
        self._db = apsw.Connection(str(file))
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, value BLOB)")

    def insert(self, data: bytes) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO floor (value) VALUES (?)", (data,))
        self._db.execute("COMMIT")


def fresh_python(code: str) -> str:
    """Run code in a new process with compiled modules, as an installed package has them; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


Result = TypeVar("Result")
_JOBS = Path(tempfile.gettempdir()) / "quire-bench-jobs"


def in_processes(function: Callable[..., Result], jobs: Sequence[tuple[object, ...]]) -> list[Result]:
    """Call a function with the arguments of every job, in as many processes as there are cores.

    Results are kept until `forget_jobs`, so that an interrupted benchmark of the same source code continues.
    """
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        return list(pool.map(partial(_run_once, _JOBS / _source_digest(), function), jobs))


def forget_jobs() -> None:
    """Remove the kept results of `in_processes`."""
    rmtree(_JOBS, ignore_errors=True)


def _run_once(folder: Path, function: Callable[..., Result], job: tuple[object, ...]) -> Result:
    """Return the kept result of a job, or run it and keep the result."""
    name = repr((function.__module__, function.__qualname__, job))
    file = folder / sha256(name.encode()).hexdigest()
    if file.exists():
        kept: Result = pickle.loads(file.read_bytes())
        return kept
    result = function(*job)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.replace(file)
    return result


def _source_digest() -> str:
    """Return a digest of the source code of quire and of the benchmarks."""
    root = Path(__file__).resolve().parent.parent
    files = sorted(file for folder in ("src", "bench") for file in (root / folder).rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
