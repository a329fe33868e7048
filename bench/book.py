"""Measure small durable operations, opening, memory and bytes on disk, for small and large contexts."""

import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import quire
from bench.figures import Figure
from bench.measure import CountingStorage, Floor, NoTokens, Timer, fresh_python, prose
from quire import ContextSystem, SQLiteStorage

SMALL = 100
ROUNDS = 40
BATCH = 100


def run(folder: Path, pages: int) -> list[Figure]:
    """Return all figures of pages."""
    sys.stderr.write(f"building a context of {pages:,} pages …\n")
    large_file, small_file, empty_file = folder / "large.db", folder / "small.db", folder / "empty.db"
    appends = build(large_file, pages)
    build(small_file, SMALL)
    build(empty_file, 0)
    return [
        *bytes_on_disk(folder, large_file, pages),
        *opening(large_file, empty_file, pages),
        walking(large_file, pages),
        importing(),
        *appending(appends, pages),
        *operations(folder, small_file, large_file, pages),
    ]


def build(file: Path, pages: int, size: Callable[[random.Random], int] = lambda chance: 1_024) -> list[float]:
    """Create a context with this many pages in one folder, one durable operation each; return the seconds of each."""
    chance = random.Random(7)
    storage = SQLiteStorage(file)
    system = quire.open(storage, "bench", counter=NoTokens()).pages
    seconds = []
    for number in range(pages):
        text = prose(chance, size(chance))
        start = time.perf_counter()
        system.create_detail_page(f"Page {number}", "What this page is about", text, "usr-0")
        seconds.append(time.perf_counter() - start)
    storage.close()
    return seconds


def bytes_on_disk(folder: Path, large: Path, pages: int) -> list[Figure]:
    varied = folder / "varied.db"
    count = min(pages, 20_000)
    build(varied, count, lambda chance: max(20, min(60_000, int(chance.expovariate(1 / 1_024)))))
    return [
        Figure(
            "bytes on disk, page of 1,024 bytes of text",
            large.stat().st_size / pages / 1_024,
            "kB",
            1.5,
            "including the journal",
        ),
        Figure(
            "bytes on disk, texts of varied sizes, 1 kB on average",
            varied.stat().st_size / count / 1_024,
            "kB",
            1.5,
            "exponentially spread sizes",
        ),
    ]


def opening(large: Path, empty: Path, pages: int) -> list[Figure]:
    """Measure a new process that opens the file and reads one page."""
    chosen = pages // 2 + 1
    runs = [(_probe(large, f"usr-{chosen}"), _probe(empty, "usr-0")) for _ in range(5)]
    milliseconds = statistics.median(big[0] for big, _ in runs)
    megabytes = statistics.median(big[1] - small[1] for big, small in runs)
    return [
        Figure(f"open {pages:,} pages and read one", milliseconds, "ms", 10),
        Figure("memory for that, above an open empty context", max(megabytes, 0), "MB", 10),
    ]


def _probe(file: Path, index: str) -> tuple[float, float]:
    code = f"""
import time, quire
quire.SQLiteStorage, quire.open("memory:").pages  # what is imported late is there when the clock starts
start = time.perf_counter()
pages = quire.open({str(file)!r}, "bench").pages
pages.get_page({index!r}), (pages.detail({index!r}) if {index != "usr-0"} else None)
spent = (time.perf_counter() - start) * 1e3
print(spent, [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")][0] / 1024)
"""
    spent, resident = fresh_python(code).split()
    return float(spent), float(resident)


def walking(large: Path, pages: int) -> Figure:
    code = f"""
import quire
system = quire.ContextSystem(quire.SQLiteStorage({str(large)!r}), "bench", max_pages=10_000)
assert sum(1 for _ in system.list_pages()) == {pages} + 4
for index in range(1, {pages} + 1, {max(pages // 100_000, 1)}):
    system.get_page(f"usr-{{index}}")
print([int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")][0] / 1024)
"""  # getrusage also counts the parent process
    return Figure(f"process memory, walking {pages:,} pages", float(fresh_python(code)), "MB", 100, "max_pages=10,000")


