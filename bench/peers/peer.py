"""What a peer is to the benchmark: something that takes messages in and gives a list for the model."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from bench.traces import Values, cost


@dataclass(frozen=True)
class Setting:
    """Where a peer keeps its store, which session it works on, and what its list may cost."""

    folder: Path
    session: str
    budget: int
    prompt: str
    mean: float
    """Tokens of a message of this workload, on average: what the user of a window that counts messages chooses by."""

    @property
    def system(self) -> Values:
        """The system prompt as a message."""
        return {"role": "system", "content": self.prompt}

    @property
    def room(self) -> int:
        """Tokens for the history: peers that keep no system prompt get it set before their list."""
        return self.budget - cost(self.system)

    @property
    def window(self) -> int:
        """How many messages fit, on average."""
        return max(4, int(self.room / self.mean))


class Peer(ABC):
    """One peer on one session. Opening it, `append` and `render` are timed; the rest is not."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def native(self, message: Values) -> Any:
        """An OpenAI chat message in the peer's own type."""
        return message

    @abstractmethod
    def append(self, message: Any) -> None:
        """Keep one more message; durable when it returns, if the peer has a store."""

    @abstractmethod
    def render(self) -> Any:
        """The list for the model, in the peer's own type."""

    def chat(self, rendered: Any) -> list[Values]:
        """That list as OpenAI chat messages, the system prompt first."""
        return list(rendered)

    def fill(self, messages: Sequence[Any]) -> None:
        """Keep many messages in the quickest way there is."""
        for message in messages:
            self.append(message)

    def switch(self, session: str) -> Self:
        """The same store, another session."""
        self.close()
        return type(self)(replace(self.setting, session=session))

    def records(self, message: Any) -> int:
        """How many records of the store one message is."""
        return 1

    def stored(self) -> int:
        """How many records of this session the store has."""
        raise NotImplementedError

    def spent(self) -> int:
        """Tokens of calls to a model that the peer made for itself, so far: summaries."""
        return 0

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of files."""


class AwaitedPeer(Peer):
    """A peer whose calls are coroutines: they run one after the other on a loop of its own."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._loop = asyncio.new_event_loop()

    def wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(call)


class Searcher(Protocol):
    """A peer's search over texts."""

    def __init__(self, folder: Path) -> None: ...

    def take(self, texts: Sequence[str]) -> None:
        """Store the texts, ready to be searched."""

    def find(self, query: str) -> list[str]:
        """At most ten texts."""


def call_of(name: str, identity: str, arguments: str) -> Values:
    """A tool call of an OpenAI chat message."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
