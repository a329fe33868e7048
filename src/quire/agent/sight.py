"""What an agent can see: everything but PRIVATE segments and messages that are out of the conversation.

It does not see that there is something it cannot see: an index of a PRIVATE page is no page, its segment's id no
segment, and no error or list tells.
"""

from quire.pages import Mark, Permission
from quire.reader import Through
from quire.records import Gone, PageRecord, SegmentRecord, segment_number

_PRIVATE = Permission.PRIVATE
_UNMARKED = Mark.NONE


class Sight(Through):
    """A reader with an agent's eyes."""

    def number_of(self, segment_id: str) -> int | None:
        number = self._reader.number_of(segment_id)
        return None if number is None or self._is_private(number) else number

    def segment(self, number: int) -> SegmentRecord | None:
        found = self._reader.segment(number)
        return None if found is None or found.permission is _PRIVATE else found

    def seen(self, number: int) -> SegmentRecord:
        """The segment of a page that was seen."""
        found = self.segment(number)
        if found is None:
            raise self.broken(f"segment record {number} is missing.")
        return found

    def page(self, key: int) -> PageRecord | Gone | None:
        if self._is_private(segment_number(key)):
            return None
        found = self._reader.page(key)
        if isinstance(found, PageRecord):
            return found if found.header.mark is _UNMARKED else Gone(found.header.seq)
        if found is not None and found.moved_to >= 0 and self._is_private(segment_number(found.moved_to)):
            return Gone(found.seq)
        return found

    def _is_private(self, number: int) -> bool:
        segment = self._reader.segment(number)
        return segment is None or segment.permission is _PRIVATE

    def _hint(self, index: object, *, removed: bool) -> str:
        return "It was removed." if removed else super()._hint(index, removed=False)
