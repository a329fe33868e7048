"""What was sent over some model calls, what of it the cache had, and what that costs."""

from collections.abc import Sequence

from quire import Message, Price, check_legal
from quire.providers import format_messages


class Tally:
    """One of the two that are compared: what it has sent so far."""

    def __init__(self, price: Price | None = None) -> None:
        self._price = price or Price()
        self.calls = 0
        self.tokens = 0
        self.shared = 0
        self.broken = 0
        """Requests that the provider would refuse."""

    def count(self, messages: Sequence[Message], tokens: int, shared: int) -> None:
        """Count one model call."""
        self.calls += 1
        self.tokens += tokens
        self.shared += shared
        self.broken += bool(check_legal(format_messages(messages, "openai"), "openai"))

    @property
    def cost(self) -> float:
        """What all calls cost, in plain tokens: what the call before began with is read from the prompt cache."""
        return self._price.read * self.shared + self._price.plain * (self.tokens - self.shared)

    @property
    def share(self) -> float:
        """How much of what was sent came from the cache, from 0 to 1."""
        return self.shared / max(1, self.tokens)
