"""The groups of figures, and how much of each is measured."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.compare import timing
from bench.compare.figures import Row, plain
from bench.compare.sides import MeasureError, Worker
from bench.compare.talks import DIALOGUES
from bench.compare.timing import Sides, Timed
from bench.traces import Values

LONG = "pages"  # the group that only a long run has
_UNITS = dict.fromkeys(("on disk", "on disk after a search", "installed, quire", "installed, what it needs"), "bytes")
_UNITS |= dict.fromkeys(("cached share", "all evidence", "part of evidence"), "share")
_FIRST_TURN = "import quire; ctx = quire.open('memory:'); ctx.user('Hello.'); ctx.render().openai()"


class Run(NamedTuple):
    """A comparison that is under way: what it compares, how much, and what it could not measure, with the reason."""

    sides: Sides
    folder: Path
    quick: bool
    left_out: dict[str, str]
    samples: list[str]


def size(run: Run) -> Iterator[Row]:
    """Yield the size of the source and of an installation, and the time of an import."""
    yield from _once(run, "size", "size", {}, "")
    for name, code in (("import quire", "import quire"), ("import quire and a first turn", _FIRST_TURN)):
        plan = Timed("fresh", {"code": code}, {"fresh": name}, 15 if run.quick else 60, 1, 1)
        yield from _timed(run, "size", plan)


def turn(run: Run) -> Iterator[Row]:
    """Yield the figures of a durable turn, and of its folds."""
    for messages, budget, rounds, batch in ((100, 8_000, 12, 20), (10_000, 8_000, 12, 50), (10_000, 128_000, 12, 100)):
        at = f"{messages:,} at {budget // 1_000}k"
        names = {"turn": f"turn, {at}", "processor": f"turn, {at}: mean processor time"}
        names |= {"fold": f"fold, processor time, {at}"} if messages > 100 else {}
        yield from _timed(run, "turn", Timed("turn", {"messages": messages, "budget": budget}, names, rounds, batch))


def storage(run: Run) -> Iterator[Row]:
    """Yield the figures of single operations, and the bytes on disk."""
    many = 1_000 if run.quick else 10_000
    resumed = {"open": "open, 10,000 messages", "resume": "open and draw at 8k, 10,000 messages"}
    found = {"find": "find, 4,000 messages", "first": "first find after opening, 4,000 messages"}
    recalled = {"some": "recall=True at 8k, 4,000 messages", "all": "recall=1.0 at 8k, 4,000 messages"}
    for plan in (
        Timed("append", {"messages": 10_000}, {"append": "append, 10,000 messages"}),
        Timed("append", {"messages": 500}, {"append": "append, 500 messages, file:"}, where="file:{}"),
        Timed("resume", {"messages": 10_000}, resumed, batch=5),
        Timed("fork", {"messages": 4_000}, {"fork": "fork of 4,000 messages"}, batch=3),
        Timed("contexts", {"number": many}, {"open": f"open and draw one of {many:,} contexts"}, batch=5),
        Timed("find", {"messages": 4_000}, found, batch=5),
        Timed("recall", {"messages": 4_000}, recalled, batch=3),
    ):
        yield from _timed(run, "storage", plan)
    for kind in ("sqlite", "file"):
        options = {"kind": kind, "folder": str(run.folder), "messages": 500 if run.quick else 5_000}
        yield from _once(run, "storage", "disk", options, f"{kind}:, {options['messages']:,} turns: ")


def servers(run: Run) -> Iterator[Row]:
    """Yield the figures of PostgreSQL and S3."""
    rounds = 8 if run.quick else 30
    yield from _or_not(run, "PostgreSQL", lambda: timing.postgres("servers", run.sides, rounds))
    yield from _or_not(run, "S3", lambda: timing.s3("servers", run.sides))


def view(run: Run) -> Iterator[Row]:
    """Yield what views cost and keep: the same on every machine."""
    starts = [0, 50] if run.quick else [0, 20, 40, 60, 80]
    step = 20 if run.quick else 1
    run.samples.append(f"strict provider: {100 // step} of 100 conversations")
    for budget in (4_000, 8_000, 32_000):
        at, length = f"{budget // 1_000}k: ", max(400, budget // 20)
        run.samples.append(f"views at {at}{len(starts)} conversations of {length:,} messages")
        options = {"budget": budget, "starts": starts, "length": length}
        yield from _once(run, "view", "bill", options, at)
        yield from _once(run, "view", "strict", {"budget": budget, "step": step}, at)
        if budget == 8_000:
            yield from _once(run, "view", "facts", options, at)
            yield from _once(run, "view", "bill", {**options, "recall": True}, f"{at}recall=True: ")


def recall(run: Run) -> Iterator[Row]:
    """Yield the share of questions with all evidence in the view: the same on every machine."""
    first, step = (1, 5) if run.quick else (1_000, 1)
    run.samples.append(f"recall: {first} dialogue of each set, every {step}. question" if run.quick else "recall: all")
    for name in DIALOGUES:
        for budget in (1_000, 4_000, 8_000):
            for share in (True, 1.0):
                options = {"name": name, "budget": budget, "recall": share, "first": first, "step": step}
                yield from _once(run, "recall", "shown", options, f"{name}, {share}, {budget // 1_000}k: ")


def pages(run: Run) -> Iterator[Row]:
    """Yield the figures of a store with a million pages against one with a hundred."""
    for number in (100, 1_000_000):
        actions = {"append": "append", "read": "open and read one page", "hide": "hide a random page"}
        names = {key: f"{name}, {number:,} pages" for key, name in actions.items()}
        yield from _timed(run, "pages", Timed("pages", {"number": number}, names, 9, 10, 1))


GROUPS: Mapping[str, Callable[[Run], Iterator[Row]]] = {
    group.__name__: group for group in (size, turn, storage, servers, view, recall, pages)
}


def _timed(run: Run, group: str, plan: Timed) -> list[Row]:
    chosen = plan if run.quick or plan.processes == 1 else plan._replace(processes=8)
    name = f"{group}: {', '.join(plan.names.values())}"
    return _or_not(run, name, lambda: timing.measure(chosen, group, run.sides, run.folder))


def _once(run: Run, group: str, program: str, options: Values, label: str) -> list[Row]:
    """Return rows without a clock: both sides work at the same time. The same commit is measured once."""

    def rows() -> list[Row]:
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(side)) for side in {side.commit: side for side in run.sides}.values()]
            for worker in workers:
                worker.send(once=program, options=options)
            answers = [worker.answer() for worker in workers]
        old, new = answers[0], answers[-1]
        return [plain(group, label + name, _UNITS.get(name, ""), value, new[name]) for name, value in old.items()]

    return _or_not(run, f"{group}: {label}{program}", rows)


def _or_not(run: Run, name: str, rows: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows, or none with the reason."""
    print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
    try:
        return rows()
    except (MeasureError, ImportError, pytest.skip.Exception) as error:
        run.left_out[name] = " ".join(str(error).split())[:300]
        return []
