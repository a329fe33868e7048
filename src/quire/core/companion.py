"""Companions: small reserved contexts beside a context, such as its lease.

They are not listed, and go with their owner.

The head of a companion is a value of its own. Its older entries are forgotten in the same commit, so it stays small.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from quire.storage.base import RESERVED
from quire.storage.contract import CACHE, Commit, Family, Id, Loaded, Record, Storage

LEASE: Final = RESERVED
SUMMARIES: Final = f"{RESERVED}summaries."
VECTORS: Final = f"{RESERVED}vectors."
Write = tuple[Family, int, bytes | None]
"""A record to put, or to delete (None)."""


def companion_of(context: str, kind: str) -> str:
    """Return the name of a companion of a context."""
    return kind + blake2b(context.encode(), digest_size=16).hexdigest()


def write_companion(
    storage: Storage, name: str, found: Loaded | None, head: bytes, writes: Iterable[Write] = ()
) -> tuple[int, int]:
    """Write the head and records of a companion that is as it was `found`. Return its id and entry.

    Raises `Conflict` if another writer was first.
    """
    seq = found.seq + 1 if found else 1
    last = {(family, key): value for family, key, value in writes}
    put = [(family, Record(key, value)) for (family, key), value in last.items() if value is not None]
    delete = [place for place, value in last.items() if value is None]
    commit = Commit(seq, head, b"", put, delete, expire=seq)
    if found is None:
        return storage.create(name, commit), seq
    storage.commit(found.id, commit)
    return found.id, seq


def names_with_companions(context: str) -> tuple[str, ...]:
    """Return the names of a context and of its lease, its summaries and its vectors."""
    return (context, *(companion_of(context, kind) for kind in (LEASE, SUMMARIES, VECTORS)))


def ids_with_companions(storage: Storage, context: str) -> list[Id]:
    """Return the ids of a context and of its companions."""
    return [found.id for name in names_with_companions(context) if (found := storage.load(name))]


def drop_with_companions(storage: Storage, context: str, seen: tuple[Id, int] | None = None) -> list[Id]:
    """Remove a context with its companions. Return their ids, so that their bytes can be erased.

    With `seen`, raises `Conflict` if the context is not at this entry; then nothing is removed.
    """
    found = ids_with_companions(storage, context)
    storage.drop(context, seen)
    for name in names_with_companions(context)[1:]:
        storage.drop(name)
    return found


def erase_vectors(storage: Storage, context: str, keys: Iterable[int]) -> None:
    """Remove the vectors of these pages."""
    name = companion_of(context, VECTORS)
    found = storage.load(name)
    if found is not None:
        write_companion(storage, name, found, found.head, [(CACHE, key, None) for key in keys])
