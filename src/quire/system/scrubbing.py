"""Scrubbing: erase the bytes of deleted records from a store, and say which bytes remain."""

from collections.abc import Sequence
from typing import Final

from quire.core.lease import companion_of
from quire.core.summary_board import board_of
from quire.errors import Busy, StorageFailure
from quire.search.indexing import refresh_index
from quire.storage.base import Remainder, Storage, SupportsScrub

COPIES: Final = Remainder(
    "copies",
    "Backups, exported and archived files, other stores, snapshots of the disk, your logs, and requests that were sent"
    " to a provider keep their copies.",
)
NOT_SCRUBBED: Final = Remainder(
    "not_scrubbed",
    "The records are deleted, but the store may still hold their bytes until they are overwritten. Forks keep the texts"
    " that they share. scrub() erases the bytes that no context reads.",
)


def scrub_bytes(storage: Storage, contexts: Sequence[str] | None) -> tuple[Remainder, ...]:
    """Erase the deleted bytes of these contexts, or of all; return what is left of them in the store."""
    if not isinstance(storage, SupportsScrub):
        return ()
    companions = [each for name in contexts or () for each in (companion_of(name), board_of(name))]
    try:
        for name in storage.contexts() if contexts is None else contexts:
            refresh_index(storage, name)
        left = storage.scrub(None if contexts is None else [*contexts, *companions])
    except (Busy, StorageFailure) as error:
        return (Remainder(error.code, str(error)),)
    return (Remainder("server", left),) if left else ()


def drop_board(storage: Storage, context: str) -> tuple[Remainder, ...]:
    """Remove the summaries that wait for the next fold: they may have erased words. Return them if that failed."""
    try:
        storage.drop(board_of(context))
    except StorageFailure as error:
        return (Remainder(error.code, f"Summaries that wait for the next fold remain: {error}"),)
    return ()


def unscrubbed(storage: Storage) -> tuple[Remainder, ...]:
    """Return what a removal leaves in a store that is not scrubbed."""
    return (NOT_SCRUBBED,) if isinstance(storage, SupportsScrub) else ()
