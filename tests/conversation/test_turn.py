"""Turns: one worker at a time, taken back if they fail, and never doubled."""
# ruff: noqa: PT012 - a block that raises is what is tested

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.aio
from quire import Library, MemoryStorage, ToolCall
from quire.core import lease
from quire.core.lease import Lease, companion_of
from quire.core.records import message_id_key
from quire.errors import Busy, Conflict, InvalidOperation, InvalidValue, LeaseLost, NoSuchContext, StorageFailure
from quire.storage.base import CALL, Commit, Delete
from tests.marks import broad
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, server


class CharacterCounter:
    """Counts characters."""

    name = "characters"
    exact = True

    def count(self, text: str) -> int:
        return len(text)


PROGRAM = Path(__file__).with_name("turn_worker.py")
SHARED = ["file", "sqlite", "postgres", "s3"]
BRIEF = ["sqlite", "postgres", *broad("file", "s3")]


def url_of(backend: str, tmp_path: Path) -> str:
    match backend:
        case "postgres":
            return postgres_url()
        case "s3":
            there = server()
            os.environ.update(AWS_ACCESS_KEY_ID=there.access_key_id, AWS_SECRET_ACCESS_KEY=there.secret_access_key)
            return f"s3://{there.bucket}/{fresh_prefix()}?endpoint={there.endpoint}&region=us-east-1"
        case "memory":
            return "memory:"
        case _:
            return f"{backend}:{tmp_path / 'store'}"


@pytest.fixture(params=["memory", *SHARED])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Library]:
    with Library(url_of(request.param, tmp_path)) as opened:
        yield opened


def texts(library: Library, name: str = "talk") -> list[str]:
    with library.open(name) as ctx:
        assert ctx.check() == []
        return [message.text for message in ctx.messages()]


def test_a_turn_is_committed_and_a_repeated_one_adds_nothing(library: Library) -> None:
    for attempt in range(2):
        with library.turn("talk", key="r1") as ctx:
            assert ctx.turn_state == ("finished" if attempt else "new")
            assert ctx.user(f"Hello {attempt}") == 0
            assert ctx.assistant("Look", [ToolCall("c", "look", "{}")]) == 1
            assert ctx.tool_result("c", "found") == 2
            assert ctx.add([{"role": "assistant", "content": "One"}, {"role": "user", "content": "Two"}]) == 4
        assert ctx.turn_state is None
    assert texts(library) == ["Hello 0", "Look", "found", "One", "Two"]
    assert list(library.list()) == ["talk"]


def test_a_turn_that_raises_is_taken_back_and_others_stay(library: Library) -> None:
    with library.open("talk") as other:
        other.user("Before")
        with pytest.raises(ZeroDivisionError), library.turn("talk", key="r1") as ctx:
            ctx.user("Of the turn")
            note = ctx.pages.create_detail_page("Note", "", "Of the turn", "mem-0")
            other.refresh()
            other.pages.create_detail_page("Other", "", "Of another writer", "mem-0")
            ctx.refresh()
            ctx.assistant("Of the turn too")
            raise ZeroDivisionError
        other.refresh()
        assert [page.name for page in other.pages.children("mem-0")] == ["Other"]
        with pytest.raises(quire.NoSuchPage):
            other.pages.get_page(note)
        last = list(other.history())[-1]
        assert last.operation == "turn"
        assert texts(library) == ["Before"]
        other.undo(last)  # taking back can be undone
        assert [message.text for message in other.messages()] == ["Before", "Of the turn", "Of the turn too"]


def test_messages_that_another_writer_continued_leave_the_conversation(library: Library) -> None:
    with library.open("talk") as other:
        with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
            ctx.assistant("", [ToolCall("c", "look", "{}")])
            other.refresh()
            other.tool_result("c", "found")
            raise ZeroDivisionError
        assert texts(library) == []


def test_a_pin_of_a_failed_turn_is_taken_back(library: Library) -> None:
    with library.open("talk") as ctx:
        hidden, kept = (ctx.conversation.page_of(ctx.user(text)) or "" for text in ("Hidden", "Kept"))
        ctx.pages.hide(hidden)
        ctx.pages.pin(kept)
    with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
        ctx.pages.pin(hidden)
        ctx.pages.unpin(kept)
        raise ZeroDivisionError
    with library.turn("talk", wait=0) as ctx:  # the lease is released
        assert [ctx.pages.get_page(page).pinned for page in (hidden, kept)] == [False, True]
        assert ctx.pages.get_page(hidden).visibility is quire.Visibility.HIDDEN
    assert texts(library) == ["Hidden", "Kept"]


def test_a_failed_turn_does_not_restore_messages_that_a_cleanup_destroyed(library: Library) -> None:
    with library.open("talk") as ctx:
        ctx.add([{"role": "user", "content": text} for text in ("One", "Two", "Three")])
    with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
        ctx.user("Of the turn")
        ctx.conversation.delete([1])
        ctx.conversation.cleanup()
        ctx.user("After the cleanup")
        raise ZeroDivisionError
    assert texts(library) == ["One", "Three"]


