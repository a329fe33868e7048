"""What quire is shown beside, call by call: the prompt and the newest messages that fit, as most agents do it."""

from collections.abc import Sequence
from typing import NamedTuple

from quire import Message
from quire.cli.replaying.counting import Counted
from quire.cli.replaying.prefix import Prefix
from quire.cli.replaying.strategies import Setting
from quire.cli.replaying.strategies.windows import Newest


class Window(NamedTuple):
    """What is sent: the messages, what they cost, and what the list before began with too."""

    messages: Sequence[Message]
    tokens: int
    shared: int


class SlidingWindow:
    """Sends the prompt and the newest messages within the budget. A call and its results stay together: it is legal."""

    def __init__(self, prompt: Message | None, budget: int, counted: Counted) -> None:
        self._counted = counted
        self._newest = Newest(Setting(prompt, budget, 0, counted))
        self._prefix = Prefix(counted)

    def add(self, message: Message) -> None:
        """Take in a message; a result belongs to the message that called."""
        self._newest.add(message)

    def render(self) -> Window:
        """What would be sent now."""
        sent = self._newest.render()
        return Window(sent, self._counted.total(sent), self._prefix.follow(sent))
