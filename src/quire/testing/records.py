"""The contract of records and their order: put, patch, delete, atomic commits, scans and groups."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, cast

from quire.errors import Conflict, InvalidValue, QuireError
from quire.storage.base import (
    BODY,
    FAMILIES,
    JOURNAL,
    MAX_GROUP,
    MAX_KEY,
    PAGE,
    TALLY,
    Commit,
    Delete,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    SupportsCount,
    Write,
    sum_orders,
)
from quire.testing.case import HEAD, StorageCase, contents, grouped, keys_of, pages, refused, write

_ALL_BYTES = bytes(range(256))


class RecordRules(StorageCase):
    """Point reads and commits in one context."""

    def test_a_context_that_was_never_written_is_empty(self) -> None:
        storage = self.open()
        assert storage.head("c") is None
        assert storage.get("c", PAGE, 1) is None
        assert list(storage.scan("c", PAGE)) == []
        assert list(storage.members("c", PAGE, 0)) == []
        assert list(storage.contexts()) == []
        storage.drop("c")

    def test_the_first_commit_makes_the_context(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, 1, HEAD, [Put(PAGE, 7, b"seven", 3, b"o")]))
        assert storage.head("c") == Head(1, HEAD)
        assert storage.get("c", PAGE, 7) == Record(7, b"seven", 3, b"o")
        assert list(storage.contexts()) == ["c"]

    def test_families_do_not_share_keys(self) -> None:
        storage = self.open()
        write(storage, "c", *(Put(family, 5, family.encode()) for family in FAMILIES))
        assert [storage.get("c", family, 5) for family in FAMILIES] == [Record(5, f.encode()) for f in FAMILIES]
        write(storage, "c", Delete(BODY, 5))
        assert [f for f in FAMILIES if storage.get("c", f, 5) is None] == [BODY]

    def test_a_put_replaces_the_whole_record(self) -> None:
        storage = self.open()
        write(storage, "c", Put(PAGE, 1, b"old", 2, b"a"))
        write(storage, "c", Put(PAGE, 1, b"new", 2, b"z"))
        assert storage.get("c", PAGE, 1) == Record(1, b"new", 2, b"z")
        assert list(storage.members("c", PAGE, 2)) == [Record(1, b"new", 2, b"z")]

    def test_a_put_moves_a_record_between_groups(self) -> None:
        storage = self.open()
        write(storage, "c", Put(PAGE, 1, b"1", 2, b"a"), Put(PAGE, 9, b"9", 2, b"b"))
        write(storage, "c", Put(PAGE, 1, b"1", 3, b"a"))
        assert grouped(storage, "c", [2, 3]) == {2: [9], 3: [1]}
        write(storage, "c", Put(PAGE, 1, b"1"))
        assert grouped(storage, "c", [2, 3]) == {2: [9], 3: []}
        assert storage.get("c", PAGE, 1) == Record(1, b"1")
        write(storage, "c", Put(PAGE, 1, b"1", 2, b"c"))
        assert grouped(storage, "c", [2, 3]) == {2: [9, 1], 3: []}

    def test_a_patch_changes_the_value_and_keeps_the_place(self) -> None:
        storage = self.open()
        write(storage, "c", Put(PAGE, 1, b"old", 2, b"a"), Put(BODY, 1, b"old"))
        write(storage, "c", Patch(PAGE, 1, b"new"), Patch(BODY, 1, b"new"))
        assert storage.get("c", PAGE, 1) == Record(1, b"new", 2, b"a")
        assert list(storage.members("c", PAGE, 2)) == [Record(1, b"new", 2, b"a")]
        assert storage.get("c", BODY, 1) == Record(1, b"new")

    def test_a_patch_of_a_missing_record_writes_nothing(self) -> None:
        storage = self.open()
        write(storage, "c", Put(PAGE, 1, b"1", 2, b"a"), Put(PAGE, 3, b"3"))
        write(storage, "c", Delete(PAGE, 1))
        write(storage, "c", Patch(PAGE, 1, b"ghost"), Patch(BODY, 4, b"ghost"))
        assert (storage.get("c", PAGE, 1), storage.get("c", BODY, 4)) == (None, None)
        assert keys_of(storage.scan("c", PAGE)) == [3]
        assert grouped(storage, "c", [2]) == {2: []}

    def test_a_delete_removes_the_record_everywhere(self) -> None:
        storage = self.open()
        write(storage, "c", *pages([1, 2, 3], group=8))
        write(storage, "c", Delete(PAGE, 2))
        assert storage.get("c", PAGE, 2) is None
        assert keys_of(storage.scan("c", PAGE)) == [1, 3]
        assert grouped(storage, "c", [8]) == {8: [1, 3]}

    def test_a_delete_of_a_missing_record_is_fine(self) -> None:
        storage = self.open()
        write(storage, "c", Delete(PAGE, 2), Put(TALLY, 1, b"1"))
        write(storage, "c", Delete(TALLY, 2))
        assert keys_of(storage.scan("c", TALLY)) == [1]

    def test_the_writes_of_a_commit_apply_in_their_order(self) -> None:
        storage = self.open()
        twice: list[Write] = [
            Put(PAGE, 1, b"a", 5, b"x"),
            Patch(PAGE, 1, b"b"),
            Put(PAGE, 1, b"c", 6, b"y"),
            Patch(PAGE, 1, b"d"),
        ]
        write(storage, "c", *twice, Put(PAGE, 2, b"gone", 6, b"z"), Delete(PAGE, 2), Patch(PAGE, 2, b"still gone"))
        write(storage, "c", Delete(BODY, 3), Put(BODY, 3, b"back"))
        assert storage.get("c", PAGE, 1) == Record(1, b"d", 6, b"y")
        assert storage.get("c", PAGE, 2) is None
        assert storage.get("c", BODY, 3) == Record(3, b"back")
        assert grouped(storage, "c", [5, 6]) == {5: [], 6: [1]}

    def test_a_commit_without_writes_moves_the_head_alone(self) -> None:
        storage = self.open()
        write(storage, "c", *pages([1]))
        storage.commit("c", Commit(1, 2, b"other", ()))
        assert storage.head("c") == Head(2, b"other")
        assert keys_of(storage.scan("c", PAGE)) == [1]

    def test_empty_values_are_values(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, 1, b"", [Put(PAGE, 1, b"", 4, b""), Put(BODY, 1, b""), Put(BODY, 2, b"2")]))
        assert storage.head("c") == Head(1, b"")
        assert storage.get("c", PAGE, 1) == Record(1, b"", 4, b"")
        assert list(storage.scan("c", BODY)) == [Record(1, b""), Record(2, b"2")]
        write(storage, "c", Patch(BODY, 2, b""))
        assert storage.get("c", BODY, 2) == Record(2, b"")

    def test_values_orders_and_heads_are_any_bytes(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, 1, _ALL_BYTES, [Put(PAGE, 1, _ALL_BYTES, 2, _ALL_BYTES)]))
        assert storage.head("c") == Head(1, _ALL_BYTES)
        assert list(storage.members("c", PAGE, 2)) == [Record(1, _ALL_BYTES, 2, _ALL_BYTES)]

    def test_a_value_can_be_five_megabytes(self) -> None:
        storage = self.open()
        large = _ALL_BYTES * (5 << 12)
        write(storage, "c", Put(BODY, 1, large), Put(BODY, 2, b"small"))
        write(storage, "c", Put(BODY, 3, large[::-1]))
        assert storage.get("c", BODY, 1) == Record(1, large)
        assert [len(record.value) for record in storage.scan("c", BODY)] == [len(large), 5, len(large)]

    def test_a_commit_can_have_thousands_of_writes(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(5_000), group=1))
        write(storage, "c", *(Delete(PAGE, key) for key in range(0, 5_000, 2)))
        assert keys_of(storage.scan("c", PAGE)) == list(range(1, 5_000, 2))

    def test_keys_and_groups_reach_their_limits(self) -> None:
        storage = self.open()
        write(storage, "b", Put(PAGE, MAX_KEY, b"b", MAX_GROUP, b"o"), Put(PAGE, 0, b"b", 0, b"o"))
        write(storage, "c", Put(PAGE, MAX_KEY, b"last", MAX_GROUP, b"o"), Put(PAGE, 0, b"first", 0, b"o"))
        write(storage, "d", Put(PAGE, MAX_KEY, b"d", MAX_GROUP, b"o"), Put(PAGE, 0, b"d", 0, b"o"))
        first, last = Record(0, b"first", 0, b"o"), Record(MAX_KEY, b"last", MAX_GROUP, b"o")
        assert list(storage.scan("c", PAGE)) == [first, last]
        assert list(storage.members("c", PAGE, 0)) == [first]
        assert list(storage.members("c", PAGE, MAX_GROUP)) == [last]

    def test_a_version_can_be_negative_and_can_leap(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, -1, b"copying", pages([1])))
        storage.commit("c", Commit(-1, -2, b"copying", pages([2])))
        assert storage.head("c") == Head(-2, b"copying")
        with refused(Conflict):
            storage.commit("c", Commit(0, 1, b"new", ()))
        storage.commit("c", Commit(-2, 1_000_000_007, b"copied", ()))
        assert storage.head("c") == Head(1_000_000_007, b"copied")
        assert keys_of(storage.scan("c", PAGE)) == [1, 2]

    def test_a_refused_commit_changes_nothing(self) -> None:
        storage = self.open()
        write(storage, "c", *pages([1, 2], group=5))
        write(storage, "c", Put(BODY, 1, b"body"))
        before = contents(storage, "c")
        writes: list[Write] = [
            Put(PAGE, 1, b"x", 6, b"x"),
            Put(PAGE, 3, b"x", 5),
            Delete(PAGE, 2),
            Patch(BODY, 1, b"x"),
        ]
        for stale in (1, 0, 3, -1, -2):
            with refused(Conflict):
                storage.commit("c", Commit(stale, 9, b"x", writes))
            assert contents(storage, "c") == before
            assert grouped(storage, "c", [5, 6]) == {5: [1, 2], 6: []}
        storage.commit("c", Commit(2, 3, HEAD, writes))
        assert grouped(storage, "c", [5, 6]) == {5: [3], 6: [1]}

    def test_a_commit_that_expects_a_context_does_not_make_one(self) -> None:
        storage = self.open()
        for expect in (1, 7, -1):
            with refused(Conflict):
                storage.commit("c", Commit(expect, expect + 1, HEAD, pages([1])))
        assert storage.head("c") is None
        assert storage.get("c", PAGE, 1) is None
        assert list(storage.contexts()) == []
        write(storage, "c", *pages([2]))
        assert keys_of(storage.scan("c", PAGE)) == [2]

    def test_a_commit_with_an_impossible_write_changes_nothing(self) -> None:
        storage = self.open()
        write(storage, "c", *pages([1]))
        before = contents(storage, "c")
        impossible = Put(cast(Any, "no such family"), 1, b"x")
        with refused(InvalidValue):
            storage.commit("c", Commit(1, 2, b"x", [Put(PAGE, 1, b"x"), Put(JOURNAL, 2, b"x"), impossible]))
        assert contents(storage, "c") == before
        with refused(InvalidValue):
            storage.commit("new", Commit(0, 1, b"x", [Put(PAGE, 1, b"x"), impossible]))
        assert list(storage.contexts()) == ["c"]


_ORDERS = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x01",
    b"A",
    b"a",
    b"a\x00",
    b"aa",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
]


class OrderRules(StorageCase):
    """Ordered reads in one context."""

    def test_a_scan_is_by_key(self) -> None:
        storage = self.open()
        for key in (500, 3, MAX_KEY, 70_000, 0, 4):
            write(storage, "c", Put(JOURNAL, key, b"%d" % key))
        ordered = [0, 3, 4, 500, 70_000, MAX_KEY]
        assert keys_of(storage.scan("c", JOURNAL)) == ordered
        assert keys_of(storage.scan("c", JOURNAL, reverse=True)) == ordered[::-1]
        assert [record.value for record in storage.scan("c", JOURNAL)] == [b"%d" % key for key in ordered]

    def test_a_scan_has_both_its_ends(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(10, 20)))
        for start, stop, found in (
            (12, 14, [12, 13, 14]),
            (0, 10, [10]),
            (19, MAX_KEY, [19]),
            (15, 15, [15]),
            (16, 15, []),
            (0, 9, []),
            (20, MAX_KEY, []),
        ):
            assert keys_of(storage.scan("c", PAGE, start, stop)) == found, (start, stop)
            assert keys_of(storage.scan("c", PAGE, start, stop, reverse=True)) == found[::-1], (start, stop)

    def test_a_scan_beyond_all_keys_stays_in_its_context(self) -> None:
        storage = self.open()
        for context in "abcd":
            write(storage, context, *(Put(PAGE, key, context.encode()) for key in (0, 5, MAX_KEY)))
        for context in "abcd":
            for start, stop, found in (
                (-3, MAX_KEY, [0, 5, MAX_KEY]),
                (0, MAX_KEY + 9, [0, 5, MAX_KEY]),
                (-(1 << 70), 1 << 70, [0, 5, MAX_KEY]),
                (MAX_KEY + 1, MAX_KEY + 9, []),
                (MAX_KEY + 1, MAX_KEY, []),
                (-9, -1, []),
            ):
                for reverse in (False, True):
                    records = list(storage.scan(context, PAGE, start, stop, reverse=reverse))
                    assert keys_of(records) == (found[::-1] if reverse else found), (context, start, stop)
                    assert {record.value for record in records} <= {context.encode()}

    def test_a_group_is_in_the_order_of_its_bytes(self) -> None:
        storage = self.open()
        scattered = [*enumerate(_ORDERS)]
        Random(7).shuffle(scattered)
        write(storage, "c", *(Put(PAGE, key, b"", 3, order) for key, order in scattered))
        write(storage, "c", Put(PAGE, 900, b"", 4, b"a"), Put(PAGE, 901, b""))
        assert [record.order for record in storage.members("c", PAGE, 3)] == _ORDERS
        assert [record.order for record in storage.members("c", PAGE, 3, reverse=True)] == _ORDERS[::-1]
        assert keys_of(storage.members("c", PAGE, 4)) == [900]
        assert keys_of(storage.members("c", PAGE, 5)) == []
        if isinstance(storage, SupportsCount):
            assert storage.sum_members("c", PAGE, 3) == sum_orders(_ORDERS)
            assert storage.sum_members("c", PAGE, 5) == storage.sum_members("nothing", PAGE, 3) == (0, 0)

    def test_equal_orders_are_sorted_by_key(self) -> None:
        storage = self.open()
        write(storage, "c", *(Put(PAGE, key, b"", 3, b"same") for key in (40, 9, 300, 10)))
        write(storage, "c", Put(PAGE, 50, b"", 3, b"sam"), Put(PAGE, 1, b"", 3, b"same!"))
        assert keys_of(storage.members("c", PAGE, 3)) == [50, 9, 10, 40, 300, 1]
        assert keys_of(storage.members("c", PAGE, 3, reverse=True)) == [1, 300, 40, 10, 9, 50]

    def test_a_listing_goes_on_after_any_place(self) -> None:
        storage = self.open()
        write(storage, "c", *(Put(PAGE, key, b"", 3, b"%d" % (key // 10)) for key in (10, 11, 20, 21, 30)))
        write(storage, "d", *pages([15, 25], group=3))
        for after, following, preceding in (
            ((b"1", 11), [20, 21, 30], [10]),
            ((b"2", 20), [21, 30], [11, 10]),
            ((b"2", -1), [20, 21, 30], [11, 10]),
            ((b"2", 15), [20, 21, 30], [11, 10]),
            ((b"2", MAX_KEY), [30], [21, 20, 11, 10]),
            ((b"", 0), [10, 11, 20, 21, 30], []),
            ((b"9", 0), [], [30, 21, 20, 11, 10]),
        ):
            assert keys_of(storage.members("c", PAGE, 3, after=after)) == following, after
            assert keys_of(storage.members("c", PAGE, 3, after=after, reverse=True)) == preceding, after

    def test_thousands_of_records_come_in_order(self) -> None:
        storage = self.open()
        keys = list(range(0, 7_200, 3))
        write(storage, "c", *pages(reversed(keys), group=1))
        assert keys_of(storage.scan("c", PAGE)) == keys
        assert keys_of(storage.scan("c", PAGE, reverse=True)) == keys[::-1]
        assert keys_of(storage.members("c", PAGE, 1)) == keys
        assert keys_of(storage.members("c", PAGE, 1, reverse=True)) == keys[::-1]
        half = (keys[1_200].to_bytes(5), keys[1_200])
        assert keys_of(storage.members("c", PAGE, 1, after=half)) == keys[1_201:]
        assert keys_of(storage.members("c", PAGE, 1, after=half, reverse=True)) == keys[:1_200][::-1]

    def test_several_readings_run_side_by_side(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(700), group=1))
        pairs = zip(storage.scan("c", PAGE), storage.members("c", PAGE, 1), storage.scan("c", PAGE), strict=True)
        assert [(a.key, b.key, c.key) for a, b, c in pairs] == [(key, key, key) for key in range(700)]

    def test_writing_does_not_disturb_a_scan_that_is_running(self) -> None:
        storage = self.open()
        self._read_while_writing(storage, None, lambda reverse: storage.scan("c", PAGE, reverse=reverse))

    def test_writing_does_not_disturb_a_listing_that_is_running(self) -> None:
        storage = self.open()
        self._read_while_writing(storage, 1, lambda reverse: storage.members("c", PAGE, 1, reverse=reverse))

    def _read_while_writing(
        self, storage: Storage, group: int | None, read: Callable[[bool], Iterator[Record]]
    ) -> None:
        write(storage, "c", *pages(range(0, 2_000, 2), group))
        for reverse in (False, True):
            seen = []
            for record in read(reverse):
                seen.append(record.key)
                if record.key % 100 == 0:
                    _disturb(storage, record.key, group)
            assert seen == sorted(set(seen), reverse=reverse)
            assert set(seen) >= {key for key in range(0, 2_000, 2) if key % 100 not in (0, 2)}

    def test_a_reading_that_is_dropped_halfway_blocks_nobody(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(2_000), group=1))
        halves = [storage.scan("c", PAGE), storage.members("c", PAGE, 1)]
        assert [len(list(islice(half, 900))) for half in halves] == [900, 900]
        write(storage, "c", *pages([5_000]))
        self.open().drop("c")
        assert storage.head("c") is None

    def test_a_reading_never_strays_into_what_replaced_its_context(self) -> None:
        storage = self.open()
        write(storage, "c", *(Put(PAGE, key, b"old") for key in range(1_000)))
        running = storage.scan("c", PAGE)
        assert next(running) == Record(0, b"old")
        storage.drop("c")
        for context in ("c", "d", "e"):
            write(storage, context, *(Put(PAGE, key, b"new") for key in range(2_000)))
        try:
            rest = list(running)
        except QuireError:
            return
        assert keys_of(rest) == sorted(set(keys_of(rest)))
        assert {record.value for record in rest} <= {b"old", b"new"}


def _disturb(storage: Storage, key: int, group: int | None) -> None:
    """Remove the current record and its neighbour, change the next one, and add one on either side."""
    write(storage, "c", Delete(PAGE, key), Delete(PAGE, key + 2), Patch(PAGE, key + 4, b"changed"))
    write(storage, "c", *pages([key + 1, max(key - 1, 1)], group))
