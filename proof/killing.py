"""A program that kills a writing process again and again, and compares its stores with a twin after each kill.

The program has no threads and opens no store itself, so it can fork. Each child opens the stores, runs operations and
acknowledges each through a pipe until it is killed: at a random moment, at its k-th storage call, or at its k-th write
to a file, before, after or in the middle of it. Another child then reads the stores. What it reads must be the state
after all acknowledged operations, or a state that the next operation has after one of its commits. The twin (quire in
memory) knows these states with documents, messages, journals and views; the plain model knows the texts without any
code of quire. The next child continues from there. The program prints its results as JSON.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal
from uuid import uuid4

import apsw
import msgspec
from msgspec import Struct

import quire
from proof.mortal import Tell, finished, killed
from proof.twin import Candidate, Twin, differences, model_differences
from proof.world import BOOK, FixedClock, Found, World, has_many_turns, look
from quire import Storage, open_storage
from quire.storage.contract import Commit, Id
from quire.storage.log import LogStorage

KILLS_PER_STORE = 12
READS = ("load", "entries", "get", "scan", "children", "snapshot", "contexts")
WRITES = ("create", "name", "commit", "drop", "scrub")
FILE_CALLS = ("write", "pwrite", "fsync", "fdatasync", "replace", "rename", "unlink", "truncate", "ftruncate", "link")
LIVES = {"s3": 0.6, "postgres": 0.15}
LONGEST_LIFE = 0.06
PACK_EVERY = 8
"""The commits after which a log is packed here, so that kills meet packs too."""
MOST_OPERATIONS = 25
"""A child ends after so many operations, so that the stores stay small."""
Breakage = Literal["", "late", "torn"]
Part = Literal["before", "middle", "after"]
PARTS: tuple[Part, ...] = ("before", "middle", "after")


class Task(Struct, frozen=True, kw_only=True):
    """What the program does."""

    backend: str
    kills: int
    seed: int
    folder: str
    seconds: float | None = None
    place: dict[str, Any] = {}
    """For PostgreSQL the `url` of the server, for S3 the options of `S3Storage`."""
    breakage: Breakage = ""
    """For controls: `late` acknowledges a commit before it is made, `torn` makes half of a commit."""


class Kill(Struct, frozen=True):
    """When a child is killed."""

    moment: float | None = None
    """Seconds after its first line; None: it kills itself."""
    calls: tuple[str, ...] = ()
    """It kills itself at the k-th of these calls."""
    number: int = 0
    part: Part = "before"
    files: bool = False


class Countdown:
    """Kills this process at the k-th call."""

    def __init__(self, kill: Kill) -> None:
        self._left = kill.number
        self._part = kill.part

    def wrap(self, call: Callable[..., Any], half: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return the call with the countdown. `half` makes a half of its effect."""

        def counted(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                if self._part == "middle" and half is not None:
                    half(*args, **options)
                elif self._part != "before":
                    call(*args, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return counted


def _die_at_a_call(storage: Storage, kill: Kill, countdown: Countdown) -> None:
    for name in kill.calls:
        if hasattr(storage, name):
            setattr(storage, name, countdown.wrap(getattr(storage, name)))


def _die_at_a_file_write(countdown: Countdown) -> None:
    """Count the calls that change files: those of Python, and those of SQLite through a VFS."""
    real = {name: getattr(os, name) for name in FILE_CALLS}

    def half(file: int, data: Any, *offset: int) -> int:
        call = real["pwrite" if offset else "write"]
        return int(call(file, bytes(data)[: len(data) // 2], *offset))

    for name, call in real.items():
        setattr(os, name, countdown.wrap(call, half if name in ("write", "pwrite") else None))
    base = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, inherit: str, name: Any, flags: Any) -> None:
            super().__init__(inherit, name, flags)
            write = super().xWrite
            self.write = countdown.wrap(write, lambda data, offset: write(data[: len(data) // 2], offset))
            self.sync = countdown.wrap(super().xSync)
            self.cut = countdown.wrap(super().xTruncate)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - the name in SQLite
            self.write(data, offset)

        def xSync(self, flags: int) -> None:  # noqa: N802 - the name in SQLite
            self.sync(flags)

        def xTruncate(self, size: int) -> None:  # noqa: N802 - the name in SQLite
            self.cut(size)

    class Vfs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counted", base, makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> File:  # noqa: N802 - the name in SQLite
            return File(base, name, flags)

    _kept.append(Vfs())


_kept: list[object] = []
"""Objects that must live as long as the process."""


def _break_late(storage: Storage) -> None:
    """Make each commit only when the next call arrives."""
    waiting: list[Callable[[], object]] = []

    def flush() -> None:
        while waiting:
            waiting.pop()()

    def late(name: str) -> Callable[..., Any]:
        call = getattr(storage, name)

        def run(*args: Any, **options: Any) -> Any:
            flush()
            if name != "commit":
                return call(*args, **options)
            waiting.append(partial(call, *args, **options))
            return None

        return run

    for name in (*READS, *WRITES):
        if hasattr(storage, name):
            setattr(storage, name, late(name))


def _break_torn(storage: Storage, random: Random) -> None:
    """Make half of some commit, and kill the process."""
    left = random.randrange(3, 30)
    whole = storage.commit

    def torn(context: Id, commit: Commit) -> None:
        nonlocal left
        left -= 1
        if left > 0 or len(commit.put) < 2:
            return whole(context, commit)
        whole(context, msgspec.structs.replace(commit, put=commit.put[: len(commit.put) // 2]))
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    storage.commit = torn  # type: ignore[method-assign]


def _place(error: AssertionError) -> str:
    """Return where an assertion without a text failed."""
    return "" if str(error) else " | ".join(traceback.format_tb(error.__traceback__)[-2:])


class Killing:
    """One run of the program."""

    def __init__(self, task: Task, clock: FixedClock) -> None:
        self.task = task
        self.clock = clock
        self.random = Random(f"{task.seed} {task.backend} {task.breakage}")
        self.kills = 0
        self.acknowledged = 0
        self.unfinished = 0
        """How often the interrupted operation left a trace."""
        self.during: Counter[str] = Counter()
        self.findings: list[str] = []
        self._stores = 0
        self.folder = Path(task.folder)
        self._renew()

    def run(self) -> None:
        deadline = None if self.task.seconds is None else time.monotonic() + self.task.seconds
        while self.kills < self.task.kills and (deadline is None or time.monotonic() < deadline):
            if self.kills and self.kills % KILLS_PER_STORE == 0:
                self._renew()
            try:
                self._kill_once()
            except AssertionError as error:
                self.findings.append(f"kill {self.kills}, seed {self.task.seed}: {error}{_place(error)}")
                if self.task.breakage or len(self.findings) >= 5:
                    return
                self._renew()
        shutil.rmtree(self.folder)

    def report(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "acknowledged": self.acknowledged,
            "unfinished": self.unfinished,
            "during": dict(sorted(self.during.items())),
            "findings": self.findings,
        }

    def _renew(self) -> None:
        if self._stores:
            shutil.rmtree(self.folder)
        self._stores += 1
        self.folder = Path(self.task.folder) / f"{self.task.backend}{self.task.breakage}-{self._stores}"
        self.folder.mkdir(parents=True)
        self.names = uuid4().hex, uuid4().hex
        self.durability: Any = self.random.choice(("normal", "full")) if self.task.backend != "postgres" else "normal"
        self.twin = Twin(self.random.getrandbits(32))
        self.next = 0

    def _open(self, name: str) -> Storage:
        storage = self._open_here(name)
        if isinstance(storage, LogStorage):
            storage._every = PACK_EVERY
        return storage

    def _open_here(self, name: str) -> Storage:
        place = self.task.place
        match self.task.backend:
            case "s3":
                return quire.S3Storage(prefix=name, probe=False, **place)
            case "postgres":
                return open_storage(f"{place['url']}&tenant={name}")
            case backend:
                return open_storage(f"{backend}:{self.folder / name}", durability=self.durability)

    def _world(self) -> World:
        return World(self._open(self.names[0]), self._open(self.names[1]), self.folder)

    def _choose_kill(self) -> Kill:
        random = self.random
        life = LIVES.get(self.task.backend, LONGEST_LIFE)
        kind = random.choice(("moment", "write", "call", "file"))
        if self.task.breakage == "torn":
            return Kill()
        if kind == "moment" or self.task.breakage:
            return Kill(moment=random.uniform(0, life))
        if has_many_turns(self.twin.seed) and random.random() < 0.7:
            return Kill(calls=("commit",), number=random.randint(1, 8), part=random.choice(PARTS))
        if kind == "file" and self.task.backend in ("sqlite", "file"):
            return Kill(number=random.randint(1, 60), part=random.choice(PARTS), files=True)
        calls = WRITES if kind == "write" else (*READS, *WRITES)
        most = 20 if kind == "write" else 100
        return Kill(calls=calls, number=random.randint(1, most), part=random.choice(PARTS))

    def _kill_once(self) -> None:
        kill, seed = self._choose_kill(), self.random.getrandbits(32)
        self.kills += 1
        patience = None if self.kills % 2 else 0  # kill one at any moment, also while it opens
        lines = killed(partial(self._write, kill, seed), kill.moment, patience)
        for line in lines:
            self.clock.set(self.next)
            self.twin.run(self.next)
            assert int(line) == self.next
            self.next += 1
        self.acknowledged += len(lines)
        self._compare()

    def _write(self, kill: Kill, seed: int, tell: Tell) -> None:
        """Run the child: operations until it is killed."""
        countdown = Countdown(kill)
        if kill.files:
            _die_at_a_file_write(countdown)
        world = self._world()
        if kill.calls:
            for storage in (world.main, world.second):
                _die_at_a_call(storage, kill, countdown)
        if self.task.breakage == "late":
            _break_late(world.main)
        elif self.task.breakage == "torn":
            _break_torn(world.main, Random(seed))
        for number in range(self.next, self.next + MOST_OPERATIONS):
            self.clock.set(number)
            world.run(number, self.twin.seed, lambda event: None)
            tell(str(number))
        os.kill(os.getpid(), signal.SIGKILL)

    def _compare(self) -> None:
        """Compare the stores with the states that the twin allows, and continue from the one they have."""
        self.clock.set(self.next)
        name, candidates = self.twin.run_unfinished(self.next)
        self.during[name] += 1
        self.clock.set(self.next + 1)
        found: Found = finished(self._read)
        places: list[str] = []
        likely = [one for one in candidates if self.twin.versions(one) == found["versions"]]
        for candidate in likely or candidates:
            expected = self.twin.look(candidate)
            places = differences(found, expected)
            if not places:
                self._continue(found, candidate)
                self.unfinished += candidate is not candidates[0]
                return
        tried = len(likely or candidates)
        last = f" (against the last of {tried} states)" if tried > 1 else ""
        raise AssertionError(f"operation {self.next}, {name!r}: different{last}: {', '.join(places)}")

    def _continue(self, found: Found, candidate: Candidate) -> None:
        problems = [f"{name}: {one['problems']}" for name, one in found["main"].items() if one["problems"]]
        assert not problems, f"check() finds {problems}"
        shortest: list[str] = []
        for model in candidate.models(self.twin.model):
            places = model_differences(found, model)
            shortest = min(shortest or places, places, key=lambda one: len(str(one)))
            if not places:
                for name, book in model.books.items():
                    held = found["main"][name]["lease"]
                    if held is not None and held[1]:  # the turn ended, and was killed before it could say so
                        book.open_turn = set()
                self.twin.adopt(candidate, model)
                self.next += 1  # the number of an interrupted operation is not used again
                return
        journal = [entry.partition("operation=")[2].split(",")[0] for entry in found["main"][BOOK]["journal"][-12:]]
        events = [event[:3] for event in candidate.events]
        details = f"{', '.join(shortest)}; steps {events}; the last entries {journal}"
        raise AssertionError(f"operation {self.next}: the plain model differs: {details}")

    def _read(self) -> Found:
        world = self._world()
        found = look(world)
        copy = self.folder / "backup.db"
        if copy.exists():
            with quire.Library(copy) as library:
                for name in library.list():
                    assert library.open(name).check() == [], f"the backup of {name} is damaged"
        for storage in (world.main, world.second):
            storage.close()
        return found


def main(task: str) -> None:
    with FixedClock() as clock:
        killing = Killing(msgspec.json.decode(task, type=Task), clock)
        killing.run()
    sys.stdout.write(json.dumps(killing.report()))


if __name__ == "__main__":
    main(sys.argv[1])
