"""Load: mixed traffic from several processes that are killed and restarted; flat memory, flat latency, nothing lost."""

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median

import quire
from proof import servers
from proof.results import ROOT
from proof.topic import Check, Control, Options
from quire.core import lease
from quire.errors import OutcomeUnknown
from quire.model.tokens import VocabularyCounter

TITLE = "Load"
ABOUT = """
Four processes work on the same contexts: turns with a question, a view and an answer; pages; searches; forks that are
erased; histories. Three of them are killed again and again at random moments, and replaced. A process writes down what
was acknowledged. At the end, every acknowledged turn and page must be there once, `check()` must find nothing, and each
kill adds at most one turn that was not acknowledged. The process that is never killed must not become slower or larger.
For this, the last fifth of the run is compared with the second fifth: the median processor time of a write, its median
latency (in the long form), and the memory.
"""
SHARE = 4.0
WORKERS = 4
CONTEXTS = 12
SECONDS = {"short": 60, "long": 3_600}
PAUSE = {"short": 0.0, "long": 0.1}
"""The mean pause of a worker between two operations. Users pause too, and the hour leaves room for other work."""
BETWEEN_KILLS = {"short": (0.5, 2.5), "long": (2.0, 10.0)}
"""The shortest and the longest time between two kills, in seconds."""
MOST_SLOWER = 2.0
"""The median time of a write in the last fifth of the run, against the second fifth."""
MOST_LARGER = 1.25
"""The memory in the last fifth of the time, against the second fifth."""
BROKEN = {
    "leak": "a worker keeps what it read",
    "loss": "a worker acknowledges a turn that it did not make",
    "slow": "a worker becomes slower",
}


# The worker


