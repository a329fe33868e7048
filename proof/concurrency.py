"""Record what concurrent writers and readers did and saw, and check that one order explains all of it."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import quire
from proof import servers
from proof.topic import Check, Control, Options
from quire import Busy, Conflict, EstimateCounter
from tests.servers.s3 import fresh_prefix

TITLE = "Concurrency"
ABOUT = """
Threads share a handle, async tasks share a handle, and processes share a store. Each writer adds pages with unique
names, and readers refresh and list the pages. The start, the end and the result of every call are recorded. The order
of the journal must explain the results (linearisability). If a call ended before another began, it comes first in the
journal. Every read sees exactly the writes up to one point of the journal, and this point lies between the start and
the end of the read.

Cancellation: each call of `quire.aio` is cancelled at its first, second, third … await, until the call ends before the
next await. The change is made once or not at all, the handle works afterwards, and `check()` is empty.
"""
WRITERS, READERS = 4, 2
EACH = (30, 500)
SHARED = ("sqlite", "file", "postgres", "s3")


class Call(NamedTuple):
    """One recorded call: a write of a page, or a read of all pages."""

    start: float
    end: float
    name: str = ""
    seen: tuple[str, ...] | None = None


def judge(calls: list[Call], order: list[str]) -> list[str]:
    """Return what the order of the journal does not explain."""
    place = {name: number for number, name in enumerate(order)}
    findings = ["a page exists twice"] if len(place) != len(order) else []
    writes = [call for call in calls if call.seen is None]
    findings += [f"{call.name} is lost" for call in writes if call.name not in place]
    findings += [f"{name} was not written" for name in set(order) - {call.name for call in writes}]
    points = [(call, place[call.name] + 1) for call in writes if call.name in place]
    for call in calls:
        if call.seen is None:
            continue
        count = len(call.seen)
        if list(call.seen) != order[:count]:
            findings.append(f"a read saw {count} pages that are not the first {count}")
        points.append((call, count))
    points.sort(key=lambda item: item[0].end)
    ended, latest = [], 0
    for call, point in points:
        latest = max(latest, point)
        ended.append((call.end, latest))
    ends = [end for end, _ in ended]
    for call, point in points:
        before = _last_before(ends, call.start)
        if before >= 0 and (point < ended[before][1] or (call.seen is None and point == ended[before][1])):
            findings.append(f"{call.name or 'a read'} comes before a call that had ended when it began")
    started = {name: call.start for call in writes for name in [call.name]}
    findings += [
        f"a read saw {name} before it was begun"
        for call in calls
        for name in call.seen or ()
        if started.get(name, 0) > call.end
    ]
    return sorted(set(findings))[:5]


def _last_before(ends: list[float], moment: float) -> int:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ends[middle] < moment else (low, middle)
    return low - 1


def book(where: Any) -> quire.Context:
    """Open the context of a store: a URL, a storage, or the options of S3."""
    storage = quire.S3Storage(**where) if isinstance(where, dict) else where
    return quire.open(storage, "book", counter=EstimateCounter())


def write(context: quire.Context, name: str) -> Call:
    """Add a page; after a conflict, refresh and try again."""
    start = time.monotonic()
    while True:
        try:
            context.pages.create_detail_page(name, "", f"text of {name}", "mem-0")
            return Call(start, time.monotonic(), name)
        except (Conflict, Busy):
            context.refresh()


def read(context: quire.Context) -> Call:
    start = time.monotonic()
    context.refresh()
    seen = tuple(page.name for page in context.pages.children("mem-0"))
    return Call(start, time.monotonic(), seen=seen)


def work(context: quire.Context, who: int, each: int, calls: list[Call]) -> None:
    """Make the calls of one writer or reader."""
    count = each if who < WRITERS else each // 2
    calls.extend(write(context, f"{who}-{number}") if who < WRITERS else read(context) for number in range(count))


def final_order(where: Any) -> tuple[list[str], list[str]]:
    """Return the pages in the order of the journal, and the problems of the store."""
    with book(where) as context:
        pages = sorted(context.pages.children("mem-0"), key=lambda page: page.changed_seq)
        return [page.name for page in pages], [str(problem) for problem in context.check()]


def place_of(backend: str, folder: Path) -> Any:
    match backend:
        case "memory":
            return quire.MemoryStorage()
        case "postgres":
            return servers.postgres()
        case "s3":
            return {"prefix": fresh_prefix(), **servers.s3()}
        case _:
            return f"{backend}:{folder / f'{backend}-{time.monotonic_ns()}'}"


def threads(backend: str, options: Options, each: int) -> Check:
    where = place_of(backend, options.folder)
    calls: list[Call] = []
    with book(where) as context:
        workers = [threading.Thread(target=work, args=(context, who, each, calls)) for who in range(WRITERS + READERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        order, problems = final_order(where)
    return _check("threads that share a handle", backend, calls, order, problems)


def tasks(backend: str, options: Options, each: int) -> Check:
    where = place_of(backend, options.folder)
    calls: list[Call] = []

    async def one(context: Any, who: int) -> None:
        for number in range(each if who < WRITERS else each // 2):
            start = time.monotonic()
            if who < WRITERS:
                await context.pages.create_detail_page(f"{who}-{number}", "", "text", "mem-0")
                calls.append(Call(start, time.monotonic(), f"{who}-{number}"))
            else:
                seen = tuple(page.name for page in await context.pages.children("mem-0"))
                calls.append(Call(start, time.monotonic(), seen=seen))

    async def every() -> None:
        async with quire.aio.open(where, "book", counter=EstimateCounter()) as context:
            await asyncio.gather(*(one(context, who) for who in range(WRITERS + READERS)))

    asyncio.run(every())
    order, problems = final_order(where)
    return _check("async tasks that share a handle", backend, calls, order, problems)


def processes(backend: str, options: Options, each: int) -> Check:
    where = place_of(backend, options.folder)
    with book(where):
        pass
    command = [sys.executable, "-m", "proof.concurrency", json.dumps(where)]
    started = [
        subprocess.Popen([*command, str(who), str(each)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for who in range(WRITERS + READERS)
    ]
    calls: list[Call] = []
    problems: list[str] = []
    for process in started:
        output, errors = process.communicate()
        if process.returncode:
            problems.append(errors.strip()[-200:])
        else:
            calls += [Call(a, b, name, seen and tuple(seen)) for a, b, name, seen in json.loads(output)]
    order, damage = final_order(where)
    return _check("processes that share a store", backend, calls, order, problems + damage)


def _check(name: str, backend: str, calls: list[Call], order: list[str], problems: list[str]) -> Check:
    reads = sum(1 for call in calls if call.seen is not None)
    facts: dict[str, int | float | str] = {"reads": reads, "writes": len(calls) - reads}
    return Check(
        name=name, backend=backend, count=len(calls), unit="calls", facts=facts, findings=judge(calls, order) + problems
    )


class CancelledAt(Awaitable[Any]):
    """Runs a coroutine and cancels it at one of its awaits, counted from 0."""

    def __init__(self, coroutine: Any, at: int) -> None:
        self.coroutine = coroutine
        self.left = at

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.coroutine.__await__()
        sent: Any = None
        while True:
            try:
                waited = steps.send(sent)
            except StopIteration as end:
                return end.value
            if self.left == 0:
                self.left -= 1
                if hasattr(waited, "cancel"):
                    waited._asyncio_future_blocking = False
                    waited.cancel()
                return steps.throw(asyncio.CancelledError)
            self.left -= 1
            sent = yield waited


async def _in_turn(context: Any, name: str) -> None:
    async with context.turn(wait=5):
        await context.user(name)
        await context.assistant("answer")


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "user": lambda context, name: context.user(name),
    "create_detail_page": lambda context, name: context.pages.create_detail_page(name, "", "text", "mem-0"),
    "import_messages": lambda context, name: context.import_messages([{"role": "user", "content": name}]),
    "render": lambda context, name: context.render(),
    "turn": _in_turn,
}


async def _cancel_everywhere(where: Any) -> tuple[int, list[str]]:
    count, findings = 0, []
    async with quire.aio.open(where, "book", counter=EstimateCounter()) as context:
        for kind, call in CALLS.items():
            at, reached = 0, True
            while reached and at < 40:
                name = f"{kind} {at}"
                trial = CancelledAt(_call(call, context, name), at)
                try:
                    await trial
                except asyncio.CancelledError:
                    count += 1
                reached = trial.left < 0
                at += 1
                await context.refresh()
                said = [message.text async for message in _messages(context)]
                made = said.count(name) + [page.name for page in await context.pages.children("mem-0")].count(name)
                if made > 1 or (not reached and made != (kind != "render")):
                    findings.append(f"{name}: made {made} times")
                if await context.check() != []:
                    findings.append(f"{name}: check() found {await context.check()}")
    return count, findings


async def _call(call: Callable[[Any, str], Any], context: Any, name: str) -> None:
    await call(context, name)


async def _messages(context: Any) -> Any:
    found = context.messages()
    if hasattr(found, "__aiter__"):
        async for message in found:
            yield message
    else:
        for message in await found:
            yield message


def cancellation(backend: str, options: Options) -> Check:
    count, findings = asyncio.run(_cancel_everywhere(place_of(backend, options.folder)))
    return Check(
        name="cancelled at every await", backend=backend, count=count, unit="cancelled calls", findings=findings[:5]
    )


def run(options: Options) -> Iterator[Check]:
    each = EACH[options.long]
    for backend in options.chosen("memory", "sqlite", "file", "postgres"):
        yield threads(backend, options, each)
        yield tasks(backend, options, each)
    for backend in options.chosen(*SHARED):
        yield processes(backend, options, each if backend != "s3" else each // 3)
    for backend in options.chosen("memory", "sqlite", "file"):
        yield cancellation(backend, options)


def control(options: Options) -> Iterator[Control]:
    """Check a history that was changed, and readers that do not refresh."""
    random = Random(options.seed)
    calls = [Call(number, number + 1.5, f"{number}") for number in range(20)]
    order = [call.name for call in calls]
    swapped = random.randrange(15)
    order[swapped], order[swapped + 4] = order[swapped + 4], order[swapped]
    found = judge(calls, order)
    yield Control(name="two writes swapped in the journal", found=bool(found), evidence=str(found[:1])[:200])
    found = judge([*calls, Call(30, 31, seen=("0", "1"))], [call.name for call in calls])
    yield Control(name="a read of an old state", found=bool(found), evidence=str(found[:1])[:200])
    create, count = quire.ContextSystem.create_detail_page, itertools.count(1)

    def forget(self: quire.ContextSystem, *arguments: Any) -> str:
        return "mem-1" if next(count) % 50 == 0 else create(self, *arguments)

    with patch.object(quire.ContextSystem, "create_detail_page", forget):
        check = threads("memory", options, 30)
    evidence = str(check.findings[:1])[:200]
    yield Control(name="every 50th write is not made", backend="memory", found=bool(check.findings), evidence=evidence)


def main(place: str, who: str, each: str) -> None:
    """Run as one of several processes, and print the calls."""
    calls: list[Call] = []
    with book(json.loads(place)) as context:
        work(context, int(who), int(each), calls)
    sys.stdout.write(json.dumps(calls))


if __name__ == "__main__":
    main(*sys.argv[1:])
