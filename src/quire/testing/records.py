"""The contract of records: what put, patch and delete do, and that a commit is all or nothing."""

from typing import Any, cast

from quire.errors import Conflict
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
    Write,
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
        with refused(Exception):
            storage.commit("c", Commit(1, 2, b"x", [Put(PAGE, 1, b"x"), Put(JOURNAL, 2, b"x"), impossible]))
        assert contents(storage, "c") == before
        with refused(Exception):
            storage.commit("new", Commit(0, 1, b"x", [Put(PAGE, 1, b"x"), impossible]))
        assert list(storage.contexts()) == ["c"]
