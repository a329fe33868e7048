"""The view: a turn, a resume and a render of a very large context against a raw floor, folds, and the prompt cache.

It uses recorded conversations; without them this topic has no figures.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import quire
from bench import caching, folding, resume
from bench.figures import Figure
from bench.traces import TRACES, RawFloor, conversation, system
from quire import EstimateCounter
from quire.context import Context

BUDGET = 8_000
LARGE = 128_000
ROUND = 900
"""Turns at the large budget: about as many as between two folds, so that views of every size are measured."""

STEP = 1_000
"""Messages between two views while a very large conversation is built, so that it is folded as it grows."""


def run(folder: Path, messages: int) -> list[Figure]:
    """Return all figures of the view."""
    if not TRACES.exists():
        return []
    longest = max(messages // 10, 1_000)
    return [
        *turns(folder, sorted({100, min(10_000, longest), longest})),
        large_turn(folder, min(10_000, longest)),
        *folds(folder),
        *resume.run(folder, min(10_000, longest)),
        *rendering(folder, (1_000, messages)),
        *caching.run(),
        *folding.run(),
    ]


def turns(folder: Path, sizes: Sequence[int]) -> list[Figure]:
    """Measure the last two hundred turns of conversations of several lengths, and the floor."""
    found = {size: _turn(folder, size, BUDGET, min(200, size // 2)) for size in sizes}
    first = found[sizes[0]][0]
    return [
        *(_turn_figure(f"turn (append and render at 8k), {size:,} messages", 10, *found[size]) for size in sizes),
        *(Figure(f"turn at {size:,} against {sizes[0]}", found[size][0] / first, "×", 1.3) for size in sizes[1:]),
    ]


def large_turn(folder: Path, size: int) -> Figure:
    """Measure turns at a large budget, from one fold to the next."""
    return _turn_figure(
        f"turn (append and render at 128k), {size:,} messages", 5, *_turn(folder, size + ROUND, LARGE, ROUND)
    )


def _turn_figure(name: str, limit: float, ours: float, floor: float) -> Figure:
    note = f"median; {ours * 1e6:.0f} µs against {floor * 1e6:.0f} µs"
    return Figure(f"{name}, × raw floor", ours / floor, "×", limit, note)


def _turn(folder: Path, size: int, budget: int, last: int) -> tuple[float, float]:
    """Return the median seconds of the last turns of a conversation, for quire and for the floor."""
    history = conversation(size)
    ctx = _opened(folder / f"view-{budget}-{size}.db", budget)
    floor = RawFloor(str(folder / f"floor-{budget}-{size}.db"), budget)
    ctx.import_messages(history[: size - last])
    ctx.render()
    floor.fill(history[: size - last])
    ours, theirs = [], []
    for message in history[size - last :]:
        start = time.perf_counter()
        ctx.add(message)
        ctx.render().openai()
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        floor.append(message)
        floor.render()
        theirs.append(time.perf_counter() - start)
    ctx.close()
    floor.close()
    return statistics.median(ours), statistics.median(theirs)


def folds(folder: Path) -> list[Figure]:
    """Measure one render that folds, and the part of the conversation that it folds."""
    return [_fold(folder, "8k", BUDGET, 600), _fold(folder, "128k", LARGE, 6_000)]


def _fold(folder: Path, name: str, budget: int, messages: int) -> Figure:
    ctx = _opened(folder / f"fold-{name}.db", budget)
    seconds, saved = [], []
    for message in conversation(messages):
        ctx.add(message)
        start = time.perf_counter()
        view = ctx.render()
        if view.fold is not None:
            seconds.append(time.perf_counter() - start)
            saved.append(view.fold.saved)
    ctx.close()
    note = f"median of {len(seconds)}, every {messages // max(1, len(seconds))} messages; {_median(saved):,.0f} tokens"
    return Figure(f"a fold at {name}", _median(seconds) * 1e3, "ms", None, note)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def rendering(folder: Path, sizes: tuple[int, int]) -> list[Figure]:
    """Measure a render at 8k over a small and a very large context, after each new message."""
    few, many = (_render(folder, size) for size in sizes)
    note = f"median; {many * 1e6:.0f} µs against {few * 1e6:.0f} µs"
    return [Figure(f"render at 8k of {sizes[1]:,} pages against {sizes[0]:,}", many / few, "×", 1.3, note)]


def _render(folder: Path, pages: int) -> float:
    sys.stderr.write(f"building a conversation of {pages:,} pages …\n")
    ctx = quire.open(folder / f"pages-{pages}.db", "bench", budget=BUDGET, counter=EstimateCounter())
    ctx.system(system())
    history = _short(pages)
    while part := list(islice(history, STEP)):
        ctx.import_messages(part)
        ctx.render()
    seconds = []
    for message in _short(200):
        ctx.add(message)
        start = time.perf_counter()
        ctx.render().openai()
        seconds.append(time.perf_counter() - start)
    ctx.close()
    return statistics.median(seconds)


def _short(messages: int) -> Iterator[dict[str, str]]:
    """Yield a generated dialogue with one line per message, each on its own page."""
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        yield {"role": role, "content": f"Order {number}: the pump moves water through valve {number % 97}."}


def _opened(file: Path, budget: int) -> Context:
    ctx = quire.open(file, "bench", budget=budget)
    ctx.system(system())
    return ctx
