"""Summary worker: runs the caller's summariser beside the turns, and stores what it returns on the summary board.

A fold puts the pages that it folds on the board (`quire.core.summary_board`), and the worker of its handle summarises
them. The next fold of any handle uses the stored summaries. `summarise_waiting` summarises pages without a worker.
"""

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.summary_board import SummaryBoard, SummaryRecord, pending_boards
from quire.errors import Conflict, InvalidValue, NoSuchContext, QuireError, short_repr
from quire.storage.contract import Storage
from quire.storage.overlay import OverlayStorage
from quire.storage.urls import hold, release
from quire.system import ContextSystem
from quire.view.fold.summaries import is_folded, max_summary_tokens, page_version, source_text, summary_allowance
from quire.view.options import LINES_SHARE, Summariser

_MAX_WAITING = 64
"""The most texts that a worker holds. Other pages wait on the board until a worker is free."""
_MAX_ERRORS = 16


class SummaryJob(NamedTuple):
    """A page to summarise: its text, and the most tokens of the summary."""

    board: SummaryBoard
    key: int
    version: bytes
    tokens: int
    text: str


class FoldSummaries:
    """The summaries of one fold: those that are ready for it, and the pages that wait for one after it."""

    def __init__(self, engine: Engine, worker: "SummaryWorker | None") -> None:
        self._worker = worker
        self._records: dict[int, SummaryRecord] = {}
        self._changes: dict[int, SummaryRecord | None] = {}
        self._jobs: list[SummaryJob] = []
        self._board = None if isinstance(engine.state.storage, OverlayStorage) else open_board(engine)
        if self._board is not None:
            with suppress(QuireError):  # a fold does not need them
                self._records = self._board.read()
        self.ready = {key: record for key, record in self._records.items() if record.summary}

    def plan(self, plan: Plan, room: int) -> None:
        """Find what changes on the board with this fold. Call `settle` after its commit."""
        wanted: dict[int, SummaryRecord] = {}
        for key, record in self._records.items():
            if record.summary or not _is_at(plan, key, record.version):
                self._changes[key] = None
            elif self._worker is None or not self._worker.has(key, record.version):
                wanted[key] = record
        if self._worker is None or self._board is None:
            return
        limit = max_summary_tokens(int(room * LINES_SHARE))
        for page in plan.pages.values():
            if is_folded(page) and not is_folded(plan.stored_page(page.key)):
                tokens = summary_allowance(page.header.tokens, limit)
                wanted[page.key] = SummaryRecord(page_version(plan, page), tokens)
        later = max(0, len(wanted) - self._worker.room())
        for place, (key, record) in enumerate(wanted.items()):
            self._changes[key] = record
            if place >= later:
                self._jobs.append(_new_job(self._board, plan, key, record))

    def settle(self) -> None:
        """Update the board and start the worker. An error does not fail the turn."""
        if self._board is None or not self._changes:
            return
        try:
            self._board.update(self._changes)
        except QuireError as error:
            if self._worker is not None:
                self._worker.errors.append(error)
        else:
            if self._worker is not None:
                self._worker.submit(self._jobs)


