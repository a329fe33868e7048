"""The engine of S3Storage: after any writes, flushes, merges and forks, it reads the same data as memory."""

from random import Random

import pytest

from quire import MemoryStorage, S3Storage, Storage
from quire.storage.base import (
    BODY,
    CALL,
    FAMILIES,
    JOURNAL,
    MAX_KEY,
    NOTE,
    PAGE,
    TALLY,
    Commit,
    Delete,
    Family,
    Patch,
    Put,
    Write,
)
from quire.testing.case import HEAD, contents, grouped, keys_of, pages, write
from tests.storage.s3_engine import CountingObjects, objects, open_engine, tiny

__all__ = ["objects", "tiny"]
GROUPS = [1, 2, 3]
NAMES = ["a", "另一个", "c"]


def some(random: Random, size: int = 12) -> list[Write]:
    """Return writes to any family, most of them to pages. Keys of calls are scattered."""
    writes: list[Write] = []
    for _ in range(random.randrange(1, size)):
        family: Family = random.choice([PAGE, PAGE, PAGE, BODY, CALL, JOURNAL, NOTE, TALLY, *FAMILIES])
        key = random.randrange(40) if family != CALL else hash((random.randrange(40), 7)) & MAX_KEY
        value = random.randbytes(random.choice([0, 3, 20, 90, 400]))
        match random.randrange(6):
            case 0 | 1 | 2:
                group = random.choice([None, *GROUPS]) if family == PAGE else None
                writes.append(Put(family, key, value, group, random.randbytes(2) if group else b""))
            case 3 | 4:
                writes.append(Patch(family, key, value))
            case _:
                writes.append(Delete(family, key))
    return writes


def whole(storage: Storage, name: str) -> object:
    return contents(storage, name), grouped(storage, name, GROUPS)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_written_reads_as_in_memory(objects: CountingObjects, seed: int) -> None:
    random, model = Random(seed), MemoryStorage()
    storage = open_engine(objects, cache_bytes=random.choice([0, 3_000, 1 << 20]))
    most = 0
    for turn in range(250):
        name = random.choice(NAMES)
        _do(random, name, storage, model)
        if turn % 20 == 0 or turn > 246:
            storage = open_engine(objects.in_another_process()) if random.random() < 0.4 else storage
            assert {each: whole(storage, each) for each in NAMES} == {each: whole(model, each) for each in NAMES}
            _agrees(random, storage, model, name)
        head = storage._states.get(name).snapshot
        most = max(most, len(head.head.runs) if head else 0)
    assert most > 3, "nothing was flushed"
    assert list(storage.contexts()) == list(model.contexts())


def _do(random: Random, name: str, storage: S3Storage, model: MemoryStorage) -> None:
    """Mostly write. Sometimes compact, collect, or drop the context and create it again as a fork."""
    chance, other = random.random(), random.choice(NAMES)
    source = model.head(other)
    if chance < 0.02 and source is not None and other != name:
        commit = Commit(source.version, 7, HEAD, some(random))
        below: dict[Family, int] = {PAGE: random.randrange(40), BODY: 9} if random.random() < 0.5 else {}
        for each in (storage, model):
            each.drop(name)
            each.fork(other, name, commit, below)
    elif chance < 0.03:
        storage.compact(name)
    elif chance < 0.05:
        storage.collect(random.choice([name, None]), grace_seconds=random.choice([0, 3_600]))
    else:
        writes = some(random)
        for target in (storage, model):
            write(target, name, *writes)


def _agrees(random: Random, storage: Storage, model: Storage, name: str) -> None:
    """Compare parts of scans and groups, forwards and backwards."""
    for family in FAMILIES:
        start, stop = sorted(random.sample(range(45), 2))
        for reverse in (False, True):
            expected = list(model.scan(name, family, start, stop, reverse=reverse))
            assert list(storage.scan(name, family, start, stop, reverse=reverse)) == expected
        for key in {*range(0, 42, 5), *keys_of(model.scan(name, family))}:
            assert storage.get(name, family, key) == model.get(name, family, key)
    for group in GROUPS:
        after = (random.randbytes(1), random.randrange(40))
        for reverse in (False, True):
            expected = list(model.members(name, PAGE, group, after=after, reverse=reverse))
            assert list(storage.members(name, PAGE, group, after=after, reverse=reverse)) == expected