def work(url: str, name: str, seed: str, folder: str, form: str, broken: str) -> None:
    """Run mixed traffic until the process is killed or standard input ends."""
    lease.LEASE_SECONDS = 2.0  # a lease that is not released must not delay the others for 30 seconds
    random, number, kept = Random(f"{seed} {name}"), 0, list[bytes]()
    log = os.open(Path(folder) / f"log-{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    VocabularyCounter().count("unusuallylongword " * 5_000)  # the tokenizer loads after 50,000 bytes: that is no leak
    with quire.Library(url) as library:
        while not _is_over():
            number += 1
            context, key = f"user-{random.randrange(CONTEXTS)}", f"{name}.{number}"
            started, used = time.monotonic(), time.process_time()
            kind = _one(library, context, key, random, skip=broken == "loss" and number % 5 == 0)
            while broken == "slow" and time.process_time() < used + number * 0.001:
                pass
            if broken == "leak":
                kept.append(os.urandom(1_000_000))
            now, cost = time.monotonic(), 1_000 * (time.process_time() - used)
            line = f"{kind} {now:.3f} {1_000 * (now - started):.3f} {context} {key} {_memory()} {cost:.3f}\n"
            os.write(log, line.encode())
            time.sleep(random.uniform(0, 2 * PAUSE[form]))


def _is_over() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _one(library: quire.Library, context: str, key: str, random: Random, *, skip: bool) -> str:
    """Do one thing; return its kind."""
    share = random.random()
    if share < 0.6:
        while not skip and not _turn(library, context, key, random):
            time.sleep(0.01)
        return "turn"
    if share < 0.75:
        while not _page(library, context, key):
            time.sleep(0.01)
        return "page"
    with library.open(context) as ctx:
        if share < 0.85:
            ctx.find(key)
        elif share < 0.97:
            ctx.messages()[-5:]
            list(islice(ctx.history(), 20))
        else:
            with suppress(quire.Conflict):  # another worker wrote meanwhile
                library.fork(context, f"fork {key}")
                library.erase(f"fork {key}")
    return "read"


def _turn(library: quire.Library, context: str, key: str, random: Random) -> bool:
    try:
        with library.turn(context, key=key, wait=10, budget=1_500) as ctx:
            ctx.user(f"question {key}. " + "word " * random.randrange(60))
            ctx.render()
            ctx.assistant(f"answer {key}. " + "word " * random.randrange(60))
    except (quire.Busy, quire.Conflict, OutcomeUnknown):
        return False
    return True


def _page(library: quire.Library, context: str, key: str) -> bool:
    try:
        with library.open(context) as ctx:
            ctx.pages.create_detail_page(f"page {key}", "", f"text {key}", "mem-0")
    except (quire.Busy, quire.Conflict):
        return False
    return True


# The parent


class Load:
    """Workers on one store."""

    def __init__(self, url: str, folder: Path, seed: int, form: str = "short", broken: str = "") -> None:
        folder.mkdir(parents=True)
        self.form = form
        self.url = url
        self.folder = folder
        self.seed = seed
        self.broken = broken
        self.kills = 0
        self._random = Random(f"load {seed}")
        self._started = 0
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        with quire.Library(self.url) as library:
            for number in range(CONTEXTS):
                library.open(f"user-{number}").close()
        for _ in range(workers):
            self._start()
        self._next = time.monotonic() + 2

    def disturb(self) -> None:
        """Kill a worker now and then, but never the first one."""
        if time.monotonic() >= self._next and len(self._workers) > 1:
            victim = self._workers.pop(self._random.randrange(1, len(self._workers)))
            _kill(victim)
            self.kills += 1
            self._start()
            self._next = time.monotonic() + self._random.uniform(*BETWEEN_KILLS[self.form])

    def stop(self) -> list[str]:
        """End the workers. Return what is wrong with them."""
        for worker in self._workers:
            assert worker.stdin is not None
            with suppress(BrokenPipeError):  # it failed before
                worker.stdin.write(b"end\n")
                worker.stdin.close()
        failed = [worker for worker in self._workers if worker.wait(timeout=120)]
        return [f"a worker failed: {(self.folder / 'errors').read_text()[-1_000:]}" for _ in failed]

    def _start(self) -> None:
        name = f"w{self._started}"
        self._started += 1
        about = [self.url, name, str(self.seed), str(self.folder), self.form, self.broken]
        command = [sys.executable, "-m", "proof.load", *about]
        with (self.folder / "errors").open("ab") as errors:
            self._workers.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=errors))

    def operations(self) -> int:
        """Return how many operations were done."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("log-*"))

    def check(self, *, waits: bool) -> tuple[dict[str, int | float | str], list[str]]:
        """Return figures and findings. Without `waits`, only processor time counts: other work cannot disturb it."""
        logs = {path.name: _read_log(path) for path in self.folder.glob("log-*")}
        acknowledged = [line for lines in logs.values() for line in lines]
        findings = self._compare(acknowledged)
        writes = [line for line in acknowledged if line[0] != "read"]
        latency = _fifths([(float(line[1]), float(line[2])) for line in writes])
        cost = _fifths([(float(line[1]), float(line[6])) for line in writes])
        memory = _fifths([(float(line[1]), float(line[5]) / 1e6) for line in logs.get("log-w0", [])])
        facts: dict[str, int | float | str] = {
            "kills": self.kills,
            "turns": sum(line[0] == "turn" for line in acknowledged),
            "pages": sum(line[0] == "page" for line in acknowledged),
            "median write in ms (second fifth, last fifth)": f"{latency[0]:.1f}, {latency[1]:.1f}",
            "processor time of a write in ms (second fifth, last fifth)": f"{cost[0]:.1f}, {cost[1]:.1f}",
            "memory in MB (second fifth, last fifth)": f"{memory[0]:.0f}, {memory[1]:.0f}",
        }
        if not cost[0]:
            findings.append(f"only {len(writes)} writes: too few to compare times; give it more time or a calm machine")
        for name, (early, late) in {"latency": latency, "processor time": cost}.items():
            if late > MOST_SLOWER * early + 1 and (waits or name != "latency"):
                findings.append(f"writes became slower: {name} {early:.1f} ms, then {late:.1f} ms")
        if memory[1] > MOST_LARGER * memory[0] + 5:
            findings.append(f"memory grew: {memory[0]:.0f} MB, then {memory[1]:.0f} MB")
        return facts, findings

    def _compare(self, acknowledged: list[list[str]]) -> list[str]:
        """Return what is lost, doubled or damaged in the store."""
        findings, extra = list[str](), 0
        with quire.Library(self.url) as library:
            for name in [f"user-{number}" for number in range(CONTEXTS)]:
                ctx = library.open(name)
                messages = Counter(" ".join(one.text.split()[:2]) for one in ctx.messages(all=False))
                pages = Counter(page.name for page in ctx.pages.list_pages("mem") if page.parent)
                turns = {line[4] for line in acknowledged if line[0] == "turn" and line[3] == name}
                made = {line[4] for line in acknowledged if line[0] == "page" and line[3] == name}
                expected = {f"{part} {key}." for key in turns for part in ("question", "answer")}
                lost = [one for one in expected if not messages[one]] + [
                    one for one in made if not pages[f"page {one}"]
                ]
                doubled = [one for one, count in (messages + pages).items() if count > 1]
                extra += len([one for one in messages if one.startswith("question") and one not in expected])
                extra += len(pages) - len(made)
                findings += [f"{name}: lost {lost[:3]}"] if lost else []
                findings += [f"{name}: doubled {doubled[:3]}"] if doubled else []
                findings += [f"{name}: {problem}" for problem in ctx.check()[:3]]
                ctx.close()
        if extra > self.kills:
            findings.append(f"{extra} writes were not acknowledged, after {self.kills} kills")
        return findings


def _read_log(path: Path) -> list[list[str]]:
    """Return the lines of a log; the last one can be incomplete after a kill."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [line for line in lines if len(line) == 7]


