"""Changes that are held for a moment, to be made in one commit with what follows them.

A framework clears a history and adds another in two calls. Held, the first is carried out with the second. If nothing
follows, it is carried out by itself: after a moment, when it is asked for, or when the process ends.
"""

import atexit
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, RLock, Timer

MOMENT = 0.5
"""Seconds that a change is held if nothing follows it."""
_TURNSTILES = 16


class Holds:
    """Held changes, one for each key. While one is carried out, whoever comes for the same key waits."""

    def __init__(self) -> None:
        self._turnstiles = [RLock() for _ in range(_TURNSTILES)]
        self._held: dict[Hashable, tuple[Callable[[], None], Timer]] = {}
        self._lock = Lock()
        atexit.register(self._settle_all)

    def hold(self, key: Hashable, carry_out: Callable[[], None]) -> None:
        """Hold a change; a second one for the same key is the same."""
        timer = Timer(MOMENT, self._settle_quietly, [key])
        timer.daemon = True
        with self._lock:
            if key in self._held:
                return
            self._held[key] = carry_out, timer
        timer.start()

    def holds(self, key: Hashable) -> bool:
        """Whether a change is held for this key."""
        with self._turnstile(key):
            return key in self._held

    @contextmanager
    def taken(self, key: Hashable) -> Iterator[bool]:
        """A block that carries out itself what is held, if anything is; if it raises, the change is held as before."""
        with self._taken(key) as carry_out:
            yield carry_out is not None

    def settle(self, key: Hashable) -> None:
        """Carry out what is held for this key."""
        with self._taken(key) as carry_out:
            if carry_out is not None:
                carry_out()

    @contextmanager
    def _taken(self, key: Hashable) -> Iterator[Callable[[], None] | None]:
        with self._turnstile(key):
            with self._lock:
                held = self._held.pop(key, None)
            if held is not None:
                held[1].cancel()
            try:
                yield held[0] if held is not None else None
            except BaseException:
                if held is not None:
                    with self._lock:
                        self._held.setdefault(key, held)
                raise

    def _turnstile(self, key: Hashable) -> RLock:
        return self._turnstiles[hash(key) % _TURNSTILES]

    def _settle_quietly(self, key: Hashable) -> None:
        """Carry it out, or leave it to whoever comes next, who is told why it fails."""
        with suppress(Exception):
            self.settle(key)

    def _settle_all(self) -> None:
        for key in list(self._held):
            self._settle_quietly(key)
