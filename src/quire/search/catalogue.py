"""The index of a context, brought up to date: the storage's own, or one in this process where it keeps none.

Work that is held back (`temporary`) is searched as a thin layer over the index below it.
"""

from threading import Lock
from typing import cast
from weakref import WeakKeyDictionary

from quire.errors import Corrupt
from quire.records import decode_head
from quire.search.catching import catch_up, changed
from quire.search.layers import LayeredIndex
from quire.search.memory import MemoryIndex
from quire.storage.base import Storage
from quire.storage.overlay import OverlayStorage
from quire.storage.searching import Index, IndexLost, SearchIndex, Standing

_TRIES = 5
_indexes: "WeakKeyDictionary[Storage, dict[str, MemoryIndex]]" = WeakKeyDictionary()
_lock = Lock()


def index_of(storage: Storage, context: str) -> Index:
    """The index of a context as it is stored now."""
    if isinstance(storage, OverlayStorage) and storage.context == context:
        return _layered(storage, context)
    offered = getattr(storage, "search", None)
    index = cast(SearchIndex, offered(context)) if callable(offered) else _in_memory(storage, context)
    for attempt in range(_TRIES):
        head = storage.head(context)
        try:
            catch_up(index, storage, context)
            break
        except IndexLost:
            if attempt == _TRIES - 1:
                raise
        except Corrupt:  # perhaps only because another writer took a record away between two looks
            if attempt == _TRIES - 1 or storage.head(context) == head:
                raise
    return index


def _in_memory(storage: Storage, context: str) -> MemoryIndex:
    """The index kept here for a storage; it goes when the storage does."""
    with _lock:
        try:
            return _indexes.setdefault(storage, {}).setdefault(context, MemoryIndex())
        except TypeError:  # an object that cannot be watched: a new index every time
            return MemoryIndex()


def _layered(storage: OverlayStorage, context: str) -> Index:
    below = index_of(storage.below, context)
    start, head = storage.start, storage.head(context)
    if head is None or head == start:
        return below
    above = _in_memory(storage, context)
    identity = decode_head(head.value).identity
    since = start.version if start else 0
    if above.standing() is None:
        above.update(None, Standing(since, identity), ())
    touched = changed(storage, context, since, head.version)
    catch_up(above, storage, context)
    return LayeredIndex(below, above, touched or ())
