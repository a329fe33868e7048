"""Counting whole messages: each once, however often it is sent."""

from collections.abc import Iterable

from quire import Message, TokenCounter, VocabularyCounter
from quire.model.messages import message_tokens


class Counted:
    """What messages cost, counted as views are, and remembered by the message itself."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._count = (counter or VocabularyCounter()).count
        self._known: dict[int, tuple[Message, int]] = {}

    def of(self, message: Message) -> int:
        """What one message costs."""
        found = self._known.get(id(message))
        if found is None:  # the message is kept with its count: nothing else can get its identity
            found = self._known[id(message)] = (message, message_tokens(message, self._count))
        return found[1]

    def total(self, messages: Iterable[Message]) -> int:
        """What messages cost together."""
        return sum(map(self.of, messages))

    def forget(self) -> None:
        """Let go of the messages counted so far."""
        self._known.clear()
