"""Measuring the demo: what was sent, what of it the cache had, and what can still be reached of what was said."""

from collections.abc import Sequence

from quire import Context, Message
from quire.cli.demo.talk import Question
from quire.cli.replaying.facts import Reach, reach
from quire.cli.replaying.rates import Rates
from quire.cli.replaying.refusals import refusing
from quire.cli.replaying.tally import Tally


class Side(Tally):
    """One of the two that are compared: what it has sent, and what it reaches, by a search too if it has a context."""

    def __init__(self, context: Context | None = None, rates: Rates | None = None) -> None:
        super().__init__(rates)
        self._context = context
        self.answers = Reach()

    def call(self, messages: Sequence[Message], tokens: int, shared: int, asked: Sequence[Question]) -> None:
        """Count one model call: what was sent, and whether what was just asked can be answered from it."""
        self.count(tokens, shared, refusing(messages))
        self.answers += self.reach([(question.find, question.answer) for question in asked], messages)

    def reach(self, sought: Sequence[tuple[str, str]], messages: Sequence[Message]) -> Reach:
        """How many of the sought (query, answer) stand in the messages, or on a page that the query finds."""
        return reach(sought, messages, self._context)