def test_a_failed_turn_ends_if_others_built_on_its_pages(library: Library) -> None:
    """Otherwise every later turn would fail to take it back."""
    with library.open("talk") as other:
        with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
            ctx.user("Of the turn")
            ctx.pages.add_segment(quire.Segment(id="new"))
            folder = ctx.pages.create_contents_page("Folder", "", "mem-0")
            new = ctx.pages.create_contents_page("Folder", "", "new-0")
            other.refresh()
            for parent in (folder, new):
                other.pages.create_detail_page("Other", "", "Of another writer", parent)
            raise ZeroDivisionError
        with library.turn("talk", wait=0):
            pass
        assert texts(library) == []
        other.refresh()
        assert [other.pages.children(parent)[0].name for parent in (folder, new)] == ["Other", "Other"]


def test_a_failed_turn_ends_if_what_it_changed_has_no_place_any_more(library: Library) -> None:
    with library.open("talk") as other:
        folder = other.pages.create_contents_page("Folder", "", "mem-0")
        leaf = other.pages.create_detail_page("Leaf", "", "Text", folder)
        with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
            ctx.user("Of the turn")
            ctx.pages.move_page(leaf, "mem-0")
            other.refresh()
            other.pages.remove_page(folder)
            raise ZeroDivisionError
        with library.turn("talk", wait=0):
            pass
        assert texts(library) == []
        other.refresh()
        assert other.pages.get_page(leaf).parent == "mem-0"


def test_a_result_that_is_stored_already_can_arrive_again_in_a_turn(library: Library) -> None:
    with library.open("talk") as ctx:
        ctx.assistant("", [ToolCall("c", "look", "{}")])
        ctx.tool_result("c", "found")
        assert ctx.tool_result("c", "found", id="a") == 1
        with ctx.turn("r1"):
            assert ctx.tool_result("c", "found") == 1
            assert ctx.user("Next") == 2
        assert ctx.check() == []


def test_kept_entries_stay_and_the_same_key_resumes(library: Library) -> None:
    with pytest.raises(ZeroDivisionError), library.turn("talk", key="r1", keep=True) as ctx:
        ctx.user("Hello")
        ctx.assistant("", [ToolCall("c", "pay", "{}")])
        raise ZeroDivisionError
    with library.turn("talk", key="r1", keep=True) as ctx:
        assert ctx.turn_state == "unfinished"
        assert ctx.user("Hello") == 0
        assert ctx.assistant("", [ToolCall("c2", "pay", "{}")]) == 1  # it is not paid twice
        assert [call.id for call in ctx.pending_calls()] == ["c"]
        ctx.tool_result("c", "paid")
    assert texts(library) == ["Hello", "", "paid"]
    with library.turn("talk", key="r1") as ctx:
        assert ctx.turn_state == "finished"


