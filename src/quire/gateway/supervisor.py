"""A gateway in a process of its own, for the time of one client. If the process dies, it is started again.

The process has its own session, so that Ctrl-C in the terminal reaches only the client. It gets its settings through
its standard input, and ends when that is closed, so no gateway outlives the process that started it. The socket belongs
to the supervisor: a client that connects while the process is started again waits, and is not refused.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from quire.errors import QuireError, StorageFailure
from quire.server.access import bind

_PAUSE = 0.2
_START_TIMEOUT = 30.0


class _ProcessInput(NamedTuple):
    """What the process gets: the store, the settings, and the number of its socket if it does not make its own."""

    where: str
    settings: dict[str, Any]
    sockets: tuple[int, ...]


class Supervisor:
    """A running gateway process. `url` is its base URL, the same after it was started again.

    The messages of the gateway go to the file `log`.
    """

    def __init__(self, where: str, settings: dict[str, Any], log: Path) -> None:
        self.starts = 0
        self._where, self._settings, self._log = where, settings, log
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = bind("127.0.0.1", settings["port"]) if os.name == "posix" else None
        try:
            self.url, port = self._start()
        except StorageFailure:
            self._close_socket()
            raise
        self._settings = {**settings, "port": port}
        self._thread = threading.Thread(target=self._watch, name="quire-gateway-supervisor", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The id of the current process."""
        return 0 if self._process is None else self._process.pid

    def _start(self) -> tuple[str, int]:
        """Start the process, and return its URL and port when it listens."""
        shared = () if self._socket is None else (self._socket.fileno(),)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "quire.gateway.supervisor"],
                pass_fds=shared,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self.starts += 1
        process.stdin.write(msgspec.json.encode(_ProcessInput(self._where, self._settings, shared)) + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer: dict[str, Any] = msgspec.json.decode(line) if line else {"error": "it ended without a message"}
        if "error" in answer:
            _end(process)
            raise StorageFailure(f"The gateway did not start: {answer['error']}")
        return answer["url"], answer["port"]

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if self._process is not None:
                self._process.wait()
            if self._stopping.wait(_PAUSE):
                return
            if self._process is not None:
                _end(self._process)
            try:
                self._start()
            except (OSError, StorageFailure, ValueError) as error:  # a port that is not free yet, or stop() was faster
                with self._log.open("a", encoding="utf-8") as log:
                    log.write(f"{error}\n")

    def stop(self) -> None:
        """Let the gateway finish its requests, and stop it."""
        self._stopping.set()
        for _ in range(2):  # the thread may be starting another process
            if self._process is not None:
                _end(self._process)
            self._thread.join(_START_TIMEOUT)
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the standard input of a process, and wait until it ends."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_START_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _run() -> None:
    """Run the gateway that standard input describes, until standard input ends."""
    from quire.gateway import prepare
    from quire.gateway.gateway_server import RunningGateway

    given = msgspec.json.decode(sys.stdin.buffer.readline(), type=_ProcessInput)

    def ready(running: RunningGateway) -> None:
        _write({"url": running.url, "port": running.port})
        threading.Thread(target=_end_with_input, daemon=True).start()

    try:
        listening = [socket.socket(fileno=number) for number in given.sockets]
        prepare(given.where, given.settings, *listening).run(ready)
    except QuireError as error:
        _write({"error": str(error)})
        time.sleep(_PAUSE)
        sys.exit(1)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)


def _write(value: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _run()
