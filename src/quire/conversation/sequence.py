"""Sequence: the messages of a conversation as a lazy sequence, and all its items by seq."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, overload

from msgspec import Struct
from msgspec.structs import replace

from quire.core.entries import read_entry
from quire.core.reader import Reader
from quire.core.records import PageRecord, page_key, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, QuireError
from quire.model.clock import to_datetime
from quire.model.messages import Message
from quire.model.pages import Form, Mark, PageIndex, SegmentType
from quire.system.lifecycle import window_pages

_CHUNK = 256


class Messages(Sequence[Message]):
    """Messages in order. Each is read when it is accessed, so a long conversation costs little.

    The order is fixed at the first access. A message itself never changes.
    """

    def __init__(self, read: Callable[[Callable[[State], Any]], Any], *, everything: bool) -> None:
        self._read = read
        self._everything = everything
        self._known: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self._numbers())

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        try:
            found = self._numbers()[place]
        except IndexError:
            raise IndexError(f"No message at position {place}; there are {len(self)}.") from None
        if isinstance(found, int):
            return self._messages([found])[0]
        return self._messages(found)

    def __iter__(self) -> Iterator[Message]:
        numbers = self._numbers()
        for start in range(0, len(numbers), _CHUNK):
            yield from self._messages(numbers[start : start + _CHUNK])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        try:
            return f"<{len(self)} messages>"
        except QuireError as error:  # printing it, or a debugger, must not fail
            return f"<messages that cannot be read: {type(error).__name__}>"

    def _numbers(self) -> Sequence[int]:
        if self._known is None:
            self._known = self._read(all_numbers if self._everything else numbers_in_place)
        return self._known

    def _messages(self, numbers: Sequence[int]) -> list[Message]:
        found: list[Message] = self._read(lambda state: read_messages(state, numbers))
        return found


def read_messages(reader: Reader, numbers: Iterable[int]) -> list[Message]:
    """Return copies of the messages with these numbers, each with its index."""
    numbering = reader.numbering()
    found = []
    for number in numbers:
        index = numbering.index(number)
        if index is None:
            gone = "The message was destroyed by a cleanup."
            raise InvalidOperation(gone, Hint("messages", purpose="for the others"))
        message = reader.message(number).message
        content, meta = deepcopy(message.content), deepcopy(message.meta)
        found.append(replace(message, index=index, content=content, meta=meta))
    return found


def turns_of(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield the turns: each is a user message and everything up to the next one."""
    turn: list[Message] = []
    for message in messages:
        if message.role == "user":
            if turn:
                yield turn
            turn = [message]
        elif turn:
            turn.append(message)
    if turn:
        yield turn


def date_messages(state: State, messages: Iterable[Message]) -> list[Message]:
    """Return messages with `at`: their own time, or the time of their arrival.

    The arrival is the time of the entry that added the message. A fork does not have older entries: it uses the page.
    """
    numbering, times = state.numbering(), dict[int, int | None]()

    def arrival(number: int) -> datetime | None:
        seq = state.message(number).seq
        if seq not in times:
            entry, page = read_entry(state, seq), state.page_of(number)
            times[seq] = entry.time if entry is not None else page.header.created if page is not None else None
        time = times[seq]
        return None if time is None else to_datetime(time)

    return [
        replace(message, at=arrival(numbering.number(message.index)))
        if message.at is None and 0 <= message.index < numbering.length
        else message
        for message in messages
    ]


def numbers_in_place(reader: Reader) -> Sequence[int]:
    """Return the numbers of all messages in the conversation, in order: the prompts, then the conversation."""
    return array("q", numbers_after(reader, None))


def numbers_after(reader: Reader, index: int | None) -> Iterator[int]:
    """Yield the numbers of `numbers_in_place` after a message, or from the first on; earlier ones are not read.

    Raises `InvalidValue` for a message that is not in the conversation.
    """
    segments = _message_segments(reader)
    start = 0
    if index is not None:
        number = reader.numbering().number(index)
        page = reader.page_of(number)
        if page is None or page.header.mark is not Mark.NONE or reader.cold_top(page) is not None:
            raise InvalidValue(f"Message {index} is no longer in the conversation; begin at the start.")
        numbers = page.header.numbers
        yield from numbers[numbers.index(number) + 1 :]
        for after in reader.pages_after(page):
            yield from _numbers_of(after)
        start = segments.index(segment_number(page.key)) + 1
    for segment in segments[start:]:
        root = reader.require_referenced(page_key(segment, 0), page_key(segment, 0))
        for _, page in reader.subtree(root):
            yield from _numbers_of(page)


def newest_numbers(reader: Reader) -> Iterator[int]:
    """Yield the numbers of `numbers_in_place` from the last to the first. Pages are read only when needed."""
    for segment in reversed(_message_segments(reader)):
        for page in reader.newest_leaves(page_key(segment, 0)):
            yield from reversed(_numbers_of(page))


def _message_segments(reader: Reader) -> list[int]:
    """Return the segments that hold messages: the prompts, then the conversation."""
    conversation = reader.conversation()
    segments = [number for number, segment in reader.live_segments() if segment.type is SegmentType.SYSTEM]
    return segments if conversation is None else [*segments, conversation]


def _numbers_of(page: PageRecord) -> Sequence[int]:
    return page.header.numbers if page.header.form >= Form.USER else ()


def all_numbers(reader: Reader) -> Sequence[int]:
    """Return the numbers of all messages that were not destroyed, in order of arrival."""
    numbering = reader.numbering()
    return range(numbering.end) if numbering.length == numbering.end else array("q", numbering.numbers())


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
    """One exchange, prompt, summary or window: its page, type and content, and the journal entry that created it.

    The content of a window is its id, because its display changes. Items that an edit took out of the conversation, and
    closed windows, are `obsolete`.
    """

    id: PageIndex
    type: str
    content: str
    seq: int
    obsolete: bool = False


def items(state: State, *, active: bool = False, content: bool = True) -> Iterator[Item]:
    """Yield the items by seq; with `active` only those that are not obsolete. Bodies are read one at a time.

    Without `content` no body is read.
    """
    windows = {window.key: window for window in window_pages(state)}
    places = [(window.meta.at, key, window.page) for key, window in windows.items()]
    places += [(page.header.born, page.key, page) for page in _message_pages(state)]
    for seq, key, page in sorted(places, key=lambda place: place[:2]):
        window = windows.get(key)
        obsolete = page.header.mark is not Mark.NONE if window is None else window.obsolete
        if not (active and obsolete):
            text = window.id if window is not None else _content(state, page) if content else ""
            yield Item(id=state.index(key), type=_TYPES[page.header.form], content=text, seq=seq, obsolete=obsolete)


def _message_pages(state: State) -> Iterator[PageRecord]:
    """Yield the leaves of the prompt, and those of the conversation that are not plain texts."""
    conversation = state.conversation()
    for segment in _message_segments(state):
        for page in state.segment_pages(segment):
            if not page.header.folder and (segment != conversation or page.header.form is not Form.TEXT):
                yield page


def _content(state: State, page: PageRecord) -> str:
    numbers = page.header.numbers
    return state.message(numbers[0]).message.text if numbers else state.body(page.header.body)
