"""Attacks through real servers: the permission matrix over HTTP, MCP and the gateway, slow clients, and secrets."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

import quire
import quire.gateway
import quire.server
from proof.topic import Options
from quire.agent.tools import Tools
from quire.system.segments import add_segment
from tests.gateway.scripted_client import Client as GatewayClient
from tests.strict_provider import StrictProvider
from tests.surfaces.agent_cells import Cell, page_cells
from tests.surfaces.bookcase import Bookcase
from tests.surfaces.test_agent_rights import SHARES, TALKS, case_for, cells_of

TOKEN = "the-token-of-the-proof-0123456789"
SESSION = "gateway/local/anthropic/one"
LEAST = 30
"""The cells that are tried in any case."""
READING = ("find", "read_page")
"""The tools of the gateway."""
Call = Callable[[str, dict[str, Any]], str]
"""Calls a tool, and returns its answer. An error is a text that begins with its class."""


# The permission matrix


class Wire:
    """A context in a store, and its tools on the other side of a connection."""

    def __init__(self, path: Path, name: str, call: Call) -> None:
        self.ctx = quire.open(path, name, create=False, counter=quire.EstimateCounter())
        self.tools = self
        self.call = call

    def undo(self, since: int) -> bool:
        """Undo what a tool did. Return False if that is not possible: a pinned page does not move back."""
        try:
            for seq in range(self.ctx.seq, since, -1):
                self.ctx.undo(seq)
        except quire.InvalidOperation:
            return False
        return True


def violations(wire: Wire, cells: list[Cell], deadline: float) -> Iterator[str | None]:
    """Try the cells. Yield None, or what is against the contract; a refused attempt must change nothing.

    It ends early if the time is over, after some cells, or if an attempt cannot be undone.
    """
    for number, cell in enumerate(cells):
        if number >= LEAST and time.monotonic() > deadline:
            return
        before = wire.ctx.seq
        try:
            cell.run(wire)  # type: ignore[arg-type]
            refusal = ""
        except quire.QuireError as error:
            refusal = str(error)
        wire.ctx.refresh()
        changed = wire.ctx.seq != before
        found = None
        if bool(refusal) is cell.allowed:
            found = f"{cell.name}: {refusal or 'allowed'}"
        elif cell.missing and "NoSuch" not in refusal:
            found = f"{cell.name}: {refusal}"
        elif changed and (refusal or not cell.writes):
            found = f"{cell.name}: something changed"
        undone = not changed or wire.undo(before)
        yield found
        if not undone:
            return


@contextmanager
def over_http(path: Path, name: str) -> Iterator[Call]:
    """Call tools through the HTTP API of a server. The limit of calls in one turn is off."""
    with (
        patch.object(Tools, "_count_call", lambda self: None),
        quire.server.start(path, port=0, token=TOKEN, grace=1) as server,
        httpx.Client(base_url=server.address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as client,
    ):

        def call(tool: str, arguments: dict[str, Any]) -> str:
            body = {"name": tool, "arguments": arguments}
            return str(client.post(f"/api/contexts/{name}/tools/call", json=body).json()["result"])

        yield call


@contextmanager
def over_mcp(*words: object) -> Iterator[Call]:
    """Call tools of the process `quire mcp` with these words."""
    from tests.mcp_server.clients import Line, running  # late: they need the package mcp

    with running(*words) as process:
        line = Line(process)
        line.initialize()

        def call(tool: str, arguments: dict[str, Any]) -> str:
            answer = line.call(tool, arguments)
            if "content" not in answer:
                return f"InvalidValue: {answer['message']}"
            return str(answer["content"][0]["text"])

        yield call


def matrix(options: Options, how: str, seconds: float | None, *, is_open: bool = False) -> tuple[int, list[str]]:
    """Try the tools on every page. Return the number of cells and the findings. The short form tries a sample.

    With `is_open`, agents may do everything in the store that is tested: the matrix must notice it.
    """
    if how == "gateway":
        return _gateway_matrix(options, seconds, is_open=is_open)
    end = time.monotonic() + (seconds or float("inf"))
    count, findings = 0, list[str]()
    random = options.random("wire", how)
    shares = SHARES if options.long else random.sample(SHARES, 2)
    for number, share in enumerate(shares):
        case = case_for(share)
        cells = [cell for cell in cells_of(case, share, long=options.long) if _is_by_tool(cell)]
        if not options.long:
            cells = random.sample(cells, min(150, len(cells)))
        deadline = time.monotonic() + (end - time.monotonic()) / (len(shares) - number)
        place = 0
        while place < len(cells) and (place < LEAST or time.monotonic() < deadline) and not (is_open and findings):
            path = options.folder / f"{how}-{number}-{place}.db"
            quire.migrate(case.ctx.pages.storage, quire.open_storage(path), [case.ctx.name])
            if is_open:
                _open(quire.open(path, case.ctx.name, create=False))
            opened = over_http(path, case.ctx.name) if how == "HTTP" else over_mcp(path, "--context", case.ctx.name)
            with opened as call:
                for found in violations(Wire(path, case.ctx.name, call), cells[place:], deadline):
                    place += 1
                    findings += [f"{share}: {found}"] if found else []
                    if is_open and findings:
                        break
        count += place
    return count, findings[:5]


def _open(ctx: quire.Context) -> None:
    """Give agents all rights."""
    for segment in ctx.pages.list_segments():
        ctx.pages.set_segment_permission(segment.id, quire.Permission.READ_WRITE)


def _is_by_tool(cell: Cell) -> bool:
    return cell.name.startswith("tool ") or cell.name.endswith(" by tool")


def _gateway_matrix(options: Options, seconds: float | None, *, is_open: bool) -> tuple[int, list[str]]:
    """Try every tool on pages of a session, through the MCP server of a gateway. Only two tools exist there."""
    path = options.folder / "gateway.db"
    with ExitStack() as stack:
        provider = stack.enter_context(StrictProvider())
        gateway = stack.enter_context(
            quire.gateway.start(str(path), anthropic=provider.url, openai=provider.url, port=0)
        )
        GatewayClient(gateway.url, "anthropic", {"x-quire-session": "one"}).say("Hello")
        gateway.gateway.sessions.drain()
        case = _furnished(path)
        cells = [_only_reading(cell) for page in case.pages for cell in page_cells(case, page) if _is_by_tool(cell)]
        if not options.long:
            cells = options.random("wire", "gateway").sample(cells, min(300, len(cells)))
        if is_open:
            _open(case.ctx)
        call = stack.enter_context(over_mcp(path, "--gateway", gateway.url))
        deadline = time.monotonic() + (seconds or float("inf"))
        found = list(violations(Wire(path, SESSION, call), cells, deadline))
    return len(found), [one for one in found if one][:5]


def _furnished(path: Path) -> Bookcase:
    """Return the pages of a bookcase, in the context of a session."""
    case = case_for(next(iter(TALKS)))
    places = [place for place in case.places if not place.conversation]
    case.ctx = quire.open(path, SESSION, create=False, counter=quire.EstimateCounter())
    case.pages, case.places = [], places

    def create(plan: Any) -> None:
        for place in places:
            made = "READ_WRITE" if place.permission == "PRIVATE" else place.permission
            segment = quire.Segment(id=place.id, type=quire.SegmentType[place.type], permission=quire.Permission[made])
            add_segment(plan, segment)

    case.ctx.pages._engine.run("developer", "create", create)
    for place in places:
        case._furnish(place)
        if place.permission == "PRIVATE":
            case.ctx.pages.set_segment_permission(place.id, quire.Permission.PRIVATE)
    return case


def _only_reading(cell: Cell) -> Cell:
    reads = cell.name.startswith(tuple(f"tool {name}" for name in READING))
    return cell if reads else cell._replace(allowed=False, missing=False)


# Clients that are slow, or that only listen


HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
LISTEN = (
    f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n\r\n"
).encode()


SERVE = """
import json, sys, quire.server
path, token, options = sys.argv[1:]
say = lambda running: print(running.address, flush=True)
quire.server.serve(path, port=0, token=token, ready=say, **json.loads(options))
"""


@contextmanager
def server_process(path: Path, **settings: object) -> Iterator[str]:
    """Start a server as a process. Yield its address."""
    command = [sys.executable, "-c", SERVE, str(path), TOKEN, json.dumps({"create": True, **settings})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.kill()


def slow_clients(address: str, number: int, patience: float) -> list[str]:
    """Open connections that send half of their headers. Others must be answered, and the slow ones are closed."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(address, HALF)) for _ in range(number)]
        findings = [] if answers(address) else [f"no answer beside {number} slow clients"]
        time.sleep(patience)
        for connection in slow:  # a byte now and then does not keep them open
            try:
                connection.sendall(b"x")
            except OSError:
                continue
        still = sum(not is_closed(connection) for connection in slow)
    return findings + ([f"{still} of {number} slow clients are still connected"] if still else [])


