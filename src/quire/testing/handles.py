"""The contract of sharing: two handles, many threads, closing and reopening."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from quire.errors import Conflict, StorageFailure
from quire.storage.base import BODY, JOURNAL, PAGE, Commit, Head, Put, Storage
from quire.testing.case import HEAD, StorageCase, append, contents, grouped, keys_of, pages, refused, write

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
