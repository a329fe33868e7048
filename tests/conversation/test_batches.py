"""The examples, rules and errors of design document 004, as the contract reads them."""

from typing import Any

import pytest

from quire import Conflict, Context, MemoryStorage
from quire.conversation import MarkMap
from quire.model.pages import Mark
from tests.conversation.talks import exchange, indices, new_talk, said, talk_of, texts

HINT = said("system", "临时提示：请专注于当前任务")


def marks(boundaries: list[int], messages: int) -> MarkMap:
    """Return the mark map of a conversation with this many messages and a batch opened at each boundary."""
    return MarkMap(
        original_indices=list(range(messages)),
        batch_boundaries=[0, *boundaries],
        boundary_to_batch=list(range(len(boundaries) + 1)),
        current_batch=len(boundaries),
    )


def five() -> Context:
    return talk_of("零", "一", "二", "三", "四")


# Examples


def test_a_temporary_prompt_leaves_when_its_batch_ends() -> None:
    ctx = five()
    opened = ctx.conversation.batch_start(5)
    assert (opened.operation, opened.batch, opened.boundary, opened.notes) == ("batch_start", 1, 5, ())
    assert ctx.conversation.insert(HINT).inserted == (5,)
    assert texts(ctx)[-1] == HINT["content"]
    ended = ctx.conversation.batch_end(0)
    assert (ended.operation, ended.batch, ended.covered, ended.restored) == ("batch_end", 0, (5,), ())
    assert texts(ctx) == ["零", "一", "二", "三", "四"]
    assert ctx.messages(all=True)[5].text == HINT["content"]
    assert ctx.conversation.mark_of(5) is Mark.ENDED
    assert ctx.check() == []


def test_the_full_workflow_ends_with_its_messages_compressed() -> None:
    ctx = new_talk(budget=8_000)
    ctx.add(said("user", "Hello"))
    ctx.add(said("assistant", "Hi there!"))
    ctx.conversation.batch_start(2)
    assert ctx.conversation.mark_map() == marks([2], 2)
    ctx.conversation.insert(said("system", "请专注于当前任务"))
    assert ctx.conversation.mark_map() == marks([2], 3)
    ctx.conversation.batch_end(0)
    assert ctx.conversation.mark_map() == marks([], 3)
    ctx.conversation.compress([0, 1])
    seq = ctx.seq
    ctx.conversation.batch_end(0)
    assert (ctx.seq, texts(ctx)) == (seq, [])
    assert [ctx.conversation.mark_of(index) for index in range(3)] == [Mark.COMPRESSED, Mark.COMPRESSED, Mark.ENDED]
    assert texts(ctx, all_of_them=True) == ["Hello", "Hi there!", "请专注于当前任务"]


def test_the_list_of_operations_leaves_the_conversation_as_it_was() -> None:
    ctx = five()
    before = list(ctx.messages())
    done = ctx.conversation.modify(
        [
            {"operation": "batch_start", "indices": [5]},
            {"operation": "insert", "indices": [], "data": said("system", "临时提示")},
            {"operation": "compress", "indices": [0, 1, 2]},
            {"operation": "batch_end", "indices": [0]},
        ]
    )
    assert [one.operation for one in done] == ["batch_start", "insert", "compress", "batch_end"]
    assert (done[0].boundary, done[1].inserted, done[2].covered) == (5, (5,), (0, 1, 2))
    assert (done[3].covered, done[3].restored) == ((5,), (0, 1, 2))
    assert ctx.messages() == before
    assert [page.index for page in ctx.pages.children("usr-0")] == [f"usr-{n}" for n in range(1, 6)]
    assert ctx.conversation.mark_map() == marks([], 6)
    assert ctx.check() == []


# The batch loop


@pytest.mark.parametrize(
    ("target", "left", "boundaries"), [(0, ["a"], []), (1, ["a", "b"], [1]), (2, ["a", "b", "c"], [1, 2])]
)
def test_the_end_of_a_batch_takes_back_all_opened_after_it(target: int, left: list[str], boundaries: list[int]) -> None:
    ctx = talk_of("a")
    for text in ("b", "c", "d"):
        ctx.conversation.batch_start()
        ctx.user(text)
    assert ctx.conversation.batch_end(target).batch == target
    assert texts(ctx) == left
    assert ctx.conversation.mark_map() == marks(boundaries, 4)


def test_a_committed_batch_hands_its_work_to_the_one_around_it() -> None:
    ctx = talk_of("a")
    ctx.conversation.batch_start()
    ctx.conversation.batch_start()
    ctx.user("b")
    ctx.conversation.delete(0)
    assert ctx.conversation.batch_commit().batch == 1
    assert ctx.conversation.mark_map() == marks([1], 2)
    assert texts(ctx) == ["b"]
    ctx.conversation.batch_end(0)
    assert texts(ctx) == ["a"]


def test_a_pinned_message_stays_when_its_batch_ends() -> None:
    ctx = talk_of("a")
    ctx.conversation.batch_start()
    ctx.pages.pin(ctx.conversation.page_of(ctx.user("b")) or "")
    ctx.user("c")
    assert ctx.conversation.batch_end(0).covered == (2,)
    assert texts(ctx) == ["a", "b"]


# Differences in the contract


def test_two_batches_open_at_one_place() -> None:
    ctx = five()
    for _ in range(3):
        ctx.conversation.batch_start(2)
    assert ctx.conversation.mark_map() == marks([2, 2, 2], 5)
    ctx.conversation.batch_end(1)
    assert texts(ctx) == ["零", "一"]
    assert ctx.conversation.mark_map() == marks([2], 5)


def test_a_boundary_inside_an_exchange_moves_to_its_start_and_says_so() -> None:
    ctx = talk_of("a")
    exchange(ctx, "c1", "c2")
    opened = ctx.conversation.batch_start(3)
    assert opened.boundary == 1
    assert "3" in opened.notes[0]
    assert "1" in opened.notes[0]
    ctx.conversation.batch_end(0)
    assert indices(ctx) == [0]


# Another writer


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("batch_start", []),
        ("delete", [0]),
        ("modify", [[{"operation": "delete", "indices": [0]}, {"operation": "batch_start"}]]),
    ],
)
def test_a_stale_handle_meets_a_conflict_and_changes_nothing(operation: str, arguments: list[Any]) -> None:
    storage = MemoryStorage()
    first = talk_of("a", "b", where=storage)
    second = new_talk(storage)
    first.conversation.batch_start()
    before = first.pages.marshal()
    with pytest.raises(Conflict):
        getattr(second.conversation, operation)(*arguments)
    assert first.refresh() is False
    assert first.pages.marshal() == before
    second.refresh()
    assert second.conversation.batch_start().batch == 2
    assert second.conversation.mark_map() == marks([2, 2], 2)
