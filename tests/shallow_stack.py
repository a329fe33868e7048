"""A stack that ends soon, so that a short chain proves what a long one proves: code does not recurse along it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count


@contextmanager
def shallow_stack(frames: int) -> Iterator[None]:
    """Leave room for so many further calls."""
    depth = next(depth for depth in count() if _ends(depth))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _ends(depth: int) -> bool:
    try:
        sys._getframe(depth)
    except ValueError:
        return True
    return False
