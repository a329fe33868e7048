"""What a strategy is: messages go in one by one, and what would be sent comes out."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from quire import Message
from quire.cli.replaying.counting import Counted

_FEWEST = 4
"""Nobody would set a window of fewer messages."""


class Aside(NamedTuple):
    """A model call that a strategy makes for itself: what it reads, instructions beside it, and how much it writes.

    One that `follows` is the conversation's own request with a question at its end, and reads from its cache. Another
    has a prompt of its own.
    """

    messages: Sequence[Message]
    instructions: int
    written: int
    follows: bool


class Strategy(Protocol):
    """Keeps one conversation. Its prompt and budget were given when it was made."""

    def add(self, message: Message) -> None:
        """Take in a message; the prompt is no part of them."""

    def render(self) -> Sequence[Message]:
        """What would be sent now, the prompt first."""

    def asides(self) -> Sequence[Aside]:
        """The model calls it made for itself since the last time."""


class Setting(NamedTuple):
    """What a strategy is made for: a prompt, a budget, and the mean size of a message where messages are counted."""

    prompt: Message | None
    budget: int
    mean: float
    counted: Counted

    @property
    def room(self) -> int:
        """The tokens that the prompt leaves."""
        return max(0, self.budget - (self.counted.of(self.prompt) if self.prompt else 0))

    @property
    def window(self) -> int:
        """How many messages somebody would choose who knows how long they are on the average."""
        return max(_FEWEST, int(self.room / max(1.0, self.mean)))


class Listed:
    """The base of most strategies: a prompt and a list."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._counted = setting.counted
        self._prompt = [] if setting.prompt is None else [setting.prompt]
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        """Take in a message."""
        self._messages.append(message)

    def render(self) -> Sequence[Message]:
        """The prompt and all messages that are left."""
        return (*self._prompt, *self._messages)

    def asides(self) -> Sequence[Aside]:
        """None: most call no model."""
        return ()

    def _tokens(self) -> int:
        """What would be sent if nothing were done."""
        return self._counted.total(self._prompt) + self._counted.total(self._messages)


def grouped(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages with the results of calls beside the message that called."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups
