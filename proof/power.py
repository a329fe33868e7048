"""Power loss: the system calls of a writer are recorded with strace, and replayed in part, in any legal order."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from random import Random

import quire
from proof.disk import CALLS, Call, Disk, read_trace
from proof.results import ROOT
from proof.topic import Check, Control, Options
from proof.twin import Twin
from proof.world import BUDGET, CharacterCounter, FixedClock, World
from quire import MemoryStorage, Storage, open_storage
from tests.whole_values import whole_repr

TITLE = "Power loss"
ABOUT = """
A writer runs random operations (as for crashes), and `strace` records its system calls. Then a simulated disk fails
after any of them. Everything that a confirmed `fsync` covers is on the disk. Each later write is on the disk
completely, not at all, or with some of its sectors of 512 bytes. New files, renames and removals before the last sync
of their folder are on the disk; of the later ones, the first n are, for any n. The store is opened on each of these
disks. Every context must be in a state that it had after one of its commits: document, messages and journal are
compared with a twin in memory. `check()` must find nothing, and a new message must be stored. With `full`, every
acknowledged operation must be there. With `normal`, each context may lose its last commits.
"""
OPERATIONS = {"short": 40, "long": 60}
FAILURES = {"short": 60, "long": 2_500}
ROUNDS = {"short": 1, "long": 10}
ACK = b"acknowledged "


class States:
    """The states of all contexts by version, and the versions after each operation."""

    def __init__(self, seed: int, operations: int) -> None:
        self.known: dict[tuple[str, int], set[bytes]] = {}
        self.after: list[dict[str, int]] = []
        self._heads: dict[str, object] = {}
        twin = Twin(seed)
        twin.after_write(lambda: self._record(twin.main))
        with FixedClock() as clock:
            for number in range(operations):
                clock.set(number)
                twin.run(number)
                self.after.append({name: quire.open(twin.main, name).seq for name in quire.Library(twin.main).list()})

    def _record(self, storage: Storage) -> None:
        for name in quire.Library(storage).list():
            found = storage.load(name)
            if self._heads.get(name) != found:
                self._heads[name] = found
                seq, digest = _digest(storage, name)
                self.known.setdefault((name, seq), set()).add(digest)


def _digest(storage: Storage, name: str) -> tuple[int, bytes]:
    """Return the seq of a context, and a hash of its document, messages and journal."""
    ctx = quire.open(storage, name, budget=BUDGET, counter=CharacterCounter(), create=False)
    parts = [ctx.pages.marshal(), *(whole_repr(one).encode() for one in (*ctx.messages(all=True), *ctx.history()))]
    return ctx.seq, blake2b(b"\0".join(parts), digest_size=16).digest()


def record(backend: str, durability: str, seed: int, operations: int, folder: Path) -> Path:
    """Run a writer below `folder`/store under strace. Return the trace."""
    trace = folder / "trace"
    writer = [sys.executable, "-m", "proof.power", backend, durability, str(seed), str(operations), str(folder)]
    tracer = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-o", str(trace), "-e", f"trace={CALLS}"]
    done = subprocess.run([*tracer, *writer], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the writer failed: {done.stderr[-2_000:]}")
    return trace


def write(backend: str, durability: str, seed: str, operations: str, folder: str) -> None:
    """Run the writer: operations, each acknowledged on standard output."""
    store = Path(folder) / "store"
    store.mkdir()
    world = World(open_storage(f"{backend}:{store / 'data'}", durability=durability), MemoryStorage())  # type: ignore[arg-type]
    with FixedClock() as clock:
        for number in range(int(operations)):
            clock.set(number)
            world.run(number, int(seed), lambda event: None)
            os.write(1, ACK + b"%d\n" % number)
        world.main.close()


class Failures:
    """The failures of one recorded writer."""

    def __init__(self, backend: str, durability: str, seed: int, operations: int, folder: Path) -> None:
        self.backend = backend
        self.durability = durability
        self.seed = seed
        self.folder = folder
        folder.mkdir(parents=True)
        trace = record(backend, durability, seed, operations, folder)
        self.calls = list(read_trace(trace))
        trace.unlink()
        self.states = States(seed, operations)
        self.lost = 0

    def check_recording(self) -> str:
        """Return "" if the calls make the files of the writer, byte by byte."""
        disk, target = Disk(self.folder / "store"), self.folder / "whole"
        for call in self.calls:
            disk.apply(call)
        disk.whole(target)
        made = {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        shutil.rmtree(target)
        store = self.folder / "store"
        real = {path.relative_to(store): path.read_bytes() for path in store.rglob("*") if path.is_file()}
        wrong = [str(path) for path in made.keys() | real.keys() if made.get(path) != real.get(path)]
        return f"the recorded calls do not make these files: {sorted(wrong)[:5]}" if wrong else ""

    def run(self, count: int, random: Random, deadline: float | None, *, syncs: bool = True) -> tuple[int, list[str]]:
        """Fail at `count` random calls. Return how often, and what was found."""
        moments = sorted(random.randrange(1, len(self.calls) + 1) for _ in range(count))
        disk, acknowledged, findings, done = Disk(self.folder / "store", syncs=syncs), -1, list[str](), 0
        for number, call in enumerate(self.calls, 1):
            disk.apply(call)
            acknowledged = _acknowledged(call, acknowledged)
            while moments and moments[0] == number:
                moments.pop(0)
                done += 1
                found = self._fail(disk, acknowledged, random)
                if found:
                    where = f"{self.backend}, {self.durability}, seed {self.seed}, call {number} of {len(self.calls)}"
                    findings.append(f"{where}: {found}")
                if len(findings) >= 5 or (deadline is not None and time.monotonic() > deadline):
                    return done, findings
        return done, findings

    def _fail(self, disk: Disk, acknowledged: int, random: Random) -> str:
        target = self.folder / "failed"
        disk.fail(target, random)
        try:
            return self._examine(target / "data", acknowledged, again=random.random() < 0.2)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _examine(self, place: Path, acknowledged: int, *, again: bool) -> str:
        url = f"{self.backend}:{place}"
        expected = self.states.after[acknowledged] if acknowledged >= 0 else {}
        storage = open_storage(url)
        try:
            found: dict[str, int] = {}
            for name in list(quire.Library(storage).list()):
                found[name], digest = _digest(storage, name)
                if digest not in self.states.known.get((name, found[name]), ()):
                    return f"{name!r} is in no state that it had: version {found[name]}"
                ctx = quire.open(storage, name, create=False)
                if problems := ctx.check():
                    return f"check() finds {problems[0]}"
                if again:
                    ctx.user("and on")
            running = self.states.after[min(acknowledged + 1, len(self.states.after) - 1)]
            kept = [name for name in expected if name in found or name in running]  # an erasure may have started
            missing = {name: expected[name] for name in kept if found.get(name, 0) < expected[name]}
            revived = [] if acknowledged < 0 else [name for name in found if self._is_erased(name, acknowledged)]
            self.lost += bool(missing or revived)
            if self.durability == "full" and (missing or revived):
                return f"lost after operation {acknowledged}: {missing or revived}, found {found}"
        finally:
            storage.close()
        return self._examine_again(url, found) if again else ""

    def _is_erased(self, name: str, acknowledged: int) -> bool:
        """Return True if an acknowledged operation erased a context."""
        before = any(name in versions for versions in self.states.after[:acknowledged])
        return before and name not in self.states.after[acknowledged]

    def _examine_again(self, url: str, found: dict[str, int]) -> str:
        with quire.Library(url) as library:
            for name in found:
                if library.open(name, create=False).messages()[-1].text != "and on":
                    return f"{name!r} lost the message after the failure"
        return ""


def _acknowledged(call: Call, before: int) -> int:
    if call.name == "write" and call.arguments[0].startswith("1<"):
        data = call.data(1)
        if data.startswith(ACK):
            return int(data.removeprefix(ACK))
    return before


def run(options: Options) -> Iterator[Check]:
    """Fail on each backend and with each durability."""
    form = "long" if options.long else "short"
    if shutil.which("strace") is None:
        raise RuntimeError("this topic needs strace: install it, or leave the topic out with --only")
    combinations = [(one, mode) for one in options.chosen("sqlite", "file") for mode in ("normal", "full")]
    for backend, durability in combinations:
        total, lost, findings = 0, 0, list[str]()
        deadline = None
        if options.seconds is not None:
            deadline = time.monotonic() + 0.8 * options.seconds / len(combinations)
        for number in range(ROUNDS[form]):
            random = options.random("power", backend, durability, number)
            folder = options.folder / f"{backend}-{durability}-{number}"
            failures = Failures(backend, durability, random.getrandbits(32), OPERATIONS[form], folder)
            wrong = failures.check_recording()
            done, found = failures.run(FAILURES[form] // ROUNDS[form], random, deadline)
            total, lost, findings = total + done, lost + failures.lost, [*findings, *([wrong] if wrong else []), *found]
            shutil.rmtree(folder)
        yield Check(
            name=f"durability {durability!r}",
            backend=backend,
            count=total,
            unit="failures",
            facts={"disks that lost the last commits": lost},
            findings=findings,
        )


def control(options: Options) -> Iterator[Control]:
    """Let the disk ignore every sync: `full` must lose something."""
    for backend in options.chosen("sqlite", "file")[: None if options.long else 1]:
        random = options.random("power control", backend)
        failures = Failures(backend, "full", random.getrandbits(32), 15, options.folder / backend)
        done, found = failures.run(40, random, None, syncs=False)
        evidence = found[0] if found else f"nothing after {done} failures"
        yield Control(name="fsync removed", backend=backend, found=bool(found), evidence=evidence[:250])


if __name__ == "__main__":
    write(*sys.argv[1:])
