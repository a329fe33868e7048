"""Erasure: remove contexts with their forks and their bytes, and report what was reached and what was not."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

from quire.core.codec import decode_head
from quire.core.companion import drop_with_companions
from quire.core.records import HeadRecord
from quire.core.relatives import Relatives, relatives_of
from quire.errors import Corrupt, Hint, InvalidOperation, QuireError, short_repr
from quire.storage.base import no_such_context
from quire.storage.contract import FAMILIES, Family, Id, Storage
from quire.system.scrub import COPIES, Remainder, remains_without_scrub, scrub_bytes


class Erasure(Struct, frozen=True, kw_only=True):
    """The result of a removal: the removed contexts, and what remains of them.

    `forks` are the removed contexts that were forks of the named one. `reached` counts the removed records by family
    (`page`, `text`, `note`, …); `erase` counts them, `delete` does not. `scrubbed` is True if the store has no byte of
    them any more, as far as quire can reach; else `remains` says why.
    """

    contexts: tuple[str, ...]
    forks: tuple[str, ...] = ()
    reached: Mapping[Family, int] = {}
    scrubbed: bool = True
    remains: tuple[Remainder, ...] = ()


def delete_context(storage: Storage, name: str, *, scrub: bool) -> Erasure:
    """Remove one context, even a damaged one. Raises `NoSuchContext`."""
    _find(storage, name)
    ids = drop_with_companions(storage, name)
    left = scrub_bytes(storage, ids) if scrub else remains_without_scrub(storage)
    return Erasure(contexts=(name,), scrubbed=not left, remains=left)


def erase_context(storage: Storage, name: str, *, forks: bool) -> Erasure:
    """Remove a context with its forks, and their bytes.

    Forks are removed first, so that the same call completes an interrupted one. If the call was interrupted after the
    last context was removed, `Library.scrub` completes it. Raises `NoSuchContext`, and `InvalidOperation` if there are
    forks and `forks` is False.
    """
    head = _find(storage, name)
    family = _family_of(storage, name, head)
    if family.forks and not forks:
        more = ", …" if len(family.forks) > _MAX_LISTED else ""
        raise InvalidOperation(
            f"Context {name!r} has forks, which hold the same texts: {_listed(family.forks[:_MAX_LISTED])}{more}.",
            Hint("erase", name, purpose="to remove them too"),
        )
    reached: dict[Family, int] = {}
    removed: list[str] = []
    ids: list[Id] = []
    while family.forks or not removed:  # a fork may be made meanwhile
        for context in (*family.forks, *(() if name in removed else (name,))):
            _count_records(storage, context, reached)
            ids += drop_with_companions(storage, context)
            removed.append(context)
        family = _family_of(storage, name, head)
    left = scrub_bytes(storage, ids)
    removed.remove(name)
    return Erasure(
        contexts=(name, *removed),
        forks=tuple(removed),
        reached=reached,
        scrubbed=not left,
        remains=(*left, *_remainders(family), COPIES),
    )


_MAX_LISTED = 12


def _family_of(storage: Storage, name: str, head: HeadRecord | None) -> Relatives:
    """Return the relatives of a context. If its head is damaged, it may be a fork itself."""
    return Relatives([], [], [name]) if head is None else relatives_of(storage, name, head)


def _remainders(family: Relatives) -> Iterator[Remainder]:
    """Yield the contexts that may have the same texts and were not removed."""
    if family.others:
        text = "They have the same origin and keep the texts that they share with it"
        yield Remainder("related", f"{text}: {_listed(family.others)}.")
    if family.unreadable:
        yield Remainder("unknown", f"Their heads cannot be read, so they may be forks: {_listed(family.unreadable)}.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(short_repr, names))


def _find(storage: Storage, name: str) -> HeadRecord | None:
    """Return the head of a context; None if it is damaged or lost. Raises `NoSuchContext`."""
    found = storage.load(name)
    if found is None and name not in storage.contexts():
        raise no_such_context(storage, name)
    try:
        return decode_head(found.seq, found.head) if found else None
    except QuireError:
        return None


def _count_records(storage: Storage, context: str, counts: dict[Family, int]) -> None:
    """Add the number of records of a context by family. Records that cannot be read are not counted."""
    found = storage.load(context)
    for family in FAMILIES:
        with suppress(Corrupt):
            for _ in storage.scan(found.id, family) if found else ():
                counts[family] = counts.get(family, 0) + 1
