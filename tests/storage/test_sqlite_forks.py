"""Shared rows of forks in one SQLite file: their owners, and when they are removed."""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from quire import InvalidOperation, SQLiteStorage
from quire.storage.base import BODY, FAMILIES, IMMUTABLE, JOURNAL, MAX_KEY, MESSAGE, PAGE, Commit, Delete, Family, Put
from quire.storage.sqlite.schema import transaction
from quire.testing.case import HEAD, contents, keys_of, pages, version_of, write
from tests.shallow_stack import shallow_stack


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SQLiteStorage]:
    storage = SQLiteStorage(tmp_path / "notes.db")
    yield storage
    storage.close()


def texts(*keys: int) -> list[Put]:
    return [Put(family, key, b"%d" % key) for family in (BODY, MESSAGE) for key in keys]


def deletes(*keys: int) -> list[Delete]:
    return [Delete(family, key) for family in (BODY, MESSAGE) for key in keys]


def fork(storage: SQLiteStorage, source: str, target: str, *writes: Put | Delete, **below: int) -> None:
    bounds: dict[Family, int] = {family: below[family] for family in FAMILIES if family in below}
    storage.fork(source, target, Commit(version_of(storage, source), 1, HEAD, writes), bounds)


def rows(storage: SQLiteStorage) -> dict[str, int]:
    """Return the number of rows of each table that has rows, after the commit log is applied."""
    with transaction(storage._db):
        storage._log.apply_all()
    names = storage._db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " AND name NOT IN ('search_config', 'search_data')"  # never empty, with any content of the index
    )
    counts = {
        str(name): int(storage._db.execute(f"SELECT count(*) FROM {name}").get or 0) for name, *_ in names.fetchall()
    }
    return {name: count for name, count in counts.items() if count}


def held(storage: SQLiteStorage, context: str) -> list[int]:
    """Return the keys of a context's bodies, which are also the keys of its messages."""
    bodies = keys_of(storage.scan(context, BODY))
    assert keys_of(storage.scan(context, MESSAGE, reverse=True)) == bodies[::-1]
    assert [key for key in range(20) if storage.get(context, BODY, key)] == bodies
    return bodies


# What is not copied


def test_a_fork_copies_pages_and_shares_bodies_and_messages(storage: SQLiteStorage) -> None:
    write(storage, "c", *pages(range(7)), *texts(*range(100)), Put(JOURNAL, 1, b"x"))
    for number in range(3):
        fork(storage, "c", f"f{number}")
    fork(storage, "f1", "g")
    assert rows(storage) == {"context": 5, "shared": 4, "page": 35, "body": 100, "message": 100, "journal": 1}
    assert storage.get("g", BODY, 99) == storage.get("c", BODY, 99)
    assert list(storage.scan("g", MESSAGE)) == list(storage.scan("c", MESSAGE))


def test_what_a_fork_writes_is_one_row_of_its_own(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(10)))
    fork(storage, "c", "f", *texts(10))
    write(storage, "f", *texts(11))
    write(storage, "c", *texts(10))
    assert rows(storage) == {"context": 2, "shared": 1, "body": 13, "message": 13}
    assert (held(storage, "c"), held(storage, "f")) == ([*range(11)], [*range(12)])


def test_a_refused_fork_leaves_no_rows(storage: SQLiteStorage) -> None:
    write(storage, "c", *pages([1]), *texts(1))
    before = rows(storage)
    with pytest.raises(InvalidOperation, match="cannot be written here"):
        fork(storage, "c", "f", *texts(1))
    assert rows(storage) == before
    assert list(storage.contexts()) == ["c"]
    fork(storage, "c", "f", *texts(2))
    assert (held(storage, "c"), held(storage, "f")) == ([1], [1, 2])


def test_a_number_that_a_refused_fork_had_inherits_nothing(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(1, 2))
    with pytest.raises(InvalidOperation):
        fork(storage, "c", "f", *texts(3, 2))
    write(storage, "new", *texts(1))
    assert held(storage, "new") == [1]


def test_a_record_of_the_origin_cannot_be_written_by_the_fork(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(1, 2, 3))
    fork(storage, "c", "f", body=3, message=3)
    before = contents(storage, "f"), rows(storage)
    for family in IMMUTABLE:
        with pytest.raises(InvalidOperation, match=f"{family} record 2"):
            write(storage, "f", Put(PAGE, 1, b""), Put(family, 2, b"lost"))
    assert (contents(storage, "f"), rows(storage)) == before
    write(storage, "f", *texts(3))
    assert held(storage, "f") == [1, 2, 3]


def test_a_fork_of_a_full_range_of_keys_shares_it_all(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(0, MAX_KEY), *pages([0, MAX_KEY]))
    fork(storage, "c", "f")
    storage.drop("c")
    assert [keys_of(storage.scan("f", family)) for family in (PAGE, BODY, MESSAGE)] == [[0, MAX_KEY]] * 3
    storage.drop("f")
    assert rows(storage) == {}


# What is deleted


def test_a_body_that_the_source_deletes_stays_for_the_fork(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(6)))
    fork(storage, "c", "f", body=4, message=4)
    write(storage, "c", *deletes(1, 2, 5))
    assert (held(storage, "c"), held(storage, "f")) == ([0, 3, 4], [0, 1, 2, 3])
    assert rows(storage)["body"] == 5  # no context reads the last one
    storage.drop("c")
    assert held(storage, "f") == [0, 1, 2, 3]
    assert rows(storage) == {"context": 1, "shared": 1, "body": 4, "message": 4}


