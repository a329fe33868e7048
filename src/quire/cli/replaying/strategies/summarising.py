"""Summarising: a model reads what is to go and writes a summary, which is paid for too.

Offline nobody writes: a text of a fixed size stands where the summary would.
"""

from collections.abc import Sequence

from quire import Message
from quire.cli.replaying.strategies.base import Aside, Listed, Setting

SUMMARY = 400
"""The tokens of a summary."""
INSTRUCTIONS = 491
"""The tokens of what a summariser is told, as LangChain's own prompt has them."""
_TRIGGER, _KEPT = 0.85, 0.10
_COMPACTED = 0.75
_WORDS = "Here is a summary of the conversation to date, number"


class _Summarising(Listed):
    """Has a summary made where the oldest messages were."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._asides: list[Aside] = []
        self._made = 0

    def asides(self) -> Sequence[Aside]:
        """The summaries that were written since the last time."""
        told, self._asides = self._asides, []
        return told

    def _summarise(self, read: Sequence[Message], kept: Sequence[Message], *, follows: bool) -> None:
        self._made += 1
        self._asides.append(Aside(tuple(read), 0 if follows else INSTRUCTIONS, SUMMARY, follows))
        head = f"{_WORDS} {self._made}:"
        self._messages = [Message(role="user", content=head + " summary" * (SUMMARY - 14)), *kept]


class Summarised(_Summarising):
    """From 85 % of the budget on, a summariser reads all but the newest tenth, and its summary replaces that."""

    def render(self) -> Sequence[Message]:
        """Have a summary made if it is time to, and send what is left."""
        if self._tokens() >= _TRIGGER * self._setting.budget:
            place = self._cut(_KEPT * self._setting.budget)
            if place > 0:
                self._summarise(self._messages[:place], self._messages[place:], follows=False)
        return super().render()

    def _cut(self, most: float) -> int:
        """Where the kept end begins: it fits, is one message at least, and cuts no call from its results."""
        messages, place, tokens = self._messages, len(self._messages), 0
        while place and tokens + self._counted.of(messages[place - 1]) <= most:
            place -= 1
            tokens += self._counted.of(messages[place])
        place = min(place, len(messages) - 1)
        wanted = messages[place].tool_call_id if messages and messages[place].role == "tool" else None
        if wanted is None:
            return place
        callers = (n for n in range(place - 1, -1, -1) if any(call.id == wanted for call in messages[n].tool_calls))
        return next(callers, place)


class Compacted(_Summarising):
    """From 75 % of the budget on, the model reads the whole conversation, and its summary replaces it."""

    def render(self) -> Sequence[Message]:
        """Have a summary made if it is time to, and send what is left."""
        if len(self._messages) > 1 and self._tokens() >= _COMPACTED * self._setting.budget:
            self._summarise([*self._prompt, *self._messages], (), follows=True)
        return super().render()
