"""Format the comparison as tables: times are ratios to the raw floor of the same run or to quire."""

from collections.abc import Callable, Iterator, Sequence

from bench.peers.accounting import REFUSED
from bench.peers.corpora import CORPORA
from bench.peers.registry import FLOOR, OURS, Entry
from bench.peers.results import Cell, Measured, case_name, slow_ratio

_WORDS = "bare FTS5, words"
NONE = "–"


def turn(measured: Measured) -> str:
    """Return the table of one turn, for conversations of several lengths."""
    cases = measured.cases("turn")

    def row(entry: Entry) -> list[str]:
        return [_turn(measured, entry, case) for case in cases]

    return _table(measured, "turn", ["× raw floor, median", *map(case_name, cases)], row)


def _turn(measured: Measured, entry: Entry, case: str) -> str:
    cell = measured.get("turn", entry.name, case)
    if cell is None:
        return measured.error("turn", entry.name, case) or NONE
    return multiple(cell["ratio"]) + (r"\*" if cell["sampled"] else "")


def slow_turn(measured: Measured) -> str:
    """Return the table of the 99th percentile of turns, for conversations in which enough turns were measured."""
    cases = [case for case in measured.cases("turn") if _slow(measured, OURS, case) != NONE]

    def row(entry: Entry) -> list[str]:
        return [_slow(measured, entry.name, case) for case in cases]

    return _table(measured, "turn", ["p99, × the median of the raw floor", *map(case_name, cases)], row)


def _slow(measured: Measured, name: str, case: str) -> str:
    cell = measured.get("turn", name, case)
    ratio = None if cell is None else slow_ratio(cell)
    return NONE if ratio is None else multiple(ratio)


def resume(measured: Measured) -> str:
    """Return the table of resuming in a new process."""
    (case,) = measured.cases("resume")

    def row(entry: Entry) -> list[str]:
        cell = measured.get("resume", entry.name, case)
        if not cell:
            return [NONE] * 3
        floor, ours = (against(measured, "resume", name, case, cell, "milliseconds") for name in (FLOOR, OURS))
        return [floor, ours, f"{cell['megabytes']:.2f} MB"]

    return _table(measured, "resume", ["", "× raw floor", "× quire", "memory it took"], row)


def writers(measured: Measured) -> str:
    """Return the table of two processes on one store."""
    (case,) = measured.cases("writers")

    def row(entry: Entry) -> list[str]:
        cell = measured.get("writers", entry.name, case)
        if not cell:
            return [NONE] * 4
        floor = measured.get("writers", FLOOR, case)
        slower = multiple(floor["rate"] / cell["rate"]) if floor else NONE
        return [slower, f"{cell['sent']:,}", f"{cell['errors']:,}", str(cell.get("lost", NONE))]

    head = ["", "time a message, × raw floor", "messages sent", "refused", "acknowledged, then lost"]
    return _table(measured, "writers", head, row)


def search(measured: Measured) -> str:
    """Return the table of six queries compared with bare FTS5; brackets show the right hits, at most ten."""
    (case,) = measured.cases("search")
    floor = measured.get("search", _WORDS, case) or {}
    queries = list((measured.get("search", OURS, case) or {})["queries"])

    def row(entry: Entry) -> list[str]:
        cell = measured.get("search", entry.name, case)
        if not cell or not floor:
            return [NONE] * (1 + len(queries))
        return [multiple(cell["seconds"] / floor["seconds"]), *(_found(cell, floor, query) for query in queries)]

    return _table(measured, "search", ["× bare FTS5, words", "store and index", *queries], row)


def _found(cell: Cell, floor: Cell, query: str) -> str:
    asked = cell["queries"][query]
    others = f", {asked['others']} others" if asked["others"] else ""
    times = multiple(asked["milliseconds"] / floor["queries"][query]["milliseconds"])
    return f"{times} ({asked['right']} of {asked['wanted']}{others})"


def life(measured: Measured) -> str:
    """Return one table per corpus and budget."""
    parts = []
    for corpus, about in CORPORA.items():
        cases = [case for case in measured.cases("life") if case.startswith(f"{corpus}/")]
        tables = [f"**{case_name(case).replace(', ', ' at ')}**\n\n{_life(measured, case)}" for case in cases]
        if tables:
            parts += [f"#### {corpus.capitalize()}\n\n{about[0].upper()}{about[1:]}.", *tables]
    return "\n\n".join(parts)


def _life(measured: Measured, case: str) -> str:
    def row(entry: Entry) -> list[str]:
        cell = measured.get("life", entry.name, case)
        if not cell:
            return [NONE] * 7
        return [
            against(measured, "life", OURS, case, cell, "billed"),
            against(measured, "life", OURS, case, cell, "tokens"),
            f"{cell['mean']:,.0f}",
            f"{cell['cached']:.1%}",
            _wrong(cell),
            f"{cell['over']:,}",
            against(measured, "life", FLOOR, case, cell, "milliseconds"),
        ]

    calls = next(
        cell["calls"] for entry in measured.entries("life") if (cell := measured.get("life", entry.name, case))
    )
    head = [
        f"{calls:,} calls",
        "billed, × quire",
        "sent, × quire",
        "mean list",
        "cached",
        "lists that are refused or lack something",
        "lists over the budget",
        "manager's time a call, × raw floor",
    ]
    return _table(measured, "life", head, row, case)


def _wrong(cell: Cell) -> str:
    """Return the number of lists that a provider refuses, and the kinds of faults."""
    kinds = sorted(cell["faults"].items(), key=lambda kind: (kind[0] not in REFUSED, -kind[1]))
    told = "; ".join(f"{kind} {count:,}" for kind, count in kinds)
    return f"{cell['refused']:,}" + (f" ({told})" if told else "")


def against(measured: Measured, work: str, name: str, case: str, cell: Cell, field: str) -> str:
    """Return a cell's value as a multiple of another peer's."""
    base = measured.get(work, name, case)
    return multiple(cell[field] / base[field]) if base and base[field] else NONE


def multiple(ratio: float) -> str:
    """Format a ratio with two significant digits."""
    if ratio >= 100:
        return f"{float(f'{ratio:.2g}'):,.0f}×"
    return f"{ratio:.2g}×" if ratio < 10 else f"{ratio:.0f}×"


def _table(
    measured: Measured, work: str, head: Sequence[str], row: Callable[[Entry], list[str]], case: str = ""
) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in _rows(measured, work, row, case)]
    return "\n".join(lines)


def _rows(measured: Measured, work: str, row: Callable[[Entry], list[str]], case: str) -> Iterator[list[str]]:
    for entry in measured.entries(work):
        name = f"**{entry.name}**" if entry.name == OURS else entry.name
        told = row(entry)
        reasons = {measured.error(work, entry.name, case) for case in ([case] if case else measured.cases(work))} - {
            None
        }
        is_missing = not any(measured.get(work, entry.name, one) for one in measured.cases(work))
        if reasons and set(told) == {NONE} and (is_missing or case):
            told[0] = f"not measured: {reasons.pop()}"
        memory = " (in memory)" if work in ("turn", "life") and not entry.durable else ""
        yield [name + memory, *told]
