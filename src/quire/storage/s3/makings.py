"""What lies in the bucket of contexts whose head is not there: left by a drop that died, or all that there is of them.

A context that is dropped and made again is another making of it, with a folder of its own. Who drops one says so in
that folder before the head goes, so what a dead drop left can be told from a context that lost its head object: that
is never removed, because nothing else holds what is in it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from quire.storage.s3.objects import Listed

DROPPED: Final = "dropped"
"""The object in a folder of chunks that says that its context was dropped."""


class Making(NamedTuple):
    """The objects of one making of a context."""

    folder: str
    objects: list[Listed]

    @property
    def is_dropped(self) -> bool:
        return any(each.key == self.folder + DROPPED for each in self.objects)


def makings(listed: Iterable[Listed]) -> list[Making]:
    """The objects below `data`, by the making they belong to."""
    found: dict[str, list[Listed]] = {}
    for each in listed:
        found.setdefault(f"{each.key.rpartition('/')[0]}/", []).append(each)
    return [Making(folder, objects) for folder, objects in found.items()]


def to_remove(making: Making) -> list[str]:
    """The keys of a making, the one that says it was dropped last: were it interrupted, it is told from a lost one."""
    keys = [each.key for each in making.objects if each.key != making.folder + DROPPED]
    return [*keys, making.folder + DROPPED] if making.is_dropped else keys
