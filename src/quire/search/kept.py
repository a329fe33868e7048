"""What is kept in memory for the contexts of a storage: it goes with the storage, and at most so much of it is kept."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from quire.storage.base import Storage

T = TypeVar("T")
MOST = 256
"""Contexts of one storage; what was asked for longest ago goes first, and is made anew when it is asked for."""


class Kept(Generic[T]):
    """One thing for each context of each storage."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._all: WeakKeyDictionary[Storage, OrderedDict[Hashable, T]] = WeakKeyDictionary()

    def get(self, storage: Storage, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key, or else made now."""
        with self._lock:
            try:
                held = self._all.setdefault(storage, OrderedDict())
            except TypeError:  # a storage that cannot be watched: made every time
                return make()
            if key not in held:
                held[key] = make()
            held.move_to_end(key)
            if len(held) > MOST:
                held.popitem(last=False)
            return held[key]
