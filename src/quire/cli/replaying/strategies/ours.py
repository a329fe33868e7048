"""quire itself: a context in memory, which folds without a model."""

from collections.abc import Sequence

import quire
from quire import Message
from quire.cli.replaying.strategies.base import Aside, Setting


class Quire:
    """A context with the budget; what is sent is its view."""

    def __init__(self, setting: Setting) -> None:
        self.context = quire.open("memory:", budget=setting.budget)
        if setting.prompt is not None:
            self.context.add(setting.prompt)

    def add(self, message: Message) -> None:
        """Take in a message."""
        self.context.add(message)

    def render(self) -> Sequence[Message]:
        """The messages of the view. Raises as `Context.render` does where the budget is too small."""
        return self.context.render().messages

    def asides(self) -> Sequence[Aside]:
        """None: its lines are taken from the text, no model writes them."""
        return ()
