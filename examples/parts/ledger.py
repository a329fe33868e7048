"""The cost of an agent's run, call by call, compared with sending everything and with a sliding window."""

import statistics
from typing import Any

import quire
from quire.model.messages import count_message_tokens

PROVIDERS = ("openai", "responses", "anthropic")
CACHED = quire.Price().read


class Side:
    """One strategy: the tokens that it sent, the tokens that the provider's cache had, and the cost."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.calls = self.tokens = self.cached = self.largest = self.above = 0

    def send(self, tokens: int, cached: int) -> None:
        """Count one request."""
        self.calls += 1
        self.tokens += tokens
        self.cached += cached
        self.largest = max(self.largest, tokens)
        self.above += tokens > self.budget

    @property
    def cost(self) -> float:
        """Return the cost in plain tokens; cached tokens are cheaper."""
        return self.tokens - self.cached + CACHED * self.cached

    def figures(self) -> list[int]:
        """Return all counts as plain values."""
        return [self.calls, self.tokens, self.cached, self.above, self.largest]

    def add(self, figures: list[int]) -> None:
        """Add the counts of another side."""
        self.calls += figures[0]
        self.tokens += figures[1]
        self.cached += figures[2]
        self.above += figures[3]
        self.largest = max(self.largest, figures[4])

    def rows(self) -> list[str]:
        """Return the cells of the printed row."""
        share = 100 * self.cached / max(1, self.tokens)
        counts = [f"{count:,}" for count in (self.calls, self.tokens, self.largest, self.above)]
        return [*counts, f"{share:.0f} %", f"{self.cost:,.0f}"]


class Ledger:
    """Follows one context: call `sent` with every view for the model."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.quire, self.sliding, self.everything = Side(budget), Side(budget), Side(budget)
        self.broken: list[str] = []
        self.folds = 0
        self._count = quire.VocabularyCounter().count
        self._exchanges: list[tuple[int, int]] = []  # the index of its first message, its tokens
        self._seen = self._total = self._prompt = self._start = self._window = self._before = 0

    def sent(self, ctx: quire.Context, view: quire.View, *, reserve: int = 0) -> None:
        """Count one call to the model, and check the request against the rules of every provider.

        Tokens that are reserved (for schemas and the reply) are subtracted from the sliding window too.
        """
        forms = (view.openai(), view.responses(), view.anthropic()["messages"])
        for provider, messages in zip(PROVIDERS, forms, strict=True):
            self.broken += [broken.text for broken in quire.check_legal(messages, provider)]
        self.folds += view.fold is not None
        self.quire.send(view.tokens, view.shared_prefix)
        self._take_in(ctx)
        self._send_everything()
        self._slide(self.budget - reserve)

    def window_reaches(self, message: int) -> bool:
        """Return whether the last sliding window still had this message."""
        return self._start < len(self._exchanges) and message >= self._exchanges[self._start][0]

    def figures(self) -> dict[str, Any]:
        """Return all counts as plain values, which another process can pass on."""
        sides = [side.figures() for side in (self.quire, self.sliding, self.everything)]
        return {"sides": sides, "broken": self.broken, "folds": self.folds}

    def add(self, figures: dict[str, Any]) -> None:
        """Add the counts of another ledger."""
        for side, counted in zip((self.quire, self.sliding, self.everything), figures["sides"], strict=True):
            side.add(counted)
        self.broken += figures["broken"]
        self.folds += figures["folds"]

    def show(self) -> None:
        """Print the three strategies, and check the guarantees of every view."""
        names = ["model calls", "input tokens", "largest request", "above the budget", "from the prompt cache"]
        names.append(f"cost (cached × {CACHED})")
        columns = [side.rows() for side in (self.quire, self.sliding, self.everything)]
        print(f"\n{'':24}{'quire':>14}{'sliding window':>16}{'everything':>14}")
        for name, *cells in zip(names, *columns, strict=True):
            print(f"{name:24}{cells[0]:>14}{cells[1]:>16}{cells[2]:>14}")
        print("(the other two send only the prompt and the messages: no windows, no notes, no shared pages)")
        print(f"{self.folds} folds; {len(self.broken)} views broke a rule; the budget is {self.budget:,}")
        assert not self.broken, self.broken[0]
        assert self.quire.largest <= self.budget

    def _take_in(self, ctx: quire.Context) -> None:
        """Count the messages since the last call. A result belongs to the exchange with its call."""
        for message in ctx.messages(all=True)[self._seen :]:
            tokens = count_message_tokens(message, self._count)
            self._seen += 1
            self._total += tokens
            if message.role == "system":
                self._prompt += tokens
            elif message.role == "tool" and self._exchanges:
                first, before = self._exchanges[-1]
                self._exchanges[-1] = (first, before + tokens)
            else:
                self._exchanges.append((message.index, tokens))

    def _send_everything(self) -> None:
        self.everything.send(self._total, self._before)
        self._before = self._total

    def _slide(self, room: int) -> None:
        """Send the prompt and the newest exchanges that fit. The cache helps only if the first exchange is the same."""
        start, tokens = len(self._exchanges), self._prompt
        while start and tokens + self._exchanges[start - 1][1] <= room:
            start -= 1
            tokens += self._exchanges[start][1]
        moved = start != self._start
        self.sliding.send(tokens, min(tokens, self._prompt if moved else self._window))
        self._start, self._window = start, tokens


def milliseconds(seconds: list[float]) -> str:
    """Return the median of the first, the slowest and the last hundred turns, and the ratio of last to first."""
    few = max(1, min(100, len(seconds) // 3))
    medians = [1_000 * statistics.median(seconds[n : n + few]) for n in range(0, len(seconds) - few + 1, few)]
    last = 1_000 * statistics.median(seconds[-few:])
    told = f"first {few} {medians[0]:.1f} ms, slowest {max(medians):.1f} ms, last {last:.1f} ms"
    return f"{told}: {last / medians[0]:.2f} times the first"
