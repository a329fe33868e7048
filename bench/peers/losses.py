"""Find the losses of quire: every cell in which another peer is better."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.peers.registry import OURS, Entry
from bench.peers.results import Cell, Measured, case_name, slow_ratio

_QUOTED = re.compile("“(.*)”")
_OWN = f"{OURS},"
"""The prefix of names of quire's own variants, which do not count as peers."""


class Measure(NamedTuple):
    """A measured quantity: its title, whether less is better, how to read it from a cell, and why quire can lose it."""

    work: str
    title: str
    less: bool
    value: Callable[[Cell], float | None]
    reason: str


class Loss(NamedTuple):
    """A cell in which a peer is better than quire."""

    measure: Measure
    entry: Entry
    case: str
    theirs: float
    ours: float
    cell: Cell


def _field(name: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.get(name)


def _query(query: str, field: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell["queries"].get(query, {}).get(field)


_TURN = (
    "quire stores a page, a message, a journal entry for undo and the head of the context, each with a checksum, counts"
    " the tokens exactly, and draws a view; the others store one row or one file, or keep a list in memory"
)
MEASURES = (
    Measure("turn", "time of a turn", True, _field("ratio"), _TURN),
    Measure(
        "turn",
        "p99 of a turn",
        True,
        slow_ratio,
        "the slowest turns are folds: one commit moves about 50 pages below new chapters, so that nothing is lost and"
        " the cached beginning of the next views stays the same",
    ),
    Measure(
        "resume",
        "time of a resume",
        True,
        _field("milliseconds"),
        "quire opens its tables, and reads and checks the prompt, the folded lines and the pages of the view; the floor"
        " reads the newest rows of one table",
    ),
    Measure("resume", "memory of a resume", True, _field("megabytes"), "both take less than a megabyte"),
    Measure(
        "writers",
        "messages a second by two writers",
        False,
        _field("rate"),
        "for each session of twenty messages, quire opens the file, reads its schema and creates a context with four"
        " segments, which takes half as long as the messages",
    ),
    Measure(
        "writers", "messages refused", True, _field("errors"), "quire gave up waiting for the lock of another writer"
    ),
    Measure("writers", "messages lost", True, _field("lost"), "this would be a defect"),
    Measure(
        "search",
        "time to store and index",
        True,
        _field("seconds"),
        "quire parses every text as a message, counts its tokens, stores a page, a message and a journal, and splits"
        " Chinese text and compound names into terms; the tables of FTS5 have only the texts",
    ),
    Measure(
        "life",
        "billed tokens",
        True,
        _field("billed"),
        "the cheaper list is shorter; the peer does not store what it leaves out, or a provider refuses the list",
    ),
    Measure(
        "life",
        "cached share",
        False,
        _field("cached"),
        "a list that never drops anything is cached best, and does not fit the budget",
    ),
    Measure(
        "life",
        "tokens that the model sees in a call",
        False,
        _field("mean"),
        "a fold leaves 40 % of the budget, so that folds are rare and the cache stays valid",
    ),
    Measure("life", "lists that a provider refuses", True, _field("refused"), "this would be a defect"),
    Measure("life", "lists over the budget", True, _field("over"), "this would be a defect"),
    Measure("life", "manager's time a call", True, _field("milliseconds"), _TURN),
)
_RANKING = (
    "quire ranks by the rarity of words in the pages that the viewer may see, also finds other forms of words, reads"
    " the pages and cuts passages from them; the others return rows, and answer at once where they find nothing"
)
_PARTIAL = "behind the pages with all words, quire returns pages with some of them, marked with `complete=False`"


def losses(measured: Measured) -> list[Loss]:
    """Return all losses in the order of the measures."""
    return [loss for measure in (*MEASURES, *_queries(measured)) for loss in _of(measured, measure)]


def _queries(measured: Measured) -> Iterator[Measure]:
    for case in measured.cases("search"):
        for query in (measured.get("search", OURS, case) or {}).get("queries", {}):
            yield Measure("search", f"time to find “{query}”", True, _query(query, "milliseconds"), _RANKING)
            yield Measure("search", f"right hits for “{query}”", False, _query(query, "right"), "a hit was missed")
            yield Measure("search", f"hits that lack a word of “{query}”", True, _query(query, "others"), _PARTIAL)


def _of(measured: Measured, measure: Measure) -> Iterator[Loss]:
    for entry in measured.entries(measure.work):
        if entry.name == OURS or entry.name.startswith(_OWN):
            continue
        for case in measured.cases(measure.work):
            cell, mine = (measured.get(measure.work, name, case) for name in (entry.name, OURS))
            if cell is None or mine is None:
                continue
            theirs, ours = measure.value(cell), measure.value(mine)
            if theirs is not None and ours is not None and (theirs < ours if measure.less else theirs > ours):
                yield Loss(measure, entry, case, theirs, ours, cell)


def as_markdown(measured: Measured) -> str:
    """Return the losses as a Markdown table, one line per measure and peer, and the reasons of the measures."""
    found = losses(measured)
    grouped: dict[tuple[str, str], list[Loss]] = {}
    for loss in found:
        grouped.setdefault((loss.measure.title, loss.entry.name), []).append(loss)
    rows = [
        f"| {title} | {name} | {'; '.join(map(_format_ratio, group))} | {_beside(group)} |"
        for (title, name), group in grouped.items()
    ]
    reasons: dict[str, list[str]] = {}
    for loss in found:
        reasons.setdefault(loss.measure.reason, []).append(_QUOTED.sub("…", loss.measure.title))
    why = [f"- **{', '.join(dict.fromkeys(titles))}**: {reason}." for reason, titles in reasons.items()]
    head = ["| measure | better row | its value, × quire | remarks |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", "Why:", "", *why])


def _format_ratio(loss: Loss) -> str:
    ratio = f"{loss.theirs / loss.ours:.3g}×" if loss.ours else f"{loss.theirs:g} against 0"
    return ratio if loss.measure.work in ("resume", "writers", "search") else f"{ratio} ({case_name(loss.case)})"


def _beside(group: list[Loss]) -> str:
    """Return the remarks on these cells, from the measurements and the registry."""
    work, entry = group[0].measure.work, group[0].entry
    remarks = ["keeps nothing on disk"] if work in ("turn", "life") and not entry.durable else []
    if work == "search" and (query := _QUOTED.search(group[0].measure.title)):
        asked = group[0].cell["queries"][query[1]]
        remarks.append(f"finds {asked['right']} of {asked['wanted']}")
    if work == "life":
        calls = sum(loss.cell["calls"] for loss in group)
        for field, what in (("refused", "refused by a provider"), ("over", "over the budget")):
            if count := sum(loss.cell[field] for loss in group):
                remarks.append(f"{count:,} of {calls:,} lists {what}")
    return ", ".join(remarks)
