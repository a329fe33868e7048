"""Entries: read the journal. It has one entry for each version, so a gap is damage."""

from collections.abc import Iterator

from quire.core.records import EntryRecord, decode_entry
from quire.core.state import State
from quire.storage.base import JOURNAL

PURGE = "purge"
"""The operation of an entry that a purge wrote."""


def read_entries(
    state: State, first: int, last: int | None = None, *, reverse: bool = False
) -> Iterator[tuple[int, EntryRecord]]:
    """Yield the entries from `first` to `last` (None: the last one) with their seqs. Raises `Corrupt` at a gap."""
    first = max(first, _first_seq(state))
    last = state.version if last is None else min(last, state.version)
    expected, step = (last, -1) if reverse else (first, 1)
    for record in state.storage.scan(state.context, JOURNAL, first, last, reverse=reverse):
        if record.key != expected:
            break
        expected += step
        yield record.key, state.decode(decode_entry, record.key, record.value)
    if first <= expected <= last:
        raise state.damage_error(f"journal record {expected} is missing.")


def read_entry(state: State, seq: int) -> EntryRecord | None:
    """Return an entry; None if the journal of a fork starts after it. Raises `Corrupt` if it is missing."""
    found = state.storage.get(state.context, JOURNAL, seq)
    if found is not None:
        return state.decode(decode_entry, seq, found.value)
    if _first_seq(state) <= seq <= state.version:
        raise state.damage_error(f"journal record {seq} is missing.")
    return None


def _first_seq(state: State) -> int:
    """Return the seq of the first entry. The journal of a fork starts at the fork."""
    return state.head.counts.first_entry
