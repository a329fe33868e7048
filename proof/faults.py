"""Storage faults: every operation, with a fault at each of its storage calls, on every backend."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import apsw
from msgspec.structs import replace

from proof import servers
from proof.fault_cases import CASES, Case
from proof.killing import READS, WRITES
from proof.topic import Check, Control, Options
from quire import Busy, MemoryStorage, Storage, StorageFailure, migrate, open_storage
from quire.errors import OutcomeUnknown
from quire.storage.contract import Commit, Id
from tests.servers.postgres_proxy import TcpProxy
from tests.servers.s3_proxy import Fault as S3Fault
from tests.servers.s3_proxy import Proxy, serving

TITLE = "Storage faults"
ABOUT = """
Every operation on pages and on the conversation runs with a fault at one of its storage calls:

- `error`: the call fails and does nothing.
- `unknown outcome`: the call is made, and its answer is lost. A stream ends after its first record.
- `lasting`: this call and all later ones fail, until the storage works again.
- `delay`: the call takes longer.
- `short write`: a file takes half of the bytes, and then the disk is full; a connection to a server is cut in the
  middle of a request or an answer.

If an operation raises, the context must be in the state before it. If it returns, the context must be in the state
after it. If the outcome is unknown, one of the two states is right. This is checked in memory and after the store is
opened again. `check()` must find nothing, and the repeated operation must succeed. Operations of several commits (a
turn, the undo of a dead turn, a fold, an erasure, a purge, a copy, a backup) must be complete after they are
repeated.
After a purge, no record of the context or of its fork has the text.
"""
SHARE = 1.5
COUNTS = {"memory": 300, "sqlite": 120, "file": 100, "postgres": 30, "s3": 20}
"""The faults of the short form. The long form tests all of them."""
KINDS = ("error", "unknown outcome", "lasting", "delay")
NETWORK: tuple[S3Fault, ...] = ("lost", "silent", "cut", "error after", "late")
DELAY = 0.002


class Injector:
    """Counts the calls of a storage, and makes one of them fail."""

    def __init__(self, storage: Storage) -> None:
        self.calls: list[str] = []
        self.reached = False
        self._at = 0
        self._kind = ""
        for name in (*READS, *WRITES):
            if hasattr(storage, name):
                setattr(storage, name, self._wrap(name, getattr(storage, name)))

    def arm(self, at: int, kind: str) -> None:
        """Count from now on, and fail at this call."""
        self.calls.clear()
        self._at, self._kind, self.reached = at, kind, False

    def heal(self) -> None:
        """Fail no more."""
        self._at = 0

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            number = len(self.calls)
            if not self._at or number < self._at or (number > self._at and self._kind != "lasting"):
                return call(*args, **options)
            self.reached = True
            return self._fail(name, call, *args, **options)

        return run

    def _fail(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._kind == "delay":
            time.sleep(DELAY)
            return call(*args, **options)
        if self._kind == "torn" and name == "commit":
            _tear(call, *args)
        elif self._kind == "swallowed" and name == "commit":
            return None
        elif self._kind == "unknown outcome":
            if name in ("entries", "scan", "children", "contexts"):
                return _broken(call(*args, **options))
            call(*args, **options)
        raise StorageFailure(f"An injected fault at call {self._at}, {name} ({self._kind}).")


def _tear(call: Callable[..., Any], context: Id, commit: Commit) -> None:
    call(context, replace(commit, put=commit.put[: len(commit.put) // 2]))


def _broken(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        yield item
        break
    raise StorageFailure("An injected fault: the stream ends.")


class Stock:
    """Fresh copies of contexts on one backend."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self._templates: dict[Callable[[], Storage], Path] = {}
        self._place: Any = servers.postgres() if backend == "postgres" else servers.s3() if backend == "s3" else None

    def fresh(self, source: Callable[[], Storage]) -> str:
        """Return the place of a copy of a context."""
        name = uuid4().hex
        if self.backend in ("sqlite", "file"):
            template = self._template(source)
            target = self.folder / name
            shutil.copytree(template, target) if template.is_dir() else shutil.copy(template, target)
        else:
            self._memory = MemoryStorage()
            storage = self.open(name)
            migrate(source(), storage)
            storage.close()
        return name

    def open(self, name: str) -> Storage:
        """Open the store at a place."""
        match self.backend:
            case "memory":
                return _Again(self._memory)
            case "postgres":
                return open_storage(f"{self._place}&tenant={name}")
            case "s3":
                from quire.storage.s3 import S3Storage

                return S3Storage(prefix=name, probe=False, **self._place)
            case backend:
                return open_storage(f"{backend}:{self.folder / name}")

    def discard(self, name: str) -> None:
        """Remove the store at a place."""
        for path in self.folder.glob(f"{name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _template(self, source: Callable[[], Storage]) -> Path:
        if source not in self._templates:
            path = self.folder / f"template{len(self._templates)}"
            storage = open_storage(f"{self.backend}:{path}")
            migrate(source(), storage)
            storage.close()
            self._templates[source] = path
        return self._templates[source]

    @contextmanager
    def cut(self, name: str, number: int, how: Random) -> Iterator[tuple[Storage, Callable[[], bool]]]:
        """Open the store with a connection or a disk that fails once, at its n-th write or request."""
        match self.backend:
            case "s3":
                with _cut_s3(self._place, name, number, how) as found:
                    yield found
            case "postgres":
                with _cut_postgres(self._place, name, number, how) as found:
                    yield found
            case _:
                with _full_disk(number) as reached:
                    yield self.open(name), reached


class _Again(MemoryStorage):
    """A second handle on the records of a memory storage."""

    def __init__(self, other: MemoryStorage) -> None:
        super().__init__()
        self._names, self._tables, self._ids = other._names, other._tables, other._ids


@contextmanager
def _cut_s3(
    place: dict[str, Any], prefix: str, number: int, how: Random
) -> Iterator[tuple[Storage, Callable[[], bool]]]:
    from quire.storage.s3 import S3Storage

    kind, seen = how.choice(NETWORK), [0]
    proxy = Proxy(place["endpoint"])

    def fault(method: str, path: str) -> S3Fault:
        seen[0] += 1
        return kind if seen[0] == number else "none"

    with serving(proxy) as endpoint:
        storage = S3Storage(prefix=prefix, probe=False, **{**place, "endpoint": endpoint})
        proxy.fault = fault
        yield storage, lambda: seen[0] >= number
        for thread in proxy.late:
            thread.join()


class _CutOnce(TcpProxy):
    """Cuts one connection, in the middle of the n-th piece of data."""

    def __init__(self, server: Path, how: Random) -> None:
        super().__init__(server)
        self._part = how.random()
        self.left = 0
        self.reached = False

    def handle(self, client: Any) -> None:
        server = self.connect()
        self._start(self._forward, server, client)
        self._forward(client, server)

    def _forward(self, source: Any, target: Any) -> None:
        try:
            while data := source.recv(1 << 16):
                self.left -= 1
                if self.left == 0:
                    self.reached = True
                    target.sendall(data[: int(len(data) * self._part)])
                    break
                target.sendall(data)
        except OSError:
            pass
        self._end(source, target)


@contextmanager
def _cut_postgres(url: str, tenant: str, number: int, how: Random) -> Iterator[tuple[Storage, Callable[[], bool]]]:
    socket = Path(url.partition("host=")[2].partition("&")[0]) / ".s.PGSQL.5432"
    with _CutOnce(socket, how) as proxy:
        storage = open_storage(proxy.url(tenant=tenant))
        proxy.left = number
        yield storage, lambda: proxy.reached


class _Quota:
    """A number of writes; the last one is short."""

    def __init__(self, number: int) -> None:
        self.left = number

    def is_over(self) -> bool:
        return self.left <= 0

    def ends(self) -> bool:
        """Count a write. Return True if it is the short one."""
        self.left -= 1
        return self.left == 0

    def limit(self, call: Callable[..., int]) -> Callable[..., int]:
        """Return a write of Python with this quota."""

        def write(file: int, data: Any, *offset: int) -> int:
            if self.ends():
                call(file, bytes(data)[: len(data) // 2], *offset)
                raise OSError(errno.ENOSPC, "No space left on device")
            return call(file, data, *offset)

        return write


def _limited_vfs(quota: _Quota) -> apsw.VFS:
    """Return a VFS of SQLite with this quota."""
    base = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - the name in SQLite
            if quota.ends():
                super().xWrite(data[: len(data) // 2], offset)
                raise apsw.FullError("database or disk is full")
            super().xWrite(data, offset)

    class Vfs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("full", base, makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> File:  # noqa: N802 - the name in SQLite
            return File(base, name, flags)

    return Vfs()


@contextmanager
def _full_disk(number: int) -> Iterator[Callable[[], bool]]:
    """Let the n-th write to a file write half of its bytes, and then say that the disk is full."""
    quota, kept = _Quota(number), {name: getattr(os, name) for name in ("write", "pwrite")}
    vfs = _limited_vfs(quota)
    for name, call in kept.items():
        setattr(os, name, quota.limit(call))
    try:
        yield quota.is_over
    finally:
        for name, call in kept.items():
            setattr(os, name, call)
        vfs.unregister()


class Course(NamedTuple):
    """An operation without faults: its calls, its result, and what a user sees before and after it."""

    calls: list[str]
    result: object
    before: object
    after: object


class Trials:
    """Trials of faults on one backend."""

    def __init__(self, backend: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.stock = Stock(backend, folder)
        self._courses: dict[str, Course] = {}

    def course(self, name: str) -> Course:
        if name not in self._courses:
            case = CASES[name]
            place = self.stock.fresh(case.source)
            storage = self.stock.open(place)
            before = case.see(case.handle(storage))
            injector = Injector(storage)
            handle = case.handle(storage)
            injector.arm(0, "")
            result = case.operation(handle)
            calls = list(injector.calls)
            self._courses[name] = Course(calls, result, before, case.see(handle))
            storage.close()
            self.stock.discard(place)
        return self._courses[name]

    def fail(self, name: str, number: int, kind: str, how: Random) -> tuple[bool, str]:
        """Run an operation with a fault. Return whether the fault was reached, and what is wrong, or ""."""
        case, course = CASES[name], self.course(name)
        place = self.stock.fresh(case.source)
        try:
            if kind == "short write":
                with self.stock.cut(place, number, how) as (storage, reached):
                    wrong = self._attempt(case, course, storage, kind, lambda: None)
                    was_reached = reached()
            else:
                storage = self.stock.open(place)
                injector = Injector(storage)
                prepare = lambda: injector.arm(number, kind)  # noqa: E731 - armed after the handle was opened
                wrong = self._attempt(case, course, storage, kind, prepare, injector.heal)
                was_reached = injector.reached
            wrong = wrong or self._reopen(case, course, place)
        finally:
            self.stock.discard(place)
        return was_reached, f"{name}, call {number}, {kind}: {wrong}" if wrong else ""

    def _attempt(
        self,
        case: Case,
        course: Course,
        storage: Storage,
        kind: str,
        prepare: Callable[[], None],
        heal: Callable[[], None] = lambda: None,
    ) -> str:
        """Run the operation once with the fault, and again if it failed. Return what is wrong."""
        try:
            handle = case.handle(storage)
        except StorageFailure:  # the fault came while it opened
            handle = case.handle(storage)
        prepare()
        expected: tuple[object, ...] = (course.after,)
        try:
            case.operation(handle)
        except OutcomeUnknown:
            expected = (course.before, course.after)
        except (StorageFailure, Busy):
            expected = (course.before,) if kind != "lasting" else (course.before, course.after)
        heal()
        if case.in_steps:
            return self._complete(case, course, handle, storage, fails_late=kind == "short write")
        state = case.see(handle)
        if state not in expected:
            return "the state in memory is wrong"
        if state == course.before != course.after:
            result = case.operation(handle)
            if result != course.result:
                return f"the repeated operation returns {result!r}, not {course.result!r}"
        problems = handle.check()
        with suppress(StorageFailure):  # SQLite ignores an error of its last checkpoint, but not one of a Python VFS
            storage.close()
        return f"check() finds {problems[0]}" if problems else ""

    def _complete(self, case: Case, course: Course, handle: Any, storage: Storage, *, fails_late: bool) -> str:
        """Run an operation of several commits again, with the same handle. Return what is wrong.

        With `fails_late`, the fault can be in this run, because the first one had too few writes; then it runs again.
        """
        try:
            case.operation(handle)
        except (StorageFailure, Busy):
            if not fails_late:
                raise
            case.operation(handle)
        if case.see(handle) != course.after:
            return "the repeated operation does not complete the first one"
        problems = handle.check()
        with suppress(StorageFailure):
            storage.close()
        return f"check() finds {problems[0]}" if problems else ""

    def _reopen(self, case: Case, course: Course, place: str) -> str:
        storage = self.stock.open(place)
        try:
            return "" if case.see(case.handle(storage)) == course.after else "the stored state is wrong"
        finally:
            storage.close()


def run(options: Options) -> Iterator[Check]:
    """Make faults on each backend."""
    backends = options.chosen("memory", "sqlite", "file", "postgres", "s3")
    for backend in backends:
        deadline = None if options.seconds is None else time.monotonic() + options.seconds / len(backends)
        yield _run_backend(backend, options, deadline)


def _run_backend(backend: str, options: Options, deadline: float | None) -> Check:
    random = options.random("faults", backend)
    trials = Trials(backend, options.folder / backend)
    counts, findings, names = dict.fromkeys((*KINDS, "short write"), 0), list[str](), set[str]()
    for name, number, kind in _plan(trials, random, options.long):
        if deadline is not None and time.monotonic() > deadline:
            break
        try:
            reached, wrong = trials.fail(name, number, kind, random)
        except Exception as error:
            reached, wrong = True, f"{name}, call {number}, {kind}: {type(error).__name__}: {error}"
        counts[kind] += reached
        names.add(name)
        if wrong:
            findings.append(f"seed {options.seed}: {wrong}")
        if len(findings) >= 5:
            break
    facts: dict[str, int | float | str] = {"operations": len(names)}
    facts |= {kind: count for kind, count in counts.items() if count}
    return Check(
        name="faults", backend=backend, count=sum(counts.values()), unit="faults", facts=facts, findings=findings
    )


def _plan(trials: Trials, random: Random, long: bool) -> Iterator[tuple[str, int, str]]:
    """Yield operations, numbers of calls, and kinds of faults: all of them, or so many of them at random."""
    kinds = KINDS if trials.stock.backend == "memory" else (*KINDS, "short write")
    if long:
        for name in CASES:
            for number in range(1, len(trials.course(name).calls) + 1):
                yield from ((name, number, kind) for kind in kinds)
        return
    for _ in range(COUNTS[trials.stock.backend]):
        name = random.choice(list(CASES))
        calls = trials.course(name).calls or ["copy"]  # SQLite copies itself without a call of the protocol
        writes = [number for number, call in enumerate(calls, 1) if call in WRITES]
        number = random.choice(writes) if writes and random.random() < 0.5 else random.randint(1, len(calls))
        yield name, number, random.choice(kinds)


def control(options: Options) -> Iterator[Control]:
    """Use storages that tear a commit, or that swallow its error."""
    backend = options.chosen("sqlite", "memory", "file", "postgres", "s3")[0]
    trials = Trials(backend, options.folder / backend)
    random = options.random("faults control")
    for kind, title in (("torn", "half of the writes of a commit are made"), ("swallowed", "an error is swallowed")):
        found = ""
        for name in ("change: create_detail_page", "change: user"):
            calls = trials.course(name).calls
            try:
                _, wrong = trials.fail(name, calls.index("commit") + 1, kind, random)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            found = found or wrong
        yield Control(name=title, backend=backend, found=bool(found), evidence=found[:200] or "nothing was found")
