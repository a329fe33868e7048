"""The overlay: its commits are visible through it, invisible below until `as_commit` is committed there."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import Conflict, FileStorage, InvalidOperation, MemoryStorage, SQLiteStorage, Storage
from quire.storage import overlay as overlays
from quire.storage.base import (
    BODY,
    FAMILIES,
    JOURNAL,
    MAX_KEY,
    PAGE,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Write,
    check_storage,
)
from quire.storage.memory import Row, stream_records
from quire.storage.overlay import OverlayStorage
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import HEAD, contents, grouped, keys_of, pages, version_of, write

EMPTY: tuple[None, dict[Family, list[Record]]] = (None, {family: [] for family in FAMILIES})


def filled() -> MemoryStorage:
    """Pages 0, 10, …, 90 in group 1, and a body."""
    storage = MemoryStorage()
    write(storage, "c", *pages(range(0, 100, 10), group=1), Put(BODY, 1, b"text"))
    write(storage, "other", *pages([1], group=1))
    return storage


def over(below: Storage, *writes: Write) -> OverlayStorage:
    overlay = OverlayStorage(below, "c")
    if writes:
        write(overlay, "c", *writes)
    return overlay


def flush(overlay: OverlayStorage) -> None:
    """Commit the changes of an overlay below, as a transaction does."""
    commit = overlay.as_commit()
    if commit is not None:
        overlay.below.commit(overlay.context, commit)


# Reading


def test_an_overlay_is_a_storage() -> None:
    overlay = over(filled())
    assert check_storage(overlay) is overlay


def test_an_overlay_without_commits_reads_like_what_lies_below() -> None:
    below = filled()
    overlay = over(below)
    for name in ("c", "other", "never there"):
        assert contents(overlay, name) == contents(below, name)
        assert grouped(overlay, name, [0, 1]) == grouped(below, name, [0, 1])
        assert overlay.get(name, PAGE, 10) == below.get(name, PAGE, 10)
    assert list(overlay.contexts()) == ["c", "other"]
    assert list(overlay.contexts("c")) == ["other"]


def test_records_of_both_are_found_by_key() -> None:
    overlay = over(filled(), Put(PAGE, 15, b"new"), Patch(PAGE, 20, b"patched"), Delete(PAGE, 30))
    assert overlay.get("c", PAGE, 10) == Record(10, b"10", 1, (10).to_bytes(5))
    assert overlay.get("c", PAGE, 15) == Record(15, b"new")
    assert overlay.get("c", PAGE, 20) == Record(20, b"patched", 1, (20).to_bytes(5))
    assert overlay.get("c", PAGE, 30) is None
    assert overlay.get("c", BODY, 1) == Record(1, b"text")
    assert overlay.head("c") == Head(2, HEAD)


def test_a_scan_merges_both() -> None:
    changes: list[Write] = [*pages([5, 15, 95]), Patch(PAGE, 20, b"x"), Delete(PAGE, 30), Delete(PAGE, 90)]
    overlay = over(filled(), *changes)
    keys = [0, 5, 10, 15, 20, 40, 50, 60, 70, 80, 95]
    for start, stop in ((0, MAX_KEY), (5, 15), (6, 14), (20, 20), (30, 30), (90, 95), (96, MAX_KEY), (15, 5), (-9, 5)):
        found = [key for key in keys if start <= key <= stop]
        assert keys_of(overlay.scan("c", PAGE, start, stop)) == found
        assert keys_of(overlay.scan("c", PAGE, start, stop, reverse=True)) == found[::-1]
    assert next(overlay.scan("c", PAGE, 20)).value == b"x"


def test_a_listing_merges_both() -> None:
    moved = [Put(PAGE, 0, b"", 1, (45).to_bytes(5)), Put(PAGE, 50, b"", 2, (50).to_bytes(5)), Put(PAGE, 60, b"")]
    inserted = [Put(PAGE, 200, b"", 1, (10).to_bytes(5)), Put(PAGE, 201, b"", 1, b"")]
    overlay = over(filled(), *moved, *inserted, Patch(PAGE, 20, b"x"), Delete(PAGE, 30))
    keys = [201, 10, 200, 20, 40, 0, 70, 80, 90]
    assert keys_of(overlay.members("c", PAGE, 1)) == keys
    assert keys_of(overlay.members("c", PAGE, 1, reverse=True)) == keys[::-1]
    assert keys_of(overlay.members("c", PAGE, 2)) == [50]
    slots = [(record.order, record.key) for record in overlay.members("c", PAGE, 1)]
    for after in [*slots, (b"", 0), ((10).to_bytes(5), 50), ((30).to_bytes(5), 30), (b"\xff", 0)]:
        following = [key for order, key in slots if (order, key) > after]
        preceding = [key for order, key in slots[::-1] if (order, key) < after]
        assert keys_of(overlay.members("c", PAGE, 1, after=after)) == following, after
        assert keys_of(overlay.members("c", PAGE, 1, after=after, reverse=True)) == preceding, after


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("listing", [False, True])
def test_writing_does_not_disturb_a_reading_that_is_running(reverse: bool, listing: bool) -> None:
    overlay = over(filled(), *pages(range(5, 100, 10), group=1))
    read = overlay.members("c", PAGE, 1, reverse=reverse) if listing else overlay.scan("c", PAGE, reverse=reverse)
    keys = [*range(0, 100, 5)][:: -1 if reverse else 1]
    seen = list(islice(read, 4))
    ahead = keys[4:]
    write(overlay, "c", *(Patch(PAGE, key, b"patched") for key in keys), Delete(PAGE, ahead[2]), Delete(PAGE, ahead[3]))
    rest = list(read)
    assert keys_of(seen) == keys[:4]
    assert keys_of(rest) == [*ahead[:2], *ahead[4:]]
    assert {record.value for record in rest[1:]} == {b"patched"}


def test_a_neighbour_is_found_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = over(filled(), *pages(range(100, 5_000), group=1))
    read: list[int] = []

    def noted(rows: Iterator[tuple[int, Row[bytes]]], lock: Any) -> Iterator[Record]:
        for record in stream_records(rows, lock):
            read.append(record.key)
            yield record

    monkeypatch.setattr(overlays, "stream_records", noted)
    assert next(overlay.members("c", PAGE, 1, reverse=True)).key == 4_999
    assert next(overlay.scan("c", PAGE, 101)).key == 101
    assert read == [4_999, 101]


@pytest.mark.parametrize("backend", [FileStorage, SQLiteStorage])
def test_an_overlay_lies_over_any_backend(tmp_path: Path, backend: type[FileStorage | SQLiteStorage]) -> None:
    below, model = backend(tmp_path / "store"), MemoryStorage()
    for storage in (below, model):
        write(storage, "origin", *pages(range(600), group=1), *(Put(BODY, key, b"%d" % key) for key in range(9)))
        storage.fork("origin", "c", Commit(1, 1, HEAD, ()), {})
        overlay = over(storage, *pages(range(600, 700), group=1), Delete(BODY, 3), Patch(PAGE, 300, b"x"))
        write(overlay, "c", Put(BODY, 9, b"9"), *(Delete(PAGE, key) for key in range(0, 700, 2)))
        flush(overlay)
        assert contents(overlay, "c") == contents(storage, "c")
    for name in ("c", "origin"):
        assert contents(below, name) == contents(model, name)
        assert grouped(below, name, [1]) == grouped(model, name, [1])
    below.close()


# Writing


def test_a_put_over_a_record_below_replaces_all_of_it() -> None:
    overlay = over(filled(), Put(PAGE, 10, b"new", 2, b"o"))
    assert overlay.get("c", PAGE, 10) == Record(10, b"new", 2, b"o")
    assert grouped(overlay, "c", [2]) == {2: [10]}
    assert 10 not in grouped(overlay, "c", [1])[1]


def test_a_patch_over_a_record_below_keeps_its_place() -> None:
    overlay = over(filled(), Patch(PAGE, 10, b"first"))
    write(overlay, "c", Patch(PAGE, 10, b"second"), Patch(PAGE, 11, b"nothing there"))
    assert overlay.get("c", PAGE, 10) == Record(10, b"second", 1, (10).to_bytes(5))
    assert overlay.get("c", PAGE, 11) is None
    assert grouped(overlay, "c", [1])[1] == [*range(0, 100, 10)]


def test_a_patch_of_a_deleted_record_does_nothing() -> None:
    overlay = over(filled(), Delete(PAGE, 10), Patch(PAGE, 10, b"ghost"))
    write(overlay, "c", Patch(PAGE, 10, b"ghost"), Patch(PAGE, 20, b"x"), Delete(PAGE, 20), Patch(PAGE, 20, b"ghost"))
    assert (overlay.get("c", PAGE, 10), overlay.get("c", PAGE, 20)) == (None, None)
    flush(overlay)
    assert keys_of(overlay.below.scan("c", PAGE)) == [0, *range(30, 100, 10)]


def test_a_put_brings_a_deleted_record_back() -> None:
    overlay = over(filled(), Delete(PAGE, 10), Put(PAGE, 10, b"back", 1, b"z"), Delete(PAGE, 20))
    write(overlay, "c", Put(PAGE, 20, b"back"), Patch(PAGE, 20, b"patched"))
    assert overlay.get("c", PAGE, 10) == Record(10, b"back", 1, b"z")
    assert overlay.get("c", PAGE, 20) == Record(20, b"patched")
    flush(overlay)
    assert overlay.below.get("c", PAGE, 10) == Record(10, b"back", 1, b"z")
    assert overlay.below.get("c", PAGE, 20) == Record(20, b"patched")


def test_a_record_of_its_own_can_go_again() -> None:
    overlay = over(filled(), *pages([11], group=1))
    write(overlay, "c", Delete(PAGE, 11), Delete(PAGE, 12))
    assert overlay.get("c", PAGE, 11) is None
    before = contents(overlay, "c")
    flush(overlay)
    assert contents(overlay.below, "c") == before


def test_a_commit_that_does_not_follow_is_refused_and_changes_nothing() -> None:
    overlay = over(filled(), *pages([11]))
    before = contents(overlay, "c")
    for expect, seen in ((0, b""), (1, b""), (3, b""), (-2, b""), (2, b"another head")):
        with pytest.raises(Conflict):
            overlay.commit("c", Commit(expect, 9, b"x", [*pages([12]), Delete(PAGE, 0)], seen))
    assert contents(overlay, "c") == before
    overlay.commit("c", Commit(2, 9, b"x", pages([12]), HEAD))
    assert overlay.head("c") == Head(9, b"x")


def test_a_commit_with_an_impossible_write_changes_nothing() -> None:
    overlay = over(filled(), *pages([11]))
    before = contents(overlay, "c")
    with pytest.raises(Exception, match="no such family"):
        write(overlay, "c", Put(PAGE, 0, b"x"), Delete(PAGE, 11), Put(cast(Any, "no such family"), 1, b"x"))
    assert contents(overlay, "c") == before


def test_a_commit_during_which_the_storage_fails_changes_nothing() -> None:
    below = FaultyStorage(filled())
    overlay = over(below, *pages([11]))
    before = contents(overlay, "c")
    below.arm(2)
    with pytest.raises(InjectedFault):
        write(overlay, "c", Put(PAGE, 0, b"x"), Delete(PAGE, 11), Patch(PAGE, 10, b"x"), Patch(PAGE, 20, b"x"))
    assert below.failed
    assert contents(overlay, "c") == before


def test_a_snapshot_has_the_head_of_its_records() -> None:
    overlay = over(filled(), *pages([5], group=1))
    lock = overlay._lock

    class LateLock:
        """Before this lock is acquired for the first time, another writer commits."""

        def __enter__(self) -> bool:
            if overlay._lock is not lock:
                overlay._lock = lock
                write(overlay, "c", *pages([6], group=1))
            return lock.__enter__()

        def __exit__(self, *error: Any) -> None:
            lock.release()

    overlay._lock = cast(Any, LateLock())
    with overlay.snapshot("c") as frozen:
        assert contents(frozen, "c") == contents(overlay, "c")


def test_other_contexts_pass_through() -> None:
    below = filled()
    overlay = over(below, *pages([11]))
    write(overlay, "other", *pages([2]))
    overlay.fork("other", "fork", Commit(2, 1, HEAD, ()), {})
    assert keys_of(below.scan("other", PAGE)) == keys_of(below.scan("fork", PAGE)) == [1, 2]
    overlay.drop("other")
    assert list(below.contexts()) == list(overlay.contexts()) == ["c", "fork"]


def test_the_context_itself_is_neither_forked_nor_dropped() -> None:
    below = filled()
    overlay = over(below, *pages([11]))
    before = contents(below, "c"), contents(overlay, "c")
    with pytest.raises(InvalidOperation, match="uncommitted changes"):
        overlay.fork("c", "fork", Commit(2, 1, HEAD, ()), {})
    with pytest.raises(InvalidOperation, match="uncommitted changes"):
        overlay.drop("c")
    overlay.close()
    assert (contents(below, "c"), contents(overlay, "c")) == before
    assert list(below.contexts()) == ["c", "other"]


# Pouring


def test_nothing_reaches_below_before_it_is_poured() -> None:
    below = filled()
    before = contents(below, "c")
    overlay = over(below, Put(PAGE, 10, b"x"), Patch(PAGE, 20, b"x"), Delete(PAGE, 30), Put(JOURNAL, 2, b"x"))
    write(overlay, "c", *pages(range(100, 200)))
    assert contents(below, "c") == before
    after = contents(overlay, "c")
    flush(overlay)
    assert contents(below, "c") == after
    assert contents(overlay, "c") == after


def test_pouring_is_one_commit_of_all_commits() -> None:
    below = FaultyStorage(filled())
    overlay = over(below)
    for version in range(1, 6):
        overlay.commit("c", Commit(version, version + 1, b"%d" % version, [Put(JOURNAL, version, b"x")]))
    assert "commit" not in below.calls
    below.arm(0)
    flush(overlay)
    assert below.calls == ["commit"]
    assert below.head("c") == Head(6, b"5")
    assert keys_of(below.scan("c", JOURNAL)) == [1, 2, 3, 4, 5]


def test_pouring_without_a_commit_commits_nothing() -> None:
    below = FaultyStorage(filled())
    overlay = over(below)
    below.arm(0)
    flush(overlay)
    assert overlay.as_commit() is None
    assert below.calls == []
    empty = OverlayStorage(below, "never there")
    flush(empty)
    assert below.head("never there") is None


def test_pouring_over_what_someone_else_wrote_is_refused_and_leaves_everything() -> None:
    below = filled()
    overlay = over(below, *pages([11]), Delete(PAGE, 0))
    mine = overlay.as_commit()
    write(below, "c", *pages([12]))
    before = contents(below, "c")
    for _ in range(2):
        with pytest.raises(Conflict):
            flush(overlay)
        assert contents(below, "c") == before
        assert overlay.as_commit() == mine
    assert overlay.get("c", PAGE, 11) is not None
    assert overlay.get("c", PAGE, 0) is None


def test_pouring_over_a_context_that_was_made_anew_is_refused() -> None:
    below = MemoryStorage()
    below.commit("c", Commit(0, 1, b"old", pages([1])))
    overlay = over(below, *pages([2]))
    below.drop("c")
    with pytest.raises(Conflict):
        flush(overlay)
    assert contents(below, "c") == EMPTY
    below.commit("c", Commit(0, 1, b"new", pages([3])))
    with pytest.raises(Conflict):
        flush(overlay)
    assert keys_of(below.scan("c", PAGE)) == [3]


def test_pouring_that_fails_can_be_done_again() -> None:
    below = FaultyStorage(filled())
    overlay = over(below, *pages([11]), Delete(PAGE, 0))
    before, after = contents(below.inner, "c"), contents(overlay, "c")
    below.arm(1)
    with pytest.raises(InjectedFault):
        flush(overlay)
    assert contents(below.inner, "c") == before
    assert contents(overlay, "c") == after
    flush(overlay)
    assert contents(below.inner, "c") == after


def test_a_context_can_begin_in_an_overlay() -> None:
    below = filled()
    overlay = OverlayStorage(below, "new")
    assert contents(overlay, "new") == EMPTY
    write(overlay, "new", *pages([2, 1], group=1))
    assert (grouped(overlay, "new", [1]), below.head("new")) == ({1: [1, 2]}, None)
    assert list(overlay.contexts()) == ["c", "new", "other"]
    assert list(overlay.contexts("new")) == ["other"]
    assert list(below.contexts()) == ["c", "other"]
    flush(overlay)
    assert contents(below, "new") == contents(overlay, "new")
    assert list(overlay.contexts()) == list(below.contexts()) == ["c", "new", "other"]


def test_a_context_that_someone_else_began_is_not_overwritten() -> None:
    below = MemoryStorage()
    overlay = over(below, *pages([1]))
    write(below, "c", *pages([2]))
    with pytest.raises(Conflict):
        flush(overlay)
    assert keys_of(below.scan("c", PAGE)) == [2]


def test_an_overlay_over_an_overlay_pours_into_the_lower_one() -> None:
    bottom = filled()
    before = contents(bottom, "c")
    lower = over(bottom, *pages([11], group=1), Delete(PAGE, 10), Patch(PAGE, 20, b"lower"))
    upper = over(lower, *pages([12], group=1), Delete(PAGE, 11), Put(PAGE, 10, b"back"), Patch(PAGE, 20, b"upper"))
    assert keys_of(lower.scan("c", PAGE, 0, 25)) == [0, 11, 20]
    assert keys_of(upper.scan("c", PAGE, 0, 25)) == [0, 10, 12, 20]
    after = contents(upper, "c")
    flush(upper)
    assert contents(lower, "c") == contents(upper, "c") == after
    assert contents(bottom, "c") == before
    flush(lower)
    assert contents(bottom, "c") == after


def test_a_lower_overlay_that_moved_on_refuses_the_upper_one() -> None:
    lower = over(filled(), *pages([11]))
    upper = over(lower, *pages([12]))
    write(lower, "c", *pages([13]))
    with pytest.raises(Conflict):
        flush(upper)
    assert keys_of(lower.scan("c", PAGE, 0, 15)) == [0, 10, 11, 13]


# Anything at all

KEYS = st.integers(0, 9)
VALUES = st.binary(max_size=2)
ORDERS = st.sampled_from([b"", b"a", b"a\x00", b"b", b"\xff"])
PAGES = st.just(PAGE)
PLAIN = st.sampled_from([BODY, JOURNAL])
WRITES = st.one_of(
    st.builds(Put, PAGES, KEYS, VALUES, st.none() | st.integers(0, 1), ORDERS),
    st.builds(Put, PLAIN, KEYS, VALUES),
    st.builds(Patch, PAGES | PLAIN, KEYS, VALUES),
    st.builds(Delete, PAGES | PLAIN, KEYS),
)
COMMITS = st.lists(st.lists(WRITES, max_size=6), max_size=6)


def all_reads(storage: Storage, low: int, high: int, slot: tuple[bytes, int]) -> list[object]:
    """Return the results of all kinds of reads."""
    found: list[object] = [contents(storage, "c")]
    for reverse in (False, True):
        for family in (PAGE, BODY, JOURNAL):
            found.append([storage.get("c", family, key) for key in range(10)])
            found.append(list(storage.scan("c", family, low, high, reverse=reverse)))
            found.append(list(storage.scan("c", family, reverse=reverse)))
        for group in (0, 1):
            found.append(list(storage.members("c", PAGE, group, reverse=reverse)))
            found.append(list(storage.members("c", PAGE, group, after=slot, reverse=reverse)))
    return found


@given(COMMITS, COMMITS, COMMITS, KEYS, KEYS, st.tuples(ORDERS, st.integers(-1, 10)))
def test_an_overlay_reads_like_a_storage_to_which_the_same_was_done(
    before: Sequence[Sequence[Write]],
    held: Sequence[Sequence[Write]],
    held_twice: Sequence[Sequence[Write]],
    low: int,
    high: int,
    slot: tuple[bytes, int],
) -> None:
    plain, below = MemoryStorage(), MemoryStorage()
    for writes in before:
        for storage in (plain, below):
            write(storage, "c", *writes)
    untouched = all_reads(below, low, high, slot)
    lower = OverlayStorage(below, "c")
    for writes in held:
        for each in (plain, lower):
            write(each, "c", *writes)
        assert all_reads(lower, low, high, slot) == all_reads(plain, low, high, slot)
    upper = OverlayStorage(lower, "c")
    for writes in held_twice:
        for each in (plain, upper):
            write(each, "c", *writes)
    assert all_reads(upper, low, high, slot) == all_reads(plain, low, high, slot)
    assert all_reads(below, low, high, slot) == untouched
    flush(upper)
    assert all_reads(lower, low, high, slot) == all_reads(plain, low, high, slot)
    assert all_reads(below, low, high, slot) == untouched
    flush(lower)
    for poured in (below, lower, upper):
        assert all_reads(poured, low, high, slot) == all_reads(plain, low, high, slot)
    assert version_of(below, "c") == len(before) + len(held) + len(held_twice)
