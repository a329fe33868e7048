"""The examples, rules and errors of design document 004, as the contract reads them."""

from typing import Any

import pytest

import quire
from quire import CompressionConfig, Conflict, Context, InvalidOperation, InvalidValue, MemoryStorage
from quire.conversation import MarkMap
from quire.model.pages import Mark
from tests.books import everything, refused
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


def test_a_replaced_message_gives_its_place_to_the_new_one() -> None:
    ctx = five()
    done = ctx.conversation.replace([3], said("user", "修正后的消息"))
    assert (done.covered, done.inserted, done.pages) == ((3,), (5,), ("usr-4",))
    assert texts(ctx) == ["零", "一", "二", "修正后的消息", "四"]
    assert indices(ctx) == [0, 1, 2, 5, 4]
    assert ctx.messages(all=True)[3].text == "三"


def test_compressed_messages_leave_one_summary_in_their_place() -> None:
    ctx = five()
    done = ctx.conversation.compress([0, 1, 2, 3])
    assert done.covered == (0, 1, 2, 3)
    (summary,) = done.summaries
    assert [page.index for page in ctx.pages.children("usr-0")] == [summary, "usr-5"]
    assert all(word in ctx.pages.detail(summary) for word in "零一二三")
    assert texts(ctx) == ["四"]
    assert len(ctx.messages(all=True)) == 5


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


def test_the_configuration_of_the_example_folds_above_its_threshold_down_to_its_target() -> None:
    config = CompressionConfig(enabled=True, threshold=6_000, target_tokens=4_000)
    ctx = quire.open("memory:", budget=8_000, compression=config)
    folds = []
    for turn in range(60):
        before = ctx.render(preview=True).tokens
        ctx.add(said("user", f"question {turn} " + "word " * 100))
        ctx.add(said("assistant", f"answer {turn} " + "word " * 100))
        view = ctx.render()
        assert view.tokens <= 6_000
        if view.fold is not None:
            folds.append((before, view.tokens))
    assert len(folds) > 1
    assert all(before > 5_500 for before, _ in folds)
    assert all(after <= 4_000 for _, after in folds)
    assert len(ctx.messages()) == 120


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


def test_a_list_of_operations_is_one_commit_with_an_entry_for_each() -> None:
    storage = MemoryStorage()
    ctx, other = talk_of("a", "b", where=storage), new_talk(storage)
    ctx.conversation.modify(
        [{"operation": "delete", "indices": [0]}, {"operation": "insert", "data": [HINT, said("user", "c")]}]
    )
    other.refresh()
    assert texts(other) == ["b", HINT["content"], "c"]
    assert [entry.operation for entry in other.history()][-2:] == ["delete", "insert"]


# The batch loop


def test_the_batch_loop_goes_from_0_to_1_to_0() -> None:
    ctx = five()
    assert ctx.conversation.mark_map() == marks([], 5)
    ctx.conversation.batch_start(5)
    assert ctx.conversation.mark_map() == marks([5], 5)
    ctx.user("temporary")
    assert ctx.conversation.mark_map() == marks([5], 6)
    ctx.conversation.batch_end(0)
    assert ctx.conversation.mark_map() == marks([], 6)


def test_a_batch_number_is_used_again() -> None:
    ctx = five()
    for turn in range(3):
        assert ctx.conversation.batch_start().batch == 1
        ctx.user(f"turn {turn}")
        ctx.conversation.batch_end(0)
    assert texts(ctx) == ["零", "一", "二", "三", "四"]
    assert ctx.conversation.mark_map() == marks([], 8)


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


def test_the_current_batch_as_target_changes_nothing() -> None:
    ctx = talk_of("a")
    ctx.conversation.batch_start()
    ctx.user("b")
    before = everything(ctx.pages)
    assert ctx.conversation.batch_end(1).covered == ()
    assert everything(ctx.pages) == before


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


def test_batches_are_there_after_reopening() -> None:
    storage = MemoryStorage()
    ctx = talk_of("a", "b", where=storage)
    ctx.conversation.batch_start(1)
    again = new_talk(storage)
    assert again.conversation.mark_map() == marks([1], 2)
    again.conversation.batch_end(0)
    assert texts(again) == ["a"]


# Differences in the contract


def test_marks_work_in_batch_0_too_and_are_per_message() -> None:
    ctx = five()
    ctx.conversation.delete([1])
    ctx.conversation.compress([3])
    assert [ctx.conversation.is_modified(index) for index in range(5)] == [False, True, False, True, False]
    assert [ctx.conversation.mark_of(index) for index in (1, 3)] == [Mark.DELETED, Mark.COMPRESSED]


def test_a_batch_opens_at_the_length() -> None:
    ctx = five()
    assert ctx.conversation.batch_start(5).boundary == 5
    assert new_talk().conversation.batch_start(0).boundary == 0


