"""Merging and removing while others write and read: nothing is lost, and what nobody needs goes."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest

from quire import Busy, Conflict, StorageFailure
from quire.storage.base import BODY, JOURNAL, PAGE, Commit, Delete, Put, Storage
from quire.storage.s3 import contexts as books
from quire.storage.s3.chunks import ChunkRef, Run
from quire.storage.s3.client import Listed, Objects
from quire.storage.s3.compaction import _is_over
from quire.storage.s3.flush import mergeable
from quire.storage.s3.head import HeadObject
from quire.testing.case import contents, keys_of, pages, write
from tests.storage.s3engine import Watched, objects, opened, tiny

__all__ = ["objects", "tiny"]
pytestmark = pytest.mark.usefixtures("tiny")
MOMENT = 1e-9


class Interrupted(Exception):
    """The process dies here."""


def at_put(objects: Watched, prefix: str, action: Callable[[], object], times: int = 1) -> None:
    """Do something just before the next objects below a prefix are written."""
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


def test_a_chunk_that_a_writer_is_about_to_name_is_never_removed(objects: Watched) -> None:
    other = opened(objects)
    write(other, "c", *bodies(0, 4))
    mine = objects.beside()
    storage = opened(mine)
    storage.head("c")
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=MOMENT))
    write(storage, "c", *bodies(4, 9))
    assert keys_of(opened(objects.beside()).scan("c", BODY)) == list(range(9))


def test_removing_at_once_makes_a_writer_under_way_begin_again(objects: Watched) -> None:
    other = opened(objects)
    write(other, "c", *bodies(0, 4))
    mine = objects.beside()
    storage = opened(mine)
    storage.head("c")
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=0))
    write(storage, "c", *bodies(4, 9))
    assert keys_of(opened(objects.beside()).scan("c", BODY)) == list(range(9))


def test_a_merge_that_outlived_a_removal_is_begun_anew(objects: Watched) -> None:
    other = opened(objects)
    for key in range(6):
        write(other, "c", *bodies(key * 5, key * 5 + 5))
    before = contents(other, "c")
    mine = objects.beside()
    at_put(mine, "heads", lambda: other.collect("c", grace_seconds=0))
    opened(mine).compact("c")
    assert contents(opened(objects.beside()), "c") == before


def test_a_merge_that_slept_for_hours_names_nothing_that_was_removed(objects: Watched) -> None:
    other = opened(objects, upkeep="off")
    for key in range(6):
        write(other, "c", *bodies(key * 5, key * 5 + 5))
    before = contents(other, "c")
    now = datetime.now(UTC) + timedelta(hours=2)
    other._upkeep._now = lambda: now  # type: ignore[method-assign]
    mine = objects.beside()
    at_put(mine, "heads", lambda: (write(other, "c", *bodies(40, 45)), other.collect("c")))
    opened(mine).compact("c")
    assert contents(opened(objects.beside()), "c")[1] == contents(other, "c")[1] != before[1]
    assert keys_of(opened(objects.beside()).scan("c", BODY)) == [*range(30), *range(40, 45)]


def test_commits_during_a_merge_are_kept(objects: Watched) -> None:
    other = opened(objects, upkeep="off")
    write(other, "c", *bodies(0, 5))
    write(other, "c", Put(JOURNAL, 1, b"before"))
    mine = objects.beside()
    at_put(mine, "heads", lambda: write(other, "c", Put(JOURNAL, 2, b"meanwhile")))
    storage = opened(mine)
    storage.compact("c")
    standing = storage._books.book("c").standing
    assert standing is not None
    assert len(standing.head.runs) == 1
    assert standing.head.version == 3
    assert [record.value for record in storage.scan("c", JOURNAL)] == [b"before", b"meanwhile"]
    assert contents(opened(objects.beside()), "c") == contents(storage, "c")


@pytest.mark.parametrize("times", [1, 99])
def test_a_seal_during_a_merge_of_everything_makes_it_too_late(
    objects: Watched, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(books, "_PAUSES", (0.0,) * 8)
    other = opened(objects, upkeep="off")
    write(other, "c", *bodies(0, 5))
    write(other, "c", Put(JOURNAL, 1, b"before"))
    mine = objects.beside()
    at_put(mine, "heads", lambda: write(other, "c", *bodies(5, 12), Put(JOURNAL, 9, b"in the log")), times)
    if times == 1:
        opened(mine).compact("c")
    else:
        with pytest.raises(Busy):
            opened(mine).compact("c")
    assert keys_of(opened(objects.beside()).scan("c", BODY)) == list(range(12))


def test_a_merge_of_a_context_that_is_dropped_changes_nothing(objects: Watched) -> None:
    other = opened(objects)
    write(other, "c", *bodies(0, 9))
    mine = objects.beside()
    at_put(mine, "heads", lambda: other.drop("c"))
    opened(mine).compact("c")
    assert opened(objects.beside()).head("c") is None


def test_what_a_crash_left_is_removed_once_it_is_old(objects: Watched) -> None:
    storage = opened(objects)
    write(storage, "c", *bodies(0, 4))
    dying = objects.beside()
    at_put(dying, "heads", die)
    with pytest.raises(Interrupted):
        write(opened(dying), "c", *bodies(4, 9))
    left = set(objects.keys())
    write(storage, "c", *bodies(20, 25))
    assert storage.collect("c", grace_seconds=3_600) == 0
    assert left <= set(objects.keys())
    assert storage.collect("c", grace_seconds=MOMENT) > 0
    standing = storage._books.book("c").standing
    assert standing is not None
    assert {key.rpartition("/")[2] for key in objects.keys()} == standing.head.ids()  # noqa: SIM118 - not a mapping
    assert keys_of(storage.scan("c", BODY)) == [*range(4), *range(20, 25)]


def test_a_reader_with_an_older_head_reads_on_within_the_grace(objects: Watched) -> None:
    storage = opened(objects)
    write(storage, "c", *bodies(0, 9))
    reader = opened(objects.beside(), cache_bytes=0)
    reader.head("c")
    write(storage, "c", *bodies(9, 20))
    storage.compact("c")
    assert storage.collect("c") == 0
    assert keys_of(reader.scan("c", BODY)) == list(range(9))
    assert storage.collect("c", grace_seconds=0) > 0
    assert reader.get("c", BODY, 3) is not None
    assert keys_of(reader.scan("c", BODY)) == list(range(20))


def test_removing_leaves_everything_readable(objects: Watched) -> None:
    storage = opened(objects, grace_seconds=MOMENT)
    for turn in range(40):
        write(storage, "c", *pages([turn], group=1), *bodies(turn * 3, turn * 3 + 3))
        write(storage, "d", *bodies(turn, turn + 2))
    storage.fork("c", "f", _fork_of(storage, "c"), {})
    before = {name: contents(storage, name) for name in ("c", "d", "f")}
    assert storage.collect(grace_seconds=MOMENT) > 0
    again = opened(objects.beside())
    assert {name: contents(again, name) for name in again.contexts()} == before


def _fork_of(storage: Storage, name: str) -> Commit:
    head = storage.head(name)
    assert head is not None
    return Commit(head.version, 9, b"fork", (), head.value)


def dropped_half_way(objects: Watched, name: str) -> None:
    """Drop a context and die when its head is gone."""
    dying = objects.beside()

    def delete(keys: Sequence[str]) -> None:
        Objects.delete(dying, keys)
        raise Interrupted

    dying.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        opened(dying).drop(name)


def test_what_is_left_of_a_drop_that_died_is_removed(objects: Watched) -> None:
    storage = opened(objects)
    write(storage, "c", *bodies(0, 9))
    write(storage, "d", *bodies(0, 9))
    dropped_half_way(objects, "c")
    assert list(storage.contexts()) == ["d"]
    assert storage.collect(grace_seconds=3_600) == 0
    assert storage.collect(grace_seconds=0) == 0, "it may be just being made"
    left = objects.keys()
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._upkeep._now = lambda: now  # type: ignore[method-assign]
    assert storage.collect() == len(left) // 2 + 1
    assert len(objects.keys()) == len(left) // 2
    assert keys_of(opened(objects.beside()).scan("d", BODY)) == list(range(9))


def test_a_drop_removes_its_chunks_at_once(objects: Watched) -> None:
    storage = opened(objects)
    write(storage, "c", *bodies(0, 9))
    storage.drop("c")
    assert objects.keys() == []
    assert objects.keys("heads") == []


def test_how_long_a_chunk_was_replaced_tells_the_one_that_covers_it() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    head = HeadObject("c", "x", 1, b"", b"", b"", (), 9)

    def over(name: str, minutes: int, *others: tuple[tuple[int, int], int], grace: float = 3_600) -> bool:
        listed = Listed(f"data/x/{name}", 1, now - timedelta(minutes=minutes))
        covered = [(seals, now - timedelta(minutes=ago)) for seals, ago in others]
        return _is_over(listed, [*covered], head, now, grace)

    old = 60 * 24
    assert over("00000001-00000002-aa", old, ((1, 5), 70))
    assert not over("00000001-00000002-aa", old, ((1, 5), 50)), "replaced less than an hour ago"
    assert not over("00000001-00000002-aa", 10), "written less than an hour ago"
    assert over("00000001-00000002-aa", old), "nothing replaced it: a crash left it"
    assert over("00000001-00000002-aa", old, ((3, 5), 10)), "what covers other seals says nothing"
    assert not over("00000009-0000000a-aa", old), "the head has not come so far"
    assert over("00000001-00000009-aa", 0, grace=0)


def test_scrubbing_leaves_nothing_of_what_was_deleted(objects: Watched) -> None:
    storage = opened(objects)
    write(storage, "c", Put(BODY, 1, b"a secret " * 90), *bodies(2, 9))
    write(storage, "c", Delete(BODY, 1))
    storage.fork("c", "f", _fork_of(storage, "c"), {})
    storage.scrub(["c", "f"])
    kept = b"".join(objects.get_range(key, 0, 1 << 20) for key in [*objects.keys(), *objects.keys("heads")])
    assert b"secret" not in kept
    for name in ("c", "f"):
        assert keys_of(opened(objects.beside()).scan(name, BODY)) == list(range(2, 9))


def test_an_examination_names_what_no_context_needs_and_can_remove_it(objects: Watched) -> None:
    storage = opened(objects)
    for name in ("c", "d", "e"):
        write(storage, name, *bodies(0, 9))
    storage.compact("d")
    dropped_half_way(objects, "c")
    assert storage.examine() == [], "all of it may still be in use"
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._upkeep._now = lambda: now  # type: ignore[method-assign]
    found = storage.examine()
    left = {symptom.where for symptom in found}
    assert {(symptom.code, symptom.severity, symptom.repaired) for symptom in found} == {("leftover", "note", False)}
    assert left < set(objects.keys())
    assert {symptom.where for symptom in storage.examine(repair=True) if symptom.repaired} == left
    assert left.isdisjoint(objects.keys())
    assert storage.examine() == []
    for name in ("d", "e"):
        assert keys_of(opened(objects.beside()).scan(name, BODY)) == list(range(9))


def test_a_context_that_lost_its_head_is_told_and_nothing_of_it_is_removed(objects: Watched) -> None:
    storage = opened(objects)
    for name in ("c", "d"):
        write(storage, name, *bodies(0, 9))
    objects.delete(["heads/c!"])
    left = [key for key in objects.keys() if key.startswith(storage._books.book("c").shelf)]  # noqa: SIM118
    (symptom,) = storage.examine()
    assert (symptom.code, symptom.severity) == ("head_lost", "warning"), "it may be just being made"
    now = datetime.now(UTC) + timedelta(hours=2)
    storage._upkeep._now = lambda: now  # type: ignore[method-assign]
    (symptom,) = storage.examine(repair=True)
    assert (symptom.code, symptom.severity, symptom.repaired) == ("head_lost", "error", False)
    assert left[0].startswith(symptom.where)
    write(storage, "c", *bodies(0, 9))  # made anew under its name
    storage.collect("c", grace_seconds=0)
    storage.collect(grace_seconds=0)
    (symptom,) = storage.examine()
    assert "an earlier context 'c'" in symptom.text
    assert set(left) < set(objects.keys())


def test_who_comes_too_late_leaves_nothing_that_looks_like_a_lost_context(objects: Watched) -> None:
    storage = opened(objects)
    late = objects.beside()
    at_put(late, "heads", lambda: write(storage, "c", *bodies(0, 9)))
    with pytest.raises(Conflict):
        write(opened(late), "c", *bodies(20, 29))
    write(storage, "d", *bodies(0, 9))
    late = objects.beside()
    at_put(late, "heads", lambda: write(storage, "f", *bodies(0, 9)))
    with pytest.raises(Conflict):
        opened(late).fork("d", "f", _fork_of(storage, "d"), {})
    late = objects.beside()
    other = opened(late)
    other.head("d")
    at_put(late, "heads", lambda: storage.drop("d"))
    with pytest.raises(Conflict):
        write(other, "d", *bodies(20, 29))
    assert storage.examine() == []


def test_a_row_of_like_runs_below_a_small_one_is_merged() -> None:
    def runs(*sizes: int) -> list[Run]:
        return [Run((ChunkRef(f"{n:08x}-{n:08x}-aa", size, 0, 0, ()),)) for n, size in enumerate(sizes)]

    assert mergeable(runs(900, 40, 40, 40, 40, 1)) == range(1, 5)
    assert mergeable(runs(90, 40, 40, 40)) == range(4)
    assert mergeable(runs(900, 200, 40, 9, 2)) is None
    assert mergeable(runs(4, 4, 4)) is None
    assert mergeable(runs(*(4**n for n in range(30, 0, -1)))) == range(15, 30), "too many, however unlike"


def test_upkeep_in_a_thread_merges_and_ends_with_the_handle(objects: Watched) -> None:
    storage = opened(objects, upkeep="background")
    done = Event()
    merge = storage._upkeep.after_seal

    def watched(*arguments: Any) -> None:
        merge(*arguments)
        done.set()

    storage._upkeep.after_seal = watched  # type: ignore[method-assign, assignment]
    turn = 0
    while not done.is_set():
        write(storage, "c", *bodies(turn * 9, turn * 9 + 9))
        turn += 1
        assert turn < 2_000, "no merge was made"
    storage.close()
    assert storage._upkeep._thread is None or not storage._upkeep._thread.is_alive()
    assert keys_of(opened(objects.beside()).scan("c", BODY)) == list(range(turn * 9))


def test_upkeep_that_fails_costs_no_commit(objects: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = opened(objects)

    def fail(*arguments: object, **options: object) -> bool:
        raise StorageFailure("away")

    monkeypatch.setattr(storage._upkeep, "_merge_runs", fail)
    for turn in range(60):
        write(storage, "c", *bodies(turn * 9, turn * 9 + 9), Put(PAGE, turn, b"x"))
    assert keys_of(storage.scan("c", PAGE)) == list(range(60))
