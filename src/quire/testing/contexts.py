"""The contract of contexts: kept apart, listed in order, dropped whole."""

from itertools import islice

from quire.errors import Conflict
from quire.storage.base import FAMILIES, JOURNAL, PAGE, Commit, Head, Put, Record
from quire.testing.case import HEAD, StorageCase, contents, grouped, keys_of, pages, refused, write


class ContextRules(StorageCase):
    """Many contexts in one store."""

    def test_contexts_do_not_see_each_other(self) -> None:
        storage = self.open()
        names = [f"context {number}" for number in range(40)]
        for turn in (1, 2):
            for name in names:
                write(storage, name, *(Put(family, turn, f"{name} {family} {turn}".encode()) for family in FAMILIES))
        for name in names:
            assert storage.head(name) == Head(2, HEAD)
            for family in FAMILIES:
                expected = [Record(turn, f"{name} {family} {turn}".encode()) for turn in (1, 2)]
                assert list(storage.scan(name, family)) == expected

    def test_groups_of_the_same_number_do_not_meet(self) -> None:
        storage = self.open()
        for number, name in enumerate("abc"):
            write(storage, name, *pages(range(number, 30, 3), group=7))
        assert [grouped(storage, name, [7])[7] for name in "abc"] == [list(range(n, 30, 3)) for n in range(3)]

    def test_versions_are_each_contexts_own(self) -> None:
        storage = self.open()
        for times, name in enumerate("abc", start=1):
            for _ in range(times):
                write(storage, name)
        assert [storage.head(name) for name in "abc"] == [Head(1, HEAD), Head(2, HEAD), Head(3, HEAD)]

    def test_contexts_are_listed_in_code_point_order(self) -> None:
        storage = self.open()
        names = ["z", "a", "Z", "A", "aa", "10", "9", "é", "ﬁ", "中", "🙂", "\uff5e", "_", "a b"]
        for name in names:
            write(storage, name)
        ordered = sorted(names)
        assert list(storage.contexts()) == ordered
        for position, name in enumerate(ordered):
            assert list(storage.contexts(name)) == ordered[position + 1 :]
        assert list(storage.contexts("aZ")) == [name for name in ordered if name > "aZ"]

    def test_hundreds_of_contexts_are_listed(self) -> None:
        storage = self.open()
        names = [f"{number:04}" for number in range(300)]
        for name in names:
            write(storage, name)
        assert list(storage.contexts()) == names
        assert list(storage.contexts("0147")) == names[148:]
        listing = storage.contexts()
        assert list(islice(listing, 3)) == names[:3]
        storage.drop("0299")
        assert list(storage.contexts("0296")) == ["0297", "0298"]

    def test_a_drop_removes_everything_of_one_context(self) -> None:
        storage = self.open()
        for name in ("before", "c", "d"):
            write(storage, name, *pages(range(300), group=1), *(Put(family, 999, b"x") for family in FAMILIES))
        others = {name: contents(storage, name) for name in ("before", "d")}
        storage.drop("c")
        assert contents(storage, "c") == (None, {family: [] for family in FAMILIES})
        assert grouped(storage, "c", [1]) == {1: []}
        assert storage.get("c", PAGE, 1) is None
        assert list(storage.contexts()) == ["before", "d"]
        assert {name: contents(storage, name) for name in ("before", "d")} == others
        storage.drop("c")
        storage.drop("never there")
        assert list(storage.contexts()) == ["before", "d"]

    def test_a_context_that_is_made_again_starts_empty(self) -> None:
        storage = self.open()
        for turn in range(1, 4):
            write(storage, "c", *pages([turn], group=1), Put(JOURNAL, turn, b"x"))
            assert storage.head("c") == Head(1, HEAD)
            assert keys_of(storage.scan("c", PAGE)) == [turn]
            assert grouped(storage, "c", [1]) == {1: [turn]}
            assert keys_of(storage.scan("c", JOURNAL)) == [turn]
            storage.drop("c")

    def test_a_drop_is_seen_by_other_handles(self) -> None:
        first, second = self.open(), self.open()
        write(first, "c", *pages(range(3), group=1))
        assert second.head("c") == Head(1, HEAD)
        assert grouped(second, "c", [1]) == {1: [0, 1, 2]}
        first.drop("c")
        with refused(Conflict):
            second.commit("c", Commit(1, 2, HEAD, pages([9])))
        assert second.head("c") is None
        assert contents(second, "c") == (None, {family: [] for family in FAMILIES})
        assert list(second.contexts()) == []

    def test_a_handle_that_missed_a_drop_meets_conflict(self) -> None:
        first, second = self.open(), self.open()
        for _ in range(3):
            write(first, "c", *pages(range(3)))
        assert second.head("c") == Head(3, HEAD)
        first.drop("c")
        write(first, "c", *pages([7]))
        with refused(Conflict):
            second.commit("c", Commit(3, 4, HEAD, pages([9])))
        assert second.head("c") == Head(1, HEAD)
        assert keys_of(second.scan("c", PAGE)) == [7]
        second.commit("c", Commit(1, 2, HEAD, pages([8])))
        assert first.head("c") == Head(2, HEAD)
        assert keys_of(first.scan("c", PAGE)) == [7, 8]

    def test_a_writer_that_saw_another_head_meets_conflict_even_at_the_same_version(self) -> None:
        first, second = self.open(), self.open()
        first.commit("c", Commit(0, 1, b"old", pages([1])))
        assert second.head("c") == Head(1, b"old")
        first.drop("c")
        first.commit("c", Commit(0, 1, b"new", pages([2])))
        with refused(Conflict):
            second.commit("c", Commit(1, 2, b"x", pages([3]), seen=b"old"))
        assert second.head("c") == Head(1, b"new")
        second.commit("c", Commit(1, 2, b"x", pages([3]), seen=b"new"))
        assert first.head("c") == Head(2, b"x")
        assert keys_of(first.scan("c", PAGE)) == [2, 3]

    def test_a_handle_that_makes_a_dropped_context_again_reads_what_it_wrote(self) -> None:
        first, second = self.open(), self.open()
        write(first, "c", *pages([1]))
        assert second.get("c", PAGE, 1) is not None
        first.drop("c")
        second.commit("c", Commit(0, 1, HEAD, pages([2])))
        assert keys_of(second.scan("c", PAGE)) == [2]
        assert second.get("c", PAGE, 2) == Record(2, b"2")
        second.commit("c", Commit(1, 2, HEAD, pages([3])))
        assert first.head("c") == Head(2, HEAD)
        assert keys_of(first.scan("c", PAGE)) == [2, 3]
