"""What an agent can see: everything but PRIVATE segments and messages that are out of the conversation.

It does not see that there is something it cannot see: an index of a PRIVATE page is no page, its segment's id no
segment, and no error or list tells.
"""

from collections.abc import Iterator

from quire.pages import Form, Mark, Permission
from quire.reader import Reader, Through
from quire.records import Gone, PageRecord, SegmentRecord, page_key, segment_number

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


def at_hand(reader: Reader) -> Iterator[int]:
    """The user's last message and the exchange that waits for results, while a turn is going on."""
    newest = True
    for page in _newest_first(reader):
        header = page.header
        if newest and header.form is Form.ASSISTANT and len(header.numbers) == 1 and not header.pending:
            return  # the user has been answered
        if header.pending:
            yield page.key
        if header.form is Form.USER:
            yield page.key
            return
        newest = False


def _newest_first(reader: Reader) -> Iterator[PageRecord]:
    conversation = reader.conversation()
    rows = [] if conversation is None else [reader.members(page_key(conversation, 0), reverse=True)]
    while rows:
        page = next(rows[-1], None)
        if page is None:
            rows.pop()
        elif page.header.folder:
            rows.append(reader.members(page.key, reverse=True))
        elif page.header.numbers:
            yield page
