"""The number of requests of each operation: the table in docs/s3.md, counted at the client."""

from collections.abc import Callable

import pytest

import quire
from quire import Context, EstimateCounter, S3Storage, ToolCall
from quire.storage.base import BODY, CALL, JOURNAL, MAX_KEY, MESSAGE, PAGE, SEGMENT, Commit, Put
from quire.storage.s3.head import key_of
from quire.testing.case import HEAD, keys_of, pages, write
from tests.storage.s3_engine import CountingObjects, objects, open_engine

__all__ = ["objects"]


def sent(objects: CountingObjects, action: Callable[[], object]) -> int:
    with objects.counted() as counted:
        action()
    return counted["total"]


def book(storage: S3Storage) -> Context:
    return quire.open(storage, "agent", counter=EstimateCounter())


def talk(ctx: Context, turn: int) -> None:
    """Add one message of some kind and length."""
    match turn % 5:
        case 0:
            ctx.user("水泵把水抽过阀门。" * (turn % 40))
        case 1:
            ctx.assistant("looking", [ToolCall(f"call {turn}", "look")])
        case 2:
            ctx.tool_result(f"call {turn - 1}", "found " * (turn % 300))
        case 3:
            ctx.assistant("so it is " * (turn % 90))
        case _:
            ctx.pages.create_detail_page(f"Note {turn}", "", "kept " * (turn % 70), "mem-0")


def test_an_operation_in_steady_state_is_one_request_or_two(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    ctx = book(storage)
    for turn in range(10):
        talk(ctx, turn)
    costs = [sent(objects, lambda turn=turn: talk(ctx, turn)) for turn in range(10, 500)]  # type: ignore[misc]
    assert max(costs) == 2
    assert sum(cost == 2 for cost in costs) < 20, "flushes are rare"
    assert storage._states.get("agent").snapshot is not None


def test_a_large_commit_is_two_requests(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", Put(JOURNAL, 1, b"x"))
    for turn in range(2, 12):
        head = storage.head("c")
        assert head is not None
        commit = Commit(head.version, turn, HEAD, [Put(BODY, turn, bytes(1_000_000)), Put(JOURNAL, turn, b"x")])
        assert sent(objects, lambda commit=commit: storage.commit("c", commit)) == 2  # type: ignore[misc]


def test_opening_takes_few_requests_however_many_commits_there_were(objects: CountingObjects) -> None:
    ctx = book(open_engine(objects))
    for turn in range(400):
        talk(ctx, turn)
    assert isinstance(ctx.pages.storage, S3Storage)
    ctx.pages.storage.compact("agent")
    again = objects.in_another_process()
    with again.counted() as opening:
        later = book(open_engine(again))
    assert opening["total"] <= 3
    with again.counted() as rendering:
        later.render()
    assert rendering["total"] <= 10
    with again.counted() as adding:
        talk(later, 400)
    assert adding["total"] <= 2
    assert len(later.messages(all=True)) == len(ctx.messages(all=True)) + 1


def test_one_page_of_a_large_context_reads_a_block_and_not_the_context(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for start in range(0, 4_000, 1_000):
        values = (Put(BODY, key, b"%d " % key * 600) for key in range(start, start + 1_000))
        write(storage, "c", *values, *pages(range(start, start + 1_000), group=1))
    storage.compact("c")
    size = sum(listed.size for listed in objects.list("data"))
    assert size > 8_000_000
    for key in (0, 2_321, 3_999):
        other = objects.in_another_process()
        fresh = open_engine(other)
        with other.counted() as reading:
            record = fresh.get("c", BODY, key)
        assert record is not None
        assert record.value == b"%d " % key * 600
        assert reading["total"] <= 3, "the head, the index, a block"
        assert reading["read"] < 1_000_000
        with other.counted() as listing:
            assert next(fresh.members("c", PAGE, 1, reverse=True)).key == 3_999
        assert listing["total"] <= 3
        with other.counted() as missing:
            assert fresh.get("c", SEGMENT, 5) is None
            assert fresh.get("c", MESSAGE, 5) is None
        assert missing["total"] == 0
    with other.counted() as scanning:
        assert len(list(fresh.scan("c", BODY))) == 4_000
    assert scanning["total"] <= 12, "scans read ahead"


def test_a_cold_read_takes_at_most_two_requests_a_run(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for turn in range(120):
        write(storage, "c", Put(BODY, turn, bytes(40_000)), Put(JOURNAL, turn, b"%d" % turn))
    other = objects.in_another_process()
    fresh = open_engine(other)
    fresh.head("c")
    snapshot = fresh._states.get("c").snapshot
    assert snapshot is not None
    assert 1 < len(snapshot.head.runs) <= 12
    assert sent(other, lambda: fresh.get("c", JOURNAL, 0)) <= 2 * len(snapshot.head.runs)
    assert sent(other, lambda: fresh.get("c", JOURNAL, 0)) == 0


def test_the_cache_is_bounded(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for start in range(0, 3_000, 500):
        write(storage, "c", *(Put(BODY, key, bytes(1_000)) for key in range(start, start + 500)))
    storage.compact("c")
    small = open_engine(objects.in_another_process(), cache_bytes=1 << 20)
    assert keys_of(small.scan("c", BODY)) == list(range(3_000))
    assert 0 < small._chunks._blocks.size <= 1 << 20


def test_looking_listing_and_dropping(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    assert sent(objects, lambda: storage.head("c")) == 1
    assert sent(objects, lambda: storage.commit("c", Commit(0, 1, HEAD, [Put(BODY, 1, bytes(900_000))]))) == 4
    assert sent(objects, lambda: storage.head("c")) == 1
    assert sent(objects, lambda: storage.commit("c", Commit(1, 2, HEAD, ()))) == 1
    assert sent(objects, lambda: storage.fork("c", "f", Commit(2, 3, HEAD, (), HEAD), {})) == 7
    assert sent(objects, lambda: storage.drop("f")) == 5
    assert sent(objects, lambda: storage.drop("f")) == 1
    assert list(storage.contexts()) == ["c"]


@pytest.mark.parametrize("count", [10, 4_200])
def test_contexts_are_listed_without_being_opened(objects: CountingObjects, count: int) -> None:
    names = [f"context {number:06}" for number in range(count)]
    for name in names:
        objects.put(f"heads/{key_of(name)}", b"")
    storage = open_engine(objects)
    with objects.counted() as listing:
        assert list(storage.contexts()) == names
    assert listing.keys() == {"list", "total", "read"}
    assert listing["list"] <= count // 1_000 + 2
    with objects.counted() as rest:
        assert list(storage.contexts(names[-3])) == names[-2:]
    assert rest["total"] <= 2


def test_a_call_that_is_not_there_is_hardly_ever_looked_for(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    keys = [number * 7_919_777 & MAX_KEY for number in range(3_000)]
    write(storage, "c", *(Put(CALL, key, b"page") for key in keys))
    storage.compact("c")
    fresh = open_engine(objects.in_another_process())
    assert all(fresh.get("c", CALL, key) is not None for key in keys[::50])
    other = objects.in_another_process()
    cold = open_engine(other, cache_bytes=500_000)
    cold.get("c", CALL, 1)
    with other.counted() as looking:
        assert not [key for key in range(2, 2_000) if cold.get("c", CALL, key) is not None]
    assert looking["total"] <= 5
