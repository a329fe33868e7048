"""Windows: all messages, the newest that fit, the last so many."""

from collections.abc import Sequence

from quire import Message
from quire.cli.replaying.strategies.base import Listed, Setting, grouped


class Unmanaged(Listed):
    """Sends everything, whatever the budget: a provider refuses it where it is more than the model's window."""


class Newest(Listed):
    """The prompt and the newest messages that fit exactly. A call and its results stay together."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._groups: list[list[Message]] = []

    def add(self, message: Message) -> None:
        """Take in a message; a result belongs to the message that called."""
        if message.role == "tool" and self._groups:
            self._groups[-1].append(message)
        else:
            self._groups.append([message])

    def render(self) -> Sequence[Message]:
        """The prompt and as many groups from the end as fit."""
        room, first = self._setting.room, len(self._groups)
        for group in reversed(self._groups):
            room -= self._counted.total(group)
            if room < 0:
                break
            first -= 1
        return (*self._prompt, *(message for group in self._groups[first:] for message in group))


class Trimmed(Listed):
    """The newest messages that fit, from the first user message among them on.

    Where the last turn alone does not fit, nothing but the prompt is left.
    """

    def render(self) -> Sequence[Message]:
        """The prompt and what is kept."""
        room, first = self._setting.room, len(self._messages)
        while first and room >= self._counted.of(self._messages[first - 1]):
            first -= 1
            room -= self._counted.of(self._messages[first])
        while first < len(self._messages) and self._messages[first].role != "user":
            first += 1
        return (*self._prompt, *self._messages[first:])


class LastN(Listed):
    """The last N messages at every call, wherever that cuts."""

    def render(self) -> Sequence[Message]:
        """The prompt and the slice."""
        return (*self._prompt, *self._messages[-self._setting.window :])


class SessionLimit(Listed):
    """The last N messages as a turn begins, without calls or results left alone; what the turn adds comes on top."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._run: list[Message] = []

    def add(self, message: Message) -> None:
        """Take in a message; one of the user's begins a turn."""
        if message.role == "user":
            self._run = _paired(self._messages[-self._setting.window :])
        self._run.append(message)
        super().add(message)

    def render(self) -> Sequence[Message]:
        """The prompt, what was left as the turn began, and the turn."""
        return (*self._prompt, *self._run)


class Sliding(Listed):
    """At the end of a turn the oldest go until N are left, up to a user message; within a turn nothing goes.

    Without a user message among the last N it is cut at a call that has its result.
    """

    def add(self, message: Message) -> None:
        """Take in a message; an answer without calls ends a turn."""
        super().add(message)
        ends = message.role == "assistant" and not message.tool_calls
        if ends and len(self._messages) > self._setting.window:
            del self._messages[: self._cut(len(self._messages) - self._setting.window)]

    def _cut(self, start: int) -> int:
        later = range(start, len(self._messages))
        asked = next((place for place in later if self._messages[place].role == "user"), None)
        called = next(
            (
                place
                for place in later[:-1]
                if self._messages[place + 1].role == "tool" and self._messages[place].tool_calls
            ),
            0,
        )
        return called if asked is None else asked


def _paired(messages: Sequence[Message]) -> list[Message]:
    """The messages without results whose call is not there, and without calls that have no result."""
    kept: list[Message] = []
    for group in grouped(messages):
        first, *results = group
        wanted = {call.id for call in first.tool_calls}
        answered = {result.tool_call_id for result in results}
        if first.role != "tool" and wanted <= answered:
            kept += [first, *(result for result in results if result.tool_call_id in wanted)]
    return kept
