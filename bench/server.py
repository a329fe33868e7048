"""The HTTP server: the cost of `GET view` compared with an empty endpoint and the library call, and of long lists."""

import http.client
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import quire
from bench.figures import Figure
from quire.system import ContextSystem

BUDGETS = (8_000, 128_000)
ROUNDS = 60
PAGES = 100_000
_TOKEN = "bench-token-bench-token"


_SERVE = """
import sys, quire.server
quire.server.serve(
    sys.argv[1],
    port=0,
    token=sys.argv[2],
    budget=int(sys.argv[3]),
    ready=lambda running: print(running.port, flush=True),
)
"""


@contextmanager
def served(path: Path, budget: int) -> Iterator["Client"]:
    """Start a server in a separate process, and connect to it."""
    command = [sys.executable, "-c", _SERVE, str(path), _TOKEN, str(budget)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline()) if process.stdout else 0
        yield Client(port)
    finally:
        process.terminate()
        process.wait(30)


class Client:
    """A persistent connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def get(self, path: str) -> bytes:
        """Return the body of a response."""
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {_TOKEN}"})
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
        return body


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of the server."""
    return [figure for budget in BUDGETS for figure in views(folder / f"{budget}.db", budget)] + lists(
        folder / "pages.db", min(size, PAGES)
    )


def views(path: Path, budget: int) -> list[Figure]:
    """Measure a view over HTTP, an empty endpoint and the library call, interleaved in one run."""
    writer = quire.open(path, "talk", budget=budget)
    _talk(writer, budget)
    context = quire.open(path, "talk", budget=budget)
    with served(path, budget) as client:

        def view() -> None:
            client.get("/api/contexts/talk/view")

        def empty() -> None:
            client.get("/health")

        def library() -> None:
            context.refresh()
            msgspec.json.encode(context.render(preview=True).openai())

        same = _least(view, empty, library)
        after = _least(view, empty, library, first=lambda: writer.user("And then?"))
        shown = len(msgspec.json.decode(client.get("/api/contexts/talk/view"))["items"])
    return [
        _compared(f"GET view at {budget:,} tokens, × an empty endpoint and the library call", same, shown),
        _compared(f"the same at {budget:,} after another process wrote", after, shown),
    ]


def _compared(name: str, least: list[float], shown: int) -> Figure:
    view, empty, library = least
    note = f"{1e3 * view:.2f} ms; empty {1e3 * empty:.2f} ms, library {1e3 * library:.2f} ms, {shown} pieces shown"
    return Figure(name, view / (empty + library), "×", 3, note)


def lists(path: Path, pages: int) -> list[Figure]:
    """Measure a part in the middle of a long list, and the first part of a short list."""
    storage = quire.SQLiteStorage(path)
    for name, number in (("short", 1_000), ("long", pages)):
        book = ContextSystem(storage, name)
        book.add_segment(quire.Segment(id="mem"))
        for start in range(0, number, 1_000):
            book._engine.run("developer", "fill", _fill, start, min(1_000, number - start))
    storage.close()
    with served(path, BUDGETS[0]) as client:
        long, short = _least(
            lambda: client.get(f"/api/contexts/long/pages?parent=mem-0&after=mem-{pages // 2}"),
            lambda: client.get("/api/contexts/short/pages?parent=mem-0&after=mem-500"),
        )
    return [Figure(f"100 of {pages:,} pages, × 100 of 1,000", long / short, "×", 2, f"{1e3 * long:.2f} ms")]


def _talk(context: quire.Context, budget: int) -> None:
    context.system("You are a careful assistant.")
    turn = 0
    while context.stats().estimated_tokens < budget:
        for _ in range(50):
            turn += 1
            context.user(f"Question {turn}: what about part {turn}?")
            context.assistant(f"Part {turn} is where it was. " + "It was looked at again and found well. " * 8)
    context.render()
    for _ in range(turn // 3):  # a fairly full view: a third of it was added after the fold
        turn += 1
        context.user(f"Question {turn}: what about part {turn}?")
        context.assistant(f"Part {turn} is where it was. " + "It was looked at again and found well. " * 8)
    context.render()


def _fill(plan: object, start: int, number: int) -> None:
    from quire.system.tree import create_detail_page

    for n in range(start, start + number):
        create_detail_page(plan, f"note {n}", "", f"text {n}", "mem-0")  # type: ignore[arg-type]


def _least(*calls: Callable[[], object], first: Callable[[], object] = lambda: None) -> list[float]:
    """Return the minimum seconds of each call over several rounds. Each round starts with an unmeasured call."""
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(ROUNDS + 5):
        first()
        for place, call in enumerate(calls):
            start = time.perf_counter()
            call()
            if turn >= 5:
                taken[place].append(time.perf_counter() - start)
    return [min(seconds) for seconds in taken]
