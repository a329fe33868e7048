"""The contract of forking: a fork is a complete copy of a context and independent of it."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from random import Random
from typing import Any, cast

from quire.core.context_copy import copy_contexts
from quire.errors import Conflict, InvalidValue, StorageFailure
from quire.storage.base import (
    BODY,
    FAMILIES,
    IMMUTABLE,
    JOURNAL,
    MAX_GROUP,
    MAX_KEY,
    MESSAGE,
    NOTE,
    PAGE,
    TALLY,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    Write,
)
from quire.storage.memory import MemoryStorage
from quire.testing.case import HEAD, StorageCase, contents, grouped, keys_of, pages, refused, write

GROUPS = [0, 1, 2, MAX_GROUP]
NAMES = ["a", "b", "c", "d", "e"]
MANY = 600
"""More records than a backend is likely to fetch at once."""


def apply_random_step(random: Random, ends: dict[str, int], *storages: Storage) -> None:
    """Do the same random write, drop or fork in all storages. Keys of bodies and messages only grow."""
    name, source = random.sample(NAMES, 2)
    head, origin = (storages[0].head(context) for context in (name, source))
    if random.random() < 0.1:
        for storage in storages:
            storage.drop(name)
        return
    if head or not origin or random.random() < 0.2:
        ends[name] = ends[name] if head else 0
        writes = _random_writes(random, ends[name])
        for storage in storages:
            write(storage, name, *writes)
    else:
        bound = random.randrange(ends[source] + 2)
        below: dict[Family, int] = {BODY: bound, MESSAGE: bound // 2} if random.random() < 0.4 else {}
        ends[name] = bound if below else ends[source]
        writes = _random_writes(random, ends[name])
        for storage in storages:
            storage.fork(source, name, Commit(origin.version, 1, HEAD, writes, HEAD), below)
    ends[name] = max([ends[name], *(each.key + 1 for each in writes if each.family in IMMUTABLE)])


def fill(storage: Storage, context: str) -> None:
    """Make three commits: every family, a large group, and more bodies than are fetched at once."""
    write(
        storage,
        context,
        *(Put(family, key, b"%s %d" % (family.encode(), key)) for family in FAMILIES for key in range(6)),
    )
    write(storage, context, *pages(range(10, MANY), group=1), *pages([MANY, MANY + 1], group=2))
    write(storage, context, *(Put(family, key, bytes(key)) for family in (BODY, MESSAGE) for key in range(6, MANY)))


def fork(storage: Storage, source: str, target: str, *writes: Write, below: Mapping[Family, int] | None = None) -> None:
    """Fork the source at its current version; the fork is at version 9."""
    head = storage.head(source)
    assert head is not None
    storage.fork(source, target, Commit(head.version, 9, b"fork", writes, head.value), below or {})


def new_records(*keys: int, by: bytes = b"") -> list[Write]:
    """Return a page in group 1, a body and a message for each key."""
    return [
        each
        for key in keys
        for each in (
            Put(PAGE, key, value_of(key, by), 1, order_of(key)),
            Put(BODY, key, value_of(key, by)),
            Put(MESSAGE, key, value_of(key, by)),
        )
    ]


def deletes(*keys: int) -> list[Write]:
    return [Delete(family, key) for family in (PAGE, BODY, MESSAGE) for key in keys]


def value_of(key: int, by: bytes = b"") -> bytes:
    return b"%s%d" % (by, key)


def order_of(key: int) -> bytes:
    return key.to_bytes(5)


def _random_writes(random: Random, end: int) -> list[Write]:
    """Return random writes: to any page, bodies and messages from `end` on, deletes of earlier records."""
    writes: list[Write] = []
    for _ in range(random.randrange(6)):
        key, value = random.randrange(max(end, 9)), random.randbytes(2)
        writes += random.choice(
            [
                [Put(PAGE, key, value, random.choice([None, 1, 2]), value[:1])],
                [Patch(PAGE, key, value)],
                [Delete(PAGE, key), Delete(BODY, key)],
                [Delete(MESSAGE, key)],
                [Put(BODY, end, value), Put(JOURNAL, end, value)],
                [Put(MESSAGE, end, value)],
            ]
        )
        end += 1
    return writes


def state_of(storage: Storage, context: str) -> tuple[Head | None, dict[Family, list[Record]], dict[int, list[int]]]:
    return (*contents(storage, context), grouped(storage, context, GROUPS))


def check_reads(storage: Storage, context: str) -> None:
    """Assert that all ways to read a record return the same one."""
    for family in FAMILIES:
        records = list(storage.scan(context, family))
        keys = keys_of(records)
        assert keys == sorted(set(keys))
        assert list(storage.scan(context, family, reverse=True)) == records[::-1]
        for key in {*keys[:9], *keys[-9:], *(key + 1 for key in keys[-3:])} - {MAX_KEY + 1}:
            expected = [record for record in records if record.key == key]
            assert storage.get(context, family, key) == (expected[0] if expected else None)
            assert list(storage.scan(context, family, key, key)) == expected
        for start, stop in ((1, 4), (2, MANY), (MANY - 2, MAX_KEY), (5, 4)):
            within = [record for record in records if start <= record.key <= stop]
            assert list(storage.scan(context, family, start, stop)) == within
            assert list(storage.scan(context, family, start, stop, reverse=True)) == within[::-1]


class ForkRules(StorageCase):
    """Forks in one store."""

    def test_a_fork_holds_everything_but_the_journal(self) -> None:
        storage = self.open()
        fill(storage, "c")
        before = state_of(storage, "c")
        fork(storage, "c", "f")
        assert state_of(storage, "f") == (Head(9, b"fork"), before[1] | {JOURNAL: []}, before[2])
        assert state_of(storage, "c") == before
        assert list(storage.contexts()) == ["c", "f"]
        for name in ("c", "f"):
            check_reads(storage, name)

    def test_a_context_without_records_can_be_forked(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, 4, b"only a head", ()))
        fork(storage, "c", "f")
        assert contents(storage, "f") == (Head(9, b"fork"), {family: [] for family in FAMILIES})
        write(storage, "f", *new_records(0))
        storage.drop("c")
        assert keys_of(storage.scan("f", BODY)) == [0]

    def test_a_fork_takes_only_the_keys_below(self) -> None:
        storage = self.open()
        fill(storage, "c")
        write(storage, "bystander", *new_records(7_000))
        everything = contents(storage, "c")[1]
        bounds: list[dict[Family, int]] = [
            {PAGE: 3, BODY: 2, MESSAGE: 4, NOTE: 1},
            dict.fromkeys(FAMILIES, 0),
            {BODY: 1},
            {BODY: MAX_KEY, PAGE: MAX_KEY},
            dict.fromkeys(FAMILIES, MAX_KEY + 1),
            dict.fromkeys(FAMILIES, 1 << 60),
        ]
        for below in bounds:
            storage.drop("f")
            fork(storage, "c", "f", below=below)
            for family in FAMILIES:
                end = 0 if family == JOURNAL else below.get(family, MAX_KEY + 1)
                assert list(storage.scan("f", family)) == [r for r in everything[family] if r.key < end], below
            check_reads(storage, "f")

    def test_keys_that_a_fork_did_not_take_are_its_own_to_use(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(*range(5)))
        fork(storage, "c", "f", *new_records(3, by=b"fork"), below={PAGE: 3, BODY: 3, MESSAGE: 3})
        write(storage, "f", *new_records(4, by=b"fork"))
        for family in (PAGE, BODY, MESSAGE):
            assert [r.value for r in storage.scan("c", family)] == [b"0", b"1", b"2", b"3", b"4"]
            assert [r.value for r in storage.scan("f", family)] == [b"0", b"1", b"2", b"fork3", b"fork4"]
            check_reads(storage, "f")

    def test_the_commit_lies_on_top_of_what_was_taken(self) -> None:
        storage = self.open()
        fill(storage, "c")
        before = state_of(storage, "c")
        writes: list[Write] = [
            Patch(PAGE, 0, b"patched"),
            Put(PAGE, 1, b"moved", 2, b"\xff"),
            Delete(PAGE, 2),
            Patch(PAGE, 5, b"not taken"),
            Put(PAGE, 6, b"new", 1, b""),
            Delete(BODY, 1),
            Put(BODY, MANY, b"new body"),
            Delete(MESSAGE, 3),
            Put(JOURNAL, 10, b"an entry of its own"),
            Patch(TALLY, 2, b"7"),
        ]
        storage.fork("c", "f", Commit(3, 10, b"on top", writes, seen=HEAD), {PAGE: 5})
        model = MemoryStorage()
        copy_contexts(storage, model, "c", check=False)
        model.fork("c", "f", Commit(3, 10, b"on top", writes, seen=HEAD), {PAGE: 5})
        assert storage.head("f") == Head(10, b"on top")
        assert state_of(storage, "f") == state_of(model, "f")
        assert state_of(storage, "c") == before
        assert storage.get("f", PAGE, 0) == Record(0, b"patched")
        assert storage.get("f", BODY, 1) is None
        assert keys_of(storage.scan("f", JOURNAL)) == [10]
        check_reads(storage, "f")

    def test_a_fork_keeps_the_groups_and_their_order(self) -> None:
        storage = self.open()
        orders = [b"b", b"", b"\xff", b"a\x00", b"a", b"b"]
        write(storage, "c", *(Put(PAGE, key, b"", 1, order) for key, order in enumerate(orders)))
        write(storage, "c", *(Put(PAGE, key, b"", MAX_GROUP, b"same") for key in (40, 9, MAX_KEY)), Put(PAGE, 50, b""))
        fork(storage, "c", "f")
        assert grouped(storage, "f", GROUPS) == {0: [], 1: [1, 4, 3, 0, 5, 2], 2: [], MAX_GROUP: [9, 40, MAX_KEY]}
        assert keys_of(storage.members("f", PAGE, 1, reverse=True)) == [2, 5, 0, 3, 4, 1]
        assert keys_of(storage.members("f", PAGE, 1, after=(b"a", 4))) == [3, 0, 5, 2]
        assert keys_of(storage.members("f", PAGE, 1, after=(b"a", 4), reverse=True)) == [1]
        write(storage, "f", Put(PAGE, 60, b"", 1, b"aa"), Put(PAGE, 1, b"", 2, b""))
        assert grouped(storage, "f", [1, 2]) == {1: [4, 3, 60, 0, 5, 2], 2: [1]}
        assert grouped(storage, "c", [1, 2]) == {1: [1, 4, 3, 0, 5, 2], 2: []}

    def test_a_fork_onto_an_existing_context_is_refused(self) -> None:
        storage = self.open()
        fill(storage, "c")
        write(storage, "there", *new_records(1))
        before = {name: state_of(storage, name) for name in ("c", "there")}
        for target in ("there", "c"):
            with refused(Conflict):
                fork(storage, "c", target, *new_records(MANY))
        assert {name: state_of(storage, name) for name in storage.contexts()} == before

    def test_a_fork_of_a_context_that_is_elsewhere_is_refused(self) -> None:
        storage = self.open()
        storage.commit("c", Commit(0, 1, b"one", new_records(1)))
        storage.commit("c", Commit(1, 2, b"two", new_records(2)))
        before = state_of(storage, "c")
        for expect, seen in ((1, b""), (0, b""), (3, b""), (-2, b""), (2, b"one"), (1, b"one"), (1, b"two")):
            with refused(Conflict):
                storage.fork("c", "f", Commit(expect, 5, b"x", new_records(3), seen), {})
            assert storage.head("f") is None
            assert storage.get("f", BODY, 1) is None
        assert list(storage.contexts()) == ["c"]
        assert state_of(storage, "c") == before
        storage.fork("c", "f", Commit(2, 5, b"x", new_records(3), b"two"), {})
        storage.fork("c", "g", Commit(2, 5, b"x", new_records(3)), {})
        assert contents(storage, "f") == contents(storage, "g")

    def test_a_fork_of_a_missing_context_is_refused(self) -> None:
        storage = self.open()
        write(storage, "d", *new_records(1))
        storage.drop("d")
        for source in ("never there", "d"):
            for expect in (0, 1):
                with refused(Conflict):
                    storage.fork(source, "f", Commit(expect, 1, HEAD, new_records(1)), {})
        assert list(storage.contexts()) == []

    def test_a_fork_under_a_refused_name_is_refused(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(1))
        for name in ("", " a", "a\nb", "x" * 201):
            for source, target in (("c", name), (name, "f")):
                with refused(InvalidValue):
                    storage.fork(source, target, Commit(1, 2, HEAD, ()), {})
        assert list(storage.contexts()) == ["c"]

    def test_a_fork_with_an_impossible_write_makes_nothing(self) -> None:
        storage = self.open()
        fill(storage, "c")
        before = state_of(storage, "c")
        with refused(InvalidValue):
            fork(storage, "c", "f", *new_records(MANY), Put(cast(Any, "no such family"), 1, b"x"))
        assert list(storage.contexts()) == ["c"]
        assert contents(storage, "f") == (None, {family: [] for family in FAMILIES})
        assert state_of(storage, "c") == before
        write(storage, "next", *new_records(7))
        assert keys_of(storage.scan("next", BODY)) == [7]
        fork(storage, "c", "f")
        assert state_of(storage, "f")[2] == before[2]

    def test_what_either_writes_later_is_not_seen_by_the_other(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(*range(10)))
        fork(storage, "c", "f")
        for key in range(10, 14):
            write(storage, "c", *new_records(key, by=b"source"))
            write(storage, "f", *new_records(key + 2, by=b"fork"))
        for family in (PAGE, BODY, MESSAGE):
            source, forked = [*range(14)], [*range(10), *range(12, 16)]
            for name, keys, by in (("c", source, b"source"), ("f", forked, b"fork")):
                for start, stop in ((0, MAX_KEY), (5, 12), (10, 13), (12, 12), (3, 9), (9, 10), (15, MAX_KEY), (8, 7)):
                    found = [value_of(key, by if key > 9 else b"") for key in keys if start <= key <= stop]
                    assert [r.value for r in storage.scan(name, family, start, stop)] == found
                    assert [r.value for r in storage.scan(name, family, start, stop, reverse=True)] == found[::-1]
                got = [key for key in range(20) if storage.get(name, family, key) is not None]
                assert got == keys
        write(storage, "c", Patch(PAGE, 1, b"source"), Put(PAGE, 2, b"source", 2, b"z"))
        write(storage, "f", Patch(PAGE, 2, b"fork"), Put(PAGE, 1, b"fork", 0, b"z"))
        assert [storage.get("c", PAGE, key) for key in (1, 2)] == [
            Record(1, b"source", 1, order_of(1)),
            Record(2, b"source", 2, b"z"),
        ]
        assert [storage.get("f", PAGE, key) for key in (1, 2)] == [
            Record(1, b"fork", 0, b"z"),
            Record(2, b"fork", 1, order_of(2)),
        ]

    def test_what_either_deletes_the_other_keeps(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(*range(8)))
        fork(storage, "c", "f")
        write(storage, "c", *deletes(1, 3))
        write(storage, "f", *deletes(3, 5, 7))
        fork(storage, "c", "c2")
        fork(storage, "f", "f2", *deletes(0))
        left = {"c": [0, 2, 4, 5, 6, 7], "f": [0, 1, 2, 4, 6]}
        left |= {"c2": left["c"], "f2": left["f"][1:]}
        self._hold(storage, left)
        storage.drop("f")
        self._hold(storage, left | {"f": []})
        write(storage, "c", *deletes(0, 7), *new_records(8))
        write(storage, "f2", *deletes(1), *new_records(8))
        left |= {"c": [2, 4, 5, 6, 8], "f": [], "f2": [2, 4, 6, 8]}
        self._hold(storage, left)
        storage.drop("c2")
        storage.drop("f2")
        self._hold(storage, {"c": left["c"], "c2": [], "f2": []})

    def _hold(self, storage: Storage, left: Mapping[str, list[int]]) -> None:
        for name, keys in left.items():
            for family in (PAGE, BODY, MESSAGE):
                assert keys_of(storage.scan(name, family)) == keys, (name, family)
            assert grouped(storage, name, [1]) == {1: keys}
            check_reads(storage, name)

    def test_a_source_that_is_dropped_leaves_the_fork_whole(self) -> None:
        storage = self.open()
        fill(storage, "c")
        fork(storage, "c", "f", *new_records(MANY))
        before = state_of(storage, "f")
        storage.drop("c")
        assert contents(storage, "c") == (None, {family: [] for family in FAMILIES})
        assert state_of(storage, "f") == before
        write(storage, "c", *new_records(2, by=b"made again"))
        assert state_of(storage, "f") == before
        assert keys_of(storage.scan("c", BODY)) == [2]
        write(storage, "f", *new_records(MANY + 1))
        assert keys_of(storage.scan("f", BODY, MANY - 1)) == [MANY - 1, MANY, MANY + 1]
        check_reads(storage, "f")

    def test_a_fork_that_is_dropped_leaves_the_source_whole(self) -> None:
        storage = self.open()
        fill(storage, "c")
        before = state_of(storage, "c")
        for _ in range(3):
            fork(storage, "c", "f", *new_records(MANY), *deletes(0, 1))
            storage.drop("f")
            assert contents(storage, "f") == (None, {family: [] for family in FAMILIES})
            assert state_of(storage, "c") == before
        write(storage, "f", *new_records(1))
        assert keys_of(storage.scan("f", BODY)) == [1]

    def test_forks_of_forks_can_be_dropped_in_any_order(self) -> None:
        names = ("a", "b", "c", "d")
        for round_, order in enumerate(permutations(names)):
            storage = self.open(f"store {round_}")
            write(storage, "a", *new_records(*range(4)))
            fork(storage, "a", "b", *new_records(4, by=b"b"))
            write(storage, "a", *new_records(4, by=b"a"))
            fork(storage, "b", "c", *new_records(5, by=b"c"), below={BODY: 3, MESSAGE: 5})
            write(storage, "b", *deletes(2), *new_records(5, by=b"b"))
            fork(storage, "c", "d", *deletes(1), *new_records(6, by=b"d"))
            left = {name: state_of(storage, name) for name in names}
            for name in order:
                storage.drop(name)
                del left[name]
                assert {name: state_of(storage, name) for name in storage.contexts()} == left, order
            storage.close()

    def test_a_long_line_of_forks_reads_and_drops(self) -> None:
        storage = self.open()
        write(storage, "0", *new_records(0))
        for number in range(1, 40):
            fork(storage, f"{number - 1}", f"{number}", *new_records(number))
            storage.drop(f"{number - 1}")
        for family in (PAGE, BODY, MESSAGE):
            assert keys_of(storage.scan("39", family)) == list(range(40))
        check_reads(storage, "39")
        storage.drop("39")
        assert list(storage.contexts()) == []

    def test_a_scan_that_is_running_survives_a_fork_and_a_drop(self) -> None:
        storage = self.open()
        fill(storage, "c")
        fork(storage, "c", "f")
        running = [storage.scan("f", BODY), storage.scan("f", BODY, reverse=True)]
        ends = [next(scan).key for scan in running]
        fork(storage, "f", "g")
        storage.drop("c")
        assert ends == [0, MANY - 1]
        assert keys_of(running[0]) == list(range(1, MANY))
        assert keys_of(running[1]) == list(range(MANY - 1))[::-1]

    def test_a_fork_is_copied_to_memory_and_back(self) -> None:
        storage, memory, another = self.open(), MemoryStorage(), self.open("another")
        fill(storage, "c")
        fork(storage, "c", "f", *new_records(MANY), *deletes(4), below={PAGE: 100})
        write(storage, "c", *new_records(MANY), *deletes(5))
        storage.drop("c")
        copy_contexts(storage, memory, "f", check=False)
        copy_contexts(memory, another, "f", check=False)
        assert state_of(memory, "f") == state_of(storage, "f")
        assert state_of(another, "f") == state_of(storage, "f")

    def test_a_second_handle_sees_a_fork_and_can_be_too_late_for_one(self) -> None:
        first, second = self.open(), self.open()
        write(first, "c", *new_records(1, 2))
        assert (second.head("c"), second.head("f")) == (Head(1, HEAD), None)
        assert second.get("f", BODY, 1) is None
        fork(first, "c", "f", *new_records(3))
        assert second.head("f") == Head(9, b"fork")
        assert state_of(second, "f") == state_of(first, "f")
        write(second, "f", *new_records(4))
        assert first.head("f") == Head(10, HEAD)
        assert keys_of(first.scan("f", BODY)) == [1, 2, 3, 4]
        write(first, "c", *new_records(3))
        with refused(Conflict):
            second.fork("c", "g", Commit(1, 2, HEAD, ()), {})
        with refused(Conflict):
            fork(second, "c", "f")
        first.drop("f")
        fork(second, "c", "f")
        assert first.head("f") == Head(9, b"fork")
        assert keys_of(first.scan("f", BODY)) == [1, 2, 3]

    def test_a_fork_is_of_one_state_while_others_write(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(0))

        def work(number: int) -> None:
            for turn in range(1, 21):
                if number == 0:
                    write(storage, "c", *new_records(turn))
                    continue
                try:
                    fork(storage, "c", f"{number}-{turn}")
                except Conflict:
                    continue

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, number) for number in range(4)]:
                done.result()
        assert keys_of(storage.scan("c", BODY)) == list(range(21))
        for name in storage.contexts():
            keys = keys_of(storage.scan(name, BODY))
            assert keys == list(range(len(keys)))
            assert keys == keys_of(storage.scan(name, PAGE)) == keys_of(storage.scan(name, MESSAGE))

    def test_a_fork_is_there_after_opening_again(self) -> None:
        if not self.persistent:
            return
        storage = self.open()
        fill(storage, "c")
        fork(storage, "c", "f", *new_records(MANY), *deletes(4))
        fork(storage, "f", "g", below={BODY: 40})
        write(storage, "c", *new_records(MANY), *deletes(5))
        storage.drop("f")
        left = {name: state_of(storage, name) for name in ("c", "g")}
        for _ in range(2):
            storage.close()
            storage = self.open()
            assert {name: state_of(storage, name) for name in storage.contexts()} == left
        storage.drop("c")
        storage.close()
        storage = self.open()
        assert state_of(storage, "g") == left["g"]
        write(storage, "g", *new_records(MANY + 1))
        check_reads(storage, "g")

    def test_a_closed_storage_does_not_fork(self) -> None:
        storage = self.open()
        write(storage, "c", *new_records(1))
        storage.close()
        if self.closes:
            with refused(StorageFailure):
                storage.fork("c", "f", Commit(1, 2, HEAD, ()), {})

    def test_whatever_is_done_to_a_family_of_forks_memory_agrees(self) -> None:
        for seed in range(6):
            storage, model, random = self.open(f"store {seed}"), MemoryStorage(), Random(seed)
            ends: dict[str, int] = {}
            for _ in range(60):
                apply_random_step(random, ends, storage, model)
                assert list(storage.contexts()) == list(model.contexts())
                for name in NAMES:
                    assert state_of(storage, name) == state_of(model, name), seed
                check_reads(storage, random.choice(NAMES))
