"""The index of a context, brought up to date: the storage's own, or one in this process where it keeps none.

Work that is held back (`temporary`) is searched as a thin layer over the index below it.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from quire.errors import Corrupt
from quire.search.catching import catch_up, changed, known_as
from quire.search.kept import Kept
from quire.search.layers import LayeredIndex
from quire.search.memory import MemoryIndex
from quire.storage.base import Storage
from quire.storage.overlay import OverlayStorage
from quire.storage.searching import Index, IndexLost, SearchIndex, Standing

_TRIES = 5
T = TypeVar("T")
_indexes: Kept[MemoryIndex] = Kept()


def index_of(storage: Storage, context: str) -> Index:
    """The index of a context as it is stored now."""
    return asked(storage, context, lambda index: index)


def asked(storage: Storage, context: str, question: Callable[[Index], T], tries: int = _TRIES) -> T:
    """What the index of a context as it is stored now answers to a question.

    It is asked again if the index was emptied meanwhile, or if another writer took away a record between two looks.
    """
    try:
        return question(_caught_up(storage, context))
    except (IndexLost, Corrupt):
        if tries == 1:
            raise
        return asked(storage, context, question, tries - 1)


def _caught_up(storage: Storage, context: str) -> Index:
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _layered(storage, context)
    offered = getattr(storage, "search", None)
    index = cast(SearchIndex, offered(context)) if callable(offered) else _in_memory(storage, context)
    catch_up(index, storage, context)
    return index


def _in_memory(storage: Storage, context: str) -> MemoryIndex:
    """The index kept here for a context."""
    return _indexes.get(storage, context, MemoryIndex)


def _layered(storage: OverlayStorage, context: str) -> Index:
    below = _caught_up(storage.below, context)
    start, head = storage.start, storage.head(context)
    if head is None or head == start:
        return below
    above = _in_memory(storage, context)
    identity = known_as(head)
    since = start.version if start else 0
    if above.standing() is None:
        above.update(None, Standing(since, identity), ())
    touched = changed(storage, context, since, head.version)
    catch_up(above, storage, context)
    return LayeredIndex(below, above, touched or ())
