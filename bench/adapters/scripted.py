"""A local endpoint for the SDKs of OpenAI and Anthropic: it makes a lookup for every question, then answers."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

import quire

BUDGET = 8_000
FOUND = "something long about it, " * 40
Values = dict[str, Any]


def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {FOUND}"


@contextmanager
def endpoint(answer: Callable[[Values], Values]) -> Iterator[str]:
    """Yield the address of a server that answers every request with `answer`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Sdk(Protocol):
    """The requests of a client, and their content."""

    def tools(self, ctx: quire.Context) -> list[Values]:
        """Return all schemas: the context's own and that of `look`."""

    def request(self, ctx: quire.Context, tools: list[Values], beside: int) -> Values:
        """Return the request for a context with tools of this many tokens."""

    def ask(self, request: Values) -> Any:
        """Return the client's answer."""

    def complete(self, ctx: quire.Context) -> object:
        """Run the turn with the adapter."""


def measured(sdk: Sdk, folder: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds for the turns: the client alone, quire by hand, and both in one call."""
    sent: list[Values] = []
    answers: list[Any] = []

    def asked(request: Values) -> Any:
        sent.append(request)
        answers.append(sdk.ask(request))
        return answers[-1]

    with quire.open(folder / "both.db", budget=BUDGET) as ctx:
        both = timed(lambda: _through(sdk, ctx, count))
    with quire.open(folder / "hand.db", budget=BUDGET) as ctx:
        _by_hand(sdk, ctx, count, asked)
    alone = timed(lambda: [sdk.ask(request) for request in sent])
    known = iter(answers)
    with quire.open(folder / "again.db", budget=BUDGET) as ctx:
        hand = timed(lambda: _by_hand(sdk, ctx, count, lambda _: next(known)))
    return alone, hand, both


def _through(sdk: Sdk, ctx: quire.Context, count: int) -> None:
    for n in range(count):
        ctx.user(f"question {n}")
        sdk.complete(ctx)


def _by_hand(sdk: Sdk, ctx: quire.Context, count: int, ask: Callable[[Values], Any]) -> None:
    """Run the loop of the README."""
    tools = sdk.tools(ctx)
    beside = quire.count_tools(tools)
    for n in range(count):
        ctx.user(f"question {n}")
        while True:
            answer = ask(sdk.request(ctx, tools, beside))
            ctx.add(answer)
            ctx.report_usage(answer, tools=beside)
            calls = ctx.pending_calls()
            if not calls:
                break
            for call in calls:
                ctx.tool_result(call.id, look(**json.loads(call.arguments)))
