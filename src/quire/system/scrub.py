"""Scrubbing: erase the bytes of deleted records, and say what is left of them."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from quire.core.companion import SUMMARIES, companion_of
from quire.errors import Busy, StorageFailure
from quire.storage.contract import Id, Storage
from quire.storage.memory import MemoryStorage


class Remainder(Struct, frozen=True):
    """Bytes that a removal did not reach.

    | code            | meaning                                                                                |
    |-----------------|----------------------------------------------------------------------------------------|
    | `not_scrubbed`  | the store was not asked to erase the bytes of deleted records                          |
    | `busy`, `storage_failure`, … | the code of the error that prevented it                                   |
    | `server`        | old bytes that only an administrator of the server or the bucket can remove            |
    | `related`       | other contexts with the same texts: the origin, other forks of it, imported copies     |
    | `unknown`       | contexts with a damaged head, which may have the same texts                            |
    | `copies`        | copies outside the store                                                               |
    """

    code: str
    text: str


COPIES: Final = Remainder(
    "copies",
    "Backups, exported and archived files, other stores, snapshots of the disk, your logs, and requests that were sent"
    " to a provider keep their copies.",
)
NOT_SCRUBBED: Final = Remainder(
    "not_scrubbed",
    "The records are deleted, but the store may still hold their bytes until they are overwritten. Library.scrub() and"
    " quire scrub erase the bytes that no context reads.",
)


def scrub_bytes(storage: Storage, contexts: Iterable[Id] | None) -> tuple[Remainder, ...]:
    """Erase the deleted bytes of these contexts, or of all; return what is left of them in the store."""
    ids = [None] if contexts is None else contexts
    try:
        left = dict.fromkeys(text for id_ in ids for text in storage.scrub(id_))
    except (Busy, StorageFailure) as error:
        return (Remainder(error.code, str(error)),)
    return tuple(Remainder("server", text) for text in left)


def remains_without_scrub(storage: Storage) -> tuple[Remainder, ...]:
    """Return what a removal leaves in a store that is not scrubbed."""
    return () if isinstance(storage, MemoryStorage) else (NOT_SCRUBBED,)


def drop_board(storage: Storage, context: str) -> tuple[Remainder, ...]:
    """Remove the summaries that wait for the next fold: they may contain erased words. Return them if it fails."""
    try:
        storage.drop(companion_of(context, SUMMARIES))
    except StorageFailure as error:
        return (Remainder(error.code, f"Summaries that wait for the next fold remain: {error}"),)
    return ()
