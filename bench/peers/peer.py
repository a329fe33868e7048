"""The interface of a peer: it takes messages and returns a list for the model."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from bench.traces import Values, cost


@dataclass(frozen=True)
class Setting:
    """The store of a peer, its session, and the budget of its list."""

    folder: Path
    session: str
    budget: int
    prompt: str
    mean: float
    """Average tokens of a message of this workload; windows that count messages are sized by it."""

    @property
    def system(self) -> Values:
        """The system prompt as a message."""
        return {"role": "system", "content": self.prompt}

    @property
    def room(self) -> int:
        """Tokens for the history. Peers without a system prompt get it in front of their list."""
        return self.budget - cost(self.system)

    @property
    def window(self) -> int:
        """The number of messages that fit, on average."""
        return max(4, int(self.room / self.mean))


class Peer(ABC):
    """One peer on one session. Opening, `append` and `render` are timed; the other methods are not."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def native(self, message: Values) -> Any:
        """Convert an OpenAI chat message to the peer's own type."""
        return message

    @abstractmethod
    def append(self, message: Any) -> None:
        """Store one more message; it is durable on return if the peer has a store."""

    @abstractmethod
    def render(self) -> Any:
        """Return the list for the model, in the peer's own type."""

    def chat(self, rendered: Any) -> list[Values]:
        """Convert that list to OpenAI chat messages, with the system prompt first."""
        return list(rendered)

    def fill(self, messages: Sequence[Any]) -> None:
        """Store many messages in the fastest way."""
        for message in messages:
            self.append(message)

    def append_shared(self, message: Any) -> None:
        """Store one more message while other processes write the same session."""
        self.append(message)

    def switch(self, session: str) -> Self:
        """Return the same store with another session."""
        self.close()
        return type(self)(replace(self.setting, session=session))

    def records(self, message: Any) -> int:
        """The number of store records per message."""
        return 1

    def stored(self) -> int:
        """Return the number of records of this session in the store."""
        raise NotImplementedError

    def spent(self) -> int:
        """Return the tokens of the peer's own model calls so far, such as summaries."""
        return 0

    def close(self) -> None:  # noqa: B027 - most peers hold nothing open
        """Close files."""


class AwaitedPeer(Peer):
    """A peer with coroutine calls, which run one after the other on its own event loop."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._loop = asyncio.new_event_loop()

    def wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(call)


class Searcher(Protocol):
    """A peer's search over texts."""

    def __init__(self, folder: Path) -> None: ...

    def take(self, texts: Sequence[str]) -> None:
        """Store the texts, ready for search."""

    def find(self, query: str) -> list[str]:
        """Return at most ten texts."""


def call_of(name: str, identity: str, arguments: str) -> Values:
    """A tool call of an OpenAI chat message."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
