"""The cost of requests: token counts, the prompt cache, prices, and totals over model calls."""

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from operator import eq
from statistics import median, quantiles
from typing import NamedTuple

from quire import Message, Price, TokenCounter, VocabularyCounter
from quire.cli.replay.recordings import Reach
from quire.errors import InvalidValue
from quire.model.messages import count_message_tokens

OUTPUT = 5.0
"""The default price of an output token, in plain input tokens."""


class TokenCounts:
    """Counts the tokens of messages as views do, each message once."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._count = (counter or VocabularyCounter()).count
        self._known: dict[int, tuple[Message, int]] = {}

    def of(self, message: Message) -> int:
        """Return the tokens of one message."""
        entry = self._known.get(id(message))
        if entry is None:  # the entry keeps the message alive, so that no other message gets its id
            entry = self._known[id(message)] = (message, count_message_tokens(message, self._count))
        return entry[1]

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of messages together."""
        return sum(map(self.of, messages))


class PromptCache:
    """A provider's prompt cache for one conversation: a request reads the whole messages of its common prefix.

    The first message that differs from the last request ends the prefix.
    """

    def __init__(self, counts: TokenCounts) -> None:
        self._counts = counts
        self._last: Sequence[Message] = ()

    def read(self, request: Sequence[Message]) -> int:
        """Return the tokens that a request shares with the start of the last request."""
        pairs = zip(self._last, request, strict=False)
        return self._counts.total(new for _, new in takewhile(lambda pair: pair[0] is pair[1] or eq(*pair), pairs))

    def send(self, request: Sequence[Message]) -> int:
        """Return the shared tokens, and make this the last request."""
        shared = self.read(request)
        self._last = request
        return shared


class Rates(NamedTuple):
    """Prices relative to a plain input token, and the price of a million plain input tokens if it is known."""

    price: Price = Price()
    output: float = OUTPUT
    million: float | None = None

    def cost(self, plain: int, cached: int, written: int = 0) -> float:
        """Return the cost of tokens, in plain input tokens."""
        return self.price.plain * plain + self.price.read * cached + self.output * written


def parse_rates(text: str | None) -> Rates:
    """Return the rates of a `--price`. Raises `InvalidValue`."""
    if text is None:
        return Rates()
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        given = []
    plain, *others = given or [0.0]
    if not 0 < plain < 1e6 or len(others) > 2 or not all(0 <= other < 1e6 for other in others):
        fact = f"is {text!r}; the price of a million tokens is needed: a number, or INPUT,CACHED,OUTPUT as in 3,0.3,15."
        raise InvalidValue(fact, argument="price")
    read = others[0] / plain if others else Price().read
    output = others[1] / plain if len(others) == 2 else OUTPUT
    return Rates(Price(read=read), output, plain)


class CallTotals:
    """Totals over the model calls of one strategy."""

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self.calls = 0
        self.tokens = 0
        self.shared = 0
        self.openai_refusals = 0
        self.anthropic_refusals = 0
        self.over = 0
        """Requests above the budget."""
        self.summary_calls = self.summary_tokens = self.summary_shared = self.written = 0
        """Model calls that the strategy makes for summaries; `written` are output tokens."""
        self.seconds: list[float] = []
        """For each call, the time to add its messages and to build the request."""
        self.facts = Reach()

    def count(self, tokens: int, shared: int, refusing: Collection[str] = (), *, over: bool = False) -> None:
        """Count one model call."""
        self.calls += 1
        self.tokens += tokens
        self.shared += shared
        self.openai_refusals += "openai" in refusing
        self.anthropic_refusals += "anthropic" in refusing
        self.over += over

    def count_summary(self, tokens: int, shared: int, written: int) -> None:
        """Count one model call for a summary."""
        self.summary_calls += 1
        self.summary_tokens += tokens
        self.summary_shared += shared
        self.written += written

    @property
    def input_tokens(self) -> int:
        """All input tokens, with those of summary calls."""
        return self.tokens + self.summary_tokens

    @property
    def cached(self) -> int:
        """All input tokens from the prompt cache, with those of summary calls."""
        return self.shared + self.summary_shared

    @property
    def cost(self) -> float:
        """The cost of all calls, in plain input tokens."""
        return self._rates.cost(self.input_tokens - self.cached, self.cached, self.written)

    @property
    def money(self) -> float | None:
        """The cost in money, if a price is known."""
        million = self._rates.million
        return None if million is None else self.cost * million / 1e6

    @property
    def share(self) -> float:
        """The share of the input that comes from the cache, from 0 to 1."""
        return self.cached / max(1, self.input_tokens)

    @property
    def mean(self) -> int:
        """The mean input tokens of a call."""
        return self.tokens // max(1, self.calls)

    def latency(self) -> tuple[float, float]:
        """Return the median and the 95th percentile of the time of a call, in milliseconds."""
        if len(self.seconds) < 2:
            only = 1_000 * sum(self.seconds)
            return only, only
        return 1_000 * median(self.seconds), 1_000 * quantiles(self.seconds, n=20, method="inclusive")[-1]
