"""Edits of the record: insert, delete, replace, lists of them, and cleanup."""

from typing import Any

import pytest

from quire import InvalidOperation, InvalidValue
from quire.model.pages import Mark
from tests.books import refused
from tests.conversation.talks import (
    called,
    calls,
    indices,
    names,
    result,
    said,
    talk_of,
    texts,
    whole,
)

# Insert


@pytest.mark.parametrize(
    ("at", "order", "inside"),
    [
        (0, [0, 7, 1, 2, 3, 4, 5, 6], False),
        (1, [0, 7, 1, 2, 3, 4, 5, 6], False),
        (2, [0, 1, 7, 2, 3, 4, 5, 6], False),
        (3, [0, 1, 2, 3, 4, 7, 5, 6], True),
        (4, [0, 1, 2, 3, 4, 7, 5, 6], True),
        (5, [0, 1, 2, 3, 4, 7, 5, 6], False),
        (6, [0, 1, 2, 3, 4, 5, 7, 6], False),
        (7, [0, 1, 2, 3, 4, 5, 6, 7], False),
        (None, [0, 1, 2, 3, 4, 5, 6, 7], False),
    ],
)
def test_a_message_is_inserted_before_the_one_named(at: int | None, order: list[int], inside: bool) -> None:
    ctx = whole()
    done = ctx.conversation.insert(said("user", "new"), at=at)
    assert (done.operation, done.inserted, done.pages, done.covered) == ("insert", (7,), ("usr-5",), ())
    assert bool(done.notes) is inside
    assert indices(ctx) == order
    assert ctx.check() == []


def test_an_inserted_result_joins_its_call_although_a_later_exchange_waits_for_the_same_id() -> None:
    ctx = talk_of("a", "b")
    ctx.assistant(None, calls("c"))
    ctx.conversation.insert([called("c"), result("c", "x")], at=1)
    assert indices(ctx) == [0, 3, 4, 1, 2]


@pytest.mark.parametrize(("moved", "order"), [((2, 6), [0, 1, 2, 3, 4, 7, 6, 5]), ((6, 2), [0, 1, 6, 2, 3, 4, 7, 5])])
def test_a_message_inserted_inside_an_exchange_stays_in_its_folder(moved: tuple[int, ...], order: list[int]) -> None:
    ctx = whole()
    chapter = ctx.pages.create_contents_page("both", "", "usr-0")
    ctx.pages.move_page(chapter, "usr-0", before=ctx.conversation.page_of(5))
    for index in moved:
        ctx.pages.move_page(ctx.conversation.page_of(index) or "", chapter)
    (page,) = ctx.conversation.insert(said("user", "new"), at=3).pages
    assert indices(ctx) == order
    assert page in names(ctx, chapter)
    assert ctx.check() == []


def test_a_message_is_inserted_into_the_conversation_before_one_that_left_it() -> None:
    ctx = talk_of("a", "b", "c")
    ctx.pages.move_page("usr-2", "mem-0")
    ctx.conversation.insert(said("user", "x"), at=1)
    assert (names(ctx), names(ctx, "mem-0")) == (["usr-1", "usr-4", "usr-3"], ["mem-1"])
    assert texts(ctx) == ["a", "x", "c"]


def test_a_result_alone_is_inserted_only_at_its_call() -> None:
    ctx = whole()
    ctx.assistant(None, calls("c9"))
    for lone in (result("c9", "r"), [result("c9", "r"), called("c9")]):
        with refused(ctx.pages, InvalidValue, "'c9'"):
            ctx.conversation.insert(lone, at=1)
    assert ctx.conversation.insert(result("c9", "r")).pages == ("usr-5",)
    assert indices(ctx)[-2:] == [7, 8]


# Delete


