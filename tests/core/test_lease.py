"""The identity of a process: another worker recognizes with it that the holder of a lease is dead."""

import os
import subprocess
import sys

import pytest

from quire.core import lease

pytestmark = pytest.mark.skipif(not lease.identify_process(), reason="this system has no identities of processes")


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_identities", {})


def test_the_identity_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = lease.identify_process()
    monkeypatch.setattr(lease, "_start_time", lambda pid: "another")
    assert lease.identify_process() == identity


def test_a_failed_read_is_not_remembered_and_does_not_mark_a_process_as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lease, "_start_time", lambda pid: "")
        incomplete = lease.identify_process()
    complete = lease.identify_process()
    assert incomplete != complete
    assert not lease.is_dead(incomplete)
    assert not lease.is_dead(complete)


def test_a_process_that_ended_is_dead() -> None:
    code = "from quire.core.lease import identify_process; print(identify_process())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert ended
    assert lease.is_dead(ended)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_child_of_a_fork_has_its_own_identity() -> None:
    code = """
import os
from quire.core.lease import identify_process
own = identify_process()
child = os.fork()
if not child:
    os._exit(identify_process() == own)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
