"""Waiting for the lock of an SQLite file in short steps, unlike SQLite's own busy handler."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

_SPINS: Final = 30
"""How often a connection tries again at once: a small commit holds the lock for some microseconds."""
_FIRST_PAUSE: Final = 0.00005
_GROWTH: Final = 1.3
_LONGEST: Final = 16
"""The number of pauses after which they no longer become longer: at about 3 ms."""


class LockWaiter:
    """The busy handler of one connection. The callers of the connection hold its lock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begin = 0.0
        self._is_patient = True

    def __call__(self, tries: int) -> bool:
        """Wait before SQLite tries again; return False if it must give up."""
        if tries == 0:
            self._begin = monotonic()
        if tries < _SPINS:
            sleep(0)
            return True
        left = self._begin + self._seconds - monotonic() if self._is_patient else 0.0
        sleep(max(0.0, min(left, _FIRST_PAUSE * _GROWTH ** min(tries - _SPINS, _LONGEST))))
        return left > 0

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Return a block in which statements give up if the lock is not free almost at once."""
        before, self._is_patient = self._is_patient, False
        try:
            yield
        finally:
            self._is_patient = before