def test_a_body_that_the_fork_deletes_stays_for_the_source(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(4)))
    fork(storage, "c", "f", *deletes(0), *texts(4))
    write(storage, "f", *deletes(2, 4))
    write(storage, "f", *deletes(2, 4))
    assert (held(storage, "c"), held(storage, "f")) == ([0, 1, 2, 3], [1, 3])
    assert rows(storage)["body"] == 4


def test_forks_inherit_what_their_source_had_deleted(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(6)))
    fork(storage, "c", "f", *deletes(1))
    fork(storage, "f", "g", *deletes(3), body=5, message=5)
    write(storage, "f", *deletes(2))
    assert [held(storage, name) for name in "cfg"] == [[0, 1, 2, 3, 4, 5], [0, 3, 4, 5], [0, 2, 4]]
    storage.drop("f")
    storage.drop("c")
    assert held(storage, "g") == [0, 2, 4]


def test_what_the_source_deleted_goes_with_the_last_fork_that_reads_it(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(6)))
    fork(storage, "c", "f")
    fork(storage, "c", "g", body=2, message=2)
    write(storage, "c", *deletes(0, 4))
    assert rows(storage) == {"context": 3, "shared": 2, "body": 6, "message": 6, "gone_body": 2, "gone_message": 2}
    storage.drop("f")
    assert rows(storage) == {"context": 2, "shared": 1, "body": 5, "message": 5, "gone_body": 1, "gone_message": 1}
    assert (held(storage, "c"), held(storage, "g")) == ([1, 2, 3, 5], [0, 1])
    storage.drop("g")
    assert rows(storage) == {"context": 1, "body": 4, "message": 4}
    assert held(storage, "c") == [1, 2, 3, 5]


def test_a_fork_in_the_middle_keeps_its_own_deletes_when_its_forks_go(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(*range(4)))
    fork(storage, "c", "f", *texts(4, 5))
    fork(storage, "f", "g")
    write(storage, "f", *deletes(1, 4))
    storage.drop("g")
    assert (held(storage, "c"), held(storage, "f")) == ([0, 1, 2, 3], [0, 2, 3, 5])
    assert rows(storage) == {"context": 2, "shared": 1, "body": 5, "message": 5, "gone_body": 1, "gone_message": 1}


# What is dropped


def line(storage: SQLiteStorage) -> dict[str, list[int]]:
    """Create a context, its fork, a fork of that fork, and a second fork of the first, each with its own texts."""
    write(storage, "a", *pages(range(3), group=1), *texts(*range(6)), Put(JOURNAL, 1, b"x"))
    fork(storage, "a", "b", *texts(6, 7), *deletes(0))
    write(storage, "a", *texts(6))
    fork(storage, "b", "c", *texts(7, 8), *deletes(1, 6), body=7, message=7)
    write(storage, "b", *deletes(6), *texts(8))
    fork(storage, "a", "d", *texts(3), body=3, message=3)
    return {"a": [*range(7)], "b": [1, 2, 3, 4, 5, 7, 8], "c": [2, 3, 4, 5, 7, 8], "d": [0, 1, 2, 3]}


@pytest.mark.parametrize("order", list(permutations("abcd")), ids="".join)
def test_nothing_is_left_when_all_are_dropped_in_any_order(storage: SQLiteStorage, order: tuple[str, ...]) -> None:
    left = line(storage)
    for name in order:
        storage.drop(name)
        left.pop(name)
        assert {name: held(storage, name) for name in storage.contexts()} == left
    assert rows(storage) == {}


@pytest.mark.parametrize("order", list(permutations("abcd")), ids="".join)
def test_nothing_is_left_when_each_is_dropped_by_another_handle(tmp_path: Path, order: tuple[str, ...]) -> None:
    handles = [SQLiteStorage(tmp_path / "notes.db") for _ in range(4)]
    left = line(handles[0])
    for handle in handles:
        assert {name: held(handle, name) for name in handle.contexts()} == left
    for handle, name in zip(handles, order, strict=True):
        handle.drop(name)
        left.pop(name)
        for other in handles:
            assert {name: held(other, name) for name in other.contexts()} == left
    assert rows(handles[0]) == {}
    for handle in handles:
        handle.close()


def test_a_dropped_source_leaves_only_what_its_forks_read(storage: SQLiteStorage) -> None:
    write(storage, "c", *pages(range(9)), *texts(*range(100)))
    fork(storage, "c", "f", page=1, body=10, message=20)
    fork(storage, "c", "g", page=1, body=30, message=5)
    storage.drop("c")
    assert rows(storage) == {"context": 2, "shared": 2, "page": 2, "body": 30, "message": 20}
    storage.drop("g")
    assert rows(storage) == {"context": 1, "shared": 1, "page": 1, "body": 10, "message": 20}
    assert keys_of(storage.scan("f", BODY)) == [*range(10)]
    storage.drop("f")
    assert rows(storage) == {}


def test_a_line_of_forks_can_be_longer_than_the_stack_is_deep(storage: SQLiteStorage) -> None:
    write(storage, "0", *texts(0))
    with shallow_stack(200):
        for number in range(1, 300):
            fork(storage, f"{number - 1}", f"{number}", *([*texts(number)] if number < 20 else []))
            storage.drop(f"{number - 1}")
        assert held(storage, "299") == [*range(20)]
        storage.drop("299")
    assert rows(storage) == {}


def test_a_name_that_is_used_again_shares_nothing(storage: SQLiteStorage) -> None:
    write(storage, "c", *texts(1, 2))
    fork(storage, "c", "f")
    assert held(storage, "f") == [1, 2]
    storage.drop("f")
    write(storage, "f", *texts(2))
    assert held(storage, "f") == [2]
    storage.drop("f")
    fork(storage, "c", "f", body=2, message=2)
    assert held(storage, "f") == [1]