def _fifths(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of the second and of the last fifth of the values in time; 0 for fewer than 25 values."""
    ordered = [value for _, value in sorted(values)]
    length = len(ordered) // 5
    return (median(ordered[length : 2 * length]), median(ordered[-length:])) if length >= 5 else (0.0, 0.0)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def run(options: Options) -> Iterator[Check]:
    """Run the load on all backends at the same time."""
    form = "long" if options.long else "short"
    seconds = SECONDS[form] if options.seconds is None else max(5.0, options.seconds - 15)
    urls = {"sqlite": f"sqlite:{options.folder / 'load.db'}"}
    if "postgres" in options.chosen("postgres"):
        urls["postgres"] = servers.postgres()
    loads = {name: Load(urls[name], options.folder / name, options.seed, form) for name in options.chosen(*urls)}
    for load in loads.values():
        load.start(WORKERS)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
        for load in loads.values():
            load.disturb()
    stopped = {name: load.stop() for name, load in loads.items()}
    for name, load in loads.items():
        facts, findings = load.check(waits=options.long)
        findings = [f"seed {options.seed}: {finding}" for finding in [*stopped[name], *findings]]
        yield Check(
            name="mixed traffic", backend=name, count=round(seconds), unit="seconds", facts=facts, findings=findings
        )


def control(options: Options) -> Iterator[Control]:
    """Run workers that leak memory, lose turns, or become slower."""
    loads = {
        broken: Load(f"sqlite:{options.folder / broken}.db", options.folder / broken, options.seed, broken=broken)
        for broken in BROKEN
        if "sqlite" in options.chosen("sqlite")
    }
    for load in loads.values():
        load.start(1)
    end = time.monotonic() + 60
    while any(load.operations() < 80 for load in loads.values()) and time.monotonic() < end:
        time.sleep(0.1)
    for broken, load in loads.items():
        load.stop()
        _, findings = load.check(waits=False)
        word = {"leak": "memory grew", "loss": "lost", "slow": "slower"}[broken]
        found = [finding for finding in findings if word in finding]
        evidence = found[0] if found else "nothing was found"
        yield Control(name=BROKEN[broken], backend="sqlite", found=bool(found), evidence=evidence[:200])


if __name__ == "__main__":
    work(*sys.argv[1:])
