"""Relatives: the contexts of a store that come from the same context by forks, and may have the same texts."""

from msgspec import Struct

from quire.core.codec import decode_head
from quire.core.records import HeadRecord
from quire.errors import Corrupt
from quire.storage.base import list_contexts
from quire.storage.contract import Storage


class Relatives(Struct):
    """The names of the relatives of a context: its forks, the others, and contexts with a damaged head."""

    forks: list[str]
    others: list[str]
    unreadable: list[str]


def relatives_of(storage: Storage, name: str, head: HeadRecord) -> Relatives:
    """Return the relatives of a context in its store. Reads the head of each context there."""
    found = Relatives([], [], [])
    for other in list(list_contexts(storage)):
        try:
            loaded = storage.load(other) if other != name else None
            theirs = decode_head(loaded.seq, loaded.head) if loaded else HeadRecord()
        except Corrupt:
            found.unreadable.append(other)
            continue
        if head.identity in theirs.origin:
            found.forks.append(other)
        elif not {head.identity, *head.origin}.isdisjoint((theirs.identity, *theirs.origin)):
            found.others.append(other)
    return found
