"""What a commit makes of a head: the commit goes into the log there, or the log is sealed into a chunk.

Sealing takes the newest runs along while they are small, so that their number grows with the logarithm of what is
stored, and what a writer seals it has in memory: a commit is one write of a chunk, if any, and one of the head.
"""

from collections.abc import Sequence, Set
from os import urandom
from typing import Final

from msgspec.structs import replace

from quire.storage.base import Commit
from quire.storage.s3.chunks import Place, Recent, Run, changes_of, settled, write_chunks
from quire.storage.s3.contexts import Draft
from quire.storage.s3.head import HeadObject
from quire.storage.s3.snapshot import Layer, Standing, merged

LOG_BYTES: Final = 64 << 10
MERGE_BYTES: Final = 4 << 20
"""The most that a commit rewrites; larger merges are made apart."""
RATIO: Final = 3
MOST_RUNS: Final = 24
"""A commit that leaves so many runs waits for a merge, so that reading never takes more requests than that."""
FIRST: Final[Place] = (0,)
LAST: Final[Place] = (1 << 30,)


def draft_commit(
    context: str,
    standing: Standing | None,
    commit: Commit,
    frame: bytes,
    revision: bytes,
    merging: Set[str] = frozenset(),
) -> Draft:
    """The head after a commit. Runs in `merging` are left alone."""
    old = standing.head if standing else new_head(context)
    recent = (standing.recent if standing else Recent()).after(changes_of(commit.writes))
    head = replace(
        old, version=commit.version, value=commit.head, revisions=old.revisions_with(revision), log=old.log + frame
    )
    if len(head.log) <= LOG_BYTES:
        return Draft(head, recent)
    return sealed(head, recent, standing.layers[1:] if standing else (), merging)


def new_head(context: str) -> HeadObject:
    """The head of a context before its first commit."""
    return HeadObject(context, urandom(8).hex(), 0, b"", b"", b"", (), 0)


def sealed(head: HeadObject, recent: Recent, older: Sequence[Layer], merging: Set[str]) -> Draft:
    """The head with its log in a chunk; `older` are its runs, the newest first."""
    count = foldable(head.runs, sum(len(entry.value) + 40 for entry in recent.entries.values()), merging)
    layers = [layer.between(FIRST, LAST, reverse=False) for layer in (recent, *older[:count])]
    entries = merged(layers, reverse=False)
    kept = head.runs[: len(head.runs) - count]
    name = chunk_name(head.runs[len(head.runs) - count :], head.seals + 1)
    chunks = tuple(write_chunks(entries if kept else settled(entries), name))
    runs = (*kept, Run(tuple(chunk.ref for chunk in chunks))) if chunks else kept
    return Draft(replace(head, log=b"", runs=runs, seals=head.seals + 1), Recent(), chunks)


def foldable(runs: Sequence[Run], size: int, merging: Set[str] = frozenset()) -> int:
    """How many of the newest runs to seal along with so many bytes."""
    count = 0
    for run in reversed(runs):
        if run.size > RATIO * size or size + run.size > MERGE_BYTES or not merging.isdisjoint(run.ids):
            break
        size += run.size
        count += 1
    return count


def mergeable(runs: Sequence[Run]) -> range | None:
    """Which runs in a row are worth a merge of their own, if any: the newest four or more of like size."""
    for end in range(len(runs), 3, -1):
        start, size = end - 1, runs[end - 1].size
        while start and runs[start - 1].size <= RATIO * size:
            start -= 1
            size += runs[start].size
        if end - start >= 4:
            return range(start, end)
    return range(len(runs) // 2, len(runs)) if len(runs) >= MOST_RUNS else None


def chunk_name(runs: Sequence[Run], seal: int) -> str:
    """How the ids of chunks begin that replace these runs: which seals they cover."""
    first = min((covers(each)[0] for run in runs for each in run.ids), default=seal)
    return f"{first:08x}-{seal:08x}"


def covers(chunk: str) -> tuple[int, int]:
    """The first and last seal that a chunk with this id covers. Raises `ValueError`."""
    first, last, _ = chunk.split("-")
    return int(first, 16), int(last, 16)