def test_ids_count_while_their_message_is_in_the_conversation(library: Library) -> None:
    with library.open("talk") as ctx:
        assert ctx.user("One", id="a") == ctx.user("Another text", id="a") == 0
        seq = ctx.seq
        ctx.user("Again", id="a")
        assert ctx.seq == seq
        assert ctx.add([{"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}], id="b") == 2
        assert ctx.add({"role": "user", "content": "C"}, id="b.2") == 2
        ctx.conversation.delete(0)
        assert ctx.user("Two", id="a") == 3
        fork = ctx.fork("copy")
        assert fork.user("Three", id="a") == 3
        checkpoint = ctx.checkpoint("here")
        ctx.user("Four", id="d")
        ctx.rollback(checkpoint)
        assert ctx.user("Five", id="d") == 5
        for wrong in ("", 7, "x" * 1_000):
            with pytest.raises(InvalidValue):
                ctx.user("x", id=wrong)  # type: ignore[arg-type]
        assert ctx.check() == []


def test_others_wait_or_are_busy(library: Library) -> None:
    order: list[str] = []

    def wait() -> None:
        with library.turn("talk", wait=30) as ctx:
            order.append(ctx.messages()[-1].text)

    with library.turn("talk", key="first") as ctx:
        thread = threading.Thread(target=wait)
        thread.start()

        def refuse() -> None:
            with (
                pytest.raises(Busy, match=r"'first' of .* process \d+ MainThread since 20"),
                library.turn("talk", wait=0),
            ):
                pass
            order.append("busy")

        second = threading.Thread(target=refuse)
        second.start()
        second.join()
        with ctx.turn():  # it joins
            ctx.user("Hello")
        with library.open("talk") as plain:
            plain.assistant("A plain writer is not kept out.")
        ctx.refresh()
    thread.join()
    assert order == ["busy", "A plain writer is not kept out."]


def test_a_turn_holds_no_lock_and_no_connection(tmp_path: Path) -> None:
    with Library(f"sqlite:{tmp_path / 'store'}") as library, library.turn("talk") as ctx:
        ctx.user("Hello")
        with Library(f"sqlite:{tmp_path / 'store'}") as another, another.turn("other") as second:
            second.user("Hello")


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


@pytest.mark.parametrize("backend", BRIEF)
@pytest.mark.parametrize("keep", [False, True])
def test_the_turn_of_a_killed_worker(backend: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    url = url_of(backend, tmp_path)
    create(url)
    with start(url, "w", 1, 1, "hang-kept" if keep else "hang") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
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
    create(url)
    with start(url, "w", 1, 1, "hang-kept" if keep else "hang") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "waiting\n"
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


def test_deleting_a_context_ends_its_keys(library: Library) -> None:
    with library.turn("talk", key="r1") as ctx:
        ctx.user("Hello")
    library.delete("talk")
    assert library.storage.head(companion_of("talk")) is None
    with library.turn("talk", key="r1") as ctx:
        assert ctx.turn_state == "new"


def test_a_repeated_turn_keeps_the_number_of_its_messages(library: Library) -> None:
    with library.turn("talk", key="r1") as ctx:
        ctx.user("Hello")
    with library.turn("talk", key="r1") as ctx:
        assert ctx.turn_state == "finished"
    with library.open("talk") as ctx:
        ctx.delete(0)
    with library.turn("talk", key="r1") as ctx:
        assert ctx.turn_state == "new"


def test_a_key_of_a_fork_is_not_new(library: Library) -> None:
    with library.turn("talk", key="r1") as ctx:
        ctx.user("Hello")
    library.fork("talk", "copy")
    with library.turn("copy", key="r1") as ctx:
        assert ctx.turn_state == "unfinished"
        assert ctx.user("Hello") == 0
    with library.turn("copy", key="r1") as ctx:
        assert ctx.turn_state == "finished"


def test_messages_of_a_temporary_block_have_no_ids() -> None:
    with Library("memory:") as library:
        for state in ("new", "finished"):
            with library.turn("talk", key="r1") as ctx:
                assert ctx.turn_state == state
                with ctx.temporary():
                    ctx.user("For one view")
                    assert ctx.messages()[-1].text == "For one view"
                ctx.user("Hello")
        with library.turn("talk", key="r1") as ctx:
            ctx.user("Hello")
        assert texts(library) == ["Hello"]


def test_a_task_that_is_cancelled_at_the_start_of_its_turn_does_not_finish_it() -> None:
    async def run() -> None:
        entered, go = threading.Event(), threading.Event()

        async def work() -> None:
            async with ctx.turn(key="r1"):
                raise AssertionError("It is cancelled before.")

        async with quire.aio.open("memory:") as ctx:
            refresh = ctx._get().pages._engine.refresh

            def refresh_slowly() -> bool:
                entered.set()
                go.wait(10)
                return bool(refresh())

            ctx._get().pages._engine.refresh = refresh_slowly
            task = asyncio.create_task(work())
            await asyncio.to_thread(entered.wait, 10)
            task.cancel()
            await asyncio.sleep(0)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with ctx.turn(key="r1"):
                assert ctx.turn_state == "new"

    asyncio.run(run())


def test_doctor_finds_and_rebuilds_lost_ids(library: Library) -> None:
    with library.open("talk") as ctx:
        ctx.user("Hello", id="a")
        assert quire.doctor(library.storage).symptoms == ()
        key = message_id_key("a")
        head = library.storage.head("talk")
        assert head is not None
        library.storage.commit("talk", Commit(head.version, head.version, head.value, [Delete(CALL, key)], head.value))
        assert [found.code for found in quire.doctor(library.storage).symptoms] != []
        quire.doctor(library.storage, repair=True)
        assert ctx.user("Hello again", id="a") == 0


def test_what_is_refused(tmp_path: Path) -> None:
    with Library("memory:") as library, library.open("talk") as ctx:
        for wait in (-1, "x", True, float("inf")):
            with pytest.raises(InvalidValue), ctx.turn(wait=wait):  # type: ignore[arg-type]
                pass
        with pytest.raises(InvalidValue, match="line break"):
            ctx.user("Hello", id="a\nb")
        with ctx.temporary(), pytest.raises(InvalidOperation), ctx.turn():
            pass
        with pytest.raises(InvalidValue):
            library.open("quire.lease.x")


def test_turns_of_tasks(tmp_path: Path) -> None:
    asyncio.run(_run_tasks(tmp_path))


async def _run_tasks(tmp_path: Path) -> None:
    async def work(library: quire.aio.Library, name: str) -> None:
        for number in range(3):
            async with library.turn("talk", key=f"{name}-{number}", wait=60) as ctx:
                assert ctx.turn_state == "new"
                await ctx.user(f"{name}-{number}?")
                async with ctx.turn():
                    await ctx.assistant(f"{name}-{number}!")

    async with quire.aio.Library(f"sqlite:{tmp_path / 'store'}") as library:
        await library.create("talk")
        await asyncio.gather(*(work(library, f"t{n}") for n in range(20)))  # more than the pool has threads
        with pytest.raises(ZeroDivisionError):
            async with library.open("talk") as ctx, ctx.turn():
                await ctx.user("Taken back")
                raise ZeroDivisionError
        async with library.open("talk") as ctx:
            found = [message.text async for message in ctx.messages()]
    assert [text[:-1] for text in found[::2]] == [text[:-1] for text in found[1::2]]
    assert len(found) == 120


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
