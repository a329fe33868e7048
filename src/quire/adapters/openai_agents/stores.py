"""Stores that many objects of an adapter share: one connection for each place, closed when nobody uses it."""

import os
from collections.abc import Callable
from threading import Lock

from quire.storage.base import Storage
from quire.storage.urls import storage_at


class _Shared:
    """An open storage and how many use it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.users = 0


_open: dict[tuple[int, str], _Shared] = {}
_lock = Lock()


def borrow(where: Storage | str | os.PathLike[str]) -> tuple[Storage, Callable[[], None]]:
    """The storage at a place, which all who ask for it share, and what to call when it is no longer needed.

    A storage that is given stays the caller's to close, and every `memory:` is one of its own.
    """
    if not isinstance(where, str | os.PathLike):
        return storage_at(where)[0], _nothing
    key = (os.getpid(), _place(where))  # a connection is not for the child of a fork
    if key[1] == "memory:":
        storage, _ = storage_at(where)
        return storage, storage.close
    with _lock:
        shared = _open.get(key)
        if shared is None:
            shared = _open[key] = _Shared(storage_at(where)[0])
        shared.users += 1
    return shared.storage, lambda: _give_back(key, shared)


def _give_back(key: tuple[int, str], shared: _Shared) -> None:
    with _lock:
        shared.users -= 1
        if shared.users or key[0] != os.getpid():
            return
        del _open[key]
    shared.storage.close()


def _place(where: str | os.PathLike[str]) -> str:
    """One spelling for a path; an address as it is."""
    text = os.fspath(where)
    is_address = isinstance(where, str) and ":" in where and not os.path.splitdrive(where)[0]
    return text if is_address else os.path.abspath(text)


def _nothing() -> None:
    """What is left to do where nothing was opened."""
