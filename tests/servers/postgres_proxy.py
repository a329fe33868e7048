"""Proxies between a client and PostgreSQL that cut connections, at random or before an answer.

They listen on a local port and talk to PostgreSQL through its socket.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Self

_READ_BYTES = 1 << 16


class TcpProxy:
    """Handles every client in a thread of its own. A context manager."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = Lock()

    def url(self, **options: str) -> str:
        """Return the URL for clients."""
        port = self._listener.getsockname()[1]
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable{more}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            open_now, self._open = self._open, []
        self._end(*open_now)

    def handle(self, client: socket.socket) -> None:
        """Serve one client until it disconnects."""
        raise NotImplementedError

    def connect(self) -> socket.socket:
        """Return a new connection to the server."""
        there = socket.socket(socket.AF_UNIX)
        there.connect(str(self._server))
        with self._lock:
            self._open.append(there)
        return there

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open.append(client)
                self._start(self._handle_quietly, client)

    def _handle_quietly(self, client: socket.socket) -> None:
        with suppress(OSError):
            self.handle(client)
        self._end(client)

    def _start(self, work: Callable[..., None], *values: object) -> None:
        Thread(target=work, args=values, daemon=True).start()

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class CuttingProxy(TcpProxy):
    """Cuts every connection at a random moment: before a message is forwarded, in the middle of it, or after it."""

    def __init__(self, server: Path, seed: int, longest: int = 40) -> None:
        super().__init__(server)
        self._random = Random(seed)
        self._longest = longest
        self.cuts = 0

    def handle(self, client: socket.socket) -> None:
        with suppress(OSError):
            server = self.connect()
        with self._lock:
            life = [self._random.randint(1, self._longest)]
            how = self._random.random()
        self._start(self._forward, server, client, life, how)
        self._forward(client, server, life, how)

    def _forward(self, source: socket.socket, target: socket.socket, life: list[int], how: float) -> None:
        with suppress(OSError):
            while data := source.recv(_READ_BYTES):
                life[0] -= 1
                if life[0] <= 0:
                    self.cuts += 1
                    target.sendall(data[: int(len(data) * (how * 2 - 0.5))] if how > 0.25 else b"")
                    break
                target.sendall(data)
        self._end(source, target)


class LosingProxy(TcpProxy):
    """Cuts a connection before its next answer arrives, once it has forwarded a request that contains `marker`.

    `then` is called when the server has answered.
    """

    def __init__(self, server: Path) -> None:
        super().__init__(server)
        self.marker = b""
        self.then: Callable[[], object] = lambda: None

    def handle(self, client: socket.socket) -> None:
        server, lost = self.connect(), Event()
        self._start(self._answer, server, client, lost)
        while data := client.recv(_READ_BYTES):
            if self.marker and self.marker in data:
                self.marker = b""
                lost.set()
            server.sendall(data)
        self._end(server)

    def _answer(self, server: socket.socket, client: socket.socket, lost: Event) -> None:
        with suppress(OSError):
            while data := server.recv(_READ_BYTES):
                if lost.is_set():
                    self.then()
                    break
                client.sendall(data)
        self._end(server, client)
