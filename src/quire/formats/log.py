"""The values that readers return: a log with its conversations, and the records that belong to none."""

from collections import Counter
from typing import NamedTuple

from quire.errors import InvalidValue


class LoggedConversation(NamedTuple):
    """The messages of one conversation in the form of the file, and its name, or "". `is_agent` is for a sub-agent."""

    name: str
    messages: list[object]
    is_agent: bool = False


class SkippedRecord(NamedTuple):
    """A record that is not a message of the conversation: its line, and what it is."""

    line: int
    what: str


class LogFile(NamedTuple):
    """The conversations of a file, and the records that belong to none."""

    source: str
    conversations: list[LoggedConversation]
    skipped: list[SkippedRecord]

    def select(self, number: int | None, *, others: str = "") -> LoggedConversation:
        """Return a conversation by its number, from 1, or the only session if `number` is None. Raises `InvalidValue`.

        `others` names the other accepted values for the error.
        """
        count = len(self.conversations)
        sessions = [conversation for conversation in self.conversations if not conversation.is_agent]
        if number is None and (len(sessions) == 1 or count == 1):
            return (sessions or self.conversations)[0]
        if number is None or not 1 <= number <= count:
            given = "" if number is None else f", not {number}"
            raise InvalidValue(
                f"{self.source!r} holds {count:,} conversations;"
                f" choose one with --conversation, 1 to {count:,}{others}{given}."
            )
        return self.conversations[number - 1]

    def count_skipped(self) -> dict[str, int]:
        """Return how many records of each kind were skipped."""
        return dict(Counter(record.what for record in self.skipped).most_common())