class SummaryWorker:
    """Runs the caller's summariser in a thread that lives only while there are jobs. A turn never waits for it.

    The thread holds the storage: if it is closed meanwhile, the summaries are still stored.
    """

    def __init__(self, summariser: Summariser, engine: Engine) -> None:
        self.errors: deque[BaseException] = deque(maxlen=_MAX_ERRORS)
        """The latest errors of the summariser, the newest last. Their pages keep the extracted summaries for now."""
        self._summariser = summariser
        self._engine = engine
        self._waiting: deque[SummaryJob] = deque()
        self._held: set[tuple[int, bytes]] = set()
        self._change = threading.Condition()
        self._is_running = False

    def __repr__(self) -> str:
        return f"<SummaryWorker: {len(self._waiting)} waiting, {len(self.errors)} errors>"

    def room(self) -> int:
        """Return how many jobs can be submitted."""
        return max(0, _MAX_WAITING - len(self._waiting))

    def has(self, key: int, version: bytes) -> bool:
        """Return whether a page is being summarised here or waits for it."""
        return (key, version) in self._held

    def submit(self, jobs: Iterable[SummaryJob]) -> None:
        """Queue jobs and start the thread if it does not run."""
        with self._change:
            for job in jobs:
                hold(job.board.storage)
                self._held.add((job.key, job.version))
                self._waiting.append(job)
            if self._waiting and not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="quire-summaries", daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no job is left; return False if `timeout` seconds pass before."""
        with self._change:
            return self._change.wait_for(lambda: not self._is_running, timeout)

    def _run(self) -> None:
        while True:
            with self._change:
                if not self._waiting:
                    self._is_running = False
                    self._change.notify_all()
                    return
                job = self._waiting.popleft()
            try:
                run_job(job, self._summariser, self._engine, self.errors.append)
            except QuireError as error:  # the storage failed: the page stays on the board
                self.errors.append(error)
            finally:
                self._held.discard((job.key, job.version))
                release(job.board.storage)


def run_job(
    job: SummaryJob, summariser: Summariser, engine: Engine, on_error: Callable[[BaseException], object]
) -> bool:
    """Call the summariser for one page and store the summary. Return whether it was stored."""
    try:
        summary = _call_summariser(summariser, job)
    except BaseException as error:  # any error of the caller's function, cancellation too: no turn fails
        on_error(error)
        job.board.put_off(job.key, job.version)
        return False
    if summary and engine.redaction is not None:
        summary = engine.redaction.text(summary)
    return job.board.store(job.key, job.version, summary) and bool(summary)


def summarise_waiting(
    engine: Engine, summariser: Summariser, is_over: Callable[[], bool], on_error: Callable[[BaseException], object]
) -> Iterator[bool]:
    """Summarise the pages of a context that wait. Yield after each whether a summary was stored."""
    board = open_board(engine)
    for key, record in board.read().items():
        if is_over():
            return
        if record.summary:
            continue
        with engine.lock:
            state = engine.current()
            job = _new_job(board, state, key, record) if _is_at(state, key, record.version) else None
        if job is None:
            board.update({key: None})  # the page has changed
        else:
            yield run_job(job, summariser, engine, on_error)


def open_board(engine: Engine) -> SummaryBoard:
    """Return the board of a context."""
    return SummaryBoard(engine.state.storage, engine.state.context, engine.state.head.identity)


def _is_at(reader: Reader, key: int, version: bytes) -> bool:
    """Return whether a page is folded and in the state with this digest."""
    page = reader.page(key)
    return is_folded(page) and page_version(reader, page) == version


def _new_job(board: SummaryBoard, reader: Reader, key: int, record: SummaryRecord) -> SummaryJob:
    page = reader.page(key)
    text = source_text(reader, page) if is_folded(page) else ""
    return SummaryJob(board, key, record.version, record.tokens, text)


def _call_summariser(summariser: Summariser, job: SummaryJob) -> str | None:
    result = summariser(job.text, job.tokens)
    if isinstance(result, Awaitable):
        import asyncio  # late: most summarisers are plain functions

        awaited = result

        async def wait() -> str | None:
            return await awaited

        result = asyncio.run(wait())
    if result is not None and not isinstance(result, str):
        raise InvalidValue(f"The summariser returned {short_repr(result)}; text or None is needed.")
    return result.strip() if result else None


_MAX_FAILURES = 3
"""After this many failures in a row, the summariser is not called any more."""


class SummaryReport(Struct, frozen=True, kw_only=True):
    """What `Library.summarise` did: the summaries that it stored, those that still wait, and errors.

    A summary takes its place at the next fold of its context. A page still waits if its summary failed, or if there was
    no time for it.
    """

    stored: int = 0
    waiting: int = 0
    errors: tuple[BaseException, ...] = ()


def summarise_pending(
    storage: Storage, summariser: Summariser, max_seconds: float | None, redact: Callable[[str], str] | None
) -> SummaryReport:
    """Summarise the pages that wait, in all contexts. Start no summary after `max_seconds`."""
    start = time.monotonic()
    if max_seconds is not None and (
        isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not 0 <= max_seconds < float("inf")
    ):
        raise InvalidValue(f"is {short_repr(max_seconds)}; seconds from 0 are needed.", argument="max_seconds")
    if not callable(summariser):
        raise InvalidValue(
            f"is {short_repr(summariser)}; a function of a text and a number is needed.", argument="summariser"
        )
    stored, errors, failed, known = 0, list[BaseException](), 0, 0

    def is_over() -> bool:
        is_late = max_seconds is not None and time.monotonic() - start >= max_seconds
        return is_late or failed >= _MAX_FAILURES

    for context, _ in pending_boards(storage):
        if is_over():
            break
        try:
            engine = ContextSystem(storage, context, redact=redact)._engine
            for is_stored in summarise_waiting(engine, summariser, is_over, errors.append):
                stored += is_stored
                failed = failed + 1 if len(errors) > known else 0
                known = len(errors)
        except NoSuchContext:  # it was removed meanwhile
            continue
        except Conflict as error:  # too many workers write to the board
            errors.append(error)
    boards = (SummaryBoard(storage, *found).read() for found in pending_boards(storage))
    waiting = sum(not record.summary for board in boards for record in board.values())
    return SummaryReport(stored=stored, waiting=waiting, errors=tuple(errors))
