"""What was sent over some model calls, what of it the cache had, and what that costs."""

from collections.abc import Collection
from statistics import median, quantiles

from quire.cli.replaying.facts import Reach
from quire.cli.replaying.rates import Rates


class Tally:
    """One of those that are compared: what it has sent so far."""

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self.calls = 0
        self.tokens = 0
        self.shared = 0
        self.broken = 0
        """Requests that OpenAI would refuse."""
        self.refused = 0
        """Requests that Anthropic would refuse."""
        self.over = 0
        """Requests above the budget."""
        self.asides = 0
        """Model calls of its own, for summaries."""
        self.aside_tokens = self.aside_shared = self.written = 0
        self.seconds: list[float] = []
        """What taking in the messages before a call and making the request took, call by call."""
        self.facts = Reach()

    def count(self, tokens: int, shared: int, refusing: Collection[str] = (), *, over: bool = False) -> None:
        """Count one model call."""
        self.calls += 1
        self.tokens += tokens
        self.shared += shared
        self.broken += "openai" in refusing
        self.refused += "anthropic" in refusing
        self.over += over

    def count_aside(self, tokens: int, shared: int, written: int) -> None:
        """Count a model call that a strategy makes for itself."""
        self.asides += 1
        self.aside_tokens += tokens
        self.aside_shared += shared
        self.written += written

    @property
    def read(self) -> int:
        """All input tokens, its own calls' too."""
        return self.tokens + self.aside_tokens

    @property
    def cached(self) -> int:
        """All input tokens that the prompt cache has, its own calls' too."""
        return self.shared + self.aside_shared

    @property
    def cost(self) -> float:
        """What all calls cost, in plain tokens: what the call before began with is read from the prompt cache."""
        return self._rates.cost(self.read - self.cached, self.cached, self.written)

    @property
    def money(self) -> float | None:
        """The cost in money, if prices are known."""
        return self._rates.money(self.cost)

    @property
    def share(self) -> float:
        """How much of what was sent came from the cache, from 0 to 1."""
        return self.cached / max(1, self.read)

    @property
    def mean(self) -> int:
        """The input tokens of a call."""
        return self.tokens // max(1, self.calls)

    def latency(self) -> tuple[float, float]:
        """The median and the 95th percentile of what a call took, in milliseconds."""
        if len(self.seconds) < 2:
            only = 1_000 * sum(self.seconds)
            return only, only
        return 1_000 * median(self.seconds), 1_000 * quantiles(self.seconds, n=20, method="inclusive")[-1]
