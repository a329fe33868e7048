"""The old storage protocol over the new one, so that the core of today works on the storages of tomorrow.

The head holds the old version and the old head value. Journal entries are records like others, because one old commit
can have several. This module goes when the core speaks the new protocol.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

import msgspec

from quire.errors import Conflict
from quire.next.storage.contract import CACHE, CALL, MAX_KEY, NOTE, PAGE, TEXT, Fork, Id, Loaded
from quire.next.storage.contract import Commit as NewCommit
from quire.next.storage.contract import Family as NewFamily
from quire.next.storage.contract import Record as NewRecord
from quire.next.storage.contract import Storage as NewStorage
from quire.storage import base as old

_SPAN: Final = 1 << 40
"""The keys of an old family that shares a new one."""
_PLACES: Final[Mapping[old.Family, tuple[NewFamily, int]]] = {
    "page": (PAGE, 0),
    "body": (TEXT, 0),
    "message": (TEXT, 1),
    "segment": (NOTE, 0),
    "pin": (NOTE, 1),
    "note": (NOTE, 2),
    "anchor": (NOTE, 3),
    "layout": (NOTE, 4),
    "call": (CALL, 0),
    "tally": (CALL, 1),
    "journal": (CALL, 2),
    "vector": (CACHE, 0),
    "sheet": (CACHE, 1),
}
"""The new family of each old one, and its part of the keys there."""
_RANK_BYTES: Final = 8
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


class OldStorage:
    """A storage of the old protocol. Orders have eight bytes, which are the rank of a page."""

    def __init__(self, storage: NewStorage) -> None:
        self.storage = storage
        self._ids: dict[str, Id] = {}
        self._lock = RLock()

    def head(self, context: str) -> old.Head | None:
        found = self._load(context)
        return None if found is None else old.Head(*_decode(found.head))

    def get(self, context: str, family: old.Family, key: int) -> old.Record | None:
        number = self._id(context)
        if not number or not 0 <= key <= old.MAX_KEY:
            return None
        where, part = _PLACES[family]
        found = self.storage.get(number, where, [part * _SPAN + key])[0]
        return None if found is None else _old_record(found)

    def scan(
        self, context: str, family: old.Family, start: int = 0, stop: int = old.MAX_KEY, *, reverse: bool = False
    ) -> Iterator[old.Record]:
        where, part = _PLACES[family]
        first, last = part * _SPAN + max(start, 0), part * _SPAN + min(stop, old.MAX_KEY)
        number = self._id(context)
        if number and first <= last:
            yield from map(_old_record, self.storage.scan(number, where, first, last, reverse=reverse))

    def members(
        self,
        context: str,
        family: old.Family,
        group: int,
        *,
        after: tuple[bytes, int] | None = None,
        reverse: bool = False,
    ) -> Iterator[old.Record]:
        place = None if after is None else (_rank(after[0]), after[1])
        number = self._id(context)
        if number and family == old.PAGE:
            yield from map(_old_record, self.storage.children(number, group, after=place, reverse=reverse))

    def commit(self, context: str, commit: old.Commit) -> None:
        old.check_context_name(context)
        old.check_families(commit.writes)
        found = self._load(context)
        head = None if found is None else old.Head(*_decode(found.head))
        if not commit.follows(head):
            raise old.conflict(context, head, commit.expect)
        number = 0 if found is None else found.id
        new = self._new_commit(number, 1 if found is None else found.seq + 1, commit)
        try:
            if found is None:
                number = self.storage.create(context, new)
            else:
                self.storage.commit(found.id, new)
        except Conflict:
            raise old.conflict(context, self.head(context), commit.expect) from None
        self._ids[context] = number

    def fork(self, context: str, target: str, commit: old.Commit, below: Mapping[old.Family, int]) -> None:
        old.check_context_name(target)
        old.check_families(commit.writes)
        found = self._load(context)
        head = None if found is None else old.Head(*_decode(found.head))
        if found is None or not commit.follows(head):
            raise old.conflict(context, head, commit.expect)
        if (taken := self.head(target)) is not None:
            raise old.conflict(target, taken, 0)
        writes: dict[tuple[old.Family, int], old.Write] = {}
        for family in old.FAMILIES:  # families share a new one, so what is above a limit is deleted one by one
            first = 0 if family == old.JOURNAL else below.get(family, old.MAX_KEY + 1)
            writes |= {(family, each.key): old.Delete(family, each.key) for each in self.scan(context, family, first)}
        for write in commit.writes:
            is_gone = isinstance(writes.get((write.family, write.key)), old.Delete)
            if not (isinstance(write, old.Patch) and is_gone):
                writes[write.family, write.key] = write
        whole = old.Commit(0, commit.version, commit.head, list(writes.values()))
        self.storage.create(target, self._new_commit(found.id, 1, whole), Fork(found.id, found.seq))

    def contexts(self, after: str = "") -> Iterator[str]:
        return self.storage.contexts(after)

    def drop(self, context: str) -> None:
        self.storage.drop(context)

    @contextmanager
    def snapshot(self, context: str) -> Iterator["OldStorage"]:
        found = self._load(context)
        if found is None:
            yield self
            return
        with self.storage.snapshot(found.id) as snapshot:
            frozen = OldStorage(snapshot)
            frozen._ids[context] = found.id
            yield frozen

    def scrub(self, contexts: Sequence[str] | None) -> str | None:
        ids: list[Id | None] = [None] if contexts is None else [self._ids.get(name) for name in contexts]
        advice = dict.fromkeys(text for number in ids for text in self.storage.scrub(number))
        return " ".join(advice) or None

    def close(self) -> None:
        self.storage.close()

    def _load(self, context: str) -> Loaded | None:
        found = self.storage.load(context)
        if found is None:
            self._ids.pop(context, None)
        else:
            self._ids[context] = found.id
        return found

    def _id(self, context: str) -> Id:
        """Return the id of a context as this handle knows it, 0 if there is none."""
        known = self._ids.get(context)
        if known is None:
            found = self._load(context)
            known = 0 if found is None else found.id
        return known

    def _new_commit(self, number: Id, seq: int, commit: old.Commit) -> NewCommit:
        """Return the same commit for the new protocol: each record once, whole."""
        put: dict[tuple[NewFamily, int], NewRecord | None] = {}
        for write in commit.writes:
            where, part = _PLACES[write.family]
            key = part * _SPAN + write.key
            match write:
                case old.Put():
                    put[where, key] = NewRecord(key, write.value, write.group, _rank(write.order))
                case old.Patch():
                    before = put[where, key] if (where, key) in put else self._stored(number, where, key)
                    if before is not None:
                        put[where, key] = NewRecord(key, write.value, before.parent, before.rank)
                case old.Delete():
                    put[where, key] = None
        kept = [(where, record) for (where, _), record in put.items() if record is not None]
        gone = [(where, key) for (where, key), record in put.items() if record is None]
        return NewCommit(seq, _encode((commit.version, commit.head)), b"", kept, gone)

    def _stored(self, number: Id, where: NewFamily, key: int) -> NewRecord | None:
        return self.storage.get(number, where, [key])[0] if number else None


def _rank(order: bytes) -> int:
    return min(int.from_bytes(order[:_RANK_BYTES].ljust(_RANK_BYTES, b"\0")), MAX_KEY)


def _old_record(record: NewRecord) -> old.Record:
    order = b"" if record.parent is None else record.rank.to_bytes(_RANK_BYTES)
    return old.Record(record.key % _SPAN, record.value, record.parent, order)
