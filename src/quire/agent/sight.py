"""What an agent can see: everything but PRIVATE segments and messages that are out of the conversation.

It does not see that there is something it cannot see: an index of a PRIVATE page is no page, its segment's id no
segment, and no error or list tells.
"""

from quire.pages import Mark, Permission
from quire.reader import Reader, Through
from quire.records import Gone, PageRecord, SegmentRecord, segment_number


class Sight(Through):
    """A reader with an agent's eyes."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)

    def number_of(self, segment_id: str) -> int | None:
        number = self._reader.number_of(segment_id)
        return None if number is None or self._is_private(number) else number

    def segment(self, number: int) -> SegmentRecord | None:
        return None if self._is_private(number) else self._reader.segment(number)

    def page(self, key: int) -> PageRecord | Gone | None:
        if self._is_private(segment_number(key)):
            return None
        found = self._reader.page(key)
        if isinstance(found, PageRecord) and found.header.mark is not Mark.NONE:
            return Gone(found.header.seq)
        if isinstance(found, Gone) and found.moved_to >= 0 and self._is_private(segment_number(found.moved_to)):
            return Gone(found.seq)
        return found

    def _is_private(self, number: int) -> bool:
        segment = self._reader.segment(number)
        return segment is None or segment.permission is Permission.PRIVATE

    def _hint(self, index: object, *, removed: bool) -> str:
        return "It was removed." if removed else super()._hint(index, removed=False)
