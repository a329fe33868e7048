"""Having pages summarised beside the turn by a function of the caller's, in a thread that runs only when needed."""

import threading
from collections import deque
from collections.abc import Awaitable, Iterable

from quire.errors import InvalidValue, short_repr
from quire.view.fold.summaries import Better, Job
from quire.view.options import Summariser

_MOST_WAITING = 64
_MOST_ERRORS = 16


class Summarising:
    """The work of one summariser: what waits, what came back, and what went wrong. Nothing here makes a turn wait."""

    def __init__(self, summariser: Summariser) -> None:
        self.errors: deque[BaseException] = deque(maxlen=_MOST_ERRORS)
        """What the summariser raised, the latest last; those pages keep their extracted summaries."""
        self._summariser = summariser
        self._waiting: deque[Job] = deque(maxlen=_MOST_WAITING)  # when it is full, the oldest give way
        self._found: dict[int, Better] = {}
        self._change = threading.Condition()
        self._works = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<Summarising: {len(self._waiting)} waiting, {len(self._found)} ready, {len(self.errors)} errors>"

    def offer(self, jobs: Iterable[Job]) -> None:
        """Have these pages summarised when their turn comes."""
        with self._change:
            if self._closed:
                return
            self._waiting.extend(jobs)
            if self._waiting and not self._works:
                self._works = True
                threading.Thread(target=self._work, name="quire-summaries", daemon=True).start()

    def ready(self) -> list[Better]:
        """What has come back and waits for the next fold."""
        with self._change:
            return list(self._found.values())

    def drop(self, used: Iterable[Better]) -> None:
        """Forget what a fold has used or found outdated."""
        with self._change:
            for better in used:
                if self._found.get(better.job.key) is better:
                    del self._found[better.job.key]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; whether that was so in time (in seconds)."""
        with self._change:
            return self._change.wait_for(lambda: not self._works, timeout)

    def close(self) -> None:
        """Take nothing more on. What runs is left to end by itself, and what comes of it is dropped."""
        with self._change:
            self._closed = True
            self._waiting.clear()
            self._found.clear()

    def _work(self) -> None:
        while True:
            with self._change:
                if not self._waiting:
                    self._works = False
                    self._change.notify_all()
                    return
                job = self._waiting.popleft()
            try:
                summary = self._summarised(job)
            except BaseException as error:  # theirs, whatever it is, cancelled work too: no turn fails for it
                self.errors.append(error)
                continue
            with self._change:
                if summary and not self._closed:
                    self._found[job.key] = Better(job, summary)
                    while len(self._found) > 4 * _MOST_WAITING:
                        del self._found[next(iter(self._found))]

    def _summarised(self, job: Job) -> str | None:
        found = self._summariser(job.text, job.tokens)
        if isinstance(found, Awaitable):
            import asyncio  # late: most summarisers are plain functions

            awaited = found

            async def wait() -> str | None:
                return await awaited

            found = asyncio.run(wait())
        if found is not None and not isinstance(found, str):
            raise InvalidValue(f"The summariser gave {short_repr(found)}; text or None is needed.")
        return found.strip() if found else None
