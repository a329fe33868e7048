"""Erasure: remove contexts with their forks and their bytes, and report what was reached and what was not."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from quire.core.records import ORIGINS, HeadRecord, decode_head, decode_note, mark_of, origins_of
from quire.core.summary_board import drop_with_companions
from quire.errors import Corrupt, Hint, InvalidOperation, QuireError, short_repr
from quire.storage.base import (
    FAMILIES,
    NOTE,
    Family,
    Remainder,
    Storage,
    find_lost_heads,
    list_contexts,
    no_such_context,
)
from quire.system.purge import COPIES, remains_without_scrub, scrub_bytes


class Erasure(Struct, frozen=True, kw_only=True):
    """The result of a removal: the removed contexts, and what remains of them.

    `forks` are the removed contexts that were forks of the named one. `reached` counts the removed records by family
    (`page`, `message`, `journal`, `vector`, …); `erase` counts them, `delete` does not. The search index goes with
    them. `scrubbed` is True if the store has no byte of them any more, as far as quire can reach; else `remains` says
    why.
    """

    contexts: tuple[str, ...]
    forks: tuple[str, ...] = ()
    reached: Mapping[Family, int] = {}
    scrubbed: bool = True
    remains: tuple[Remainder, ...] = ()


def delete_context(storage: Storage, name: str, *, scrub: bool) -> Erasure:
    """Remove one context, even a damaged one. Raises `NoSuchContext`."""
    _find(storage, name)
    drop_with_companions(storage, name)
    left = scrub_bytes(storage, [name]) if scrub else remains_without_scrub(storage)
    return Erasure(contexts=(name,), scrubbed=not left, remains=left)


def erase_context(storage: Storage, name: str, *, forks: bool) -> Erasure:
    """Remove a context with its forks, and their bytes.

    Forks are removed first, so that the same call completes an interrupted one. If the call was interrupted after the
    last context was removed, `Library.scrub` completes it. Raises `NoSuchContext`, and `InvalidOperation` if there are
    forks and `forks` is False.
    """
    head = _find(storage, name)
    family = _Family(storage, name, head)
    if family.forks and not forks:
        listed = ", ".join(map(short_repr, family.forks[:_MAX_LISTED])) + (
            ", …" if len(family.forks) > _MAX_LISTED else ""
        )
        raise InvalidOperation(
            f"Context {name!r} has forks, which hold the same texts: {listed}.",
            Hint("erase", name, purpose="to remove them too"),
        )
    reached: dict[Family, int] = {}
    removed: list[str] = []
    while True:
        for context in (*family.forks, *(() if name in removed else (name,))):
            _count_records(storage, context, reached)
            drop_with_companions(storage, context)
            removed.append(context)
        family = _Family(storage, name, head)
        if not family.forks:  # none was created meanwhile
            break
    left = scrub_bytes(storage, removed)
    removed.remove(name)
    # records without a head may be those of a fork
    headless = [Remainder("unknown", f"{symptom.where}: {symptom.text}") for symptom in find_lost_heads(storage)]
    return Erasure(
        contexts=(name, *removed),
        forks=tuple(removed),
        reached=reached,
        scrubbed=not left,
        remains=(*left, *family.remainders(), *headless, COPIES),
    )


_MAX_LISTED = 12


class _Family:
    """The contexts with the same origin as one context: its forks, and the others."""

    def __init__(self, storage: Storage, name: str, head: HeadRecord | None) -> None:
        self.forks: list[str] = []
        self.others: list[str] = []
        self.unreadable: list[str] = [] if head is not None else [name]
        self._name = name
        for other in list(list_contexts(storage)):
            if other != name and head is not None:
                self._add(storage, other, head)

    def _add(self, storage: Storage, other: str, head: HeadRecord) -> None:
        try:
            found = storage.head(other)
            if found is None or found.version < 0:
                return
            theirs = decode_head(found.value)
            if (theirs.family or theirs.identity) != (head.family or head.identity):
                return
            note = storage.get(other, NOTE, ORIGINS)
            origins = origins_of(theirs, None if note is None else decode_note(ORIGINS, note.value, mark_of(theirs)))
            if len(origins) < len(theirs.lineage):
                raise Corrupt(f"note record {ORIGINS} is missing or out of date.")
            (self.forks if head.identity in origins else self.others).append(other)
        except Corrupt:
            self.unreadable.append(other)

    def remainders(self) -> Iterator[Remainder]:
        """Yield the contexts that may have the same texts and were not removed."""
        if self.others:
            text = "They have the same origin and keep the texts that they share with it"
            yield Remainder("related", f"{text}: {', '.join(map(short_repr, self.others))}.")
        if self.unreadable:
            text = "Their heads cannot be read, so they may be forks"
            yield Remainder("unknown", f"{text}: {', '.join(map(short_repr, self.unreadable))}.")


def _find(storage: Storage, name: str) -> HeadRecord | None:
    """Return the head of a context; None if it is damaged or unfinished. Raises `NoSuchContext`."""
    try:
        found = storage.head(name)
    except Corrupt:
        return None
    if found is None:
        raise no_such_context(storage, name)
    try:
        return decode_head(found.value) if found.version >= 0 else None
    except QuireError:
        return None


def _count_records(storage: Storage, context: str, counts: dict[Family, int]) -> None:
    """Add the number of records of a context by family. Records that cannot be read are not counted."""
    for family in FAMILIES:
        try:
            for _ in storage.scan(context, family):
                counts[family] = counts.get(family, 0) + 1
        except Corrupt:
            continue
