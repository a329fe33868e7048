"""The rule of the prompt cache, the same for everybody: what a request begins with that the last one began with too."""

from collections.abc import Sequence
from operator import eq

from quire import Message
from quire.cli.replaying.counting import Counted


class Prefix:
    """Follows the requests of one conversation. Whole messages count, and one that differs ends what is shared."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._before: Sequence[Message] = ()

    def shared(self, sent: Sequence[Message]) -> int:
        """The tokens that messages begin with and the last request began with too."""
        same = 0
        for old, new in zip(self._before, sent, strict=False):
            if old is not new and not eq(old, new):
                break
            same += 1
        return self._counted.total(sent[:same])

    def follow(self, sent: Sequence[Message]) -> int:
        """The same, and from now on these messages are the last request."""
        shared = self.shared(sent)
        self._before = sent
        return shared
