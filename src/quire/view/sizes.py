"""The tokens of texts, each counted once as long as it is remembered."""

from collections.abc import Callable, Mapping
from sys import getsizeof

from quire.cache import SizedCache

_MOST_BYTES = 1 << 23


class Sizes:
    """What texts take. Those that are `known` need no counting; of the others the latest are remembered."""

    def __init__(self, count: Callable[[str], int], known: Mapping[str, int] | None = None) -> None:
        self._count = count
        self._known = dict(known or {})
        self._counted: SizedCache[str, int] = SizedCache(_MOST_BYTES)

    def size(self, text: str) -> int:
        """The tokens of a text."""
        found = self._known.get(text)
        if found is None:
            found = self._counted.get(text)
        if found is None:
            found = self._count(text)
            self._counted.put(text, found, getsizeof(text))
        return found
