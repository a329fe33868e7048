"""Temporary blocks: all their messages are gone at the end, also after an error."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Conflict, Context, InvalidOperation, MemoryStorage, QuireError
from quire.model.pages import Mark
from tests.books import everything, refused
from tests.conversation.talks import calls, exchange, names, new_talk, result, said, talk_of, texts

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
        assert (ctx.conversation.mark_of(1), ctx.conversation.mark_map().current_batch) == (Mark.ENDED, 0)
        assert ctx.user("b") == 2
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


def test_the_work_of_a_block_is_not_brought_back_by_any_route() -> None:
    ctx = talk_of("a")
    with ctx.temporary():
        ctx.user("b")
        with refused(ctx.pages, InvalidOperation):
            ctx.checkpoint("inside")
        inside = ctx.seq
    with refused(ctx.pages, InvalidOperation):
        ctx.undo(ctx.seq)
    with refused(ctx.pages, InvalidOperation):
        ctx.rollback(inside)
    with refused(ctx.pages, InvalidOperation):
        ctx.fork("branch", at=inside)
    assert texts(ctx) == ["a"]
    ctx.rollback(inside - 2)
    assert texts(ctx) == ["a"]


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


def test_a_removed_page_is_a_change_that_another_writer_prevents() -> None:
    ctx, other = two()
    index = note(ctx)
    other.refresh()
    with pytest.raises(Conflict, match=repr(index)):
        block(ctx, lambda: ctx.pages.remove_page(index), lambda: other.user("by the other"))
    assert ctx.pages.detail(index) == "mine"
    assert texts(ctx) == ["a", "by the other"]


def test_a_storage_that_fails_at_the_end_leaves_the_conversation_as_it_was() -> None:
    class Failing(MemoryStorage):
        broken = False

        def commit(self, context: int, commit: Any) -> None:
            if self.broken:
                raise OSError("disk full")
            super().commit(context, commit)

    storage = Failing()
    ctx = talk_of("a", where=storage)
    before = everything(ctx.pages)
    with pytest.raises(QuireError):
        block(ctx, lambda: ctx.user("temporary"), lambda: setattr(storage, "broken", True))
    storage.broken = False
    assert everything(ctx.pages) == before
    assert ctx.user("b") == 1
