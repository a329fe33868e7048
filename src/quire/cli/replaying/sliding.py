"""What quire is measured against: the prompt and the newest messages that fit, as most agents do it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quire import Message
from quire.messages import message_tokens


class Window(NamedTuple):
    """What is sent: the messages, what they cost, and what the list before began with too."""

    messages: tuple[Message, ...]
    tokens: int
    shared: int


class SlidingWindow:
    """Sends the prompt and the newest messages within the budget. A call and its results stay together: it is legal."""

    def __init__(self, prompt: Message | None, budget: int, count: Callable[[str], int]) -> None:
        self._count = count
        self._prompt = [] if prompt is None else [prompt]
        self._budget = budget
        self._exchanges: list[list[Message]] = []
        self._before: tuple[Message, ...] = ()

    def add(self, message: Message) -> None:
        """Take in a message; a result belongs to the message that called."""
        if message.role == "tool" and self._exchanges:
            self._exchanges[-1].append(message)
        else:
            self._exchanges.append([message])

    def render(self) -> Window:
        """What would be sent now."""
        room = self._budget - self._tokens(self._prompt)
        kept: list[Message] = []
        for exchange in reversed(self._exchanges):
            room -= self._tokens(exchange)
            if room < 0:
                break
            kept[:0] = exchange
        sent = (*self._prompt, *kept)
        same = next((n for n, (old, new) in enumerate(zip(self._before, sent, strict=False)) if old is not new), None)
        shared = sent[: min(len(self._before), len(sent)) if same is None else same]
        self._before = sent
        return Window(sent, self._tokens(sent), self._tokens(shared))

    def _tokens(self, messages: Iterable[Message]) -> int:
        """What messages cost, counted as views are."""
        return sum(message_tokens(message, self._count) for message in messages)
