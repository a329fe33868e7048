"""Turns of several workers: they wait for each other, die, or lose their lease."""
# ruff: noqa: PT012 - a block that raises is what is tested

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire import Busy, Library, NoSuchContext
from tests.conversation.turn_stores import texts
from tests.marks import long, servers
from tests.servers.stores import new_url

PROGRAM = Path(__file__).with_name("turn_worker.py")
BACKENDS = ["sqlite", *long("file"), *servers("postgres", "s3")]


def start(url: str, name: str, turns: int, last: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), url, name, str(turns), last],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@contextmanager
def start_in_turn(url: str, *, keep: bool) -> Iterator["subprocess.Popen[str]"]:
    """Create the context and start a worker that waits in a turn."""
    with Library(url) as library:
        library.create("talk").close()
    with start(url, "w", 1, "hang-kept" if keep else "hang") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
        yield worker


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_on_one_context_lose_and_double_nothing(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, turns = new_url(backend, tmp_path, monkeypatch), 4
    with Library(url) as library:
        library.create("talk").close()
    workers = [start(url, f"w{n}", turns, "end") for n in range(3)]
    for worker in workers:
        with worker:
            assert worker.wait() == 0
    with Library(url) as library:
        found = texts(library)
    assert [text[:-1] for text in found[::2]] == [text[:-1] for text in found[1::2]]
    assert sorted(found[::2]) == sorted(f"w{n}-{turn}?" for n in range(3) for turn in range(turns))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("keep", [False, True])
def test_the_turn_of_a_killed_worker_is_taken_back_or_resumed(
    backend: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url(backend, tmp_path, monkeypatch)
    with start_in_turn(url, keep=keep) as worker:
        worker.kill()
    with Library(url) as library, library.turn("talk", key="w-0", wait=60) as ctx:
        assert ctx.turn_state == ("unfinished" if keep else "new")
        assert [message.text for message in ctx.messages()] == (["w-0?"] if keep else [])
        ctx.user("w-0?")
        ctx.assistant("w-0!")
    with Library(url) as library:
        assert texts(library) == ["w-0?", "w-0!"]


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_a_worker_that_lost_its_lease_cannot_commit(keep: bool, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store'}"
    with start_in_turn(url, keep=keep) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            with Library(url) as library, library.turn("talk", wait=300) as ctx:
                ctx.user("The next one")
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        told, _ = worker.communicate("go\n")
        assert told == "lease_lost\n"
        assert worker.returncode != 0
    with Library(url) as library:
        assert texts(library) == (["w-0?", "The next one"] if keep else ["The next one"])


@pytest.mark.slow
def test_a_worker_that_lives_keeps_its_turn_however_long_it_thinks(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store'}"
    with start_in_turn(url, keep=False) as worker:
        with Library(url) as library, pytest.raises(Busy), library.turn("talk", wait=36):
            pass
        told, _ = worker.communicate("go\n")
    assert told == "committed\n"
    with Library(url) as library:
        assert texts(library) == ["w-0?", "too late", "w-0!"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_turn_names_the_deletion_of_its_context(writes: bool) -> None:
    with Library("memory:") as library:
        with pytest.raises(NoSuchContext), library.turn("talk") as ctx:
            ctx.user("Hello")
            library.delete("talk")
            if writes:
                ctx.user("Are you there?")
        assert not library.exists("talk")
