"""Apps that need nothing but their own saved state: a todo list and a scratch pad."""

from typing import Any

from quire.errors import InvalidValue, short_repr
from quire.model.text import collapse_whitespace
from quire.windows.actions import action
from quire.windows.app import App

__all__ = ["Scratch", "Todo"]

_MAX_ENTRIES = 500
_MAX_ENTRY = 500
_MAX_PAD_LENGTH = 20_000
_DONE = "✓ "


class Todo(App):
    """A todo list. An entry keeps its number; the number of a deleted entry is not used again."""

    name = "todo"
    description = "A todo list"

    def __init__(self) -> None:
        self._entries: dict[int, str] = {}
        self._done: set[int] = set()
        self._next = 1

    def content(self) -> dict[str | int, str]:
        return {number: f"{_DONE if number in self._done else ''}{text}" for number, text in self._entries.items()}

    @action("Add an entry")
    def add(self, text: str) -> str:
        line = collapse_whitespace(text)
        if not line or len(line) > _MAX_ENTRY:
            raise InvalidValue(f"is {short_repr(text)}; 1 to {_MAX_ENTRY} characters are needed.", argument="text")
        if len(self._entries) >= _MAX_ENTRIES:
            raise InvalidValue(f"The list has {_MAX_ENTRIES} entries and can hold no more. Delete some.")
        number, self._next = self._next, self._next + 1
        self._entries[number] = line
        return f"Added as {number}."

    @action("Mark an entry as done, or not done again")
    def done(self, index: int, done: bool = True) -> str:
        self._check(index)
        (self._done.add if done else self._done.discard)(index)
        return f"{index} is {'done' if done else 'to do'}."

    @action("Delete an entry")
    def delete(self, index: int) -> str:
        self._check(index)
        del self._entries[index]
        self._done.discard(index)
        return f"Deleted {index}."

    def save(self) -> dict[str, Any]:
        return {
            "entries": [[number, text] for number, text in self._entries.items()],
            "done": sorted(self._done),
            "next": self._next,
        }

    def restore(self, saved: Any) -> None:
        self._entries = {int(number): str(text) for number, text in saved["entries"]}
        self._done = set(saved["done"])
        self._next = int(saved["next"])

    def _check(self, index: int) -> None:
        if index not in self._entries:
            known = ", ".join(map(str, self._entries)) or "none"
            raise InvalidValue(f"There is no entry {index}. Entries: {known}.")


class Scratch(App):
    """A scratch pad: one text that is written whole, extended, or changed in places."""

    name = "scratch"
    description = "A scratch pad"

    def __init__(self) -> None:
        self._text = ""

    def open(self, text: str = "") -> None:
        self._set(text)

    def content(self) -> str:
        return self._text

    @action("Write the whole text anew")
    def write(self, text: str) -> str:
        self._set(text)
        return f"Written: {len(text):,} characters."

    @action("Add a line at the end")
    def add(self, text: str) -> str:
        self._set(f"{self._text}\n{text}" if self._text else text)
        return f"Added: {len(self._text):,} characters now."

    @action("Change a passage that occurs once")
    def change(self, old: str, new: str) -> str:
        count = self._text.count(old) if old else 0
        if count != 1:
            raise InvalidValue(
                f"is {short_repr(old)}, which occurs {count} times; a passage that occurs once is needed.",
                argument="old",
            )
        self._set(self._text.replace(old, new))
        return "Changed."

    def save(self) -> str:
        return self._text

    def restore(self, saved: Any) -> None:
        self._text = str(saved)

    def _set(self, text: str) -> None:
        if len(text) > _MAX_PAD_LENGTH:
            raise InvalidValue(f"The text would have {len(text):,} characters; the pad holds {_MAX_PAD_LENGTH:,}.")
        self._text = text
