"""What a gateway recorded of the runs of real clients, read from its store."""

from pathlib import Path
from typing import NamedTuple

import quire


class Record(NamedTuple):
    """The messages of a conversation, and whatever `check` finds wrong."""

    messages: list[quire.Message]
    problems: list[str]

    @property
    def calls(self) -> list[str]:
        return [call.id for message in self.messages for call in message.tool_calls or ()]

    @property
    def results(self) -> list[str]:
        return [str(message.tool_call_id) for message in self.messages if message.role == "tool"]

    @property
    def answers(self) -> int:
        return sum(message.role == "assistant" for message in self.messages)

    def count(self, words: str) -> int:
        """Return the number of messages of the user with these words."""
        return sum(message.role == "user" and words in message.text for message in self.messages)


def read_record(store: Path) -> dict[str, Record]:
    """Return every recorded conversation by the end of its name. No gateway may be running."""
    found = {}
    with quire.Library(store) as library:
        for name in library.list(prefix="gateway/"):
            with library.open(name) as context:
                problems = [str(problem) for problem in context.check()]
                found[name.rpartition("/")[2]] = Record(list(context.messages()), problems)
    return found


def find_words(store: Path, words: list[str]) -> list[str]:
    """Return the words that no `find` brings back: no page that it returns contains them."""
    with quire.Library(store) as library:
        contexts = [library.open(name) for name in library.list(prefix="gateway/")]
        return [each for each in words if not any(_finds(context, each) for context in contexts)]


def _finds(context: quire.Context, words: str) -> bool:
    return any(words in context.pages.detail(hit.index) for hit in context.find(words))