def listeners(address: str, number: int, limit: int) -> list[str]:
    """Open event streams. Those above the limit are refused, the others hear a change, and requests are answered."""
    with ExitStack() as stack:
        streams = [stack.enter_context(connect(address, LISTEN)) for _ in range(number)]
        accepted = [stream for stream in streams if stream.recv(65_536).startswith(b"HTTP/1.1 200 ")]
        findings = [] if answers(address) else [f"no answer beside {number} event streams"]
        if len(accepted) != min(number, limit):
            findings.append(f"{len(accepted)} of {number} streams are accepted; the limit is {limit}")
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as client:
            client.post(f"{address}/api/contexts", json={"name": "heard"}).raise_for_status()
        deaf = sum(not hears(stream, b"heard") for stream in accepted)
    return findings + ([f"{deaf} of {len(accepted)} streams did not hear a change"] if deaf else [])


def connect(address: str, sent: bytes) -> socket.socket:
    host, _, port = address.removeprefix("http://").rpartition(":")
    opened = socket.create_connection((host, int(port)), timeout=10)
    opened.sendall(sent)
    return opened


def answers(address: str) -> bool:
    """Return True if another client gets an answer in time."""
    try:
        return httpx.get(f"{address}/health", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.02)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def hears(stream: socket.socket, name: bytes) -> bool:
    stream.settimeout(10)
    heard = b""
    try:
        while name not in heard and (data := stream.recv(65_536)):
            heard += data
    except OSError:
        return False
    return name in heard
