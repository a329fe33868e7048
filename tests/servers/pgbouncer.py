"""A real PgBouncer in transaction mode in front of a PostgreSQL server of the tests.

Debian's package has it. Without it the tests are skipped, and fail if CI=true.
"""

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.servers.postgres import Server

_PATIENCE = 20.0
_PORT = 6432
_SETTINGS = """[databases]
postgres = host={folder} port=5432 dbname=postgres user=postgres

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 300
server_login_retry = 0.2
ignore_startup_parameters = extra_float_digits
pidfile = {folder}/pgbouncer.pid
logfile = {folder}/pgbouncer.log
admin_users = postgres
"""


def find_pgbouncer() -> str:
    """Return the path of the program."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        words = "No pgbouncer was found (Debian's package pgbouncer): PgBouncer was not tried."
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    return found


class PgBouncer:
    """PgBouncer with a few sessions of a server, which all clients share."""

    def __init__(self, server: Server, *, sessions: int = 4) -> None:
        self._server = server
        self._program = find_pgbouncer()
        self._file = server.folder / "pgbouncer.ini"
        self._file.write_text(_SETTINGS.format(folder=server.folder, port=_PORT, sessions=sessions))
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, **options: str) -> str:
        """Return the URL of the database through PgBouncer."""
        return self._server.url(port=str(_PORT), **options)

    def start(self) -> None:
        """Start it and wait until it answers."""
        launcher = self._server.launcher
        with (self._server.folder / "pgbouncer.out").open("ab") as log:
            self._process = subprocess.Popen(
                [*launcher.prefix, self._program, str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._server.folder,
                **launcher.options,
            )
        import psycopg

        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    out = (self._server.folder / "pgbouncer.out").read_text()[-2_000:]
                    raise AssertionError(f"{error}\n{out}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it: all connections of its clients end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            (self._server.folder / f".s.PGSQL.{_PORT}").unlink(missing_ok=True)
            (self._server.folder / "pgbouncer.pid").unlink(missing_ok=True)
