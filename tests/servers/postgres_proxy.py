"""Proxies between a client and PostgreSQL: two cut connections, one pools sessions per transaction.

They listen on a local port and talk to PostgreSQL through its socket.
"""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import Self

_READ_BYTES = 1 << 16
_TLS = (80_877_103, 80_877_104)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            open_now = list(self._open)
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
        with suppress(OSError, EOFError):
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


class PoolingProxy(TcpProxy):
    """Lends one of a few sessions for one transaction, like PgBouncer in transaction mode.

    A client that relies on the state of a session sees the state of another client.
    """

    def __init__(self, server: Path, sessions: int, seed: int = 1) -> None:
        super().__init__(server)
        self._random = Random(seed)
        self._greeting = b""
        self._free = [self._session() for _ in range(sessions)]
        self._returned = Condition()
        self.used: set[int] = set()

    def handle(self, client: socket.socket) -> None:
        self._greet(client)
        while (message := _message(client))[:1] != b"X":
            with self._returned:
                self._returned.wait_for(lambda: self._free)
                session = self._free.pop(self._random.randrange(len(self._free)))
            self.used.add(id(session))
            self._transaction(client, session, message)
            with self._returned:
                self._free.append(session)
                self._returned.notify()

    def _transaction(self, client: socket.socket, session: socket.socket, message: bytes) -> None:
        """Forward requests and answers until the transaction of the session ends."""
        while True:
            requests = [message]
            while requests[-1][:1] not in (b"S", b"Q"):
                requests.append(_message(client))
            session.sendall(b"".join(requests))
            answers = [_message(session)]
            while answers[-1][:1] != b"Z":
                answers.append(_message(session))
            client.sendall(b"".join(answers))
            if answers[-1][5:6] == b"I":
                return
            message = _message(client)

    def _greet(self, client: socket.socket) -> None:
        """Accept a client, with a key that is not the id of a server process."""
        while True:
            (length,) = struct.unpack("!I", _exactly(client, 4))
            (code,) = struct.unpack("!I", _exactly(client, length - 4)[:4])
            if code not in _TLS:
                break
            client.sendall(b"N")
        key = b"K" + struct.pack("!III", 12, self._random.getrandbits(31), self._random.getrandbits(31))
        client.sendall(self._greeting + key + b"Z\0\0\0\5I")

    def _session(self) -> socket.socket:
        server = self.connect()
        words = b"user\0postgres\0database\0postgres\0client_encoding\0utf8\0\0"
        server.sendall(struct.pack("!II", len(words) + 8, 196_608) + words)
        greeting = b""
        while (message := _message(server))[:1] != b"Z":
            if message[:1] in (b"R", b"S"):
                greeting += message
        self._greeting = greeting
        return server


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    return head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data