@pytest.mark.parametrize(
    ("asked", "covered", "left"),
    [
        (1, (1,), [0, 2, 3, 4, 5, 6]),
        ([5, 1, 1], (1, 5), [0, 2, 3, 4, 6]),
        (2, (2, 3, 4), [0, 1, 5, 6]),
        ([3], (2, 3, 4), [0, 1, 5, 6]),
        ([4, 2], (2, 3, 4), [0, 1, 5, 6]),
        (range(1, 7), (1, 2, 3, 4, 5, 6), [0]),
    ],
)
def test_half_a_pair_takes_the_whole_exchange(asked: Any, covered: tuple[int, ...], left: list[int]) -> None:
    ctx = whole()
    done = ctx.conversation.delete(asked)
    assert (done.operation, done.covered) == ("delete", covered)
    assert indices(ctx) == left
    more = sorted(set(covered) - ({asked} if isinstance(asked, int) else set(asked)))
    assert done.notes == ((f"A call and its results go together: {_named(more)} too.",) if more else ())
    assert all(ctx.conversation.mark_of(index) is Mark.DELETED for index in covered)
    assert len(ctx.messages(all=True)) == 7
    assert ctx.check() == []


def _named(found: list[int]) -> str:
    return f"message{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def test_deleted_messages_are_not_found_and_come_back_by_undo() -> None:
    ctx = whole()
    assert [hit.index for hit in ctx.find("HAT136")] == ["usr-1"]
    ctx.conversation.delete(1)
    assert ctx.find("HAT136") == []
    with refused(ctx.pages, InvalidOperation, "'usr-1'"):
        ctx.pages.recall("usr-1")
    ctx.undo(ctx.seq)
    assert indices(ctx) == [0, 1, 2, 3, 4, 5, 6]
    assert [hit.index for hit in ctx.find("HAT136")] == ["usr-1"]


# Protected messages

EDITS: dict[str, list[Any]] = {"delete": [], "replace": [said("user", "x")], "compress": []}


@pytest.mark.parametrize("edit", EDITS)
def test_a_pinned_message_is_not_edited_until_it_is_unpinned(edit: str) -> None:
    ctx = whole()
    ctx.pages.pin("usr-2")
    for asked in (3, [1, 2]):
        with refused(ctx.pages, InvalidOperation, "'usr-2'"):
            getattr(ctx.conversation, edit)(asked, *EDITS[edit])
    ctx.pages.unpin("usr-2")
    assert getattr(ctx.conversation, edit)(3, *EDITS[edit]).covered == (2, 3, 4)


# Replace


def test_a_lone_result_is_replaced_on_its_page() -> None:
    ctx = whole()
    done = ctx.conversation.replace(3, result("c1", "[cut]"))
    assert (done.covered, done.inserted, done.pages, done.notes) == ((3,), (7,), ("usr-2",), ())
    assert indices(ctx) == [0, 1, 2, 7, 4, 5, 6]
    assert ctx.conversation.mark_of(3) is Mark.REPLACED
    assert ctx.pages.detail("usr-2").splitlines()[-2:] == ["Result of c1: [cut]", "Result of c2: found c2"]
    assert texts(ctx, all_of_them=True)[3] == "found c1"


@pytest.mark.parametrize("asked", [2, 3, [2, 3, 4], [4, 2]])
def test_an_exchange_is_replaced_as_a_whole_by_anything_else(asked: Any) -> None:
    ctx = whole()
    done = ctx.conversation.replace(asked, [said("user", "x"), called("c1"), result("c1", "new")])
    assert (done.covered, done.inserted) == ((2, 3, 4), (7, 8, 9))
    assert bool(done.notes) is (asked in (2, 3, [4, 2]))
    assert indices(ctx) == [0, 1, 7, 8, 9, 5, 6]
    assert [ctx.conversation.mark_of(index) for index in (2, 3, 4)] == [Mark.REPLACED] * 3
    assert ctx.check() == []


# Lists of modifications


