"""What a viewer may see, as a value that is passed down: nothing outside it is counted, ranked or found."""

from collections.abc import Iterable

from msgspec import Struct

from quire.pages import MAX_NUMBER, Permission
from quire.reader import Reader
from quire.records import page_key, segment_number
from quire.storage.searching import Span


class Scope(Struct, frozen=True):
    """The numbers of the segments that a viewer may see."""

    segments: frozenset[int]

    def __contains__(self, key: int) -> bool:
        return segment_number(key) in self.segments

    def spans(self) -> list[Span]:
        """The stretches of page keys in it, in order, as few as can be."""
        found: list[Span] = []
        for number in sorted(self.segments):
            first, last = page_key(number, 0), page_key(number, MAX_NUMBER)
            if found and found[-1][1] + 1 == first:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return found


def everything(reader: Reader) -> Scope:
    """What a developer sees: all segments."""
    return Scope(frozenset(number for number, _ in reader.live_segments()))


def open_to_agents(reader: Reader) -> Scope:
    """What an agent sees: all segments but the private ones."""
    live = reader.live_segments()
    return Scope(frozenset(number for number, segment in live if segment.permission is not Permission.PRIVATE))


def narrowed(scope: Scope, segments: Iterable[int]) -> Scope:
    """The part of a scope in these segments."""
    return Scope(scope.segments.intersection(segments))
