"""The contract of contexts: they are separate, listed in order, and dropped completely.

Any printable name names its own context, and no name leaves the store. Copying a context to another store and back does
not change it. Two handles and many threads share a store, which can be closed and opened again.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from quire.core.context_copy import Progress, copy_contexts
from quire.errors import Conflict, InvalidOperation, InvalidValue, NoSuchContext, StorageFailure
from quire.storage.base import BODY, FAMILIES, JOURNAL, PAGE, Commit, Head, Put, Record, Storage
from quire.storage.memory import MemoryStorage
from quire.testing.case import HEAD, StorageCase, append, contents, grouped, keys_of, pages, refused, write


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


_SHORT = """
    a A aa aA Aa AA a-b a_b a+b a.b a%b a%2fb a/b a\\b a:b % %25 . .. ... .a a. ../x ../../x /etc/passwd ~ ~/x
    - -- --help -rf * ? | con CON Con nul aux.txt com1 lpt9 log lock stamp.json pages .dropped-00 'x' `x` $HOME $(id)
    {} <a> & # 0 -1 1e9 None null é e\u0301 ß SS ss İ i ı \u212a K ﬁ fi 中文 中文的名字 日本 עברית 🙂 🙂🙂
"""
ACCEPTED = (
    *_SHORT.split(),
    *("a b", '"', "'; DROP TABLE page; --", "x" * 200, "X" * 200, "x" * 199, "x" * 199 + "y", "A" + "x" * 199),
    *(character * 200 for character in "中🙂é."),
)
REFUSED = (
    *("", " ", " a", "a ", "\ta", "a\n", "\u00a0", "\u3000a", "x" * 201, "中" * 201, "a" * 10_000_000),
    *("\x00", "a\x00b", "a\nb", "a\rb", "a\tb", "\x1b[31m", "a\x7fb", "\x85", "a\u2028b", "a\u202eb", "a\u200bb"),
    *("\ud800", "a\udfffb", "\udc80", "\ufeffa"),
)


class NameRules(StorageCase):
    """Names of contexts, friendly and hostile."""

    def test_every_accepted_name_is_a_context_of_its_own(self) -> None:
        storage = self.open()
        for number, name in enumerate(ACCEPTED):
            write(storage, name, Put(PAGE, 1, name.encode(), 1, b"o"), Put(PAGE, 2 + number, b""))
        self._check_all(storage)
        if self.persistent:
            storage.close()
            self._check_all(self.open())

    def _check_all(self, storage: Storage) -> None:
        assert list(storage.contexts()) == sorted(ACCEPTED)
        for number, name in enumerate(ACCEPTED):
            assert storage.get(name, PAGE, 1) == Record(1, name.encode(), 1, b"o"), name
            assert keys_of(storage.scan(name, PAGE)) == [1, 2 + number], name

    def test_dropping_one_name_leaves_its_look_alikes(self) -> None:
        storage = self.open()
        alike = ("a", "A", "é", "e\u0301", "..", "../x", "con", "CON", "x" * 200, "X" * 200)
        for name in alike:
            write(storage, name, *pages([1]))
        left = set(alike)
        for name in alike:
            storage.drop(name)
            left.discard(name)
            assert list(storage.contexts()) == sorted(left)

    def test_a_refused_name_makes_no_context(self) -> None:
        storage = self.open()
        write(storage, "a", *pages([1]))
        for name in REFUSED:
            with refused(InvalidValue):
                storage.commit(name, Commit(0, 1, HEAD, pages([2])))
        assert list(storage.contexts()) == ["a"]
        assert keys_of(storage.scan("a", PAGE)) == [1]

    def test_a_refused_name_can_be_asked_for(self) -> None:
        storage = self.open()
        write(storage, "a", *pages([1]))
        calls: list[Callable[[str], object]] = [
            storage.head,
            lambda name: storage.get(name, PAGE, 1),
            lambda name: list(storage.scan(name, PAGE)),
            lambda name: list(storage.members(name, PAGE, 1)),
            storage.drop,
        ]
        for number, call in enumerate(calls):
            for name in REFUSED:
                try:
                    found = call(name)
                except InvalidValue:
                    continue
                assert not found, (number, name[:20])
        assert list(storage.contexts()) == ["a"]


_GROUPS = [0, 1, 2]


class CopyRules(StorageCase):
    """Copies from and to the memory backend, which is the reference."""

    def test_a_context_is_copied_from_memory(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        copy_contexts(source, target, check=False)
        assert _everything(target) == _everything(source)
        write(target, "c", *pages([9_999], group=1))
        assert grouped(target, "c", [1])[1][-1] == 9_999

    def test_a_context_is_copied_to_memory_and_back(self) -> None:
        source, between, target = self.open(), MemoryStorage(), self.open("another")
        _fill(source)
        before = _everything(source)
        copy_contexts(source, between, check=False)
        copy_contexts(between, target, check=False)
        assert _everything(between) == before
        assert _everything(target) == before
        assert _everything(source) == before

    def test_a_copy_reports_its_progress(self) -> None:
        source, target = self.open(), MemoryStorage()
        _fill(source)
        reports: list[Progress] = []
        total = copy_contexts(source, target, "c", progress=reports.append, check=False)
        records = [record for found in contents(source, "c")[1].values() for record in found]
        assert (total.records, total.bytes) == (len(records), sum(len(record.value) for record in records))
        assert {progress.context for progress in reports} == {"c"}
        assert reports[-1].phase == "done"
        copied = [progress.records for progress in reports if progress.phase == "copy"]
        assert copied == sorted(copied)
        assert copied[-1] == len(records)
        assert list(target.contexts()) == ["c"]

    def test_a_copy_that_is_made_already_is_left_alone(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        copy_contexts(source, target, check=False)
        copy_contexts(source, target, check=False)
        assert _everything(target) == _everything(source)

    def test_another_context_is_not_overwritten_by_a_copy(self) -> None:
        source, target = MemoryStorage(), self.open()
        _fill(source)
        write(target, "c", *pages([1]))
        before = contents(target, "c")
        with refused(InvalidOperation):
            copy_contexts(source, target, "c", check=False)
        assert contents(target, "c") == before
        with refused(NoSuchContext):
            copy_contexts(source, target, "never there", check=False)

    def test_a_context_without_records_is_copied(self) -> None:
        source, target = MemoryStorage(), self.open()
        source.commit("c", Commit(0, 4, b"only a head", ()))
        copy_contexts(source, target, check=False)
        assert _everything(target) == _everything(source)


def _fill(storage: Storage) -> None:
    write(storage, "c", *(Put(family, key, b"%d" % key) for family in FAMILIES for key in range(3)))
    write(storage, "c", *pages(range(10, 1_300), group=1), *pages(range(2_000, 2_010), group=2), *pages([3_000]))
    write(storage, "c", Put(BODY, 77, bytes(2_500_000)), Put(BODY, 78, b""), Put(JOURNAL, 1 << 30, b"far"))
    write(storage, "另一个", *pages([1], group=0))


def _everything(storage: Storage) -> dict[str, object]:
    return {name: (contents(storage, name), grouped(storage, name, _GROUPS)) for name in storage.contexts()}


_THREADS = 8
_EACH = 25


class SharingRules(StorageCase):
    """One store with several handles."""

    def test_the_second_of_two_writers_meets_conflict(self) -> None:
        first, second = self.open(), self.open()
        write(first, "c", *pages([1]))
        assert second.head("c") == Head(1, HEAD)
        first.commit("c", Commit(1, 2, b"first", pages([2])))
        with refused(Conflict):
            second.commit("c", Commit(1, 2, b"second", pages([3])))
        assert second.head("c") == Head(2, b"first")
        assert keys_of(second.scan("c", PAGE)) == [1, 2]
        second.commit("c", Commit(2, 3, b"second", pages([3])))
        assert first.head("c") == Head(3, b"second")
        assert contents(first, "c") == contents(second, "c")

    def test_of_two_creators_one_meets_conflict(self) -> None:
        first, second = self.open(), self.open()
        assert (first.head("c"), second.head("c")) == (None, None)
        first.commit("c", Commit(0, 1, b"first", pages([1])))
        with refused(Conflict):
            second.commit("c", Commit(0, 1, b"second", pages([2])))
        assert second.head("c") == Head(1, b"first")
        assert keys_of(second.scan("c", PAGE)) == [1]

    def test_a_second_handle_sees_every_commit(self) -> None:
        writer, reader = self.open(), self.open()
        for key in range(20):
            write(writer, "c", *pages([key], group=key % 2))
            assert reader.head("c") == Head(key + 1, HEAD)
            assert keys_of(reader.scan("c", PAGE)) == list(range(key + 1))
            assert grouped(reader, "c", [0])[0] == list(range(0, key + 1, 2))
        assert list(reader.contexts()) == ["c"]

    def test_handles_on_different_contexts_do_not_disturb_each_other(self) -> None:
        first, second = self.open(), self.open()
        for key in range(20):
            write(first, "a", *pages([key]))
            write(second, "b", *pages([key + 100]))
        assert keys_of(second.scan("a", PAGE)) == list(range(20))
        assert keys_of(first.scan("b", PAGE)) == list(range(100, 120))

    def test_threads_on_different_contexts_lose_nothing(self) -> None:
        storage = self.open()
        self._in_threads(lambda number: _append_all(storage, f"c{number}", [b"%d" % turn for turn in range(_EACH)]))
        for number in range(_THREADS):
            values = [record.value for record in storage.scan(f"c{number}", JOURNAL)]
            assert values == [b"%d" % turn for turn in range(_EACH)]

    def test_threads_on_one_context_lose_nothing(self) -> None:
        storage = self.open()
        self._in_threads(lambda number: _append_all(storage, "c", _values_of(number)))
        self._check_complete(storage)

    def test_threads_with_a_handle_each_lose_nothing(self) -> None:
        handles = [self.open() for _ in range(_THREADS)]
        self._in_threads(lambda number: _append_all(handles[number], "c", _values_of(number)))
        self._check_complete(handles[0])

    def test_threads_read_whole_commits_while_others_write(self) -> None:
        storage = self.open()
        write(storage, "c", *(Put(BODY, key, b"0") for key in range(5)))

        def work(number: int) -> None:
            for turn in range(_EACH):
                if number == 0:
                    write(storage, "c", *(Put(BODY, key, b"%d" % turn) for key in range(5)))
                else:
                    assert keys_of(storage.scan("c", BODY)) == list(range(5))
                    assert storage.get("c", BODY, 3) is not None

        self._in_threads(work)
        assert {record.value for record in storage.scan("c", BODY)} == {b"%d" % (_EACH - 1)}

    def test_opening_again_finds_everything(self) -> None:
        if not self.persistent:
            return
        storage = self.open()
        write(storage, "c", *pages(range(1_500), group=1), Put(BODY, 1, bytes(3_000_000)), Put(BODY, 2, b""))
        write(storage, "c", *pages(range(0, 1_500, 7), group=2))
        storage.commit("copy", Commit(0, -1, b"cursor", pages([1])))
        before = {name: (contents(storage, name), grouped(storage, name, [1, 2])) for name in ("c", "copy")}
        for _ in range(2):
            storage.close()
            storage = self.open()
            assert {n: (contents(storage, n), grouped(storage, n, [1, 2])) for n in storage.contexts()} == before
        write(storage, "c", *pages([9_000]))
        assert storage.head("c") == Head(3, HEAD)

    def test_what_was_dropped_stays_dropped_after_opening_again(self) -> None:
        if not self.persistent:
            return
        storage = self.open()
        write(storage, "c", *pages([1]))
        write(storage, "d", *pages([2]))
        storage.drop("c")
        storage.close()
        storage = self.open()
        assert storage.head("c") is None
        assert list(storage.contexts()) == ["d"]

    def test_closing_one_handle_leaves_the_others(self) -> None:
        first, second = self.open(), self.open()
        write(first, "c", *pages([1]))
        assert second.head("c") == Head(1, HEAD)
        first.close()
        write(second, "c", *pages([2]))
        assert keys_of(second.scan("c", PAGE)) == [1, 2]

    def test_a_closed_storage_says_so(self) -> None:
        storage = self.open()
        write(storage, "c", *pages(range(1_000), group=1))
        running = storage.scan("c", PAGE)
        next(running)
        storage.close()
        storage.close()
        if not self.closes:
            return
        calls: list[Callable[[], object]] = [
            partial(storage.head, "c"),
            partial(storage.get, "c", PAGE, 1),
            lambda: list(storage.scan("c", PAGE)),
            lambda: list(storage.members("c", PAGE, 1)),
            partial(storage.commit, "c", Commit(1, 2, HEAD, ())),
            partial(storage.drop, "c"),
            lambda: list(storage.contexts()),
            lambda: list(running),
        ]
        for call in calls:
            with refused(StorageFailure):
                call()
        if self.persistent:
            assert keys_of(self.open().scan("c", PAGE)) == list(range(1_000))

    def _check_complete(self, storage: Storage) -> None:
        assert storage.head("c") == Head(_THREADS * _EACH, HEAD)
        records = list(storage.scan("c", JOURNAL))
        assert keys_of(records) == list(range(1, _THREADS * _EACH + 1))
        values = [record.value for record in records]
        assert len(set(values)) == len(values)
        for number in range(_THREADS):
            assert [value for value in values if value.startswith(b"%d-" % number)] == _values_of(number)

    def _in_threads(self, work: Callable[[int], object]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(work, number) for number in range(_THREADS)]:
                done.result()


def _values_of(number: int) -> list[bytes]:
    """Return the values that a thread appends: its number and a counter."""
    return [b"%d-%d" % (number, turn) for turn in range(_EACH)]


def _append_all(storage: Storage, context: str, values: list[bytes]) -> None:
    for value in values:
        append(storage, context, value)
