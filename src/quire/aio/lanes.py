"""Lanes: work that must go in order, done by a few threads that all lanes share.

A context's calls wait in line in its lane and are made one after another, each by whatever thread of the pool is free.
So many contexts need few threads, none of which waits for a lock that another one holds.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import cache, partial
from threading import Lock
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 16


class _Job(NamedTuple, Generic[T]):
    call: Callable[[], T]
    around: Context
    done: "Future[T]"


class Lane:
    """An ordered queue of calls. What is in line and not begun yet can be cancelled; what has begun is finished."""

    def __init__(self) -> None:
        self._waiting: deque[_Job[Any]] = deque()
        self._lock = Lock()
        self._works = False

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call when its turn comes; what it returns or raises.

        Cancelled before its turn, the call is not made. Cancelled while it runs, it is finished by itself: what comes
        after it in this lane waits for that.
        """
        return await asyncio.wrap_future(self.submit(partial(call, *args, **kwargs)))

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Put a call in line."""
        job = _Job(call, copy_context(), Future[T]())
        with self._lock:
            self._waiting.append(job)
            if self._works:
                return job.done
            self._works = True
        _pool().submit(self._next)
        return job.done

    def _next(self) -> None:
        """Make the first call in line, then let the next one get in line for a thread, behind those of other lanes."""
        with self._lock:
            job = self._waiting.popleft()
        if job.done.set_running_or_notify_cancel():
            try:
                found = job.around.run(job.call)
            except BaseException as error:  # whatever it is, it is the caller's
                job.done.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
            else:
                job.done.set_result(found)
        with self._lock:
            if not self._waiting:
                self._works = False
                return
        _pool().submit(self._next)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="quire-aio")
