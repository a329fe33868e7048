"""The rules of many contexts, forks, handles and threads, and random programs beside the storage in memory."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from random import Random
from typing import Any, cast

from quire.errors import Conflict, InvalidValue, StorageFailure
from quire.storage.contract import (
    FAMILIES,
    MAX_KEY,
    NOTE,
    PAGE,
    TEXT,
    Commit,
    Family,
    Fork,
    Record,
    Storage,
)
from quire.storage.memory import MemoryStorage
from quire.testing.case import (
    Put,
    StorageCase,
    append,
    commit_of,
    contents,
    everything,
    id_of,
    keys_of,
    pages,
    refused,
    write,
)

_THREADS, _EACH = 6, 20

_SHORT = """
    a A aa aA Aa AA a-b a_b a+b a.b a%b a%2fb a/b a\\b a:b % %25 . .. ... .a a. ../x ../../x /etc/passwd ~ ~/x
    - -- --help -rf * ? | con CON Con nul aux.txt com1 lpt9 log lock stamp.json pages .dropped-00 'x' `x` $HOME $(id)
    {} <a> & # 0 -1 1e9 None null é e\u0301 ß SS ss İ i ı \u212a K ﬁ fi 中文 中文的名字 日本 עברית 🙂 🙂🙂 ～ _ 9 10
