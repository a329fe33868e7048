"""The cost of requests: token counts, the prompt cache, prices, prefill times, and totals over model calls."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import eq
from pathlib import Path
from statistics import median, quantiles
from typing import Literal, NamedTuple

import msgspec

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


class PrefillTimes:
    """Measured times to the first token, by cached and new tokens. Between two measurements the time is linear.

    Fewer new tokens than were measured take the least time. Beyond the last two measurements their line continues.
    """

    def __init__(self, rows: Iterable[tuple[int, int, float]]) -> None:
        lines: dict[int, list[tuple[int, float]]] = {}
        for cached, new, milliseconds in sorted(rows):
            lines.setdefault(cached, []).append((new, milliseconds))
        self._cached = list(lines)
        self._lines = [([new for new, _ in line], [time for _, time in line]) for line in lines.values()]

    def milliseconds(self, cached: int, new: int) -> float:
        """Return the time to the first token of a request."""
        return _interpolate(self._cached, [_interpolate(*line, new) for line in self._lines], cached)


def _interpolate(places: Sequence[int], values: Sequence[float], place: int) -> float:
    if len(places) == 1 or place <= places[0]:
        return values[0]
    end = min(bisect_right(places, place), len(places) - 1)
    step = (values[end] - values[end - 1]) / (places[end] - places[end - 1])
    return values[end - 1] + step * (place - places[end - 1])


class _Shape(msgspec.Struct):
    rows: list[tuple[int, int, float]]


class _PrefillFile(msgspec.Struct):
    shapes: dict[str, _Shape]
    unit: Literal["ms"] = "ms"
    device: str = ""


class Prefill(NamedTuple):
    """The prefill times of models on a device."""

    device: str = ""
    models: Mapping[str, PrefillTimes] = {}


def read_prefill(path: Path) -> Prefill:
    """Return the times in a file of `--prefill`. Raises `InvalidValue`."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_PrefillFile)
    except (OSError, msgspec.MsgspecError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        fact = f"is {str(path)!r}, which cannot be read: {reason}. A JSON file with prefill times is needed."
        raise InvalidValue(fact, argument="prefill") from None
    rows = [row for shape in found.shapes.values() for row in shape.rows]
    places = [{row[:2] for row in shape.rows} for shape in found.shapes.values()]
    if not all(places) or not rows or min(map(min, rows)) < 0 or sum(map(len, places)) < len(rows):
        fact = f"{str(path)!r} needs for each model different rows [cached tokens, new tokens, milliseconds] from 0."
        raise InvalidValue(fact, argument="prefill")
    return Prefill(found.device, {name: PrefillTimes(shape.rows) for name, shape in found.shapes.items()})


class CallTotals:
    """Totals over the model calls of one strategy."""

    def __init__(self, rates: Rates | None = None, prefill: Mapping[str, PrefillTimes] | None = None) -> None:
        self._rates = rates or Rates()
        self._prefill = prefill or {}
        self.first_token: dict[str, list[float]] = {model: [] for model in self._prefill}
        """For each model and call, the milliseconds to the first token: prefill of the request and its summaries."""
        self._waited = dict.fromkeys(self._prefill, 0.0)
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
        for model, times in self._prefill.items():
            self.first_token[model].append(self._waited[model] + times.milliseconds(shared, tokens - shared))
            self._waited[model] = 0.0

    def count_summary(self, tokens: int, shared: int, written: int) -> None:
        """Count one model call for a summary."""
        self.summary_calls += 1
        self.summary_tokens += tokens
        self.summary_shared += shared
        self.written += written
        for model, times in self._prefill.items():
            self._waited[model] += times.milliseconds(shared, tokens - shared)

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
        return middle_and_slow([1_000 * second for second in self.seconds])


def middle_and_slow(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile of times."""
    if len(times) < 2:
        return sum(times), sum(times)
    return median(times), quantiles(times, n=20, method="inclusive")[-1]
