"""Entries: read the journal. It has one entry for each version, so a gap is damage."""

from collections.abc import Iterator

from quire.core.records import EntryRecord
from quire.core.state import State

PURGE = "purge"
"""The operation of an entry that a purge wrote."""


def read_entries(
    state: State, first: int, last: int | None = None, *, reverse: bool = False
) -> Iterator[tuple[int, EntryRecord]]:
    """Yield the entries from `first` to `last` (None: the last one) with their seqs. Raises `Corrupt` at a gap."""
    first = max(first, state.head.first)
    last = state.version if last is None else min(last, state.version)
    expected, step = (last, -1) if reverse else (first, 1)
    for seq, entry in state.stored.entries(first, last, reverse=reverse):
        if seq != expected:
            break
        expected += step
        yield seq, entry
    if first <= expected <= last:
        raise state.damage_error(f"journal record {expected} is missing.")


def read_entry(state: State, seq: int) -> EntryRecord | None:
    """Return an entry; None if the journal of a fork starts after it. Raises `Corrupt` if it is missing."""
    found = next(state.stored.entries(seq, seq), None)
    if found is not None:
        return found[1]
    if state.head.first <= seq <= state.version:
        raise state.damage_error(f"journal record {seq} is missing.")
    return None