"""
ACCEPTED = (
    *_SHORT.split(),
    *("a b", '"', "'; DROP TABLE page; --", "x" * 200, "X" * 200, "x" * 199, "x" * 199 + "y", "A" + "x" * 199),
    *(character * 200 for character in "中🙂é."),
)
REFUSED = (
    *("", " ", " a", "a ", "\ta", "a\n", "\u00a0", "\u3000a", "x" * 201, "中" * 201, "a" * 1_000_000),
    *("\x00", "a\x00b", "a\nb", "a\rb", "a\tb", "\x1b[31m", "a\x7fb", "\x85", "a\u2028b", "a\u202eb", "a\u200bb"),
    *("\ud800", "a\udfffb", "\udc80", "\ufeffa"),
)


class ContextRules(StorageCase):
    """Many contexts in one store: they are separate, listed in order, and dropped completely."""

    def test_every_accepted_name_is_a_context_of_its_own(self) -> None:
        storage = self.open()
        for number, name in enumerate(ACCEPTED):
            write(storage, name, (PAGE, Record(1, name.encode(), 1)), (TEXT, Record(number, b"")))
        for _ in range(2 if self.persistent else 1):
            assert list(storage.contexts()) == sorted(ACCEPTED)
            for number, name in enumerate(ACCEPTED):
                context = id_of(storage, name)
                assert list(storage.children(context, 1)) == [Record(1, name.encode(), 1)], name
                assert keys_of(storage.scan(context, TEXT)) == [number], name
            storage = self.open() if self.persistent else storage
        for name in ("", "a", "aZ", "中", "~"):
            assert list(storage.contexts(name)) == [found for found in sorted(ACCEPTED) if found > name]

    def test_dropping_one_name_leaves_its_look_alikes(self) -> None:
        storage = self.open()
        left = {"a", "A", "é", "e\u0301", "..", "../x", "con", "CON", "x" * 200, "X" * 200}
        for name in sorted(left):
            write(storage, name, *pages([1]))
        for name in sorted(left):
            storage.drop(name)
            left.discard(name)
            assert list(storage.contexts()) == sorted(left)

    def test_a_refused_name_makes_no_context(self) -> None:
        storage = self.open()
        before = contents(storage, write(storage, "a", *pages([1])))
        nameless = storage.create(None, commit_of(1))
        calls: list[Callable[[str], object]] = [
            lambda name: storage.create(name, commit_of(1)),
            storage.load,
            storage.drop,
            partial(storage.name, nameless),
        ]
        for call in calls:
            for name in REFUSED:
                with refused(InvalidValue):
                    call(name)
        assert everything(storage) == {"a": before}

    def test_hundreds_of_contexts_are_listed(self) -> None:
        storage = self.open()
        names = [f"{number:04}" for number in range(300)]
        for name in names:
            write(storage, name)
        assert list(storage.contexts()) == names
        assert list(storage.contexts("0147")) == names[148:]
        assert list(islice(storage.contexts(), 3)) == names[:3]

    def test_a_drop_removes_everything_of_one_context(self) -> None:
        storage = self.open()
        for name in ("before", "c", "d"):
            write(storage, name, *pages(range(300), parent=1), *((family, Record(999, b"x")) for family in FAMILIES))
        context = id_of(storage, "c")
        others = {name: found for name, found in everything(storage).items() if name != "c"}
        storage.drop("c")
        storage.drop("c")
        assert contents(storage, context) == ([], {family: [] for family in FAMILIES}, {})
        assert everything(storage) == others

    def test_a_drop_of_what_was_seen_meets_conflict_if_it_changed(self) -> None:
        storage, other = self.open(), self.open()
        context = write(storage, "c", *pages([1]))
        kept = everything(storage)
        for seen in ((context, 0), (context, 2), (context + 1, 1)):
            with refused(Conflict):
                storage.drop("c", seen)
        with refused(Conflict):
            storage.drop("d", (context, 1))
        assert everything(other) == kept
        other.commit(context, commit_of(2, *pages([2])))
        with refused(Conflict):
            storage.drop("c", (context, 1))
        storage.drop("c", (context, 2))
        assert storage.load("c") is None
        with refused(Conflict):
            other.commit(context, commit_of(3))
        with refused(Conflict):
            storage.drop("c", (context, 2))

    def test_a_copy_without_a_name_is_told(self) -> None:
        storage, other = self.open(), self.open()
        write(storage, "c")
        assert list(other.examine()) == []
        context = storage.create(None, commit_of(1))
        (told,) = other.examine()
        assert told.code == "copy_unfinished"
        storage.commit(context, commit_of(2))
        assert list(other.examine()) != [told]
        storage.name(context, "d")
        assert list(other.examine()) == []
        storage.drop("d")
        assert list(other.examine()) == []

    def test_a_context_that_is_made_again_is_another_one(self) -> None:
        storage, other = self.open(), self.open()
        ids = set()
        for turn in range(1, 4):
            context = write(storage, "c", *pages([turn], parent=1))
            assert id_of(other, "c") == context
            assert contents(other, context) == contents(storage, context)
            assert keys_of(other.children(context, 1)) == [turn]
            ids.add(context)
            storage.drop("c")
            assert other.load("c") is None
            with refused(Conflict):
                other.commit(context, commit_of(2, *pages([9])))
            with refused(Conflict):
                storage.commit(context, commit_of(2, *pages([9])))
        assert len(ids) == 3

    def test_a_copy_without_a_name_is_not_listed_until_it_is_named(self) -> None:
        storage = self.open()
        context = storage.create(None, commit_of(1, *pages([1])))
        storage.commit(context, commit_of(2, *pages([2])))
        assert list(storage.contexts()) == []
        storage.name(context, "c")
        assert list(storage.contexts()) == ["c"]
        assert id_of(storage, "c") == context
        assert keys_of(storage.scan(context, PAGE)) == [1, 2]
        second = storage.create(None, commit_of(1))
        with refused(Conflict):
            storage.name(second, "c")
        storage.name(second, "d")
        assert list(storage.contexts()) == ["c", "d"]

    def test_a_scrub_removes_copies_without_a_name(self) -> None:
        storage = self.open()
        kept = contents(storage, write(storage, "c", *pages([1])))
        context = storage.create(None, commit_of(1, *pages([1])))
        storage.scrub(id_of(storage, "c"))
        storage.commit(context, commit_of(2))
        storage.scrub()
        with refused(Conflict):
            storage.commit(context, commit_of(3))
        with refused(Conflict):
            storage.name(context, "d")
        assert contents(storage, context) == ([], {family: [] for family in FAMILIES}, {})
        assert everything(storage) == {"c": kept}


class ForkRules(StorageCase):
    """Copies inside a store."""

    def test_a_fork_has_the_records_below_its_limits_and_its_own_commit_on_top(self) -> None:
        storage = self.open()
        source = write(storage, "c", *((family, Record(key, b"%d" % key)) for family in FAMILIES for key in range(9)))
        write(storage, "c", *pages(range(20, 30), parent=1))
        before = contents(storage, source)
        for limits in (
            {},
            {PAGE: 25, TEXT: 3, NOTE: 0},
            dict.fromkeys(FAMILIES, 0),
            dict.fromkeys(FAMILIES, MAX_KEY + 1),
        ):
            commit = commit_of(7, (PAGE, Record(3, b"moved", 2, 2)), (TEXT, Record(77, b"own")), delete=[(PAGE, 4)])
            context = storage.create("f", commit, Fork(source, 2, cast("dict[Family, int]", limits)))
            model = MemoryStorage()
            model.create("c", commit_of(2, *((f, each) for f in FAMILIES for each in storage.scan(source, f))))
            same = model.create("f", commit, Fork(id_of(model, "c"), 2, cast("dict[Family, int]", limits)))
            assert contents(storage, context) == contents(model, same), limits
            assert keys_of(storage.children(context, 2)) == [3]
            assert contents(storage, source) == before
            storage.drop("f")

    def test_a_fork_and_its_origin_are_independent(self) -> None:
        storage = self.open()
        source = write(storage, "c", *pages(range(10), parent=1))
        fork = storage.create("f", commit_of(1), Fork(source, 1))
        write(storage, "c", *pages([10], parent=1), delete=[(PAGE, 2)])
        write(storage, "f", *pages([11], parent=1), delete=[(PAGE, 3)])
        assert keys_of(storage.children(source, 1)) == [0, 1, *range(3, 11)]
        assert keys_of(storage.children(fork, 1)) == [0, 1, 2, *range(4, 10), 11]
        storage.drop("c")
        assert keys_of(storage.children(fork, 1)) == [0, 1, 2, *range(4, 10), 11]

    def test_a_fork_that_cannot_be_made_makes_nothing(self) -> None:
        storage = self.open()
        source = write(storage, "c", *pages([1]))
        write(storage, "c", *pages([2]))
        write(storage, "there")
        before = everything(storage)
        for name, fork in (
            ("f", Fork(source, 1)),
            ("f", Fork(source, 3)),
            ("f", Fork(source + 99, 2)),
            ("there", Fork(source, 2)),
        ):
            with refused(Conflict):
                storage.create(name, commit_of(1, *pages([5])), fork)
        with refused(InvalidValue):
            storage.create("f", commit_of(1, (cast(Any, "no family"), Record(1, b"x"))), Fork(source, 2))
        assert everything(storage) == before
        context = storage.create("f", commit_of(1), Fork(source, 2))
        assert keys_of(storage.scan(context, PAGE)) == [1, 2]


class SharingRules(StorageCase):
    """One store with several handles, threads and moments."""

    def test_the_second_of_two_writers_meets_conflict(self) -> None:
        first, second = self.open(), self.open()
        context = write(first, "c", *pages([1]))
        assert id_of(second, "c") == context
        first.commit(context, commit_of(2, *pages([2])))
        with refused(Conflict):
            second.commit(context, commit_of(2, *pages([3])))
        assert keys_of(second.scan(context, PAGE)) == [1, 2]
        second.commit(context, commit_of(3, *pages([3])))
        assert contents(first, context) == contents(second, context)

    def test_of_two_creators_one_meets_conflict(self) -> None:
        first, second = self.open(), self.open()
        assert (first.load("c"), second.load("c")) == (None, None)
        context = first.create("c", commit_of(1, *pages([1])))
        with refused(Conflict):
            second.create("c", commit_of(1, *pages([2])))
        assert keys_of(second.scan(context, PAGE)) == [1]

    def test_a_handle_sees_every_commit_of_another(self) -> None:
        writer, reader = self.open(), self.open()
        for key in range(20):
            context = write(writer, "c", *pages([key], parent=key % 2))
            found = reader.load("c")
            assert found is not None
            assert (found.id, found.seq) == (context, key + 1)
            assert keys_of(reader.scan(context, PAGE)) == list(range(key + 1))
            assert keys_of(reader.children(context, 0)) == list(range(0, key + 1, 2))

    def test_threads_lose_nothing(self) -> None:
        shared = self.open()
        handles = [self.open() for _ in range(_THREADS)]
        self._in_threads(lambda number: _append_all(handles[number], "one", number))
        self._in_threads(lambda number: _append_all(shared, "two", number))
        self._in_threads(lambda number: _append_all(shared, f"own {number}", number))
        for name in ("one", "two"):
            entries = list(shared.entries(id_of(shared, name)))
            assert [entry.seq for entry in entries] == list(range(1, _THREADS * _EACH + 1))
            for number in range(_THREADS):
                assert [each.entry for each in entries if each.entry.startswith(b"%d-" % number)] == _values_of(number)
        for number in range(_THREADS):
            entries = list(shared.entries(id_of(shared, f"own {number}")))
            assert [entry.entry for entry in entries] == _values_of(number)

    def test_threads_read_whole_commits_while_others_write(self) -> None:
        storage = self.open()
        context = write(storage, "c", *((TEXT, Record(key, b"0")) for key in range(5)))

        def work(number: int) -> None:
            for turn in range(_EACH):
                if number == 0:
                    write(storage, "c", *((TEXT, Record(key, b"%d" % turn)) for key in range(5)))
                else:
                    found = storage.get(context, TEXT, range(5))
                    assert len({each.value for each in found if each is not None}) == 1

        self._in_threads(work)

    def test_a_snapshot_does_not_change(self) -> None:
        storage, other = self.open(), self.open()
        context = write(storage, "c", *pages(range(600), parent=1), (NOTE, Record(1, b"note")))
        before, loaded = contents(storage, context), storage.load("c")
        with storage.snapshot(context) as snapshot:
            assert loaded is not None
            other.commit(context, commit_of(2, *pages([700]), delete=[(PAGE, 3), (NOTE, 1)]))
            assert contents(snapshot, context) == before
            other.drop("c")
            write(other, "c", *pages([9]))
            assert contents(snapshot, context) == before
        assert keys_of(storage.scan(id_of(storage, "c"), PAGE)) == [9]

    def test_opening_again_finds_everything(self) -> None:
        if not self.persistent:
            return
        storage = self.open()
        write(storage, "c", *pages(range(1_500), parent=1), (TEXT, Record(1, bytes(3_000_000))), (TEXT, Record(2, b"")))
        write(storage, "c", *pages(range(0, 1_500, 7), parent=2), (NOTE, Record(5, b"n")))
        write(storage, "d", *pages([1]))
        storage.drop("d")
        for key in range(700):
            write(storage, "e", *pages([key], parent=1), (TEXT, Record(key, b"%d" % key)))
        before = everything(storage)
        for _ in range(2):
            storage.close()
            storage = self.open()
            assert everything(storage) == before
        write(storage, "e", *pages([9_000], parent=1))
        assert keys_of(self.open().children(id_of(storage, "e"), 1)) == [*range(700), 9_000]

    def test_a_closed_storage_says_so(self) -> None:
        storage, other = self.open(), self.open()
        context = write(storage, "c", *pages(range(1_000), parent=1))
        running = storage.scan(context, PAGE)
        next(running)
        storage.close()
        storage.close()
        if not self.closes:
            return
        calls: list[Callable[[], object]] = [
            partial(storage.load, "c"),
            partial(storage.get, context, PAGE, [1]),
            lambda: list(storage.scan(context, PAGE)),
            lambda: list(storage.children(context, 1)),
            lambda: list(storage.entries(context)),
            partial(storage.commit, context, commit_of(2)),
            partial(storage.create, "d", commit_of(1)),
            partial(storage.drop, "c"),
            lambda: list(storage.contexts()),
            lambda: list(running),
        ]
        for call in calls:
            with refused(StorageFailure):
                call()
        if self.persistent:
            assert keys_of(other.scan(context, PAGE)) == list(range(1_000))

    def _in_threads(self, work: Callable[[int], object]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(work, number) for number in range(_THREADS)]:
                done.result()


class ModelRules(StorageCase):
    """A random program gives the same as the memory storage, which is the reference."""

    programs: int = 12
    """How many random programs run."""

    def test_random_programs_give_the_same_as_in_memory(self) -> None:
        for seed in range(self.programs):
            random, name = Random(seed), f"c{seed}"
            storage, model = self.open(), MemoryStorage()
            first = random_commit(random, 1)
            ids = storage.create(name, first), model.create(name, first)
            for seq in range(2, random.randrange(3, 40)):
                commit = random_commit(random, seq)
                storage.commit(ids[0], commit)
                model.commit(ids[1], commit)
                if self.persistent and random.random() < 0.1:
                    storage = self.open()
            assert contents(storage, ids[0]) == contents(model, ids[1]), seed
            found, expected = storage.load(name), model.load(name)
            assert found is not None
            assert expected is not None
            assert (found.seq, found.head, found.notes) == (expected.seq, expected.head, expected.notes)


def random_commit(random: Random, seq: int) -> Commit:
    """Return a commit with a few changes of records with small keys."""
    changes = {(random.choice(FAMILIES), random.randrange(12)) for _ in range(random.randrange(6))}
    put: list[Put] = []
    delete: list[tuple[Family, int]] = []
    for family, key in sorted(changes):
        if random.random() < 0.25:
            delete.append((family, key))
        else:
            parent = random.choice((None, 1, 2, ~1)) if family == PAGE else None
            rank = 0 if parent is None else random.randrange(4)
            put.append((family, Record(key, random.randbytes(random.choice((0, 3, 90, 9_000))), parent, rank)))
    older = [(random.randrange(1, seq), random.choice((b"", b"replaced")))] if random.random() < 0.2 < seq / 9 else []
    expire = random.randrange(1, seq) if random.random() < 0.1 < seq / 50 else 0
    return Commit(seq, b"head %d" % seq, random.randbytes(20), put, delete, older, expire)


def _values_of(number: int) -> list[bytes]:
    """Return the values that a thread appends: its number and a counter."""
    return [b"%d-%d" % (number, turn) for turn in range(_EACH)]


def _append_all(storage: Storage, name: str, number: int) -> None:
    for value in _values_of(number):
        append(storage, name, value)
