"""The rules of records and entries in one context, and of their order."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any, cast

from quire.errors import Conflict, InvalidValue, QuireError
from quire.storage.contract import (
    CACHE,
    FAMILIES,
    MAX_KEY,
    NOTE,
    PAGE,
    TEXT,
    Commit,
    Loaded,
    Record,
    StoredEntry,
)
from quire.testing.case import (
    ENTRY,
    HEAD,
    Put,
    StorageCase,
    commit_of,
    contents,
    everything,
    id_of,
    keys_of,
    pages,
    refused,
    write,
)

_ALL_BYTES = bytes(range(256))


class RecordRules(StorageCase):
    """Records and entries of one context."""

    def test_a_store_starts_empty(self) -> None:
        storage = self.open()
        assert storage.load("c") is None
        assert list(storage.contexts()) == []
        storage.drop("c")

    def test_a_context_is_created_with_its_first_entry_and_loaded_with_its_notes(self) -> None:
        storage = self.open()
        notes = tuple(Record(key, b"%d" % key) for key in (0, 7, 1 << 40))
        context = storage.create("c", Commit(7, HEAD, ENTRY, [(NOTE, note) for note in notes]))
        assert storage.load("c") == Loaded(context, 7, HEAD, notes)
        assert list(storage.entries(context)) == [StoredEntry(7, HEAD, ENTRY)]
        assert storage.load("c", (context, 6)) == Loaded(context, 7, HEAD, notes)
        assert storage.load("c", (context + 1, 7)) == Loaded(context, 7, HEAD, notes)
        assert storage.load("c", (context, 7)) == Loaded(context, 7, HEAD, None)

    def test_records_are_put_replaced_and_deleted(self) -> None:
        storage = self.open()
        context = write(storage, "c", *((family, Record(5, family.encode())) for family in FAMILIES))
        write(storage, "c", (TEXT, Record(5, b"")), (PAGE, Record(5, b"new", 2, 9)), delete=[(CACHE, 5), (CACHE, 6)])
        assert storage.get(context, PAGE, [4, 5, 5, -1, 1 << 70]) == [None, *[Record(5, b"new", 2, 9)] * 2, None, None]
        assert storage.get(context, TEXT, [5]) == [Record(5, b"")]
        assert storage.get(context, CACHE, [5]) == [None]
        assert storage.get(context, PAGE, []) == []
        assert list(storage.scan(context, CACHE)) == []
        assert keys_of(storage.children(context, 2)) == [5]

    def test_a_page_moves_between_parents(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages([1, 2, 3], parent=8))
        write(storage, "c", (PAGE, Record(2, b"2", 9, 1)), (PAGE, Record(3, b"3", 8, 0)))
        assert [keys_of(storage.children(context, parent)) for parent in (8, 9)] == [[3, 1], [2]]
        write(storage, "c", (PAGE, Record(2, b"2")), (PAGE, Record(1, b"1", ~8, 1)), delete=[(PAGE, 3)])
        assert [keys_of(storage.children(context, parent)) for parent in (8, 9, ~8)] == [[], [], [1]]

    def test_values_are_any_bytes_of_any_size(self) -> None:
        storage = self.open()
        large = _ALL_BYTES * (5 << 12)
        commit = Commit(1, _ALL_BYTES, _ALL_BYTES, [(TEXT, Record(1, large)), (TEXT, Record(MAX_KEY, _ALL_BYTES))])
        context = storage.create("c", commit)
        write(storage, "c", (TEXT, Record(2, large[::-1])))
        assert storage.get(context, TEXT, [1, MAX_KEY]) == [Record(1, large), Record(MAX_KEY, _ALL_BYTES)]
        assert [len(record.value) for record in storage.scan(context, TEXT)] == [len(large), len(large), 256]
        assert next(storage.entries(context)) == StoredEntry(1, _ALL_BYTES, _ALL_BYTES)

    def test_keys_ranks_and_parents_reach_their_limits(self) -> None:
        storage = self.open()
        ends = [Record(0, b"a", MAX_KEY, MAX_KEY), Record(MAX_KEY, b"b", MAX_KEY, 0)]
        for name in "bcd":
            write(storage, name, *((PAGE, record) for record in ends))
        context = id_of(storage, "c")
        assert list(storage.scan(context, PAGE)) == ends
        assert list(storage.children(context, MAX_KEY)) == ends[::-1]

    def test_a_commit_can_have_thousands_of_changes(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages(range(5_000), parent=1))
        write(storage, "c", delete=[(PAGE, key) for key in range(0, 5_000, 2)])
        assert keys_of(storage.children(context, 1)) == keys_of(storage.scan(context, PAGE)) == [*range(1, 5_000, 2)]
        assert (
            storage.get(context, PAGE, range(5_000))[1::2] == [each[1] for each in pages(range(5_000), parent=1)][1::2]
        )

    def test_a_refused_commit_changes_nothing(self) -> None:
        storage = self.open()
        write(storage, "c", *pages([1, 2], parent=5))
        context = write(storage, "c", (TEXT, Record(1, b"text")))
        before = contents(storage, context)
        changes: list[Put] = [(PAGE, Record(1, b"x", 6)), (TEXT, Record(1, b"x"))]
        for seq in (1, 2, 4, 9):
            with refused(Conflict):
                storage.commit(context, Commit(seq, b"x", b"x", changes, [(PAGE, 2)], [(1, b"x")], 2))
            assert contents(storage, context) == before
        with refused(Conflict):
            storage.create("c", commit_of(3, *changes))
        with refused(Conflict):
            storage.commit(context + 1_000, commit_of(1, *changes))
        assert everything(storage) == {"c": before}

    def test_an_impossible_change_changes_nothing(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages([1]))
        before = contents(storage, context)
        for put in ((cast(Any, "no family"), Record(1, b"x")), (PAGE, Record(-1, b"x")), (PAGE, Record(1 << 62, b"x"))):
            with refused(InvalidValue):
                storage.commit(context, commit_of(2, (PAGE, Record(1, b"x")), put))
            with refused(InvalidValue):
                storage.create("d", commit_of(1, put))
        with refused(InvalidValue):
            storage.create("d", commit_of(0))
        assert everything(storage) == {"c": before}

    def test_entries_are_read_in_order_and_in_parts(self) -> None:
        storage = self.open()
        context = storage.create("c", commit_of(3))
        for seq in range(4, 600):
            storage.commit(context, commit_of(seq, entry=b"e%d" % seq))
        numbers = [entry.seq for entry in storage.entries(context)]
        assert numbers == [*range(3, 600)]
        assert [entry.seq for entry in storage.entries(context, reverse=True)] == numbers[::-1]
        assert [entry.entry for entry in storage.entries(context, 5, 7)] == [b"e5", b"e6", b"e7"]
        assert [entry.head for entry in storage.entries(context, 598, 1 << 70, reverse=True)] == [b"599", b"598"]
        assert list(storage.entries(context, 700)) == list(storage.entries(context, 5, 4)) == []

    def test_older_entries_are_replaced_and_removed(self) -> None:
        storage = self.open()
        context = storage.create("c", commit_of(1))
        for seq in range(2, 5):
            storage.commit(context, commit_of(seq))
        storage.commit(
            context, Commit(5, b"5", b"e5", replace=[(1, b"x"), (4, b"purged"), (77, b"no entry")], expire=3)
        )
        assert [(entry.seq, entry.entry) for entry in storage.entries(context)] == [
            (3, ENTRY),
            (4, b"purged"),
            (5, b"e5"),
        ]
        storage.commit(context, Commit(6, b"6", b"e6", expire=6))
        assert [(entry.seq, entry.head) for entry in storage.entries(context)] == [(6, b"6")]
        for seq in (1, 2, 5, 6):
            with refused(Conflict):
                storage.commit(context, commit_of(seq))
        found = storage.load("c")
        assert found is not None
        assert found.seq == 6

    def test_earlier_entries_come_with_their_commit_or_not_at_all(self) -> None:
        storage = self.open()
        context = storage.create("c", Commit(3, b"3", b"e3", earlier=[StoredEntry(2, b"2", b"e2")]))
        earlier = [StoredEntry(seq, b"%d" % seq, b"e%d" % seq) for seq in (4, 5)]
        made = Commit(6, b"6", b"e6", pages([1]), replace=[(3, b"purged")], expire=3, earlier=earlier)
        storage.commit(context, made)
        expected = [StoredEntry(3, b"3", b"purged"), *earlier, StoredEntry(6, b"6", b"e6")]
        for handle in (storage, self.open() if self.persistent else storage):
            assert list(handle.entries(context)) == expected
            for late in (expected[:1], earlier, expected[1:], expected):
                with refused(Conflict):
                    handle.commit(context, Commit(late[-1].seq + 1, b"", b"", pages([2]), earlier=late))
            with refused(InvalidValue):
                handle.commit(context, Commit(9, b"", b"", pages([2]), earlier=earlier))
            assert list(handle.entries(context)) == expected
            assert keys_of(handle.scan(context, PAGE)) == [1]


class OrderRules(StorageCase):
    """Ordered reads."""

    def test_a_scan_is_by_key_and_has_both_its_ends(self) -> None:
        storage = self.open()
        write(storage, "b", *pages([0, 15, MAX_KEY]))
        context = write(storage, "c", *pages([500, 3, MAX_KEY, 0, 4]))
        write(storage, "d", *pages([0, 15, MAX_KEY]))
        ordered = [0, 3, 4, 500, MAX_KEY]
        for start, stop in ((0, MAX_KEY), (3, 4), (4, 4), (5, 4), (501, MAX_KEY), (-9, 2), (-(1 << 70), 1 << 70)):
            found = [key for key in ordered if start <= key <= stop]
            assert keys_of(storage.scan(context, PAGE, start, stop)) == found, (start, stop)
            assert keys_of(storage.scan(context, PAGE, start, stop, reverse=True)) == found[::-1], (start, stop)

    def test_children_are_by_rank_and_key_and_go_on_after_any_place(self) -> None:
        storage = self.open()
        places = [(0, 40), (1, 9), (1, 10), (1, 300), (7, 2), (MAX_KEY, 1)]
        scattered = Random(7).sample(places, len(places))
        context = write(storage, "c", *((PAGE, Record(key, b"", 3, rank)) for rank, key in scattered), *pages([50]))
        write(storage, "d", *pages([41, 42], parent=3))
        for after in (None, (0, 0), (1, 9), (1, 11), (7, MAX_KEY), (MAX_KEY, MAX_KEY), *places):
            later = [key for rank, key in places if after is None or (rank, key) > after]
            earlier = [key for rank, key in places[::-1] if after is None or (rank, key) < after]
            assert keys_of(storage.children(context, 3, after=after)) == later, after
            assert keys_of(storage.children(context, 3, after=after, reverse=True)) == earlier, after

    def test_thousands_of_records_come_in_order(self) -> None:
        storage = self.open()
        keys = list(range(0, 7_200, 3))
        context = write(storage, "c", *pages(reversed(keys), parent=1))
        for found in (partial(storage.scan, context, PAGE), partial(storage.children, context, 1)):
            assert keys_of(found()) == keys
            assert keys_of(found(reverse=True)) == keys[::-1]
        half = keys[1_200], keys[1_200]
        assert keys_of(storage.children(context, 1, after=half)) == keys[1_201:]
        assert keys_of(storage.children(context, 1, after=half, reverse=True)) == keys[:1_200][::-1]
        assert keys_of(storage.scan(context, PAGE, keys[700], keys[1_700])) == keys[700:1_701]

    def test_readings_run_side_by_side(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages(range(700), parent=1))
        pairs = zip(storage.scan(context, PAGE), storage.children(context, 1), storage.scan(context, PAGE), strict=True)
        assert [{a.key, b.key, c.key} for a, b, c in pairs] == [{key} for key in range(700)]

    def test_writing_does_not_disturb_a_reading_that_is_running(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages(range(0, 2_000, 2), parent=1))
        readings: list[Callable[..., Iterator[Record]]] = [
            partial(storage.scan, context, PAGE),
            partial(storage.children, context, 1),
        ]
        for read in readings:
            for reverse in (False, True):
                seen: list[int] = []
                for record in read(reverse=reverse):
                    seen.append(record.key)
                    if record.key % 100 == 0:
                        near = pages({record.key + 1, max(record.key - 1, 1)}, parent=1)
                        write(storage, "c", *near, delete=[(PAGE, record.key), (PAGE, record.key + 2)])
                assert seen == sorted(set(seen), reverse=reverse)
                assert set(seen) >= {key for key in range(0, 2_000, 2) if key % 100 not in (0, 2)}

    def test_a_reading_that_is_dropped_halfway_blocks_nobody(self) -> None:
        storage = self.open()
        context = write(storage, "c", *pages(range(2_000), parent=1))
        halves = [storage.scan(context, PAGE), storage.children(context, 1)]
        assert [len(list(islice(half, 900))) for half in halves] == [900, 900]
        write(storage, "c", *pages([5_000]))
        self.open().drop("c")
        assert storage.load("c") is None

    def test_a_reading_never_strays_into_what_replaced_its_context(self) -> None:
        storage = self.open()
        context = write(storage, "c", *((PAGE, Record(key, b"old")) for key in range(1_000)))
        running = storage.scan(context, PAGE)
        assert next(running) == Record(0, b"old")
        storage.drop("c")
        write(storage, "c", *((PAGE, Record(key, b"new")) for key in range(2_000)))
        try:
            rest = list(running)
        except QuireError:
            return
        assert {record.value for record in rest} <= {b"old"}
