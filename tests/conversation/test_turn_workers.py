"""Turns of several workers: they die, lose their lease, or take over the turn of another."""
# ruff: noqa: PT012 - a block that raises is what is tested

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.aio
from quire import Conflict, LeaseLost, Library, MemoryStorage, NoSuchContext, StorageFailure
from quire.core import lease
from quire.core.lease import Lease, companion_of
from quire.storage.base import Commit
from tests.conversation.turn_stores import texts, url_of
from tests.marks import broad


class CharacterCounter:
    """Counts characters."""

    name = "characters"
    exact = True

    def count(self, text: str) -> int:
        return len(text)


PROGRAM = Path(__file__).with_name("turn_worker.py")
BRIEF = ["sqlite", "postgres", *broad("file", "s3")]


@pytest.mark.parametrize("backend", BRIEF)
def test_workers_on_one_context_lose_and_double_nothing(backend: str, tmp_path: Path) -> None:
    url = url_of(backend, tmp_path)
    turns = 4 if backend == "s3" else 10
    create(url)
    workers = [start(url, f"w{n}", turns, 30, "end") for n in range(3)]
    for worker in workers:
        with worker:
            assert worker.wait() == 0
    with Library(url) as library:
        found = texts(library)
    asked, answered = found[::2], found[1::2]
    assert [text[:-1] for text in asked] == [text[:-1] for text in answered]
    assert sorted(asked) == sorted(f"w{n}-{turn}?" for n in range(3) for turn in range(turns))


@contextmanager
def start_in_turn(url: str, *, keep: bool) -> Iterator["subprocess.Popen[str]"]:
    """Create the context and start a worker that waits in a turn."""
    create(url)
    with start(url, "w", 1, 1, "hang-kept" if keep else "hang") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
        yield worker


