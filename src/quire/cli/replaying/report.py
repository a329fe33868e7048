"""What a life cost, for people in tables and for programs as values."""

from collections.abc import Iterator, Sequence

from quire.cli.replaying.facts import Reach
from quire.cli.replaying.life import MOST_FACTS, Life, Lived
from quire.cli.replaying.rates import Rates
from quire.cli.replaying.recorded import Recording
from quire.cli.replaying.tally import Tally
from quire.cli.values import Values
from quire.cli.width import width
from quire.cli.words import counted

HEAD = ("strategy", "input", "a call", "cached", "cost", "ms", "p95", "illegal", "over", "facts")
_DISPENSABLE = ("p95", "a call", "ms")
"""What is left out of a table that is too wide, one after the other."""
_GAP = 2
_MONEY = 5
"""Where the column of money stands."""


def head(rates: Rates) -> list[str]:
    """The heads of the columns."""
    return list(_with_money(HEAD, "money", rates.million))


def rows(lived: Sequence[Lived]) -> Iterator[list[str]]:
    """The rows of a table, a strategy each."""
    for one in lived:
        tally = one.tally
        middle, slow = tally.latency()
        cells = (
            one.kind.name,
            f"{tally.read:,}",
            f"{tally.mean:,}",
            f"{100 * tally.share:.0f} %",
            f"{tally.cost:,.0f}",
            f"{middle:.2f}",
            f"{slow:.2f}",
            f"{tally.broken:,}/{tally.refused:,}",
            f"{tally.over:,}",
            _facts(tally.facts),
        )
        yield list(_with_money(cells, f"{tally.money or 0:,.2f}", tally.money))


def fitted(heads: Sequence[str], tables: Sequence[Sequence[Sequence[str]]], columns: int) -> list[int]:
    """The places of the columns that tables under these heads have room for, the same for all."""
    lines = [heads, *(line for table in tables for line in table)]
    widths = [max(width(line[place]) for line in lines) for place in range(len(heads))]
    places = list(range(len(heads)))
    for name in _DISPENSABLE:
        if sum(widths[place] + _GAP for place in places) - _GAP > columns:
            places.remove(heads.index(name))
    return places


def title(recording: Recording) -> str:
    """What was replayed."""
    silent = f" ({recording.silent:,} more without any)" if recording.silent else ""
    return (
        f"{counted(recording.messages, 'message')} in {counted(len(recording.conversations), 'conversation')},"
        f" {counted(recording.calls, 'model call')}{silent}"
    )


def legend(rates: Rates, life: Life) -> Iterator[str]:
    """What the columns say, in a few lines."""
    yield (
        f"cost: in plain input tokens; one from the prompt cache costs {rates.price.read:.3g}, one that a summariser"
        f" writes {rates.output:.3g}"
    )
    yield "ms, p95: what taking messages in and making a request up took; illegal: what OpenAI/Anthropic would refuse"
    if life.facts:
        yield (
            "facts: ids, numbers, dates that the last request still holds → or a search finds, which quire alone has"
            f" here; of {counted(life.facts, 'fact')} sampled, at most {MOST_FACTS} a conversation"
        )
    if has_stand_ins(life):
        yield "a summary is a stand-in of 400 tokens: whatever facts a model would keep in it are not counted"


def has_stand_ins(life: Life) -> bool:
    """Whether any strategy wrote a summary."""
    return any(one.tally.asides for one in life.lived)


def values_of(lived: Lived) -> Values:
    """A strategy at a budget, for programs."""
    tally = lived.tally
    middle, slow = tally.latency()
    return {
        "budget": lived.budget,
        "strategy": lived.kind.name,
        "calls": tally.calls,
        "tokens": tally.tokens,
        "cached": tally.shared,
        "share": tally.share,
        "cost": tally.cost,
        "money": tally.money,
        "latency_ms": {"median": middle, "p95": slow},
        "illegal": {"openai": tally.broken, "anthropic": tally.refused},
        "over_budget": tally.over,
        "facts": {"shown": tally.facts.shown, "found": tally.facts.found, "total": tally.facts.total},
        "summaries": {
            "calls": tally.asides,
            "tokens": tally.aside_tokens,
            "cached": tally.aside_shared,
            "written": tally.written,
        },
    }


def sums_of(tally: Tally) -> Values:
    """What one of two sent over the same calls, for programs."""
    return {
        "calls": tally.calls,
        "tokens": tally.tokens,
        "cached": tally.shared,
        "cost": tally.cost,
        "illegal": tally.broken,
    }


def _facts(facts: Reach) -> str:
    if not facts.total:
        return "-"
    shown = f"{100 * facts.shown / facts.total:.0f}"
    return f"{shown} → {100 * (facts.shown + facts.found) / facts.total:.0f} %" if facts.found else f"{shown} %"


def _with_money(cells: Sequence[str], money: str, known: float | None) -> Iterator[str]:
    yield from cells[:_MONEY]
    if known is not None:
        yield money
    yield from cells[_MONEY:]
