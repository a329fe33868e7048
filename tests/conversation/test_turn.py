"""Turns: one at a time, taken back if they fail, and never doubled."""
# ruff: noqa: PT012 - a block that raises is what is tested

import asyncio
import threading
from pathlib import Path

import pytest

import quire
import quire.aio
from quire import Busy, InvalidOperation, InvalidValue, Library, ToolCall
from tests.conversation.turn_stores import texts


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


def test_messages_that_another_writer_continued_leave_the_conversation_and_notes_stay(library: Library) -> None:
    with library.open("talk") as other:
        with pytest.raises(ZeroDivisionError), library.turn("talk") as ctx:
            note = ctx.pages.create_detail_page("Note", "", "Of the turn", "mem-0")
            ctx.assistant("", [ToolCall("c", "look", "{}")])
            other.refresh()
            other.tool_result("c", "found")
            raise ZeroDivisionError
        assert texts(library) == []
        assert [entry.operation for entry in other.history(page=note)] == ["create_detail_page"]


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
                pytest.raises(Busy),
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


def test_deleting_a_context_ends_its_keys(library: Library) -> None:
    with library.turn("talk", key="r1") as ctx:
        ctx.user("Hello")
    library.delete("talk")
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


def test_what_is_refused(tmp_path: Path) -> None:
    with Library("memory:") as library, library.open("talk") as ctx:
        for wait in (-1, "x", True, float("inf")):
            with pytest.raises(InvalidValue), ctx.turn(wait=wait):  # type: ignore[arg-type]
                pass
        with pytest.raises(InvalidValue):
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
