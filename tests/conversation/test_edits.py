"""Edits of the record: insert, delete, replace, lists of them, and cleanup."""

from typing import Any

import pytest

from quire import InvalidOperation, InvalidValue, MemoryStorage
from quire.model.pages import Mark
from tests.books import everything, refused
from tests.conversation.talks import (
    called,
    calls,
    indices,
    names,
    new_talk,
    numbered,
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


def test_several_messages_are_inserted_in_their_order() -> None:
    ctx = whole()
    done = ctx.conversation.insert([said("user", "x"), called("c9"), result("c9", "r"), said("user", "y")], at=1)
    assert (done.inserted, done.pages) == ((7, 8, 9, 10), ("usr-5", "usr-6", "usr-7"))
    assert indices(ctx) == [0, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6]
    assert ctx.pending_calls() == []


def test_a_result_alone_is_inserted_only_at_its_call() -> None:
    ctx = whole()
    ctx.assistant(None, calls("c9"))
    for lone in (result("c9", "r"), [result("c9", "r"), called("c9")]):
        with refused(ctx.pages, InvalidValue, "'c9'", "without `at`"):
            ctx.conversation.insert(lone, at=1)
    assert ctx.conversation.insert(result("c9", "r")).pages == ("usr-5",)
    assert indices(ctx)[-2:] == [7, 8]


@pytest.mark.parametrize("way", ["deleted", "removed", "cold", "compressed", "replaced"])
def test_a_message_goes_before_one_that_is_out_of_the_conversation(way: str) -> None:
    ctx = talk_of("a", "b", "c")
    match way:
        case "deleted":
            ctx.conversation.delete(1)
        case "removed":
            ctx.pages.remove_page("usr-2")
        case "cold":
            ctx.pages.archive("usr-2", cold=True)
        case "compressed":
            ctx.conversation.compress([1])
        case _:
            ctx.conversation.replace(1, said("user", "B"))
    ctx.conversation.insert(said("user", "new"), at=1)
    left = [text for text in texts(ctx) if text != "B"]
    assert left == ["a", "new", "c"]
    assert ctx.check() == []


def test_many_messages_can_be_inserted_at_one_place() -> None:
    ctx = talk_of("a", "b")
    for _ in range(300):
        ctx.conversation.insert(said("user", "x"), at=1)
    assert indices(ctx) == [0, *range(2, 302), 1]
    assert ctx.check() == []


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


def test_what_was_deleted_before_is_said_and_not_done_again() -> None:
    ctx = whole()
    ctx.conversation.delete(1)
    seq = ctx.seq
    done = ctx.conversation.delete([1])
    assert (done.covered, done.notes) == ((), ("Out of the conversation already: message 1.",))
    assert ctx.seq == seq
    assert ctx.conversation.delete([1, 5]).covered == (5,)


def test_deleted_messages_are_not_found_and_come_back_by_undo() -> None:
    ctx = whole()
    assert [hit.index for hit in ctx.find("HAT136")] == ["usr-1"]
    ctx.conversation.delete(1)
    assert ctx.find("HAT136") == []
    with refused(ctx.pages, InvalidOperation, "'usr-1'", "undo("):
        ctx.pages.recall("usr-1")
    ctx.undo(ctx.seq)
    assert indices(ctx) == [0, 1, 2, 3, 4, 5, 6]
    assert [hit.index for hit in ctx.find("HAT136")] == ["usr-1"]


# Protected messages

EDITS: dict[str, list[Any]] = {"delete": [], "replace": [said("user", "x")], "compress": []}


@pytest.mark.parametrize("edit", EDITS)
def test_the_prompt_is_not_edited(edit: str) -> None:
    ctx = whole()
    for asked in (0, [1, 0]):
        with refused(ctx.pages, InvalidOperation, "'sys-1'", "system(text)"):
            getattr(ctx.conversation, edit)(asked, *EDITS[edit])


@pytest.mark.parametrize("edit", EDITS)
def test_a_pinned_message_is_not_edited_until_it_is_unpinned(edit: str) -> None:
    ctx = whole()
    ctx.pages.pin("usr-2")
    for asked in (3, [1, 2]):
        with refused(ctx.pages, InvalidOperation, "'usr-2'", "unpin"):
            getattr(ctx.conversation, edit)(asked, *EDITS[edit])
    ctx.pages.unpin("usr-2")
    assert getattr(ctx.conversation, edit)(3, *EDITS[edit]).covered == (2, 3, 4)


@pytest.mark.parametrize("new", [result("c1", "other"), said("tool", "x", tool_call_id="c1")])
def test_not_even_a_lone_result_of_a_pinned_exchange_is(new: dict[str, Any]) -> None:
    ctx = whole()
    ctx.pages.pin("usr-2")
    with refused(ctx.pages, InvalidOperation, "'usr-2'", "pinned"):
        ctx.conversation.replace(3, new)


# Replace


def test_a_lone_result_is_replaced_on_its_page() -> None:
    ctx = whole()
    done = ctx.conversation.replace(3, result("c1", "[cut]"))
    assert (done.covered, done.inserted, done.pages, done.notes) == ((3,), (7,), ("usr-2",), ())
    assert indices(ctx) == [0, 1, 2, 7, 4, 5, 6]
    assert ctx.conversation.mark_of(3) is Mark.REPLACED
    assert ctx.pages.detail("usr-2").splitlines()[-2:] == ["Result of c1: [cut]", "Result of c2: found c2"]
    assert texts(ctx, all_of_them=True)[3] == "found c1"


def test_calls_are_replaced_by_the_same_calls_on_their_page() -> None:
    ctx = whole()
    done = ctx.conversation.replace(2, called("c1", "c2", content="One moment."))
    assert (done.covered, done.inserted, done.pages) == ((2,), (7,), ("usr-2",))
    assert indices(ctx) == [0, 1, 7, 3, 4, 5, 6]
    assert ctx.pages.get_page("usr-2").name == "One moment."


@pytest.mark.parametrize("asked", [2, 3, [2, 3, 4], [4, 2]])
def test_an_exchange_is_replaced_as_a_whole_by_anything_else(asked: Any) -> None:
    ctx = whole()
    done = ctx.conversation.replace(asked, [said("user", "x"), called("c1"), result("c1", "new")])
    assert (done.covered, done.inserted) == ((2, 3, 4), (7, 8, 9))
    assert bool(done.notes) is (asked in (2, 3, [4, 2]))
    assert indices(ctx) == [0, 1, 7, 8, 9, 5, 6]
    assert [ctx.conversation.mark_of(index) for index in (2, 3, 4)] == [Mark.REPLACED] * 3
    assert ctx.check() == []


def test_several_messages_give_their_first_place_to_the_new_one() -> None:
    ctx = whole()
    ctx.conversation.replace([1, 5], said("user", "x"))
    assert indices(ctx) == [0, 7, 2, 3, 4, 6]


@pytest.mark.parametrize("asked", [1, 2, [2, 3, 4], 3])
@pytest.mark.parametrize(
    "lone", [[result("c2", "x")], [result("c2", "found c2")], [said("user", "y"), result("c2", "x")]]
)
def test_a_lone_result_takes_no_other_place_than_a_result_of_its_call(asked: Any, lone: list[Any]) -> None:
    ctx = whole()
    with refused(ctx.pages, InvalidValue, "'c2'"):
        ctx.conversation.replace(asked, lone)


def test_what_is_out_of_the_conversation_is_not_replaced() -> None:
    ctx = whole()
    ctx.conversation.delete(1)
    ctx.conversation.compress([5])
    for asked, word in ((1, "deleted"), (5, "compressed"), ([6, 1], "deleted")):
        with refused(ctx.pages, InvalidOperation, word):
            ctx.conversation.replace(asked, said("user", "x"))


def test_a_message_can_be_replaced_again_and_again() -> None:
    ctx = talk_of("a", "b", "c")
    for index, text in ((1, "b1"), (3, "b2"), (4, "b3")):
        ctx.conversation.replace(index, said("user", text))
    assert numbered(ctx.messages()) == [(0, "user", "a"), (5, "user", "b3"), (2, "user", "c")]


def test_a_message_in_a_folder_is_replaced_there() -> None:
    ctx = talk_of("a", "b", "c")
    folder = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1", "usr-2"])
    ctx.conversation.replace(0, said("user", "A"))
    assert names(ctx, folder) == ["usr-5", "usr-2"]
    ctx.pages.archive(folder, cold=True)
    ctx.conversation.replace(1, said("user", "B"))
    assert texts(ctx) == ["c", "B"]
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


def test_a_list_that_fails_in_the_storage_changes_nothing() -> None:
    class Failing(MemoryStorage):
        broken = False

        def commit(self, context: str, commit: Any) -> None:
            if self.broken:
                raise OSError("disk full")
            super().commit(context, commit)

    storage = Failing()
    ctx = talk_of("a", "b", where=storage)
    before = everything(ctx.pages)
    storage.broken = True
    with pytest.raises(Exception, match="disk full"):
        ctx.conversation.modify([{"operation": "delete", "indices": [0]}, {"operation": "batch_start"}])
    storage.broken = False
    assert everything(ctx.pages) == before
    ctx.conversation.modify([{"operation": "delete", "indices": [0]}, {"operation": "batch_start"}])
    assert texts(ctx) == ["b"]


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


def test_a_late_result_leaves_with_its_batch_and_its_call_waits_again() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1"))
    ctx.conversation.batch_start()
    ctx.tool_result("c1", "x")
    ctx.conversation.batch_end(0)
    assert indices(ctx) == [0]
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    assert ctx.tool_result("c1", "y") == 2


def test_exchanges_removed_in_a_batch_come_back_with_their_folders() -> None:
    ctx = talk_of("a", "b", "c", "d")
    folder = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-2", "usr-3"])
    (summary,) = ctx.conversation.compress([1]).summaries
    ctx.conversation.batch_start()
    ctx.pages.remove_page(folder)
    ctx.pages.remove_page("usr-1")
    assert texts(ctx) == ["d"]
    done = ctx.conversation.batch_end(0)
    assert done.restored == (0, 2)
    assert names(ctx) == ["usr-1", folder, "usr-4"]
    assert names(ctx, folder) == [summary, "usr-3"]
    assert texts(ctx) == ["a", "c", "d"]
    assert ctx.check() == []


def test_a_pinned_message_stays_and_the_batch_with_it() -> None:
    ctx = talk_of("a")
    ctx.conversation.batch_start()
    ctx.user("b")
    ctx.pages.pin("usr-2")
    with refused(ctx.pages, InvalidOperation, "'usr-2'", "unpin"):
        ctx.conversation.batch_end(0)
    ctx.pages.unpin("usr-2")
    ctx.conversation.batch_end(0)
    assert texts(ctx) == ["a"]


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
    assert ctx.check() == []


def test_messages_go_on_from_the_new_numbers() -> None:
    storage = MemoryStorage()
    ctx = talk_of(*"abcde", where=storage)
    ctx.conversation.delete([0, 2, 4])
    ctx.conversation.cleanup()
    assert ctx.user("f") == 2
    assert ctx.assistant(None, calls("c1")) == 3
    assert ctx.tool_result("c1", "x") == 4
    for handle in (ctx, new_talk(storage)):
        assert numbered(handle.messages())[:3] == [(0, "user", "b"), (1, "user", "d"), (2, "user", "f")]
        assert handle.conversation.mark_map().original_indices == [0, 1, 2, 3, 4]
        with refused(handle.pages, InvalidValue, "0 to 4"):
            handle.conversation.message(5)
    ctx.conversation.delete(1)
    assert ctx.conversation.cleanup().renumbered == {0: 0, 2: 1, 3: 2, 4: 3}
    assert texts(ctx) == ["b", "f", "", "x"]
    assert ctx.check() == []


def test_a_second_cleanup_does_nothing() -> None:
    ctx = talk_of("a", "b", "c")
    ctx.conversation.delete(1)
    ctx.conversation.cleanup()
    before = everything(ctx.pages)
    done = ctx.conversation.cleanup()
    assert (done.renumbered, done.messages, done.pages, done.bytes) == ({0: 0, 1: 1}, 0, 0, 0)
    assert everything(ctx.pages) == before
    assert new_talk().conversation.cleanup().renumbered == {}


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
    ctx.user("c")
    ctx.undo(ctx.seq)
    assert texts(ctx) == ["b"]


def test_cleanup_is_refused_in_a_temporary_block() -> None:
    ctx = talk_of("a")
    with ctx.temporary(), refused(ctx.pages, InvalidOperation, "inside a temporary block"):
        ctx.conversation.cleanup()
    assert ctx.conversation.cleanup().messages == 0
