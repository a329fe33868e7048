"""The contract of order: what scans and group listings give, and what they do while others write."""

from itertools import islice
from random import Random

from quire.errors import QuireError
from quire.storage.base import JOURNAL, MAX_KEY, PAGE, Delete, Patch, Put, Record, Storage
from quire.testing.case import StorageCase, keys_of, pages, write

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
        write(storage, "c", *pages(range(0, 2_000, 2)))
        for reverse in (False, True):
            seen = []
            for record in storage.scan("c", PAGE, reverse=reverse):
                seen.append(record.key)
                if record.key % 100 == 0:
                    _disturb(storage, record.key)
            assert seen == sorted(set(seen), reverse=reverse)
            assert set(seen) >= {key for key in range(0, 2_000, 2) if key % 100 not in (0, 2)}

    def test_writing_does_not_disturb_a_listing_that_is_running(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(0, 2_000, 2), group=1))
        for reverse in (False, True):
            seen = []
            for record in storage.members("c", PAGE, 1, reverse=reverse):
                seen.append(record.key)
                if record.key % 100 == 0:
                    _disturb(storage, record.key, group=1)
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


def _disturb(storage: Storage, key: int, group: int | None = None) -> None:
    """Remove the record at hand and its neighbour, change the next, and add one on either side."""
    write(storage, "c", Delete(PAGE, key), Delete(PAGE, key + 2), Patch(PAGE, key + 4, b"changed"))
    write(storage, "c", *pages([key + 1, max(key - 1, 1)], group))