def test_a_list_of_modifications_is_done_whole_or_not_at_all() -> None:
    ctx = whole()
    operations: list[dict[str, Any]] = [
        {"operation": "insert", "indices": [1], "data": [said("user", "x"), said("user", "y")]},
        {"operation": "delete", "indices": [6]},
        {"operation": "replace", "indices": [7], "data": said("user", "z")},
        {"operation": "compress", "indices": [5], "data": "They said where."},
    ]
    with refused(ctx.pages, InvalidOperation, "'sys-1'"):
        ctx.conversation.modify([*operations, {"operation": "delete", "indices": [0]}])
    with refused(ctx.pages, InvalidValue, "99"):
        ctx.conversation.modify([*operations, {"operation": "delete", "indices": [99]}])
    done = ctx.conversation.modify(operations)
    assert [one.operation for one in done] == ["insert", "delete", "replace", "compress"]
    assert (done[0].inserted, done[1].covered, done[2].inserted) == ((7, 8), (6,), (9,))
    assert ctx.pages.detail(done[3].summaries[0]) == "They said where."
    assert indices(ctx) == [0, 9, 8, 1, 2, 3, 4]
    assert ctx.check() == []


@pytest.mark.parametrize("which", [{"indices": [0]}, {"batch": 0}, {"indices": [0], "batch": 0}])
def test_a_batch_is_named_by_an_index_or_by_its_number(which: dict[str, Any]) -> None:
    ctx = talk_of("a")
    ctx.conversation.modify([{"operation": "batch_start"}, {"operation": "insert", "data": said("user", "b")}])
    ctx.conversation.modify([{"operation": "batch_end", **which}])
    assert texts(ctx) == ["a"]


# Batches around edits


def test_the_end_of_a_batch_brings_back_what_was_edited_in_it() -> None:
    ctx = whole()
    before = list(ctx.messages())
    ctx.conversation.batch_start()
    ctx.conversation.replace(3, result("c1", "[cut]"))
    ctx.conversation.compress([5, 6])
    ctx.conversation.delete(1)
    ctx.system("Be bold.")
    ctx.conversation.insert(said("user", "x"), at=2)
    ctx.conversation.batch_end(0)
    assert ctx.messages() == before
    assert ctx.pages.detail("usr-2").endswith("Result of c1: found c1\nResult of c2: found c2")
    assert ctx.check() == []


# Cleanup


def test_cleanup_destroys_what_is_out_and_numbers_the_rest_anew() -> None:
    ctx = whole()
    ctx.conversation.delete(1)
    ctx.conversation.replace(3, result("c1", "[cut]"))
    (summary,) = ctx.conversation.compress([5]).summaries
    with ctx.temporary():
        ctx.user("temporary")
    ctx.pages.archive("usr-4", cold=True)
    before = texts(ctx)
    done = ctx.conversation.cleanup()
    assert done.renumbered == {0: 0, 2: 1, 4: 2, 6: 3, 7: 4}
    assert (done.messages, done.pages) == (4, 3)
    assert done.bytes > 0
    assert texts(ctx) == before == ["Be careful.", "Wait.", "[cut]", "found c2"]
    assert indices(ctx) == [0, 1, 4, 2]
    assert texts(ctx, all_of_them=True) == ["Be careful.", "Wait.", "found c2", "Thanks.", "[cut]"]
    assert ctx.pages.detail(summary) == "Assistant: In Paris."
    ctx.pages.recall("usr-4")
    assert indices(ctx) == [0, 1, 4, 2, 3]
    again = ctx.conversation.cleanup()
    assert (again.messages, again.pages, again.bytes) == (0, 0, 0)
    assert ctx.check() == []


def test_nothing_before_a_cleanup_is_undone() -> None:
    ctx = talk_of("a", "b")
    ctx.conversation.delete(0)
    deleted = ctx.seq
    ctx.checkpoint("before")
    ctx.conversation.cleanup()
    for seq in (2, deleted, ctx.seq):
        with refused(ctx.pages, InvalidOperation, str(seq)):
            ctx.undo(seq)
    for to in ("before", deleted):
        with refused(ctx.pages, InvalidOperation, repr(to)):
            ctx.rollback(to)
    cleaned = ctx.seq
    for point in (None, cleaned):
        ctx.user("c")
        ctx.rollback(point) if point else ctx.undo(ctx.seq)
        assert texts(ctx) == ["b"]
    assert ctx.check() == []
