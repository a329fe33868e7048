"""Calls of apps with a time limit, so that no app can block a view.

Calls run in a separate thread, many in one batch, because starting a thread costs more than most calls. Coroutines run
on one event loop in another thread: they work in every caller, and they wait concurrently. A thread with a call that
does not return is abandoned, and another one replaces it.
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
"""Extra seconds for a thread, so that a late coroutine is cancelled before its thread is abandoned."""


class TimeLimit(Exception):
    """A call did not return in time, or did not start because other calls used all the time."""


class Outcome(Struct, frozen=True):
    """The result of a call: a value, or the error that it raised."""

    value: Any = None
    error: BaseException | None = None


class Job:
    """One call. Calls with the same lock run one at a time; a call waits `patience` seconds for the lock."""

    __slots__ = ("_call", "_lock", "_patience")

    def __init__(self, call: Callable[[], Any], lock: "threading.Lock | None" = None, *, patience: float = 0.0) -> None:
        self._call = call
        self._lock = lock
        self._patience = patience

    def begin(self) -> Any:
        """Run the call, unless another one still holds the lock. The result may be awaitable."""
        if self._lock is not None and not self._lock.acquire(timeout=self._patience):
            self._lock = None
            raise TimeLimit("an earlier call has not come back yet")
        return self._call()

    def end(self) -> None:
        """Release the lock for the next call."""
        if self._lock is not None:
            self._lock.release()


class Runner:
    """Runs calls of apps: each at most `limit` seconds, and one `run` at most twice that."""

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._idle: list[_Worker] = []
        self._loops = _Loops()

    def run(self, jobs: Sequence[Job], limit: float | None = None) -> list[Outcome]:
        """Return the outcome of each call, in order. Wait for each at most the limit."""
        patience = self.limit if limit is None else limit
        worker = getattr(threading.current_thread(), "quire_runner", None)
        if worker is self:  # called by an app: the limit of its own call applies
            nested = _Batch(jobs, patience, self._loops)
            nested.run()
            return nested.outcomes()
        end = monotonic() + 2 * patience + _GRACE
        outcomes: list[Outcome] = []
        while len(outcomes) < len(jobs):
            if monotonic() >= end:
                late = TimeLimit("other windows took all the time there was")
                return outcomes + [Outcome(error=late)] * (len(jobs) - len(outcomes))
            outcomes += self._run_batch(_Batch(jobs[len(outcomes) :], patience, self._loops), end)
        return outcomes

    def stop_threads(self) -> None:
        """End the threads that wait for calls. The next call starts a new one."""
        with suppress(IndexError):
            while True:
                self._idle.pop().queue.put(None)

    def _run_batch(self, batch: "_Batch", end: float) -> list[Outcome]:
        """Run calls in a thread, up to the first that does not return."""
        try:
            worker = self._idle.pop()
        except IndexError:  # no check before: two callers may pop the last worker
            worker = _Worker(self)
        worker.queue.put(batch)
        while not batch.done.wait(max(0.001, min(batch.due(), end) - monotonic())):
            if monotonic() >= min(batch.due(), end):
                return batch.abandon()
        self._idle.append(worker)
        return batch.outcomes()


class _Worker:
    """A thread that runs batches until one is abandoned."""

    def __init__(self, runner: Runner) -> None:
        self.queue: SimpleQueue[_Batch | None] = SimpleQueue()
        thread = threading.Thread(target=self._work, name="quire windows", daemon=True)
        thread.quire_runner = runner  # type: ignore[attr-defined]
        thread.start()

    def _work(self) -> None:
        while (batch := self.queue.get()) is not None and batch.run():
            del batch  # free the content of a view before the next one


class _Batch:
    """Calls that run one after another in one thread."""

    def __init__(self, jobs: Sequence[Job], limit: float, loops: "_Loops") -> None:
        self.done = threading.Event()
        self._jobs = jobs
        self._limit = limit
        self._loops = loops
        self._outcomes: list[Outcome | None] = [None] * len(jobs)
        self._waiting: list[tuple[int, Future[Any]]] = []
        self._at = 0
        self._started = monotonic()
        self._abandoned = False

    def due(self) -> float:
        """Return the time at which the running call is late."""
        return self._started + self._limit + _GRACE

    def run(self) -> bool:
        """Run all calls. Return False if the batch was abandoned in the meantime."""
        for n, job in enumerate(self._jobs):
            self._at, self._started = n, monotonic()
            self._outcomes[n] = self._run_one(n, job)
            if self._abandoned:
                return False
        self._at, self._started = len(self._jobs), monotonic()
        for n, future in self._waiting:
            self._outcomes[n] = self._loops.result(future, self._started + self._limit - monotonic())
        self.done.set()
        return not self._abandoned

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of the calls."""
        return [found or Outcome() for found in self._outcomes]

    def abandon(self) -> list[Outcome]:
        """Abandon the batch. Return the outcomes up to the running call, which is late."""
        self._abandoned = True
        late = Outcome(error=TimeLimit(f"no answer within {self._limit:g} s"))
        came = [found or late for found in self._outcomes[: self._at]]  # coroutines that have not finished are late too
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
    """An event loop in a thread, replaced if a coroutine blocks it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def submit(self, awaitable: Awaitable[Any]) -> "Future[Any]":
        """Run an awaitable on the loop."""
        from asyncio import run_coroutine_threadsafe

        return run_coroutine_threadsafe(_await_value(awaitable), self._running_loop())

    def result(self, future: "Future[Any]", patience: float) -> Outcome:
        """Return the outcome; cancel the coroutine if it is late."""
        try:
            return Outcome(future.result(max(0.0, patience)))
        except TimeoutError:
            if future.done():  # it raised TimeoutError itself, or finished just now
                error = future.exception()
                return Outcome(future.result()) if error is None else Outcome(error=error)
            future.cancel()
            self._check_loop()
            return Outcome(error=TimeLimit("no answer in time"))
        except BaseException as error:
            return Outcome(error=error)

    def _running_loop(self) -> "AbstractEventLoop":
        from asyncio import new_event_loop

        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="quire windows loop", daemon=True).start()
            return self._loop

    def _check_loop(self) -> None:
        """Abandon the loop if a coroutine blocks it."""
        loop, answered = self._loop, threading.Event()
        if loop is not None:
            loop.call_soon_threadsafe(answered.set)
            if not answered.wait(_GRACE / 5):
                with self._lock:
                    self._loop = None


async def _await_value(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
