"""Summarising: ask for the model summaries of a store that no worker asks for."""

import time
from collections.abc import Callable

from msgspec import Struct

from quire.core.summary_board import SummaryBoard, pending_boards
from quire.errors import InvalidValue, NoSuchContext, short_repr
from quire.storage.base import Storage
from quire.system import ContextSystem
from quire.view.fold.summary_worker import work_off
from quire.view.options import Summariser

_MAX_ERRORS = 3
"""After so many errors in a row, the model is not asked any more."""


class SummaryReport(Struct, frozen=True, kw_only=True):
    """What `Library.summarise` did: the summaries that it stored, those that still wait, and errors of the summariser.

    A summary takes its place at the next fold of its context. Summaries that wait are asked for by another worker now,
    or failed a moment ago, or there was no time for them.
    """

    stored: int = 0
    waiting: int = 0
    errors: tuple[BaseException, ...] = ()


def summarise_pending(
    storage: Storage, summariser: Summariser, max_seconds: float | None, redact: Callable[[str], str] | None
) -> SummaryReport:
    """Ask for the summaries that no worker asks for. Start none after `max_seconds`."""
    start = time.monotonic()
    if max_seconds is not None and (
        isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not 0 <= max_seconds < float("inf")
    ):
        raise InvalidValue(f"is {short_repr(max_seconds)}; seconds from 0 are needed.", argument="max_seconds")
    if not callable(summariser):
        raise InvalidValue(
            f"is {short_repr(summariser)}; a function of a text and a number is needed.", argument="summariser"
        )
    stored, errors, failed = 0, list[BaseException](), 0

    def is_over() -> bool:
        is_late = max_seconds is not None and time.monotonic() - start >= max_seconds
        return is_late or failed >= _MAX_ERRORS

    for context, _ in pending_boards(storage):
        if is_over():
            break
        try:
            engine = ContextSystem(storage, context, redact=redact)._engine
            for is_stored in work_off(engine, summariser, is_over, errors.append):
                stored += is_stored
                failed = 0 if is_stored else failed + 1
        except NoSuchContext:  # it was removed meanwhile
            continue
    boards = (SummaryBoard(storage, *found).read() for found in pending_boards(storage))
    waiting = sum(not record.summary for board in boards for record in board.values())
    return SummaryReport(stored=stored, waiting=waiting, errors=tuple(errors))
