"""Temporary blocks: all their messages are gone at the end, also after an error."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Conflict, Context, InvalidOperation, MemoryStorage, Permission, QuireError
from quire.model.pages import Mark
from tests.books import everything, refused
from tests.conversation.talks import calls, exchange, indices, names, new_talk, result, said, talk_of, texts

each_store = pytest.mark.parametrize("kind", ["file", "sqlite"])


class Boom(Exception):
    """The exception that a block raises."""


def block(ctx: Context, *steps: Callable[[], Any], raising: bool = False) -> None:
    """Run a temporary block with these steps, and perhaps raise at its end."""
    with ctx.temporary():
        for step in steps:
            step()
        if raising:
            raise Boom


def test_what_is_said_in_the_block_leaves_with_it() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        assert ctx.user("temporary") == 1
        assert texts(ctx) == ["a", "temporary"]
        assert ctx.conversation.mark_map().current_batch == 1
    assert texts(ctx) == ["a"]
    assert texts(ctx, all_of_them=True) == ["a", "temporary"]
    assert ctx.conversation.mark_of(1) is Mark.ENDED
    assert ctx.conversation.mark_map().current_batch == 0
    assert ctx.user("b") == 2
    assert ctx.check() == []


def test_a_block_in_which_nothing_was_done_leaves_no_entry() -> None:
    ctx = talk_of("a")
    before = everything(ctx.pages)
    with ctx.temporary():
        assert texts(ctx) == ["a"]
    assert everything(ctx.pages) == before


@each_store
def test_a_block_that_raises_ends_like_any_other(kind: str, tmp_path: Path) -> None:
    url = f"{kind}:{tmp_path / 'store'}"
    with new_talk(url) as ctx:
        ctx.user("a")
        with pytest.raises(Boom) as caught:
            block(ctx, lambda: ctx.user("temporary"), raising=True)
        assert getattr(caught.value, "__notes__", []) == []
        assert texts(ctx) == ["a"]
    with new_talk(url) as ctx:
        assert texts(ctx) == ["a"]
        assert texts(ctx, all_of_them=True) == ["a", "temporary"]
        assert ctx.check() == []


def test_a_refused_call_in_the_block_ends_it_too() -> None:
    ctx = talk_of("a")
    with pytest.raises(InvalidOperation, match="99"):
        block(ctx, lambda: ctx.user("temporary"), lambda: ctx.conversation.delete(99))
    assert texts(ctx) == ["a"]


def test_a_cancelled_task_leaves_nothing_in_the_conversation() -> None:
    ctx = talk_of("a")
    reached = []

    async def work() -> None:
        with ctx.temporary():
            ctx.user("temporary")
            ctx.assistant(None, calls("c1"))
            reached.append(texts(ctx))
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert reached == [["a", "temporary", ""]]
    assert texts(ctx) == ["a"]
    assert ctx.pending_calls() == []
    assert ctx.check() == []


KILLED = """
import os, signal, sys
import quire
ctx = quire.open(sys.argv[1])
ctx.user("a")
ctx.pages.create_detail_page("note", "", "kept", "mem-0")
sys.stdout.write(str(ctx.seq))
sys.stdout.flush()
with ctx.temporary():
    ctx.system("Be someone else.")
    ctx.user("temporary")
    ctx.conversation.delete(0)
    ctx.pages.set_detail("mem-1", "changed")
    with ctx.temporary():
        ctx.user("more of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@each_store
def test_a_block_whose_process_is_killed_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    url = f"{kind}:{tmp_path / 'store'}"
    done = subprocess.run([sys.executable, "-c", KILLED, url], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    with new_talk(url) as ctx:
        assert ctx.seq == int(done.stdout)
        assert texts(ctx, all_of_them=True) == ["a"]
        assert ctx.pages.detail("mem-1") == "kept"
        assert ctx.conversation.mark_map().batch_boundaries == [0]
        assert ctx.check() == []
        assert ctx.user("b") == 1
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"more of it" not in kept
    assert b"temporary" not in kept


@each_store
def test_another_handle_never_sees_the_block(kind: str, tmp_path: Path) -> None:
    url = f"{kind}:{tmp_path / 'store'}"
    with new_talk(url) as ctx, new_talk(url) as other:
        ctx.user("a")
        with ctx.temporary():
            ctx.user("temporary")
            ctx.pages.create_detail_page("note", "", "in the block", "mem-0")
            for handle in (other, quire.open(url)):
                handle.refresh()
                assert texts(handle, all_of_them=True) == ["a"]
                assert names(handle, "mem-0") == []
                assert handle.find("temporary") == []
                assert handle.conversation.mark_map().current_batch == 0
            handle.close()
        assert other.refresh()
        assert texts(other) == ["a"]
        assert names(other, "mem-0") == ["mem-1"]


def test_blocks_stand_in_each_other() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        ctx.user("b")
        boundaries: list[int] = []
        with pytest.raises(Boom):
            block(
                ctx,
                lambda: ctx.user("c"),
                lambda: boundaries.extend(ctx.conversation.mark_map().batch_boundaries),
                raising=True,
            )
        assert (texts(ctx), boundaries) == (["a", "b"], [0, 1, 2])
        with ctx.temporary():
            ctx.conversation.delete(1)
            assert texts(ctx) == ["a"]
        assert texts(ctx) == ["a", "b"]
    assert texts(ctx) == ["a"]
    assert texts(ctx, all_of_them=True) == ["a", "b", "c"]
    assert ctx.check() == []


def test_notes_written_in_the_block_stay() -> None:
    storage = MemoryStorage()
    ctx = talk_of("a", where=storage)
    old = ctx.pages.create_detail_page("plan", "", "old", "mem-0")
    with ctx.temporary():
        ctx.user("temporary")
        new = ctx.pages.create_detail_page("note", "", "learnt", "mem-0")
        ctx.pages.set_detail(old, "new")
    for handle in (ctx, new_talk(storage)):
        assert (handle.pages.detail(new), handle.pages.detail(old)) == ("learnt", "new")
        assert texts(handle) == ["a"]
        assert handle.check() == []


def test_notes_written_in_a_block_that_raises_stay_too() -> None:
    ctx = talk_of("a")
    with pytest.raises(Boom):
        block(ctx, lambda: ctx.pages.create_detail_page("note", "", "learnt", "mem-0"), raising=True)
    assert names(ctx, "mem-0") == ["mem-1"]


def pinned_message(ctx: Context) -> None:
    page = ctx.conversation.page_of(ctx.user("x"))
    assert page is not None
    ctx.pages.pin(page)


EDITS: dict[str, Callable[[Context], Any]] = {
    "delete": lambda ctx: ctx.conversation.delete([1, 2]),
    "replace": lambda ctx: ctx.conversation.replace(1, said("user", "other")),
    "replace a result": lambda ctx: ctx.conversation.replace(3, result("c1", "other")),
    "compress": lambda ctx: ctx.conversation.compress([1, 2, 3]),
    "compress and delete": lambda ctx: (ctx.conversation.compress([1, 2]), ctx.conversation.delete(1)),
    "delete what was compressed": lambda ctx: ctx.conversation.delete(5),
    "another prompt": lambda ctx: ctx.system("Be bold."),
    "a further prompt": lambda ctx: ctx.system("Today is Monday.", name="date"),
    "insert": lambda ctx: ctx.conversation.insert(said("user", "x"), at=1),
    "a late result": lambda ctx: ctx.tool_result("c9", "late"),
    "a pinned message": pinned_message,
    "remove": lambda ctx: ctx.pages.remove_page("usr-1"),
    "a batch left open": lambda ctx: (ctx.conversation.batch_start(7), ctx.user("x")),
    "a batch before the block": lambda ctx: (
        ctx.conversation.batch_commit(),
        ctx.conversation.batch_start(2),
        ctx.conversation.batch_end(0),
        ctx.user("x"),
    ),
    "batch_end": lambda ctx: (ctx.user("x"), ctx.conversation.batch_end(0), ctx.user("y")),
    "batch_commit": lambda ctx: (ctx.user("x"), ctx.conversation.batch_commit(), ctx.user("y")),
    "rollback": lambda ctx: (ctx.user("x"), ctx.rollback(3), ctx.user("y")),
    "undo": lambda ctx: (ctx.conversation.delete(1), ctx.undo(ctx.seq), ctx.user("y")),
    "undo of an arrival": lambda ctx: ctx.undo(3),
    "modify": lambda ctx: ctx.conversation.modify(
        [{"operation": "batch_start"}, {"operation": "compress", "indices": [1]}]
    ),
    "import": lambda ctx: ctx.import_messages([said("user", ""), result("zz", "x"), said("assistant", "y")]),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("raising", [False, True])
def test_edits_made_in_the_block_are_undone(edit: str, raising: bool) -> None:
    storage = MemoryStorage()
    ctx = new_talk(storage)
    ctx.system("Be careful.")
    ctx.user("a")
    exchange(ctx, "c1")
    ctx.assistant(None, calls("c9"))
    ctx.user("b")
    ctx.user("c")
    ctx.conversation.compress([5, 6])
    before, shape = list(ctx.messages()), names(ctx)
    details = {index: ctx.pages.detail(index) for index in shape}
    with suppress(Boom):
        block(ctx, lambda: EDITS[edit](ctx), raising=raising)
    for handle in (ctx, new_talk(storage)):
        assert handle.messages() == before
        assert names(handle) == shape
        assert {index: handle.pages.detail(index) for index in shape} == details
        assert handle.conversation.mark_map().batch_boundaries == [0]
        assert [handle.conversation.is_modified(index) for index in (5, 6)] == [True, True]
        assert handle.check() == []
    assert ctx.refresh() is False
    ctx.user("d")


def test_a_block_inside_a_batch_ends_with_the_batch_still_open() -> None:
    ctx = talk_of("a")
    ctx.conversation.batch_start()
    ctx.user("b")
    with ctx.temporary():
        ctx.user("c")
        ctx.conversation.batch_end(0)
        assert texts(ctx) == ["a"]
    assert texts(ctx) == ["a", "b"]
    assert ctx.conversation.mark_map().batch_boundaries == [0, 1]
    ctx.conversation.batch_end(0)
    assert texts(ctx) == ["a"]


def test_an_open_exchange_waits_again_after_the_block() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1"))
    with ctx.temporary():
        ctx.user("Wait, what is this?")
        assert ctx.pending_calls() == []
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    assert ctx.tool_result("c1", "x") == 2
    assert indices(ctx) == [0, 2]


def test_the_block_reads_as_batch_and_end_in_the_history() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        ctx.user("b")
    assert [entry.operation for entry in ctx.history()][-3:] == ["batch_start", "user", "temporary"]
    assert list(ctx.history())[-1].undoes == ctx.seq - 2


def test_the_work_of_a_block_is_not_brought_back_by_any_route() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        ctx.user("b")
        with refused(ctx.pages, InvalidOperation, "temporary block"):
            ctx.checkpoint("inside")
        inside = ctx.seq
    with refused(ctx.pages, InvalidOperation, "temporary block"):
        ctx.undo(ctx.seq)
    with refused(ctx.pages, InvalidOperation, "temporary block"):
        ctx.rollback(inside)
    with refused(ctx.pages, InvalidOperation, "temporary block"):
        ctx.fork("branch", at=inside)
    assert texts(ctx) == ["a"]
    ctx.rollback(inside - 2)
    assert texts(ctx) == ["a"]


def test_work_held_back_is_neither_forked_nor_moved_elsewhere() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        ctx.user("b")
        with pytest.raises(InvalidOperation):
            ctx.fork("copy")
        with pytest.raises(QuireError):
            ctx.pages.set_storage(MemoryStorage(), migrate=True)
    assert texts(ctx) == ["a"]


def test_blocks_that_do_not_end_in_turn_are_refused_and_leave_nothing() -> None:
    storage = MemoryStorage()
    ctx = talk_of("a", where=storage)
    before = everything(ctx.pages)
    outer, inner = ctx.temporary(), ctx.temporary()
    outer.__enter__()
    ctx.user("b")
    inner.__enter__()
    ctx.user("c")
    for block_ in (outer, inner):
        with pytest.raises(InvalidOperation):
            block_.__exit__(None, None, None)
    assert everything(ctx.pages) == before
    ctx.user("d")
    assert texts(new_talk(storage)) == ["a", "d"]


# Concurrent writers


def note(ctx: Context) -> str:
    return ctx.pages.create_detail_page("note", "", "mine", "mem-0")


def two() -> tuple[Context, Context]:
    storage = MemoryStorage()
    return talk_of("a", where=storage), new_talk(storage)


def test_a_stale_handle_opens_no_block() -> None:
    ctx, other = two()
    other.user("by the other")
    with pytest.raises(Conflict), ctx.temporary():
        raise AssertionError("the block must not begin")
    ctx.refresh()
    with ctx.temporary():
        ctx.user("temporary")
    assert texts(ctx) == ["a", "by the other"]


def test_messages_are_kept_marked_when_another_wrote_meanwhile() -> None:
    ctx, other = two()
    with ctx.temporary():
        ctx.user("temporary")
        ctx.assistant("Wait.", calls("c1"))
        ctx.tool_result("c1", "x")
        other.user("by the other")
        other.pages.create_detail_page("note", "", "the other's", "mem-0")
    other.refresh()
    for handle in (ctx, other):
        assert texts(handle) == ["a", "by the other"]
        assert texts(handle, all_of_them=True) == ["a", "by the other", "temporary", "Wait.", "x"]
        assert [handle.conversation.mark_of(index) for index in (2, 3, 4)] == [Mark.ENDED] * 3
        assert handle.pages.detail("mem-1") == "the other's"
        assert handle.conversation.mark_map().batch_boundaries == [0]
        assert handle.check() == []


@pytest.mark.parametrize("mine", [0, 1])
def test_the_others_messages_are_not_taken_for_those_of_the_block(mine: int) -> None:
    ctx, other = two()
    block = ctx.temporary()
    block.__enter__()
    ctx.pages.hide("usr-1")
    ctx.pages.set_segment_permission("mem", Permission.PRIVATE)
    for _ in range(mine):
        ctx.user("temporary")
    for text in ("x", "y", "z"):
        other.user(text)
    with pytest.raises(Conflict, match="'usr-1', segment 'mem'"):
        block.__exit__(None, None, None)
    assert texts(ctx) == ["a", "x", "y", "z"]
    assert texts(ctx, all_of_them=True) == ["a", "x", "y", "z", *["temporary"] * mine]


@pytest.mark.parametrize("parent", ["mem-0", "usr-0"])
@pytest.mark.parametrize("create", ["create_detail_page", "create_contents_page"])
def test_pages_that_hold_no_messages_are_named_wherever_they_stand(create: str, parent: str) -> None:
    ctx, other = two()
    arguments = ("note", "", "mine", parent) if create == "create_detail_page" else ("folder", "", parent)
    with pytest.raises(Conflict, match=parent[:3]):
        block(ctx, lambda: getattr(ctx.pages, create)(*arguments), lambda: other.user("by the other"))
    assert texts(ctx) == ["a", "by the other"]


def test_notes_that_cannot_be_stored_are_named() -> None:
    ctx, other = two()
    with pytest.raises(Conflict, match=r"'mem-1'"):
        block(ctx, lambda: ctx.user("temporary"), lambda: note(ctx), lambda: other.user("by the other"))
    assert texts(ctx) == ["a", "by the other"]
    assert texts(ctx, all_of_them=True)[-1] == "temporary"
    assert names(ctx, "mem-0") == []
    assert ctx.check() == []


def test_the_error_of_the_block_is_told_before_what_could_not_be_stored() -> None:
    ctx, other = two()
    with pytest.raises(Boom) as caught:
        block(ctx, lambda: note(ctx), lambda: other.user("by the other"), raising=True)
    assert "'mem-1'" in caught.value.__notes__[0]
    assert texts(ctx) == ["a", "by the other"]


def test_edits_in_the_block_leave_the_others_work_alone() -> None:
    ctx, other = two()
    with ctx.temporary():
        ctx.conversation.delete(0)
        ctx.system("Be bold.")
        other.conversation.replace(0, said("user", "A"))
        other.system("Be careful.")
    assert texts(ctx) == ["Be careful.", "A"]
    assert ctx.check() == []


def test_a_storage_that_fails_at_the_end_leaves_the_conversation_as_it_was() -> None:
    class Failing(MemoryStorage):
        broken = False

        def commit(self, context: str, commit: Any) -> None:
            if self.broken:
                raise OSError("disk full")
            super().commit(context, commit)

    storage = Failing()
    ctx = talk_of("a", where=storage)
    before = everything(ctx.pages)
    with pytest.raises(QuireError, match="disk full"):
        block(ctx, lambda: ctx.user("temporary"), lambda: setattr(storage, "broken", True))
    storage.broken = False
    assert everything(ctx.pages) == before
    assert ctx.user("b") == 1


@pytest.mark.parametrize("operation", ["delete", "undo"])
def test_no_undo_brings_back_a_message_that_left_inside_the_block(operation: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("stays")
    with ctx.temporary():
        ctx.user("temporary")
        ctx.delete(1) if operation == "delete" else ctx.undo(ctx.seq)
        inside = ctx.seq
        ctx.undo(inside)  # possible while the block is open
        ctx.undo(ctx.seq)
    for seq in (inside, inside + 2):
        with pytest.raises(InvalidOperation, match="of a temporary block cannot be brought back"):
            ctx.undo(seq)
    assert [message.content for message in ctx.messages()] == ["stays"]
    assert ctx.check() == []


@pytest.mark.parametrize("scrub", [False, True])
@pytest.mark.parametrize("leave", ["rollback", "batch_end", "batch_commit"])
def test_no_cleanup_in_the_block(leave: str, *, scrub: bool) -> None:
    ctx = new_talk()
    ctx.user("one")
    start = ctx.seq
    ctx.user("two")
    with ctx.temporary():
        ctx.user("three")
        if leave == "rollback":
            ctx.rollback(start)  # no batch is open after it
        elif leave == "batch_end":
            ctx.conversation.batch_end(0)
        else:
            ctx.conversation.batch_commit()
        with pytest.raises(InvalidOperation, match="inside a temporary block"):
            ctx.conversation.cleanup(scrub=scrub)
    assert [message.text for message in ctx.messages()] == ["one", "two"]
    assert ctx.check() == []


@pytest.mark.parametrize("kind", ["temporary", "batch"])
def test_a_message_outside_the_conversation_stays_removed_with_its_segment(kind: str) -> None:
    ctx = talk_of("one", "two")
    ctx.pages.move_page("usr-1", "mem-0")
    if kind == "temporary":
        block(ctx, lambda: ctx.pages.remove_segment("mem"))
    else:
        ctx.conversation.batch_start()
        ctx.pages.remove_segment("mem")
        ctx.conversation.batch_end(0)
    assert texts(ctx) == ["two"]
    assert "mem" not in [segment.id for segment in ctx.pages.list_segments()]
    assert ctx.check() == []


def test_a_block_that_changed_a_page_of_another_writer_ends() -> None:
    storage = MemoryStorage()
    ctx = new_talk(storage)
    ctx.user("one")
    other = new_talk(storage)
    with ctx.temporary():
        ctx.user("two")
        other.write("note", "of another writer")  # mem-1
        ctx.pages.pin("mem-1")
        ctx.pages.move_page("usr-2", "mem-0")  # mem-1, too
        ctx.delete(0)
    ctx.refresh()
    assert texts(ctx) == ["one"]
    assert [message.text for message in ctx.messages(all=True)] == ["one", "two"]
    assert ctx.pages.detail("mem-1") == "of another writer"
    assert ctx.check() == []