@pytest.mark.usefixtures("tiny")
def test_a_scan_shows_one_moment_whatever_is_written_and_merged(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *pages(range(60), group=1))
    before = contents(storage, "c")[1][PAGE]
    running = [storage.scan("c", PAGE), storage.members("c", PAGE, 1)]
    begun = [next(each) for each in running]
    for key in range(60):
        write(storage, "c", Delete(PAGE, key), Put(PAGE, 100 + key, b"new" * 40, 1, b"x"))
    storage.compact("c")
    assert [begun[0], *running[0]] == before
    assert [begun[1], *running[1]] == before


@pytest.mark.usefixtures("tiny")
def test_a_scan_goes_on_when_what_it_reads_is_removed(objects: CountingObjects) -> None:
    storage = open_engine(objects, cache_bytes=0)
    write(storage, "c", *pages(range(0, 120, 2), group=1))
    for reverse in (False, True):
        running = [storage.scan("c", PAGE, reverse=reverse), storage.members("c", PAGE, 1, reverse=reverse)]
        begun = [[next(each).key] for each in running]
        write(storage, "c", *pages([61], group=1), Delete(PAGE, 60))
        storage.compact("c")
        assert storage.collect("c", grace_seconds=0) > 0
        expected = keys_of(storage.scan("c", PAGE, reverse=reverse))
        assert [[*first, *keys_of(each)] for first, each in zip(begun, running, strict=True)] == [expected] * 2
        write(storage, "c", Delete(PAGE, 61), *pages([60], group=1))


def test_a_snapshot_stays_as_it_was(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *pages(range(50), group=1))
    before = whole(storage, "c")
    with storage.snapshot("c") as still:
        write(storage, "c", *pages(range(50, 90), group=1), Delete(PAGE, 3))
        storage.compact("c")
        assert whole(still, "c") == before
        assert whole(storage, "c") != before
        with storage.snapshot("never there") as nothing:
            assert nothing.head("never there") is None


@pytest.mark.usefixtures("tiny")
def test_compacting_leaves_one_run_and_nothing_that_was_replaced(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    for turn in range(30):
        write(storage, "c", *(Put(BODY, key, b"secret %d " % turn * 9) for key in range(5)), Delete(BODY, turn % 5))
    write(storage, "c", Put(NOTE, 1, b"in the log"))
    storage.compact("c")
    storage.collect("c", grace_seconds=0)
    head = storage._states.get("c").snapshot
    assert head is not None
    assert len(head.head.runs) == 1
    assert head.head.log == b""
    kept = b"".join(objects.get_range(key, 0, 1 << 20) for key in [*objects.keys(), *objects.keys("heads")])
    assert b"secret 29 " in kept
    assert not [turn for turn in range(29) if b"secret %d " % turn in kept]
    assert keys_of(storage.scan("c", BODY)) == [0, 1, 2, 3]


@pytest.mark.usefixtures("tiny")
def test_a_merge_of_the_newest_runs_keeps_what_it_says_of_the_older(objects: CountingObjects) -> None:
    storage = open_engine(objects, upkeep="off")
    write(storage, "c", *(Put(PAGE, key, bytes(400), 1, b"%d" % key) for key in range(10)))
    for key in range(3):
        write(storage, "c", Delete(PAGE, key), Patch(PAGE, key + 5, b"patched"), Put(BODY, key, bytes(900)))
    book = storage._states.get("c")
    assert book.snapshot is not None
    assert len(book.snapshot.head.runs) >= 2
    before = whole(storage, "c")
    assert storage._compactor._merge(book, book.snapshot, range(1, len(book.snapshot.head.runs)))
    assert len(book.snapshot.head.runs) == 2
    assert whole(storage, "c") == whole(open_engine(objects.in_another_process()), "c") == before
    assert keys_of(storage.members("c", PAGE, 1)) == list(range(3, 10))


@pytest.mark.usefixtures("tiny")
def test_a_context_without_records_still_exists(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    write(storage, "c", *(Put(BODY, key, bytes(200)) for key in range(9)))
    write(storage, "c", *(Delete(BODY, key) for key in range(9)))
    storage.compact("c")
    storage.collect("c", grace_seconds=0)
    assert objects.keys() == []
    again = open_engine(objects.in_another_process())
    assert list(again.scan("c", BODY)) == []
    assert write(again, "c", Put(BODY, 1, b"x")) == 3


def test_many_large_values_make_few_runs(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    most = 0
    for turn in range(60):
        write(storage, "c", Put(BODY, turn, bytes(200_000)), Put(JOURNAL, turn, b"x"))
        snapshot = storage._states.get("c").snapshot
        assert snapshot is not None
        most = max(most, len(snapshot.head.runs))
    assert most <= 12
    assert keys_of(storage.scan("c", JOURNAL)) == list(range(60))