def importing() -> Figure:
    code = """
import sys, time
start = time.perf_counter()
import quire
quire.open, quire.Library, quire.QuireError  # which is when the modules are loaded
print((time.perf_counter() - start) * 1e3)
assert not {"splintr", "tiktoken"} & set(sys.modules)
"""
    fresh_python("import quire; quire.Library")  # compile the modules once
    spent = statistics.median(float(fresh_python(code)) for _ in range(9))
    return Figure("import quire", spent, "ms", 100, "with all that quire.open needs; the tokenizer is not loaded")


def appending(seconds: list[float], pages: int) -> list[Figure]:
    """Compare the first children of one folder with the last, while the folder is filled."""
    part = min(2_000, pages // 3)
    first, last = statistics.median(seconds[:part]), statistics.median(seconds[-part:])
    return [Figure(f"append child {pages:,} against the first ones", last / first, "×", 1.3, f"{last * 1e6:.0f} µs")]


def operations(folder: Path, small: Path, large: Path, pages: int) -> list[Figure]:
    """Measure hide and append on the small context, the large context and the raw floor, alternating."""
    timer = Timer()
    floor = Floor(folder / "floor.db")
    subjects = [_Subject("small", small, SMALL, timer), _Subject("large", large, pages, timer)]
    for _ in range(ROUNDS):
        for subject in subjects:
            subject.hide_some()
            subject.append_some()
        for operation, size in subjects[-1].carried.items():
            for _ in range(BATCH):
                timer.time(f"floor {operation}", floor.insert, bytes(size))
    figures = []
    for operation, what in (("hide", "hide a random page"), ("append", "append a page of 1 kB")):
        size = subjects[-1].carried[operation]
        for label, average in (("median", statistics.median), ("mean", statistics.fmean)):
            kinds = (f"floor {operation}", f"{operation} small", f"{operation} large")
            raw, few, many = (average(timer.seconds[kind]) for kind in kinds)
            note = f"{many * 1e6:.0f} µs against {raw * 1e6:.0f} µs for {size:,} bytes"
            level = 1.3 if label == "median" else None  # a mean would include the write-back of checkpoints
            figures += [
                Figure(f"{what}, {SMALL} pages, × raw INSERT, {label}", few / raw, "×", 8, f"{few * 1e6:.0f} µs"),
                Figure(f"{what}, {pages:,} pages, × raw INSERT, {label}", many / raw, "×", 8, note),
                Figure(f"{what}, {pages:,} against {SMALL}, {label}", many / few, "×", level),
            ]
    return figures


class _Subject:
    """A context under measurement, and the bytes of its last commits."""

    def __init__(self, name: str, file: Path, pages: int, timer: Timer) -> None:
        self.carried: dict[str, int] = {}
        self._name = name
        self._pages = pages
        self._timer = timer
        self._chance = random.Random(3)
        self._storage = CountingStorage(file)
        self._system = ContextSystem(self._storage, "bench", counter=NoTokens())
        self._weigh()

    def _weigh(self) -> None:
        """Record the bytes of the commits before the measurement starts."""
        self._storage.counts = True
        self._system.hide("usr-1")
        self.carried["hide"] = self._storage.carried
        self._system.expand("usr-1")
        self._system.create_detail_page("Page", "What it is about", prose(self._chance, 1_024), "usr-0")
        self.carried["append"] = self._storage.carried
        self._storage.counts = False

    def hide_some(self) -> None:
        for _ in range(BATCH):
            index = f"usr-{self._chance.randrange(self._pages) + 1}"
            self._timer.time(f"hide {self._name}", self._system.hide, index)
            self._system.expand(index)

    def append_some(self) -> None:
        for _ in range(BATCH):
            text = prose(self._chance, 1_024)
            create = self._system.create_detail_page
            self._timer.time(f"append {self._name}", create, "Page", "What it is about", text, "usr-0")
