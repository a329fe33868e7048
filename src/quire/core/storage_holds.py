"""Holds on storages: a worker that stores a late result holds a storage, and it is closed when the last hold ends."""

import threading

from quire.storage.base import Storage

_holds: dict[int, int] = {}
_closing: set[int] = set()
_lock = threading.Lock()


def hold(storage: Storage) -> None:
    """Keep a storage open until `release`."""
    with _lock:
        _holds[id(storage)] = _holds.get(id(storage), 0) + 1


def release(storage: Storage) -> None:
    """End a hold."""
    with _lock:
        _holds[id(storage)] -= 1
        closes = False
        if not _holds[id(storage)]:
            del _holds[id(storage)]
            closes = id(storage) in _closing
            _closing.discard(id(storage))
    if closes:
        storage.close()


def close_storage(storage: Storage) -> None:
    """Close a storage now, or when its last hold ends. It does not wait."""
    with _lock:
        is_held = id(storage) in _holds
        if is_held:
            _closing.add(id(storage))
    if not is_held:
        storage.close()
