"""The context as a list of items in order of their seq: what was said, and whether it still counts."""

from collections.abc import Iterator

from msgspec import Struct

from quire.pages import Form, Mark, PageIndex, SegmentType
from quire.records import PageRecord
from quire.state import State
from quire.windows.keeping import Kept, window_pages

_TYPES = {
    Form.TEXT: "System",
    Form.SUMMARY: "Summary",
    Form.USER: "User",
    Form.ASSISTANT: "Assistant",
    Form.SYSTEM: "System",
    Form.TOOL: "Tool",
    Form.WINDOW: "Window",
}


class Item(Struct, frozen=True, kw_only=True):
    """One exchange, prompt, summary or window: its page, its type, what it says, and the journal entry that brought it.

    Of a window the content is its id, for what it shows changes. What an edit took out of the conversation and a
    window that was closed are `obsolete`.
    """

    id: PageIndex
    type: str
    content: str
    seq: int
    obsolete: bool = False


def items(state: State, *, active: bool = False, content: bool = True) -> Iterator[Item]:
    """The items by seq; with `active` only those that are not obsolete. Bodies are read as they are looked at.

    Without `content` no body is read, to count them.
    """
    found: list[tuple[int, PageRecord, Kept | None]] = [(page.header.born, page, None) for page in _pages(state)]
    found += [(window.plate.at, window.page, window) for window in window_pages(state)]
    for seq, page, window in sorted(found, key=lambda item: (item[0], item[1].key)):
        obsolete = page.header.mark is not Mark.NONE if window is None else window.obsolete
        if not (active and obsolete):
            yield Item(
                id=state.index(page.key),
                type=_TYPES[page.header.form],
                content=window.id if window is not None else _content(state, page) if content else "",
                seq=seq,
                obsolete=obsolete,
            )


def _pages(state: State) -> Iterator[PageRecord]:
    """The leaves of the prompt and of the conversation."""
    for number, segment in state.live_segments():
        is_prompt = segment.type is SegmentType.SYSTEM
        if is_prompt or number == state.conversation():
            for page in state.segment_pages(number):
                if not page.header.folder and (is_prompt or page.header.form is not Form.TEXT):
                    yield page


def _content(state: State, page: PageRecord) -> str:
    numbers = page.header.numbers
    return state.message(numbers[0]).message.text if numbers else state.body(page.header.body)