def test_two_batches_open_at_one_place() -> None:
    ctx = five()
    for _ in range(3):
        ctx.conversation.batch_start(2)
    assert ctx.conversation.mark_map() == marks([2, 2, 2], 5)
    ctx.conversation.batch_end(1)
    assert texts(ctx) == ["零", "一"]
    assert ctx.conversation.mark_map() == marks([2], 5)


def test_the_end_of_a_batch_wants_a_batch_not_a_message_index() -> None:
    ctx = five()
    ctx.conversation.batch_start()
    with refused(ctx.pages, InvalidValue, "3", "0 to 1"):
        ctx.conversation.batch_end(3)
    empty = new_talk()
    empty.conversation.batch_start()
    assert empty.conversation.batch_end(0).batch == 0


def test_an_open_batch_hides_nothing_that_was_not_marked() -> None:
    ctx = five()
    ctx.conversation.batch_start(3)
    assert texts(ctx) == ["零", "一", "二", "三", "四"]
    assert not any(ctx.conversation.is_modified(index) for index in range(5))


def test_going_back_undoes_marks_made_since_and_keeps_those_made_before() -> None:
    ctx = five()
    ctx.conversation.delete(0)
    ctx.conversation.batch_start()
    ctx.conversation.delete(1)
    ctx.conversation.replace(2, said("user", "anders"))
    ctx.conversation.compress([3, 4])
    assert texts(ctx) == ["anders"]
    ended = ctx.conversation.batch_end(0)
    assert ended.restored == (1, 2, 3, 4)
    assert indices(ctx) == [1, 2, 3, 4]
    assert ctx.check() == []


def test_cleanup_destroys_marked_originals_only() -> None:
    ctx = five()
    ctx.conversation.delete(1)
    ctx.conversation.batch_start()
    with refused(ctx.pages, InvalidOperation, "Batch 1 is open"):
        ctx.conversation.cleanup()
    ctx.conversation.batch_commit()
    assert ctx.conversation.cleanup().renumbered == {0: 0, 2: 1, 3: 2, 4: 3}
    assert texts(ctx) == ["零", "二", "三", "四"]
    assert ctx.conversation.mark_map() == marks([], 4)


def test_a_boundary_inside_an_exchange_moves_to_its_start_and_says_so() -> None:
    ctx = talk_of("a")
    exchange(ctx, "c1", "c2")
    opened = ctx.conversation.batch_start(3)
    assert opened.boundary == 1
    assert "3" in opened.notes[0]
    assert "1" in opened.notes[0]
    ctx.conversation.batch_end(0)
    assert indices(ctx) == [0]


# Errors: typed, quoting the value, without any change

BAD_INDICES: list[Any] = [-1, 5, 99, True, False, "1", 1.0, None, [-1], [5], [True], ["0"], [0, 7], [0.0], [None], {}]


@pytest.mark.parametrize("bad", [*BAD_INDICES, [], (), "", b"0", {"0": 1}], ids=repr)
@pytest.mark.parametrize("operation", ["delete", "replace", "compress"])
def test_an_edit_refuses_what_is_no_message_index(operation: str, bad: Any) -> None:
    ctx = five()
    more = [said("user", "x")] if operation == "replace" else []
    with refused(ctx.pages, InvalidValue):
        getattr(ctx.conversation, operation)(bad, *more)


@pytest.mark.parametrize(("bad", "quoted"), [(-1, "-1"), ([0, 7], "7"), (["0"], "'0'"), ([True], "True")], ids=repr)
def test_the_error_quotes_the_index_and_says_which_there_are(bad: Any, quoted: str) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue, quoted, "0 to 4"):
        ctx.conversation.delete(bad)
    with refused(new_talk().pages, InvalidValue, "no messages yet"):
        new_talk().conversation.delete(0)


@pytest.mark.parametrize("bad", [-1, 6, True, "1", 1.5, [1]], ids=repr)
def test_an_insert_refuses_a_place_that_is_none(bad: Any) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue, repr(bad)):
        ctx.conversation.insert(said("user", "x"), at=bad)


@pytest.mark.parametrize("bad", [-1, 6, True, "2", 2.0, [2]], ids=repr)
def test_a_batch_refuses_a_boundary_that_is_none(bad: Any) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue, repr(bad), "0 to 5"):
        ctx.conversation.batch_start(bad)


def test_a_batch_refuses_a_boundary_before_the_last_one() -> None:
    ctx = five()
    ctx.conversation.batch_start(3)
    with refused(ctx.pages, InvalidValue, "2", "3"):
        ctx.conversation.batch_start(2)


@pytest.mark.parametrize("bad", [-1, 2, True, False, "0", None, 0.0, [0]], ids=repr)
def test_the_end_of_a_batch_refuses_a_batch_that_is_not_open(bad: Any) -> None:
    ctx = five()
    ctx.conversation.batch_start()
    with refused(ctx.pages, InvalidValue, repr(bad), "0 to 1"):
        ctx.conversation.batch_end(bad)


def test_there_is_nothing_to_commit_without_a_batch() -> None:
    ctx = five()
    with refused(ctx.pages, InvalidOperation, "batch_start()"):
        ctx.conversation.batch_commit()


