"""A fork of a process that uses a store: the child works, or gets an error at once. It never hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from tests.servers.s3 import fresh_prefix, open_s3, server

SECONDS = 20
FIRST_USE_IN_THE_CHILD = """
import os, signal, sys, quire
bucket, prefix, *options = sys.argv[1:]
names = ("endpoint", "access_key_id", "secret_access_key")
storage = quire.S3Storage(bucket, prefix, probe=False, region="us-east-1", **dict(zip(names, options)))
if os.fork() == 0:
    signal.alarm(20)
    quire.open(storage).add({"role": "user", "content": "In the child"})
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run_in_fork(work: Callable[[], str]) -> str:
    """Return what a function returns in a fork of this process, or the error that it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - not measured in the child
        signal.alarm(SECONDS)
        try:
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child hangs"
    return answer


@pytest.mark.servers
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_s3_refuses_a_fork_of_a_process_that_uses_it() -> None:
    prefix = fresh_prefix()
    storage = open_s3(prefix)
    quire.open(storage).add({"role": "user", "content": "In the parent"})

    def with_new_handle() -> str:
        open_s3(prefix)
        return "opened"

    def with_old_handle() -> str:
        return str(quire.Library(storage).exists("default"))

    for work in (with_new_handle, with_old_handle):
        assert run_in_fork(work).startswith("StorageFailure: ")
    assert quire.Library(storage).exists("default")
    storage.close()


@pytest.mark.servers
def test_s3_works_in_a_fork_if_the_parent_did_not_use_it() -> None:
    there, prefix = server(), fresh_prefix()
    values = (there.bucket, prefix, there.endpoint, there.access_key_id, there.secret_access_key)
    run = subprocess.run([sys.executable, "-c", FIRST_USE_IN_THE_CHILD, *values], timeout=2 * SECONDS, check=False)
    assert run.returncode == 0
    assert len(quire.open(open_s3(prefix)).messages()) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("where", ["memory:", "file:", "sqlite:"])
def test_a_new_handle_works_in_a_fork(where: str, tmp_path: Path) -> None:
    place = where + ("" if where == "memory:" else str(tmp_path / "store"))
    ctx = quire.open(place)
    ctx.add({"role": "user", "content": "In the parent"})

    def add() -> str:
        with quire.open(place) as other:
            other.add({"role": "user", "content": "In the child"})
            return str(other.seq)

    assert int(run_in_fork(add)) == (ctx.seq + 1 if where != "memory:" else ctx.seq)
    ctx.close()
