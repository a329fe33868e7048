"""Running apps beside the caller: one that raises or never returns harms nobody but its own window.

Calls run in a thread of their own, many in one go, since handing over to a thread costs more than most calls. What is
`async` runs on one event loop in a further thread, so it works wherever the caller stands, and calls that wait, wait
together. A thread with a call that does not come back is left to itself, and another takes its place.
"""

import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future

DEFAULT_LIMIT = 2.0
_GRACE = 0.25
"""How much longer a thread is given than what waits on the event loop, which ends by itself."""


class TimeLimit(Exception):
    """A call did not come back in time, or was not begun because others had taken all of it."""


class Outcome(Struct, frozen=True):
    """What a call gave: a value, or the error that it raised."""

    value: Any = None
    error: BaseException | None = None


class Job:
    """One call. Calls with the same lock run one at a time; without `patience` it does not wait for the lock."""

    __slots__ = ("_call", "_lock", "_patience")

    def __init__(self, call: Callable[[], Any], lock: "threading.Lock | None" = None, *, patience: float = 0.0) -> None:
        self._call = call
        self._lock = lock
        self._patience = patience

    def begin(self) -> Any:
        """Run it, unless another call for the same one is still running. What it gives may be awaitable."""
        if self._lock is not None and not self._lock.acquire(timeout=self._patience):
            self._lock = None
            raise TimeLimit("an earlier call has not come back yet")
        return self._call()

    def end(self) -> None:
        """Let the next call for the same one run."""
        if self._lock is not None:
            self._lock.release()


class Runner:
    """Runs calls of apps, none longer than `limit` seconds, all of one go together at most twice that."""

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._idle: list[_Worker] = []
        self._loops = _Loops()

    def run(self, jobs: Sequence[Job], limit: float | None = None) -> list[Outcome]:
        """What each call gave, in order. Waits for all of them, but for none longer than the limit."""
        patience = self.limit if limit is None else limit
        worker = getattr(threading.current_thread(), "quire_worker", None)
        if worker is self:  # an app that draws or acts: its own call has the limit
            nested = _Batch(jobs, patience, self._loops)
            nested.run()
            return nested.outcomes()
        end = monotonic() + 2 * patience + _GRACE
        outcomes: list[Outcome] = []
        while len(outcomes) < len(jobs):
            if monotonic() >= end:
                late = TimeLimit("other windows took all the time there was")
                return outcomes + [Outcome(error=late)] * (len(jobs) - len(outcomes))
            outcomes += self._go(_Batch(jobs[len(outcomes) :], patience, self._loops), end)
        return outcomes

    def rest(self) -> None:
        """End the threads that wait for work; the next call begins another."""
        with suppress(IndexError):
            while True:
                self._idle.pop().queue.put(None)

    def _go(self, batch: "_Batch", end: float) -> list[Outcome]:
        """Run calls in a thread, up to the first that does not come back."""
        try:
            worker = self._idle.pop()
        except IndexError:  # asked so, since two may come for the last one
            worker = _Worker(self)
        worker.queue.put(batch)
        while not batch.done.wait(max(0.001, min(batch.due(), end) - monotonic())):
            if monotonic() >= min(batch.due(), end):
                return batch.give_up()
        self._idle.append(worker)
        return batch.outcomes()


class _Worker:
    """A thread that runs batches until one is given up."""

    def __init__(self, runner: Runner) -> None:
        self.queue: SimpleQueue[_Batch | None] = SimpleQueue()
        thread = threading.Thread(target=self._work, name="quire windows", daemon=True)
        thread.quire_worker = runner  # type: ignore[attr-defined]
        thread.start()

    def _work(self) -> None:
        while (batch := self.queue.get()) is not None and batch.run():
            del batch  # what a view showed is not held until the next one


class _Batch:
    """Calls that run one after another in one thread."""

    def __init__(self, jobs: Sequence[Job], limit: float, loops: "_Loops") -> None:
        self.done = threading.Event()
        self._jobs = jobs
        self._limit = limit
        self._loops = loops
        self._found: list[Outcome | None] = [None] * len(jobs)
        self._waiting: list[tuple[int, Future[Any]]] = []
        self._at = 0
        self._begun = monotonic()
        self._given_up = False

    def due(self) -> float:
        """When the call at work should have come back."""
        return self._begun + self._limit + _GRACE

    def run(self) -> bool:
        """Run everything; False if it was given up on meanwhile."""
        for n, job in enumerate(self._jobs):
            self._at, self._begun = n, monotonic()
            self._found[n] = self._run_one(n, job)
            if self._given_up:
                return False
        self._at, self._begun = len(self._jobs), monotonic()
        for n, future in self._waiting:
            self._found[n] = self._loops.result(future, self._begun + self._limit - monotonic())
        self.done.set()
        return not self._given_up

    def outcomes(self) -> list[Outcome]:
        """What the calls gave."""
        return [found or Outcome() for found in self._found]

    def give_up(self) -> list[Outcome]:
        """What the calls gave up to the one that has not come back, which is late."""
        self._given_up = True
        late = Outcome(error=TimeLimit(f"no answer within {self._limit:g} s"))
        came = [found or late for found in self._found[: self._at]]  # what still waits on the event loop is late too
        return [*came, late][: len(self._jobs)]

    def _run_one(self, n: int, job: Job) -> Outcome | None:
        try:
            value = job.begin()
            if hasattr(value, "__await__"):
                future = self._loops.submit(value)
                future.add_done_callback(lambda _: job.end())
                self._waiting.append((n, future))
                return None
        except BaseException as error:
            job.end()
            return Outcome(error=error)
        job.end()
        return Outcome(value)


class _Loops:
    """One event loop in a thread of its own; another, if something blocks it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def submit(self, awaitable: Awaitable[Any]) -> "Future[Any]":
        """Have something awaited."""
        from asyncio import run_coroutine_threadsafe

        return run_coroutine_threadsafe(_awaited(awaitable), self._running())

    def result(self, future: "Future[Any]", patience: float) -> Outcome:
        """What it gave; if it does not come back in time it is cancelled."""
        try:
            return Outcome(future.result(max(0.0, patience)))
        except TimeoutError:
            if future.done():  # it raised this itself, or came at the last moment
                error = future.exception()
                return Outcome(future.result()) if error is None else Outcome(error=error)
            future.cancel()
            self._look_after()
            return Outcome(error=TimeLimit("no answer in time"))
        except BaseException as error:
            return Outcome(error=error)

    def _running(self) -> "AbstractEventLoop":
        from asyncio import new_event_loop

        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="quire windows loop", daemon=True).start()
            return self._loop

    def _look_after(self) -> None:
        """Leave a loop that something blocks to itself."""
        loop, answered = self._loop, threading.Event()
        if loop is not None:
            loop.call_soon_threadsafe(answered.set)
            if not answered.wait(_GRACE / 5):
                with self._lock:
                    self._loop = None


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