@pytest.mark.parametrize("backend", BRIEF)
@pytest.mark.parametrize("keep", [False, True])
def test_the_turn_of_a_killed_worker(backend: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    url = url_of(backend, tmp_path)
    with start_in_turn(url, keep=keep) as worker:
        worker.kill()
    with Library(url) as library, library.turn("talk", key="w-0", wait=60) as ctx:
        assert ctx.turn_state == ("unfinished" if keep else "new")
        assert [message.text for message in ctx.messages()] == (["w-0?"] if keep else [])
        ctx.user("w-0?")
        ctx.assistant("w-0!")
    with Library(url) as library:
        assert texts(library) == ["w-0?", "w-0!"]


def test_messages_keep_their_order_if_another_writer_folded_after_a_dead_turn(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "is_dead", lambda process: True)
    sizes = [62, 302, 62, 302, 2, 302, 302, 9, 9, 62, 63, 63, 63, 3, 63, 10, 63, 3, 303, 3, 303]
    said = [f"{number} " + "w" * size for number, size in enumerate(sizes)]
    with library.open("talk", budget=2_500, counter=CharacterCounter()) as ctx:
        ctx.import_messages({"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said))
        for size in (60, 300, 1_000):  # some sizes let both fold
            dead = library.turn("talk", key=f"dead {size}", budget=2_500, counter=CharacterCounter())
            worker = dead.__enter__()
            worker.user("of the dead worker " + "w" * size)
            worker.render()
            ctx.refresh()
            ctx.user(f"other {size} " + "w" * 2_000)
            ctx.render()
            said.append(ctx.messages()[-1].text)
            with library.turn("talk", key=f"next {size}"):
                pass
            assert texts(library) == said


@pytest.mark.parametrize("end", ["raises", "dies"])
def test_a_turn_that_took_back_a_dead_one_does_not_bring_it_back(
    end: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "is_dead", lambda process: True)
    dead = [library.turn("talk", key=f"dead-{number}") for number in range(2)]
    with library.open("talk") as ctx:
        ctx.user("before")
    dead[0].__enter__().user("of the first dead worker")
    if end == "raises":
        with pytest.raises(TimeoutError), library.turn("talk", key="second") as ctx:
            ctx.user("of a turn that raises")
            raise TimeoutError
    else:
        dead[1].__enter__().user("of the second dead worker")
    assert len(texts(library)) == (1 if end == "raises" else 2)
    with library.turn("talk", key="third") as ctx:
        ctx.user("after")
    assert texts(library) == ["before", "after"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_take_back_that_was_undone_is_not_made_again(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "is_dead", lambda process: True)
    library = Library("memory:")
    dead = [library.turn("talk", key="first"), library.turn("talk", key="second", keep=keep)]
    with library.open("talk") as ctx:
        ctx.user("before")
    dead[0].__enter__().user("of the first dead worker")
    with monkeypatch.context() as patch:
        patch.setattr(lease.Lease, "settle", lambda self: None)  # it dies after it took the first turn back
        dead[1].__enter__()
    with library.open("talk") as ctx:
        assert [entry.operation for entry in ctx.history()][-1] == "turn"
        ctx.undo(ctx.seq)
    with library.turn("talk", key="third") as ctx:
        ctx.user("after")
    assert texts(library) == ["before", "of the first dead worker", "after"]


def test_a_dead_turn_is_taken_back_if_the_first_try_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    library = Library(storage)
    dead = library.turn("talk", key="dead")
    with library.open("talk") as ctx:
        ctx.user("before")
    dead.__enter__().user("of the dead worker")

    def fail(context: str, commit: Commit) -> None:
        if context == "talk":
            monkeypatch.undo()
            raise StorageFailure("The disk is full.")
        MemoryStorage.commit(storage, context, commit)

    monkeypatch.setattr(lease, "is_dead", lambda process: True)
    monkeypatch.setattr(storage, "commit", fail)
    with pytest.raises(StorageFailure), library.turn("talk", key="second"):
        pass
    with library.turn("talk", key="third") as ctx:
        ctx.user("after")
    assert texts(library) == ["before", "after"]


def test_a_lease_is_kept_if_the_answer_to_a_renewal_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    context = quire.open(storage, "talk")

    def commit(name: str, commit: Commit) -> None:
        MemoryStorage.commit(storage, name, commit)
        raise StorageFailure("The connection was closed.")

    with context.turn(key="first"):
        context.user("question")
        (held,) = lease.renewer._leases
        with monkeypatch.context() as patch:
            patch.setattr(storage, "commit", commit)
            held.renew()
        held.renew()
        assert not held.is_lost
        context.assistant("answer")
    with context.turn(key="first"):
        context.user("question")
    assert [message.text for message in context.messages()] == ["question", "answer"]


@pytest.mark.parametrize("backend", BRIEF)
@pytest.mark.parametrize("keep", [False, True])
def test_a_worker_that_lost_its_lease_cannot_commit(
    backend: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    url = url_of(backend, tmp_path)
    with start_in_turn(url, keep=keep) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            with Library(url) as library, library.turn("talk", wait=60) as ctx:
                ctx.user("The next one")
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        told, _ = worker.communicate("go\n")
        assert told == "lease_lost\n"
        assert worker.returncode != 0
    with Library(url) as library:
        assert texts(library) == (["w-0?", "The next one"] if keep else ["The next one"])


def test_a_lost_lease_is_named_in_the_same_process(tmp_path: Path) -> None:
    with Library(f"sqlite:{tmp_path / 'store'}") as library:
        library.create("talk").close()
        with pytest.raises(LeaseLost), library.turn("talk") as ctx:
            ctx.user("One")
            head = library.storage.head(companion_of("talk"))
            assert head is not None
            library.storage.drop(companion_of("talk"))
            with library.turn("talk"), library.open("talk") as other:
                other.user("Two")
        assert issubclass(LeaseLost, Conflict)


def test_the_first_call_after_a_take_over_raises_lease_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", -1.0)
    with Library("memory:") as library, library.open("talk") as slow:
        with pytest.raises(LeaseLost), slow.turn(key="r1"):
            with library.turn("talk", key="r2") as ctx:
                ctx.user("The next one")
            slow.user("Late")  # no renewal has noticed the loss, and the handle is not refreshed
        assert texts(library) == ["The next one"]


@pytest.mark.parametrize("writes", [False, True])
def test_a_turn_names_the_deletion_of_its_context(writes: bool) -> None:
    with Library("memory:") as library:
        with pytest.raises(NoSuchContext, match="was deleted") as found, library.turn("talk") as ctx:
            ctx.user("Hello")
            library.delete("talk")
            if writes:
                ctx.user("Are you there?")
        assert not hasattr(found.value, "__notes__")  # nothing must be taken back
        assert not library.exists("talk")


def test_the_end_of_a_turn_leaves_the_turn_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    began, release = threading.Event(), Lease.release

    def release_and_wait(self: Lease, **state: Any) -> None:
        release(self, **state)
        if threading.current_thread() is first:
            began.wait(10)

    def work() -> None:
        with ctx.turn(key="r1"):
            ctx.user("One")

    monkeypatch.setattr(Lease, "release", release_and_wait)
    with quire.open("memory:") as ctx:
        first = threading.Thread(target=work)
        first.start()
        while not ctx.messages():
            time.sleep(0.001)
        with pytest.raises(ZeroDivisionError), ctx.turn(key="r2"):
            began.set()
            first.join()
            assert ctx.turn_state == "new"
            ctx.user("Two")
            raise ZeroDivisionError
        assert [message.text for message in ctx.messages()] == ["One"]


def test_a_control_without_the_number_of_the_turn_commits_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If heads do not keep the number of the turn, a worker that lost its lease commits after a refresh."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(lease.renewer, "add", lambda lease: None)
    with Library(f"sqlite:{tmp_path / 'store'}") as library:
        for guarded in (True, False):
            if not guarded:
                monkeypatch.setattr("quire.conversation.turn.Turn.number_in", lambda turn, state: 0)
            library.create(f"talk-{guarded}").close()
            with pytest.raises(LeaseLost), library.turn(f"talk-{guarded}") as ctx:
                ctx.user("One")
                time.sleep(0.3)
                thread = threading.Thread(target=_turn_of, args=(library, f"talk-{guarded}"))
                thread.start()
                thread.join()
                ctx.refresh()
                ctx.user("Late")
            assert ("Late" in texts(library, f"talk-{guarded}")) is not guarded


def _turn_of(library: Library, name: str) -> None:
    with library.turn(name) as ctx:
        ctx.assistant("Of another worker")


def create(url: str) -> None:
    with Library(url) as library:
        library.create("talk").close()


def start(url: str, name: str, turns: int, seconds: float, last: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), url, name, str(turns), str(seconds), last],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
