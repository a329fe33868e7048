"""LangChain: `trim_messages` over a list in memory, with an exact and an approximate counter, and summaries."""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import convert_to_messages, convert_to_openai_messages, trim_messages
from langchain_core.messages.utils import count_tokens_approximately

from bench.peers.peer import Peer, Setting
from bench.traces import Values, count

SUMMARY_TOKENS = 300
"""The summary that the scripted model writes."""


def exact(messages: Iterable[Any]) -> int:
    """Return the tokens by the benchmark's own count; each text is counted once."""
    total = 0
    for message in messages:
        total += 4 + count(message.content if isinstance(message.content, str) else json.dumps(message.content))
        for call in getattr(message, "tool_calls", ()):
            total += 4 + count(call["name"]) + count(json.dumps(call["args"]))
    return total


class Trimmed(Peer):
    """`trim_messages` as its documentation advises for chats: the last messages, starting with a human message."""

    counter: ClassVar[Any] = staticmethod(exact)

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.messages = convert_to_messages([setting.system])

    def native(self, message: Values) -> Any:
        return convert_to_messages([message])[0]

    def append(self, message: Any) -> None:
        self.messages.append(message)

    def trim(self, messages: list[Any]) -> Any:
        """Return the newest of these messages that fit."""
        return trim_messages(
            messages,
            max_tokens=self.setting.budget,
            token_counter=self.counter,
            strategy="last",
            start_on="human",
            include_system=True,
        )

    def render(self) -> Any:
        return self.trim(self.messages)

    def chat(self, rendered: Any) -> list[Values]:
        return [dict(message) for message in convert_to_openai_messages(rendered)]


class Estimated(Trimmed):
    """The same with LangChain's own counter."""

    counter = staticmethod(count_tokens_approximately)


class Summarized(Trimmed):
    """`SummarizationMiddleware`: at 80 % of the room the oldest messages become a summary; 30 % stay unchanged.

    A scripted model writes the summary: the first words of its input. Its input and output count as spent tokens.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.messages = []
        self._system = convert_to_messages([setting.system])
        self._spent = 0
        self._middleware: Any = SummarizationMiddleware(
            FakeListChatModel(responses=[""]),
            trigger=("tokens", int(0.8 * setting.room)),
            keep=("tokens", int(0.3 * setting.room)),
            token_counter=exact,
            summarizer=self._summary,
        )

    def _summary(self, messages: list[Any]) -> str:
        words = " ".join(str(message.content) for message in messages).split()
        text = " ".join(words[: SUMMARY_TOKENS * 3 // 4])
        self._spent += exact(messages) + count(text)
        return text

    def render(self) -> Any:
        change = self._middleware.before_model({"messages": self.messages}, None)
        if change is not None:
            self.messages = change["messages"][1:]  # the first message replaces all others
        return [*self._system, *self.messages]

    def spent(self) -> int:
        return self._spent
