"""Clearing the results of tools, and keeping everything else."""

from collections.abc import Sequence

from msgspec import structs

from quire import Message
from quire.cli.replaying.strategies.base import Listed, Setting

_TRIGGER = 0.5
_KEPT = 3
_CLEARED = "[cleared]"


class ClearedResults(Listed):
    """From half of the budget on, all results but the last three are a placeholder. Nothing else ever goes."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._cleared: dict[int, Message] = {}
        self._size = self._counted.total(self._prompt)

    def add(self, message: Message) -> None:
        """Take in a message."""
        super().add(message)
        self._size += self._counted.of(message)

    def render(self) -> Sequence[Message]:
        """The prompt and the messages, cleared if there are too many tokens in the originals."""
        if self._size <= _TRIGGER * self._setting.budget:
            return super().render()
        results = [place for place, message in enumerate(self._messages) if message.role == "tool"]
        sent = list(self._messages)
        for place in results[:-_KEPT]:
            sent[place] = self._placeholder(place)
        return (*self._prompt, *sent)

    def _placeholder(self, place: int) -> Message:
        found = self._cleared.get(place)
        if found is None:
            found = self._cleared[place] = structs.replace(self._messages[place], content=_CLEARED, raw=None)
        return found
