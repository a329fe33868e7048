"""What a journal entry says to a reader: the beginning of its messages, or the names of its pages."""

from collections.abc import Iterable, Iterator

from quire.core.records import PageRecord
from quire.core.state import State
from quire.errors import QuireError
from quire.model.messages import Message
from quire.system.journal import Change, Entry, stored_entry, to_entry

_WIDTH = 200
_MOST_NAMES = 3
_MOST_MESSAGES = 3
_SEARCHED = 64
"""The newest messages of a page that are searched for those of an entry."""


def entry_texts(state: State, entries: Iterable[Entry]) -> dict[int, str]:
    """Return one line of text for each entry, by seq. It is "" if there is nothing to say, or if it was removed."""
    return {entry.seq: _entry_text(state, entry) for entry in entries}


def _entry_text(state: State, entry: Entry, *, follows: bool = True) -> str:
    if entry.operation == "undo" and entry.undoes and follows:
        undone = to_entry(state, entry.undoes, stored_entry(state, entry.undoes))
        return _entry_text(state, undone, follows=False) or _entry_text(state, entry, follows=False)
    messages = list(_messages(state, entry))
    if messages:
        return _clip(" · ".join(map(_message_text, messages)))
    made = [change for change in entry.changes if change.index and change.before is None]
    changes = made if entry.operation == "fold" and made else [change for change in entry.changes if change.index]
    names = [name for change in changes[:_MOST_NAMES] if (name := _name(state, change))]
    more = len(changes) - _MOST_NAMES
    if more > 0 and names:
        names.append(f"+{more}")
    return _clip(", ".join(names) or ", ".join(entry.segments))


def _messages(state: State, entry: Entry) -> Iterator[Message]:
    """Yield the first messages that an entry added."""
    found = 0
    for index in entry.pages[:_MOST_MESSAGES]:
        key = state.key_of(index)
        page = None if key is None else state.page(key)
        if not isinstance(page, PageRecord):
            continue
        for number in page.header.numbers[-_SEARCHED:]:
            if state.numbering().index(number) is None:
                continue
            record = state.message(number)
            if record.seq == entry.seq and found < _MOST_MESSAGES:
                found += 1
                yield record.message


def _message_text(message: Message) -> str:
    calls = [f"→ {call.name}({call.arguments})" for call in message.tool_calls]
    return " ".join([*([message.text] if message.text else []), *calls])


def _name(state: State, change: Change) -> str:
    """Return the name of a page now, or before the change if it was removed."""
    key = state.key_of(change.index)
    try:
        page = None if key is None else state.page(key)
    except QuireError:  # a damaged page must not hide the journal
        return ""
    if isinstance(page, PageRecord):
        return page.header.name
    return str((change.before or {}).get("name", ""))


def _clip(text: str) -> str:
    line = " ".join(text[: 4 * _WIDTH].split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