@pytest.mark.parametrize("bad", [None, [], {}, 5, "text", b"x", [5], {"role": "user"}, {"content": "x"}], ids=repr)
@pytest.mark.parametrize("operation", ["insert", "replace"])
def test_insert_and_replace_want_a_message(operation: str, bad: Any) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue):
        ctx.conversation.insert(bad) if operation == "insert" else ctx.conversation.replace(0, bad)


@pytest.mark.parametrize("bad", [5, ["x"], b"x", "\ud800"], ids=repr)
def test_a_summary_is_text(bad: Any) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue, "summary"):
        ctx.conversation.compress([0], bad)


BAD_OPERATIONS: list[tuple[Any, str]] = [
    ({"operation": "rewind", "indices": []}, "'rewind'"),
    ({"operation": None}, "None"),
    ({"operation": ["insert"]}, "['insert']"),
    ({"indices": [0]}, "operation is None"),
    ({"operation": "delete", "indices": [-1]}, "-1"),
    ({"operation": "delete", "indices": [5]}, "5"),
    ({"operation": "delete", "indices": []}, "empty"),
    ({"operation": "delete"}, "empty"),
    ({"operation": "delete", "indices": "01"}, "'01'"),
    ({"operation": "delete", "indices": 0}, "0"),
    ({"operation": "delete", "indices": None}, "None"),
    ({"operation": "delete", "indices": [True]}, "True"),
    ({"operation": "compress", "indices": [0], "data": {"role": "user"}}, "role"),
    ({"operation": "replace", "indices": [0]}, "None"),
    ({"operation": "replace", "indices": [], "data": HINT}, "empty"),
    ({"operation": "insert", "indices": []}, "None"),
    ({"operation": "insert", "indices": [], "data": []}, "[]"),
    ({"operation": "insert", "indices": [0, 1], "data": HINT}, "2 entries"),
    ({"operation": "insert", "indices": [9], "data": HINT}, "9"),
    ({"operation": "batch_start", "indices": [9]}, "9"),
    ({"operation": "batch_start", "indices": [1, 2]}, "[1, 2]"),
    ({"operation": "batch_end", "indices": [4]}, "4"),
    ({"operation": "batch_end", "indices": []}, "[]"),
    ({"operation": "batch_end", "indices": [0, 1]}, "[0, 1]"),
    ({"operation": "batch_end", "batch": 7}, "7"),
    ({"operation": "batch_end", "batch": "0"}, "'0'"),
    ({"operation": "batch_end", "indices": [0], "batch": 1}, "1"),
    ({"operation": "batch_commit"}, "batch_start()"),
    ({"operation": "insert", "data": HINT, "index": 3}, "'index'"),
    ("insert", "'insert'"),
    (None, "None"),
    (5, "5"),
]


@pytest.mark.parametrize(("bad", "quoted"), BAD_OPERATIONS, ids=lambda value: repr(value)[:60])
def test_a_bad_operation_is_named_and_none_of_the_list_is_done(bad: Any, quoted: str) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidOperation, quoted):
        ctx.conversation.modify([{"operation": "delete", "indices": [1]}, bad])
    with refused(ctx.pages, InvalidOperation, quoted):
        ctx.conversation.modify([bad])


@pytest.mark.parametrize("bad", [None, 5, "insert", b"x", {"operation": "insert"}], ids=repr)
def test_modify_wants_a_list(bad: Any) -> None:
    ctx = five()
    with refused(ctx.pages, InvalidValue, "a list"):
        ctx.conversation.modify(bad)


def test_an_empty_list_of_operations_does_nothing() -> None:
    ctx = five()
    before = everything(ctx.pages)
    assert ctx.conversation.modify([]) == []
    assert everything(ctx.pages) == before


@pytest.mark.parametrize(("batch", "left"), [(0, ["零"]), (1, ["零", "b"])])
def test_the_batch_to_go_back_to_is_given_by_its_own_field(batch: int, left: list[str]) -> None:
    ctx = talk_of("零")
    for text in "bc":
        ctx.conversation.batch_start()
        ctx.user(text)
    ctx.conversation.modify([{"operation": "batch_end", "indices": [], "batch": batch}])
    assert texts(ctx) == left


def test_a_list_of_operations_can_commit_a_batch() -> None:
    ctx = five()
    ctx.conversation.modify(
        [{"operation": "batch_start"}, {"operation": "insert", "data": HINT}, {"operation": "batch_commit"}]
    )
    assert texts(ctx)[-1] == HINT["content"]
    assert ctx.conversation.mark_map().current_batch == 0


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


def test_wrong_arguments_to_reading_are_named() -> None:
    ctx = five()
    bad: Any
    for bad in (-1, 5, True, "0"):
        for read in (ctx.conversation.message, ctx.conversation.mark_of, ctx.conversation.page_of):
            with refused(ctx.pages, InvalidValue, repr(bad)):
                read(bad)
    with refused(ctx.pages, InvalidValue, "1"):
        ctx.messages(1)  # type: ignore[arg-type]
