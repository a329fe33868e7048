"""A todo list."""

from typing import Any

from quire.errors import InvalidValue, short_repr
from quire.model.text import in_one_line
from quire.windows.actions import action
from quire.windows.app import App

_MOST_ENTRIES = 500
_MOST_CHARACTERS = 500
_DONE = "✓ "


class Todo(App):
    """A list of things to do. An entry keeps its number: what was deleted leaves its number unused."""

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
        said = in_one_line(text)
        if not said or len(said) > _MOST_CHARACTERS:
            raise InvalidValue(f"text is {short_repr(text)}; 1 to {_MOST_CHARACTERS} characters are needed.")
        if len(self._entries) >= _MOST_ENTRIES:
            raise InvalidValue(f"The list has {_MOST_ENTRIES} entries, as many as it holds: delete some.")
        number, self._next = self._next, self._next + 1
        self._entries[number] = said
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
            raise InvalidValue(f"There is no entry {index}; there are: {known}.")
