"""A scratch pad."""

from typing import Any

from quire.errors import InvalidValue, short_repr
from quire.windows.actions import action
from quire.windows.app import App

_MOST_CHARACTERS = 20_000


class Scratch(App):
    """One text to think on, written as a whole, added to, or changed in places."""

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
        found = self._text.count(old) if old else 0
        if found != 1:
            raise InvalidValue(
                f"old is {short_repr(old)}, which occurs {found} times; a passage that occurs once is needed."
            )
        self._set(self._text.replace(old, new))
        return "Changed."

    def save(self) -> str:
        return self._text

    def restore(self, saved: Any) -> None:
        self._text = str(saved)

    def _set(self, text: str) -> None:
        if len(text) > _MOST_CHARACTERS:
            raise InvalidValue(f"The text would have {len(text):,} characters; the pad holds {_MOST_CHARACTERS:,}.")
        self._text = text
