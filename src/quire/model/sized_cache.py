"""An LRU cache that is bounded by the total size of its values."""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """An LRU cache of values with a size. Their total size never exceeds `max_size`."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.size = 0
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        """Return the value and mark it as most recently used; None if it is missing."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Add a value, unless it is larger than the whole cache."""
        if key in self._items:
            self.drop(key)
        if size > self.max_size:
            return
        self._items[key] = (value, size)
        self.size += size
        while self.size > self.max_size:
            self.size -= self._items.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Remove a value if it is present."""
        found = self._items.pop(key, None)
        if found is not None:
            self.size -= found[1]
