"""Compaction while others write and read: nothing is lost, and unneeded objects are removed."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from quire import Busy, Conflict, Storage, StorageFailure
from quire.storage.base import BODY, JOURNAL, PAGE, Commit, Delete, Put, Symptom
from quire.storage.s3 import commit
from quire.storage.s3.chunks import ChunkRef, Run
from quire.storage.s3.client import ObjectInfo, Objects
from quire.storage.s3.commit import CREATING, find_mergeable
from quire.storage.s3.compaction import find_replaced, is_expired
from quire.storage.s3.head import HeadObject
from quire.testing.case import HEAD, contents, keys_of, pages, write
from tests.storage.s3_engine import CountingObjects, objects, open_engine, tiny

__all__ = ["objects", "tiny"]
pytestmark = pytest.mark.usefixtures("tiny")
MOMENT = 1e-9


class Interrupted(Exception):
    """Simulates the death of the process."""


def at_put(objects: CountingObjects, prefix: str, action: Callable[[], object], times: int = 1) -> None:
    """Call `action` just before the next write below a prefix."""
    waiting = [action] * times

    def hooked(name: str) -> None:
        original = getattr(objects, name)

        def call(key: str, *arguments: Any) -> Any:
            if key.startswith(prefix) and waiting:
                waiting.pop()()
            return original(key, *arguments)

        setattr(objects, name, call)

    for name in ("put", "create", "replace"):
        hooked(name)


def die() -> None:
    raise Interrupted


def bodies(start: int, stop: int) -> list[Put]:
    return [Put(BODY, key, bytes(300)) for key in range(start, stop)]


def test_a_chunk_that_a_writer_is_about_to_name_is_never_removed(objects: CountingObjects) -> None:
    other = open_engine(objects)
    write(other, "c", *bodies(0, 4))
    mine = objects.in_another_process()
    storage = open_engine(mine)
    storage.head("c")
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=MOMENT))
    write(storage, "c", *bodies(4, 9))
    assert keys_of(open_engine(objects.in_another_process()).scan("c", BODY)) == list(range(9))


def test_removing_at_once_makes_a_writer_in_progress_start_again(objects: CountingObjects) -> None:
    other = open_engine(objects)
    write(other, "c", *bodies(0, 4))
    mine = objects.in_another_process()
    storage = open_engine(mine)
    storage.head("c")
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=0))
    write(storage, "c", *bodies(4, 9))
    assert keys_of(open_engine(objects.in_another_process()).scan("c", BODY)) == list(range(9))


def test_a_merge_that_outlived_a_removal_is_done_again(objects: CountingObjects) -> None:
    other = open_engine(objects)
    for key in range(6):
        write(other, "c", *bodies(key * 5, key * 5 + 5))
    before = contents(other, "c")
    mine = objects.in_another_process()
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=0))
    open_engine(mine).compact("c")
    assert contents(open_engine(objects.in_another_process()), "c") == before


def test_a_merge_that_slept_for_hours_names_nothing_that_was_removed(objects: CountingObjects) -> None:
    other = open_engine(objects, upkeep="off")
    for key in range(6):
        write(other, "c", *bodies(key * 5, key * 5 + 5))
    before = contents(other, "c")
    now = datetime.now(UTC) + timedelta(hours=2)
    other._compactor._server_time = lambda: now  # type: ignore[method-assign]
    mine = objects.in_another_process()
    at_put(mine, "heads", lambda: (write(other, "c", *bodies(40, 45)), other.collect("c")))
    open_engine(mine).compact("c")
    assert contents(open_engine(objects.in_another_process()), "c")[1] == contents(other, "c")[1] != before[1]
    assert keys_of(open_engine(objects.in_another_process()).scan("c", BODY)) == [*range(30), *range(40, 45)]


def test_commits_during_a_merge_are_kept(objects: CountingObjects) -> None:
    other = open_engine(objects, upkeep="off")
    write(other, "c", *bodies(0, 5))
    write(other, "c", Put(JOURNAL, 1, b"before"))
    mine = objects.in_another_process()
    at_put(mine, "heads", lambda: write(other, "c", Put(JOURNAL, 2, b"meanwhile")))
    storage = open_engine(mine)
    storage.compact("c")
    snapshot = storage._states.get("c").snapshot
    assert snapshot is not None
    assert len(snapshot.head.runs) == 1
    assert snapshot.head.version == 3
    assert [record.value for record in storage.scan("c", JOURNAL)] == [b"before", b"meanwhile"]
    assert contents(open_engine(objects.in_another_process()), "c") == contents(storage, "c")


@pytest.mark.parametrize("times", [1, 99])
def test_a_flush_during_a_merge_of_everything_makes_it_too_late(
    objects: CountingObjects, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_PAUSES", (0.0,) * 8)
    other = open_engine(objects, upkeep="off")
    write(other, "c", *bodies(0, 5))
    write(other, "c", Put(JOURNAL, 1, b"before"))
    mine = objects.in_another_process()
    at_put(mine, "heads", lambda: write(other, "c", *bodies(5, 12), Put(JOURNAL, 9, b"in the log")), times)
    if times == 1:
        open_engine(mine).compact("c")
    else:
        with pytest.raises(Busy):
            open_engine(mine).compact("c")
    assert keys_of(open_engine(objects.in_another_process()).scan("c", BODY)) == list(range(12))


def test_a_merge_of_a_context_that_is_dropped_changes_nothing(objects: CountingObjects) -> None:
    other = open_engine(objects)
    write(other, "c", *bodies(0, 9))
    mine = objects.in_another_process()
    at_put(mine, "heads", lambda: other.drop("c"))
    open_engine(mine).compact("c")
    assert open_engine(objects.in_another_process()).head("c") is None


def test_what_a_crash_left_is_removed_once_it_is_old(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *bodies(0, 4))
    dying = objects.in_another_process()
    at_put(dying, "heads", die)
    with pytest.raises(Interrupted):
        write(open_engine(dying), "c", *bodies(4, 9))
    left = set(objects.keys())
    write(storage, "c", *bodies(20, 25))
    assert storage.collect("c", grace_seconds=3_600) == 0
    assert left <= set(objects.keys())
    assert storage.collect("c", grace_seconds=MOMENT) > 0
    snapshot = storage._states.get("c").snapshot
    assert snapshot is not None
    assert {key.rpartition("/")[2] for key in objects.keys()} == snapshot.head.chunk_ids()  # noqa: SIM118 - not a mapping
    assert keys_of(storage.scan("c", BODY)) == [*range(4), *range(20, 25)]


def test_a_reader_with_an_older_head_reads_on_within_the_grace(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *bodies(0, 9))
    reader = open_engine(objects.in_another_process(), cache_bytes=0)
    reader.head("c")
    write(storage, "c", *bodies(9, 20))
    storage.compact("c")
    assert storage.collect("c") == 0
    assert keys_of(reader.scan("c", BODY)) == list(range(9))
    assert storage.collect("c", grace_seconds=0) > 0
    assert reader.get("c", BODY, 3) is not None
    assert keys_of(reader.scan("c", BODY)) == list(range(20))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20)), max_size=12))
@settings(max_examples=100, derandomize=True)
def test_a_chunk_is_replaced_by_the_first_chunk_with_a_wider_range(found: list[tuple[int, int, int]]) -> None:
    chunks = [((start, start + more), datetime(2030, 1, 1, minute=minute)) for start, more, minute in found]
    expected: dict[tuple[int, int], datetime] = {}
    for own, _ in chunks:
        wider = [when for other, when in chunks if other != own and other[0] <= own[0] and other[1] >= own[1]]
        expected |= {own: min(wider)} if wider else {}
    assert find_replaced(chunks) == expected


class Number(int):
    """A number that counts comparisons."""

    count = 0

    def __lt__(self, other: int) -> bool:
        Number.count += 1
        return int(self) < int(other)


def test_the_search_for_replaced_chunks_takes_n_log_n_steps() -> None:
    """Writers that made tens of thousands of chunks within an hour spent minutes on comparisons."""

    def steps(size: int) -> int:
        Number.count = 0
        pieces = [((Number(at), Number(at)), datetime(2030, 1, 1)) for at in range(size)]
        merges = [((Number(at), Number(at + 7)), datetime(2030, 1, 1, 1)) for at in range(0, size, 8)]
        assert len(find_replaced([*pieces, *merges])) == size
        return Number.count

    assert steps(8_000) < 16 * steps(1_000)


def test_removing_leaves_everything_readable(objects: CountingObjects) -> None:
    storage = open_engine(objects, grace_seconds=MOMENT)
    for turn in range(40):
        write(storage, "c", *pages([turn], group=1), *bodies(turn * 3, turn * 3 + 3))
        write(storage, "d", *bodies(turn, turn + 2))
    storage.fork("c", "f", _fork_of(storage, "c"), {})
    before = {name: contents(storage, name) for name in ("c", "d", "f")}
    assert storage.collect(grace_seconds=MOMENT) > 0
    again = open_engine(objects.in_another_process())
    assert {name: contents(again, name) for name in again.contexts()} == before


def _fork_of(storage: Storage, name: str) -> Commit:
    head = storage.head(name)
    assert head is not None
    return Commit(head.version, 9, b"fork", (), head.value)


def dropped_half_way(objects: CountingObjects, name: str) -> None:
    """Drop a context and die after its head is removed."""
    dying = objects.in_another_process()

    def delete(keys: Sequence[str]) -> None:
        Objects.delete(dying, keys)
        raise Interrupted

    dying.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        open_engine(dying).drop(name)


def test_what_is_left_of_a_drop_that_died_is_removed(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *bodies(0, 9))
    write(storage, "d", *bodies(0, 9))
    dropped_half_way(objects, "c")
    assert list(storage.contexts()) == ["d"]
    assert storage.collect(grace_seconds=3_600) == 0
    assert storage.collect(grace_seconds=1) == 0, "it may be in progress"
    left = objects.keys()
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._compactor._server_time = lambda: now  # type: ignore[method-assign]
    assert storage.collect() == len(left) // 2 + 1
    assert len(objects.keys()) == len(left) // 2
    assert keys_of(open_engine(objects.in_another_process()).scan("d", BODY)) == list(range(9))


def test_a_fork_does_not_outlive_a_source_that_is_dropped_meanwhile(objects: CountingObjects) -> None:
    other = open_engine(objects)
    write(other, "c", *bodies(0, 9))
    mine = objects.in_another_process()
    storage = open_engine(mine)
    storage.head("c")
    at_put(mine, "heads", lambda: other.drop("c"))
    with pytest.raises(Conflict):
        storage.fork("c", "f", _fork_of(storage, "c"), {})
    assert list(storage.contexts()) == []
    assert objects.keys() == []


def test_scrubbing_removes_what_is_left_of_a_drop_that_died(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for name in ("c", "d"):
        write(storage, name, *bodies(0, 9))
        dropped_half_way(objects, name)
    write(storage, "e", *bodies(0, 9))
    storage.scrub(["c"])
    assert not [key for key in objects.keys() if key.startswith(storage._states.get("c").data_prefix)]  # noqa: SIM118
    storage.scrub(None)
    assert not [key for key in objects.keys() if key.startswith(storage._states.get("d").data_prefix)]  # noqa: SIM118
    assert keys_of(open_engine(objects.in_another_process()).scan("e", BODY)) == list(range(9))


def test_a_drop_removes_its_chunks_at_once(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *bodies(0, 9))
    storage.drop("c")
    assert objects.keys() == []
    assert objects.keys("heads") == []


def test_the_age_of_a_replaced_chunk_is_that_of_its_replacement() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    head = HeadObject("c", "x", 1, b"", b"", b"", (), 9)

    def over(name: str, minutes: int, *others: tuple[tuple[int, int], int], grace: float = 3_600) -> bool:
        listed = ObjectInfo(f"data/x/{name}", 1, now - timedelta(minutes=minutes))
        covered = [(flushes, now - timedelta(minutes=ago)) for flushes, ago in others]
        replaced = find_replaced([((1, 2), now - timedelta(minutes=minutes)), *covered])
        return is_expired(listed, replaced, head, now, grace)

    old = 60 * 24
    assert over("00000001-00000002-aa", old, ((1, 5), 70))
    assert not over("00000001-00000002-aa", old, ((1, 5), 50)), "replaced less than an hour ago"
    assert not over("00000001-00000002-aa", 10), "written less than an hour ago"
    assert over("00000001-00000002-aa", old), "nothing replaced it: a crash left it"
    assert over("00000001-00000002-aa", old, ((3, 5), 10)), "a chunk with other flushes does not replace it"
    assert not over("00000009-0000000a-aa", old), "the head has fewer flushes"
    assert over("00000001-00000009-aa", 0, grace=0)


def test_scrubbing_leaves_nothing_of_what_was_deleted(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", Put(BODY, 1, b"a secret " * 90), *bodies(2, 9))
    write(storage, "c", Delete(BODY, 1))
    storage.fork("c", "f", _fork_of(storage, "c"), {})
    storage.scrub(["c", "f"])
    kept = b"".join(objects.get_range(key, 0, 1 << 20) for key in [*objects.keys(), *objects.keys("heads")])
    assert b"secret" not in kept
    for name in ("c", "f"):
        assert keys_of(open_engine(objects.in_another_process()).scan(name, BODY)) == list(range(2, 9))


def test_an_examination_names_unneeded_objects_and_can_remove_them(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for name in ("c", "d", "e"):
        write(storage, name, *bodies(0, 9))
    storage.compact("d")
    dropped_half_way(objects, "c")
    assert storage.examine() == [], "all of it may still be in use"
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._compactor._server_time = lambda: now  # type: ignore[method-assign]
    found = storage.examine()
    left = {symptom.where for symptom in found}
    assert {(symptom.code, symptom.severity, symptom.repaired) for symptom in found} == {("leftover", "note", False)}
    assert left < set(objects.keys())
    assert {symptom.where for symptom in storage.examine(repair=True) if symptom.repaired} == left
    assert left.isdisjoint(objects.keys())
    assert storage.examine() == []
    for name in ("d", "e"):
        assert keys_of(open_engine(objects.in_another_process()).scan(name, BODY)) == list(range(9))


def test_an_examination_reports_only_what_it_removes(objects: CountingObjects) -> None:
    storage = open_engine(objects, grace_seconds=3 * 3_600)
    write(storage, "c", *bodies(0, 9))
    storage.compact("c")
    for hours in (2, 4):
        now = datetime.now(UTC) + timedelta(hours=hours)
        storage._compactor._server_time = lambda now=now: now  # type: ignore[method-assign, misc]
        before = set(objects.keys())
        repaired = {symptom.where for symptom in storage.examine(repair=True) if symptom.repaired}
        assert repaired == before - set(objects.keys())
        assert bool(repaired) is (hours == 4)


def test_a_context_without_its_head_is_reported_and_kept(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for name in ("c", "d"):
        write(storage, name, *bodies(0, 9))
    objects.delete(["heads/c!"])
    left = [key for key in objects.keys() if key.startswith(storage._states.get("c").data_prefix)]  # noqa: SIM118
    (symptom,) = storage.examine()
    assert (symptom.code, symptom.severity) == ("head_lost", "error")
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._compactor._server_time = lambda: now  # type: ignore[method-assign]
    (symptom,) = storage.examine(repair=True)
    assert (symptom.code, symptom.severity, symptom.repaired) == ("head_lost", "error", False)
    assert left[0].startswith(symptom.where)
    write(storage, "c", *bodies(0, 9))  # created again under its name
    storage.collect("c", grace_seconds=0)
    storage.collect(grace_seconds=0)
    (symptom,) = storage.examine()
    assert "an earlier context 'c'" in symptom.text
    assert set(left) < set(objects.keys())


@pytest.mark.parametrize("is_fork", [True, False])
def test_a_context_that_is_being_created_is_not_reported(objects: CountingObjects, is_fork: bool) -> None:
    storage = open_engine(objects)
    write(storage, "c", *bodies(0, 9))
    found: list[list[Symptom]] = []
    creator = objects.in_another_process()

    def look() -> None:
        assert any(key.endswith(CREATING) for key in objects.keys())  # noqa: SIM118
        found.append(storage.examine())
        now = datetime.now(UTC) + timedelta(hours=2)
        later = open_engine(objects.in_another_process())
        later._compactor._server_time = lambda: now  # type: ignore[method-assign]
        found.append(later.examine())

    at_put(creator, "heads", look)
    if is_fork:
        open_engine(creator).fork("c", "f", Commit(1, 2, HEAD, ()), {})
    else:
        write(open_engine(creator), "f", *bodies(0, 9))
    (now, later) = found
    assert now == []
    assert [(symptom.code, symptom.severity) for symptom in later] == [("head_lost", "warning")]
    assert not any(key.endswith(CREATING) for key in objects.keys())  # noqa: SIM118
    objects.delete(["heads/f!"])
    assert [(symptom.code, symptom.severity) for symptom in storage.examine()] == [("head_lost", "error")]


def test_a_writer_that_is_too_late_leaves_no_chunks(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    late = objects.in_another_process()
    at_put(late, "heads", lambda: write(storage, "c", *bodies(0, 9)))
    with pytest.raises(Conflict):
        write(open_engine(late), "c", *bodies(20, 29))
    write(storage, "d", *bodies(0, 9))
    late = objects.in_another_process()
    at_put(late, "heads", lambda: write(storage, "f", *bodies(0, 9)))
    with pytest.raises(Conflict):
        open_engine(late).fork("d", "f", _fork_of(storage, "d"), {})
    late = objects.in_another_process()
    other = open_engine(late)
    other.head("d")
    at_put(late, "heads", lambda: storage.drop("d"))
    with pytest.raises(Conflict):
        write(other, "d", *bodies(20, 29))
    assert storage.examine() == []


def test_adjacent_runs_of_similar_size_are_merged() -> None:
    def runs(*sizes: int) -> list[Run]:
        return [Run((ChunkRef(f"{n:08x}-{n:08x}-aa", size, 0, 0, ()),)) for n, size in enumerate(sizes)]

    assert find_mergeable(runs(900, 40, 40, 40, 40, 1)) == range(1, 5)
    assert find_mergeable(runs(90, 40, 40, 40)) == range(4)
    assert find_mergeable(runs(900, 200, 40, 9, 2)) is None
    assert find_mergeable(runs(4, 4, 4)) is None
    assert find_mergeable(runs(*(4**n for n in range(30, 0, -1)))) == range(15, 30), "too many runs of any size"


def test_upkeep_in_a_thread_merges_and_ends_with_the_handle(objects: CountingObjects) -> None:
    storage = open_engine(objects, upkeep="background")
    done = Event()
    merge = storage._compactor.run_after_flush

    def watched(*arguments: Any) -> None:
        merge(*arguments)
        done.set()

    storage._compactor.run_after_flush = watched  # type: ignore[method-assign, assignment]
    turn = 0
    while not done.is_set():
        write(storage, "c", *bodies(turn * 9, turn * 9 + 9))
        turn += 1
        assert turn < 2_000, "no merge was made"
    storage.close()
    assert storage._compactor._thread is None or not storage._compactor._thread.is_alive()
    assert keys_of(open_engine(objects.in_another_process()).scan("c", BODY)) == list(range(turn * 9))


def test_upkeep_that_fails_costs_no_commit(objects: CountingObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_engine(objects)

    def fail(*arguments: object, **options: object) -> bool:
        raise StorageFailure("away")

    monkeypatch.setattr(storage._compactor, "_merge_runs", fail)
    for turn in range(60):
        write(storage, "c", *bodies(turn * 9, turn * 9 + 9), Put(PAGE, turn, b"x"))
    assert keys_of(storage.scan("c", PAGE)) == list(range(60))
