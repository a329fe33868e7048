"""What a handler works with: the library, the open contexts, and the request taken apart."""

from collections import OrderedDict
from threading import Lock
from typing import Any, NamedTuple

from quire.library import Library
from quire.server.shelf import Shelf
from quire.view.explain import Stats

_COUNTED = 1_000


class Asked(NamedTuple):
    """A request: what its path names, its parameters and its body, checked."""

    path: dict[str, str]
    query: Any
    body: Any


class Desk:
    """Everything a handler needs."""

    def __init__(self, library: Library, shelf: Shelf) -> None:
        self.library = library
        self.shelf = shelf
        self.counts = Counts()


class Counts:
    """Contexts that somebody counted, as long as they stay as they were: counting reads every page."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[str, tuple[int, Stats]] = OrderedDict()

    def get(self, name: str, seq: int) -> Stats | None:
        """What was counted at this very seq."""
        with self._lock:
            found = self._known.get(name)
            return found[1] if found is not None and found[0] == seq else None

    def keep(self, name: str, seq: int, stats: Stats) -> None:
        """Remember what was counted."""
        with self._lock:
            self._known[name] = (seq, stats)
            self._known.move_to_end(name)
            while len(self._known) > _COUNTED:
                self._known.popitem(last=False)
