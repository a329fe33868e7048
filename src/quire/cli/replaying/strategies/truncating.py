"""Truncation with some distance: nothing happens up to a threshold, then much goes at once and stays away."""

from collections.abc import Sequence

from quire import Message
from quire.cli.replaying.strategies.base import Listed, Setting, grouped

_SLACK = 0.25
"""The part of the window that a reducer waits for."""
_COMPACT_TO = 0.5
_RATIO = 0.7
_FLUSH = 0.1


class Reducer(Listed):
    """Above N messages it reduces to three quarters of them, back to where no call is cut off, and to a user message.

    Messages and prompt are counted together; the prompt stays.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._wait = int(setting.window * _SLACK)
        self._target = setting.window - self._wait

    def render(self) -> Sequence[Message]:
        """Reduce if it is time to, and send what is left."""
        history = [*self._prompt, *self._messages]
        if len(history) > self._target + self._wait:
            self._messages = self._messages[self._cut(self._target - len(self._prompt)) :]
        return super().render()

    def _cut(self, target: int) -> int:
        """Where the kept part begins."""
        messages = self._messages
        place, earliest = len(messages) - target, len(messages) - target - self._wait
        while place > 0 and _is_of_a_call(messages[place]) and _is_of_a_call(messages[place - 1]):
            place -= 1
        users = (n for n in range(place, max(0, earliest) - 1, -1) if messages[n].role == "user")
        return next(users, place)


class Truncation(Listed):
    """Above the budget the oldest go, in whole groups of a call and its results, until half of the budget is left."""

    def render(self) -> Sequence[Message]:
        """Truncate if it is time to, and send what is left."""
        tokens = self._tokens()
        if tokens > self._setting.budget:
            groups, gone = grouped(self._messages), 0
            while gone < len(groups) and tokens > _COMPACT_TO * self._setting.budget:
                tokens -= self._counted.total(groups[gone])
                gone += 1
            self._messages = [message for group in groups[gone:] for message in group]
        return super().render()


class Flushed(Listed):
    """Above 70 % of the room, chunks of a tenth of it go, each up to the next user message; the last turn stays."""

    def add(self, message: Message) -> None:
        """Take in a message, and flush if it is too much."""
        super().add(message)
        limit = _RATIO * self._setting.room
        while self._counted.total(self._messages) > limit and len(self._messages) > 1:
            if not self._flush():
                break

    def _flush(self) -> bool:
        """Let a chunk go; whether there was one."""
        messages, gone, tokens = self._messages, 0, 0
        last = len(messages) - 1
        while tokens < int(_FLUSH * self._setting.room) and gone < last:
            tokens += self._counted.of(messages[gone])
            gone += 1
        while messages[gone].role != "user" and gone < last:
            gone += 1
        if gone == last and messages[gone].role != "user":  # only the end of the last turn would be left: it stays
            users = (place for place in range(last, -1, -1) if messages[place].role == "user")
            gone = next(users, len(messages))
        del messages[:gone]
        return gone > 0


def _is_of_a_call(message: Message) -> bool:
    return message.role == "tool" or bool(message.tool_calls)
