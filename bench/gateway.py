"""The gateway: added latency, throughput and memory with a quick upstream, and real clients with and without it."""

import http.client
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure
from tests.gateway_clients.installation import CLIENTS
from tests.gateway_clients.long_run import Outcome, run_steps

SIZES = (46_000, 1_000_000)
ROUNDS = 300
WARM = 20
ABOVE = "fold above the budget"
MODES = ("observe", "fold", ABOVE)
_PER_REQUEST = 120
"""Bytes by which a conversation grows with each request."""
_AT_ONCE = 50
_PER_SESSION = 40
_RATE = 200
_UPSTREAM = """
import asyncio
ANSWER = b'{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],' \\
    b'"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(ANSWER)

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            lines = head.lower().split(b"\\r\\n")
            length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(HEAD + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def _process(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a program, and return it with its first line."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


class _Sender:
    """A persistent connection of a client with one conversation, which grows by a reply and a message per request."""

    def __init__(self, port: int, size: int, name: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        texts = [f"{name} {n} " + "word " * 180 for n in range(max(1, size // 2_000) * 2 - 1)]
        words: list[Any] = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        self._messages = words
        self._body: dict[str, Any] = {"model": "claude", "max_tokens": 9, "messages": words, "tools": [{"name": "run"}]}
        self._headers = {"content-type": "application/json", "x-quire-session": name}

    def send(self) -> float:
        """Send the conversation, and return the seconds until the first byte of the answer."""
        body = msgspec.json.encode(self._body)
        start = time.perf_counter()
        self._connection.request("POST", "/v1/messages", body, self._headers)
        response = self._connection.getresponse()
        seconds = time.perf_counter() - start
        response.read()
        reply = {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}
        self._messages += [reply, {"role": "user", "content": f"Go on after {len(self._messages)}"}]
        return seconds

    def close(self) -> None:
        self._connection.close()


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of the gateway."""
    is_full = size >= 1_000_000
    with _process("-c", _UPSTREAM) as (_, port):
        upstream = int(port)
        figures = [figure for mode in MODES for figure in _latency(folder, upstream, mode)]
        figures += _load(folder, upstream, 10_000 if is_full else 1_000)
    return [*figures, *_clients(folder, 300 if is_full else 20)]


@contextmanager
def _gateway(folder: Path, upstream: int, mode: str, budget: int = 1_000_000) -> Iterator[tuple[int, int]]:
    """Start a gateway; return its port and its process."""
    words = ["-m", "quire", "gateway", str(folder / f"{mode}-{time.monotonic_ns()}.db"), "--port", "0", "--json"]
    words += ["--mode", mode, "--budget", str(budget), "--anthropic", f"http://127.0.0.1:{upstream}"]
    with _process(*words) as (process, line):
        yield int(msgspec.json.decode(line)["url"].rpartition(":")[2]), process.pid


def _latency(folder: Path, upstream: int, mode: str) -> Iterator[Figure]:
    """Measure the time to the first byte with and without the gateway, in turns."""
    for size in SIZES:
        budget = size // 10 if mode == ABOVE else 1_000_000  # a request needs about twice as many tokens
        with _gateway(folder, upstream, mode.partition(" ")[0], budget) as (port, _):
            start = max(2_000, size - (ROUNDS + WARM) * _PER_REQUEST)
            direct, through = _Sender(upstream, start, "a"), _Sender(port, start, "a")
            for _ in range(WARM):
                direct.send()
                through.send()
            pairs = [(direct.send(), through.send()) for _ in range(ROUNDS)]
        added = sorted(1e3 * (through - direct) for direct, through in pairs)
        name = f"added to the first byte in {mode}, up to {size / 1e6:g} MB"
        yield Figure(f"{name}, p50", statistics.median(added), "ms", 5, f"direct {_middle(pairs):.2f} ms")
        yield Figure(f"{name}, p99", added[round(0.99 * len(added)) - 1], "ms", 25)


def _middle(pairs: list[tuple[float, float]]) -> float:
    return 1e3 * statistics.median(direct for direct, _ in pairs)


def _load(folder: Path, upstream: int, requests: int) -> list[Figure]:
    """Send many requests of many sessions, and look at the time and the memory.

    Fifty conversations go on in turns. Each one ends after forty requests, and another one begins.
    """
    with _gateway(folder, upstream, "observe") as (port, pid):
        senders = [_Sender(port, 4_000, f"s{n}") for n in range(_AT_ONCE)]
        sent = _send_all(senders, port, 0, _AT_ONCE * _PER_SESSION)
        before, start, processor = _memory(pid), time.perf_counter(), _processor(pid)
        _send_all(senders, port, sent, requests)
        seconds, used = time.perf_counter() - start, _processor(pid) - processor
        grown = _memory(pid) - before
    note = f"{requests / seconds:,.0f} requests/s by the clock, at most {_RATE}"
    return [
        Figure("processor time of a request in observe", 1e3 * used / requests, "ms", 5, note),
        Figure(f"memory added by {requests:,} requests", grown, "MB", 20, f"{before:.0f} MB before"),
    ]


def _send_all(senders: list[_Sender], port: int, sent: int, requests: int) -> int:
    """Send requests at the rate that is required, and wait until they are recorded. Return the number of all."""
    start = time.perf_counter()
    for n in range(sent, sent + requests):
        time.sleep(max(0.0, start + (n - sent) / _RATE - time.perf_counter()))
        place = n % len(senders)
        if n // len(senders) % _PER_SESSION == 0:
            senders[place].close()
            senders[place] = _Sender(port, 4_000, f"s{n}")
        senders[place].send()
    while _recorded(port) < sent + requests:
        time.sleep(0.1)
    return sent + requests


def _recorded(port: int) -> int:
    """Return the number of requests that the gateway has recorded."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/quire/sessions") as response:
        return sum(session["requests"] for session in msgspec.json.decode(response.read()))


def _memory(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _processor(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _clients(folder: Path, steps: int) -> Iterator[Figure]:
    """Run each client with the gateway, and without it beside it."""
    for name in ("claude", "codex", "opencode"):
        package = CLIENTS[name]
        ours = run_steps(name, folder / f"{name}-with", steps)
        theirs = run_steps(name, folder / f"{name}-without", steps, gateway=False)
        title = f"{package}, {steps} steps at a quarter of the needed window"
        yield Figure(f"{title}: errors and compactions", len(ours.refused) + ours.compactions, "", 0, _note(theirs))
        yield Figure(f"{title}: input tokens not read from the cache", 100 * (1 - ours.shared), "%", _most_fresh(steps))
        yield Figure(f"{title}: facts that find does not find", steps - ours.found, "", 0)


def _most_fresh(steps: int) -> float | None:
    return 7 if steps >= 300 else None  # a short run has more new tokens than that


def _note(without: Outcome) -> str:
    done = "finishes" if f"done after {without.steps} steps" in without.answer else "does not finish"
    refused = f"{len(without.refused)} errors, {without.compactions} compactions, {100 * without.shared:.0f} % cached"
    return f"without the gateway it {done}: {refused}, {without.in_last_request} facts left in its window"
