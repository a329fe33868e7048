"""The groups of figures, and how much of each is measured."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, NamedTuple

from bench.compare import timing
from bench.compare.figures import Row, plain
from bench.compare.sides import MeasureError, Worker
from bench.compare.talks import DIALOGUES
from bench.compare.timing import Sides, Timed

LONG = "pages"
"""The group that only a long run has."""
_UNITS = {"bytes": "bytes", "searched": "bytes", "cached": "share", "whole": "share", "part": "share"}
_VIEWS = {
    "cached": "cached share",
    "plain": "bill of a call without a price of writing",
    "marked": "bill of a call with a price of writing",
    "tokens": "tokens of a view",
    "verbatim": "tokens of whole messages in a view",
    "lines": "tokens of lines in a view",
    "folds": "folds",
    "over": "views over the budget",
    "illegal": "illegal views",
}
_WITH_RECALL = {"marked": "recall=True: bill of a call with a price of writing, 8k", "folds": "recall=True: folds, 8k"}
_FACTS = {
    "line": "facts of folded messages: in a line, 8k",
    "found": "facts of folded messages: find returns them, 8k",
    "lost": "facts of folded messages: neither, 8k",
}
_STRICT = {
    "calls": "strict provider: requests judged",
    "refused": "strict provider: requests refused",
    "over": "strict provider: requests over a limit",
}
_SHOWN = {"whole": "all evidence in view", "part": "share of evidence", "tokens": "tokens of a view"}


class Run(NamedTuple):
    """A comparison that is under way: what it compares, how much, and what it could not measure, with the reason."""

    sides: Sides
    folder: Path
    quick: bool
    left_out: dict[str, str]
    samples: list[str]


def size(run: Run) -> Iterator[Row]:
    """Yield the size of the source and of an installation, and the time of an import."""
    old, new = ([*(side.folder / "src").rglob("*.py")] for side in run.sides)
    one, other = (sum(len(file.read_bytes().splitlines()) for file in files) for files in (old, new))
    yield plain("size", "source, lines of Python", "", one, other)
    yield plain("size", "source, files of Python", "", len(old), len(new))
    yield from _or_not(run, "installed size", lambda: _installed(run))


def _installed(run: Run) -> Sequence[Row]:
    folders = [run.folder / "installed-old", run.folder / "installed-new"]
    for side, folder in zip(run.sides, folders, strict=True):
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", str(folder)]
        subprocess.run([*command, str(side.folder)], check=True, capture_output=True)
    own, all_of_it = ([_bytes(folder / part) for folder in folders] for part in ("quire", ""))
    return [
        plain("size", "installed, quire", "bytes", *own),
        plain("size", "installed, with what it needs", "bytes", *all_of_it),
        *timing.fresh("size", run.sides, folders, 10 if run.quick else 40),
    ]


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def turn(run: Run) -> Iterator[Row]:
    """Yield the figures of a durable turn, and of its folds."""
    for messages, budget, rounds, batch in ((100, 8_000, 20, 20), (10_000, 8_000, 30, 40), (10_000, 128_000, 30, 80)):
        at = f"{messages:,} messages at {budget // 1_000}k"
        names = {"turn": f"turn, {at}"} | ({"fold": f"turn that folds, {at}"} if messages > 100 else {})
        options = {"messages": messages, "budget": budget}
        plan = Timed("turn", options, names, rounds, batch, statistics=("median", "mean", "p99", "worst"), floor=budget)
        yield from _timed(run, "turn", plan)


def storage(run: Run) -> Iterator[Row]:
    """Yield the figures of single operations, and the bytes on disk."""
    many = 1_000 if run.quick else 10_000
    resumed = {"open": "open, 10,000 messages", "resume": "open and draw at 8k, 10,000 messages"}
    found = {"find": "find, 4,000 messages", "first": "open, then find, 4,000 messages"}
    recalled = {"some": "recall=True at 8k, 4,000 messages", "all": "recall=1.0 at 8k, 4,000 messages"}
    for plan in (
        Timed("append", {"messages": 10_000}, {"append": "append, 10,000 messages"}, 30),
        Timed("append", {"messages": 2_000}, {"append": "append, 2,000 messages, file:"}, where="file:{}"),
        Timed("resume", {"messages": 10_000}, resumed, batch=5),
        Timed("fork", {"messages": 4_000}, {"fork": "fork of 4,000 messages"}, batch=3),
        Timed("contexts", {"number": many}, {"open": f"open and draw one of {many:,} contexts"}, batch=5),
        Timed("find", {"messages": 4_000}, found, batch=5),
        Timed("recall", {"messages": 4_000}, recalled, batch=3),
    ):
        yield from _timed(run, "storage", plan)
    length = 500 if run.quick else 5_000
    for kind, where in (("sqlite", "store.db"), ("file", "store")):
        places = [{"where": f"{kind}:{run.folder}/{kind}-{place}-{where}"} for place in (0, 1)]
        name = f"on disk, {length:,} turns, {kind}:"
        names = {"bytes": name, "searched": f"{name}, with a search"}
        yield from _once(run, "storage", "disk", {"messages": length}, names, places)


def servers(run: Run) -> Iterator[Row]:
    """Yield the figures of PostgreSQL and S3."""
    rounds = 10 if run.quick else 30
    yield from _or_not(run, "PostgreSQL", lambda: timing.postgres("servers", run.sides, rounds))
    yield from _or_not(run, "S3", lambda: timing.s3("servers", run.sides))


def view(run: Run) -> Iterator[Row]:
    """Yield what views cost and keep: the same on every machine."""
    starts = [0, 50] if run.quick else [0, 20, 40, 60, 80]
    step = 20 if run.quick else 1
    run.samples.append(f"strict provider: {100 // step} of 100 conversations")
    for budget in (4_000, 8_000, 32_000):
        at, length = f", {budget // 1_000}k", max(400, budget // 20)
        run.samples.append(f"views{at}: {len(starts)} conversations of {length:,} messages")
        options = {"budget": budget, "starts": starts, "length": length}
        yield from _once(run, "view", "bill", options, {key: name + at for key, name in _VIEWS.items()})
        names = {key: name + at for key, name in _STRICT.items()}
        yield from _once(run, "view", "strict", {"budget": budget, "step": step}, names)
    options = {"budget": 8_000, "starts": starts, "length": 400}
    yield from _once(run, "view", "bill", {**options, "recall": True}, _WITH_RECALL)
    yield from _once(run, "view", "facts", options, _FACTS)


def recall(run: Run) -> Iterator[Row]:
    """Yield the share of questions with all evidence in the view: the same on every machine."""
    first, step = (1, 5) if run.quick else (1_000, 1)
    run.samples.append(f"recall: {first} dialogue of each set, every {step}. question" if run.quick else "recall: all")
    for name in DIALOGUES:
        for budget in (1_000, 4_000, 8_000):
            for share in (True, 1.0):
                what = f"{name}, recall={share}, {budget // 1_000}k: "
                options = {"name": name, "budget": budget, "recall": share, "first": first, "step": step}
                yield from _once(run, "recall", "shown", options, {key: what + each for key, each in _SHOWN.items()})


def pages(run: Run) -> Iterator[Row]:
    """Yield the figures of a store with a million pages against one with a hundred."""
    for number in (200, 1_000_000):
        actions = {"append": "append", "read": "open and read one page", "hide": "hide a random page"}
        names = {key: f"{name}, {number:,} pages" for key, name in actions.items()}
        yield from _timed(run, "pages", Timed("pages", {"number": number}, names, 15, 10, 1))


GROUPS: Mapping[str, Callable[[Run], Iterator[Row]]] = {
    group.__name__: group for group in (size, turn, storage, servers, view, recall, pages)
}


def _timed(run: Run, group: str, plan: Timed) -> Sequence[Row]:
    chosen = plan if run.quick or group == LONG else plan._replace(processes=5)
    name = f"{group}: {', '.join(plan.names.values())}"
    return _or_not(run, name, lambda: timing.measure(chosen, group, run.sides, run.folder))


def _once(
    run: Run,
    group: str,
    program: str,
    options: Mapping[str, Any],
    names: Mapping[str, str],
    own: Sequence[Mapping[str, Any]] = ({}, {}),
) -> Sequence[Row]:
    """Return rows without a clock: both sides work at the same time. `own` are the options of each side."""

    def rows() -> Sequence[Row]:
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(side)) for side in run.sides]
            for worker, more in zip(workers, own, strict=True):
                worker.send(once=program, options={**options, **more})
            old, new = (worker.answer() for worker in workers)
        return [plain(group, name, _UNITS.get(key, ""), old[key], new[key]) for key, name in names.items()]

    return _or_not(run, f"{group}: {', '.join(names.values())}", rows)


def _or_not(run: Run, name: str, rows: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    """Return the rows, or none with the reason."""
    print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
    try:
        return rows()
    except (MeasureError, CalledProcessError, ImportError) as error:
        run.left_out[name] = " ".join(str(error).split())[:300]
        return []
