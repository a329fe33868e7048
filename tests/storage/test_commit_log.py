"""The commit log of the SQLite backend: commits that wait there are seen, kept, applied, and checked."""

import gc
import os
import random
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import apsw
import pytest

import quire
from quire import Conflict, Corrupt, EstimateCounter, MemoryStorage, SQLiteStorage, Storage, StorageFailure
from quire.storage.base import (
    BODY,
    FAMILIES,
    MESSAGE,
    NOTE,
    PAGE,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Write,
    snapshot_of,
)
from quire.storage.sqlite.commit_log import _MOST, _MOST_CONTEXTS, _Log
from quire.testing.case import contents, grouped, keys_of, pages, write

SEED = int(os.environ.get("QUIRE_SEED") or random.SystemRandom().getrandbits(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SQLiteStorage]:
    with closing(SQLiteStorage(path)) as storage:
        write(storage, "c", *pages([1], group=4))
        yield storage


def count(path: Path, table: str = "commit_log") -> int:
    with closing(apsw.Connection(str(path))) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").get or 0)


def commit(storage: Storage, context: str, version: int, *writes: Write) -> None:
    """Commit without a read before it."""
    storage.commit(context, Commit(version, version + 1, b"%d" % (version + 1), writes))


def crash(path: Path, tmp_path: Path) -> Path:
    """Return the path of a copy that the file has after its process was killed."""
    copy = tmp_path / "after" / path.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            shutil.copy(file, copy.with_name(file.name))
    return copy


def test_small_commits_of_one_writer_wait_in_the_log(storage: SQLiteStorage, path: Path) -> None:
    for version in range(1, _MOST + 1):
        commit(storage, "c", version, *pages([version + 1], group=4))
        assert (count(path), count(path, PAGE)) == (version, 1)
    commit(storage, "c", _MOST + 1, *pages([99], group=4))
    assert (count(path), count(path, PAGE)) == (0, _MOST + 2)


@pytest.mark.parametrize(
    "large",
    [
        [Put(BODY, 7, bytes(10_000))],
        [Delete(BODY, 7)],  # an erasure is carried out at once
    ],
)
def test_other_commits_apply_the_log_first(storage: SQLiteStorage, path: Path, large: list[Write]) -> None:
    commit(storage, "c", 1, *pages([2], group=4))
    assert count(path) == 1
    commit(storage, "c", 2, *large)
    assert (count(path), count(path, PAGE)) == (0, 2)


def test_the_log_is_empty_after_the_storage_is_closed(path: Path) -> None:
    with closing(SQLiteStorage(path)) as storage:
        for name in ("one", "two"):
            for version in range(3):
                commit(storage, name, version, *pages([version]))
        assert count(path) == 4
        before = contents(storage, "one"), contents(storage, "two")
        commit(storage, "two", 3, *pages([3]))
        storage.drop("one")
    storage.close()  # again
    assert count(path) == 0
    with closing(SQLiteStorage(path)) as storage:
        assert keys_of(storage.scan("two", PAGE)) == [*keys_of(before[1][1][PAGE]), 3]


def test_a_locked_file_is_closed_with_its_log(path: Path) -> None:
    storage = SQLiteStorage(path, busy_seconds=20)
    expected = MemoryStorage()
    for name in ("one", "two"):
        for version in range(3):
            for each in (storage, expected):
                commit(each, name, version, *pages([version]))
    begin = monotonic()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        storage.close()
        storage.close()
    assert monotonic() - begin < 10  # much less than the time for which a commit waits
    assert count(path) == 4
    with closing(SQLiteStorage(path)) as storage:
        assert storage.head("one") == expected.head("one")
        assert count(path) == 4
        assert contents(storage, "one") == contents(expected, "one")
        assert count(path) == 2
        assert contents(storage, "two") == contents(expected, "two")
        assert count(path) == 0


def test_a_connection_keeps_the_logs_of_the_latest_contexts(path: Path) -> None:
    last = _MOST_CONTEXTS + 5
    with closing(SQLiteStorage(path)) as storage:
        for number in range(last + 1):
            commit(storage, f"c{number}", 0, *pages([1]))
            commit(storage, f"c{number}", 1, *pages([2]))
        assert (len(storage._log._logs), count(path)) == (_MOST_CONTEXTS, last + 1)
        commit(storage, "c0", 2, *pages([3]))  # applies its log
        commit(storage, f"c{last}", 2, *pages([3]))
        assert count(path) == last + 1
        assert contents(storage, "c0")[1] == contents(storage, f"c{last}")[1]
        for number in range(last + 1):
            storage.drop(f"c{number}")
        assert (len(storage._log._logs), count(path)) == (0, 0)


def test_the_caller_may_change_its_list_of_writes_afterwards(storage: SQLiteStorage) -> None:
    writes = pages([2])
    storage.commit("c", Commit(1, 2, b"2", writes))
    writes.clear()
    assert keys_of(storage.scan("c", PAGE)) == [1, 2]


def test_many_small_writes_go_into_the_log_up_to_a_size(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, *[Put(NOTE, key, bytes(400)) for key in range(100)])
    assert count(path) == 1
    commit(storage, "c", 2, *[Put(NOTE, key, bytes(400)) for key in range(200)])
    assert count(path) == 0
    assert len(list(storage.scan("c", NOTE))) == 200


def test_the_log_of_a_context_has_a_limited_size(storage: SQLiteStorage, path: Path) -> None:
    writes = [Put(NOTE, key, bytes(490)) for key in range(120)]
    for version in range(1, 5):
        commit(storage, "c", version, *writes)
    assert count(path) == 4
    commit(storage, "c", 5, *writes)
    assert count(path) == 0


def test_nothing_is_appended_inside_a_transaction(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, *pages([2]))
    storage._db.execute("BEGIN")  # as an interrupt can leave it
    with pytest.raises(StorageFailure):
        commit(storage, "c", 2, *pages([3]))
    commit(storage, "c", 2, *pages([3]))
    with closing(SQLiteStorage(path)) as other:
        assert keys_of(other.scan("c", PAGE)) == [1, 2, 3]


def test_a_fork_has_the_log_of_the_context_that_has_the_name_now(storage: SQLiteStorage, path: Path) -> None:
    with closing(SQLiteStorage(path)) as other:
        other.drop("c")
        commit(other, "c", 0, *pages([5], group=4))
        commit(other, "c", 1, *pages([6], group=4))
        storage.fork("c", "f", Commit(2, 3, b"f", ()), {})
        assert grouped(other, "f", [4]) == {4: [5, 6]}


@pytest.mark.parametrize("damage", ["version = 'abc'", "head = 'abc'"])
def test_a_damaged_head_below_the_log_is_named(storage: SQLiteStorage, path: Path, damage: str) -> None:
    commit(storage, "c", 1, *pages([2]))
    with closing(apsw.Connection(str(path))) as db:
        db.execute("DROP TRIGGER commit_log_first")
        db.execute(f"UPDATE context SET {damage} WHERE name = 'c'")
    with closing(SQLiteStorage(path)) as other, pytest.raises(Corrupt, match="'c' is damaged"):
        list(other.scan("c", PAGE))


def test_a_storage_that_is_not_closed_is_freed_without_the_garbage_collector(path: Path) -> None:
    gc.disable()
    try:
        storage = SQLiteStorage(path)
        commit(storage, "c", 0, *pages([1]))
        commit(storage, "c", 1, *pages([2]))
        freed = weakref.ref(storage)
        del storage
        assert freed() is None
    finally:
        gc.enable()


def test_a_single_record_is_read_from_the_log(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, Put(NOTE, 1, b"old"), Put(NOTE, 2, b"gone"), *pages([2], group=4))
    commit(storage, "c", 2, Patch(NOTE, 1, b"new"), Delete(NOTE, 2), Patch(NOTE, 2, b"x"), Patch(PAGE, 1, b"patched"))
    found = [storage.get("c", *place) for place in ((NOTE, 1), (NOTE, 2), (PAGE, 1), (PAGE, 2), (NOTE, 3))]
    assert [record and (record.value, record.group) for record in found] == [
        (b"new", None),
        None,
        (b"patched", 4),
        (b"2", 4),
        None,
    ]
    assert count(path) == 2  # nothing was applied for these reads
    assert grouped(storage, "c", [4]) == {4: [1, 2]}
    assert count(path) == 0
    assert [storage.get("c", PAGE, 1), storage.get("c", NOTE, 1)] == [found[2], found[0]]


@pytest.mark.parametrize("read_only", [False, True])
def test_another_connection_sees_the_log(storage: SQLiteStorage, path: Path, read_only: bool) -> None:
    commit(storage, "c", 1, *pages([2], group=4), Patch(PAGE, 1, b"patched"), Put(BODY, 1, b"text"))
    commit(storage, "c", 2, *pages([3], group=4), Delete(BODY, 9))
    commit(storage, "c", 3, *pages([4], group=5))
    expected = MemoryStorage()
    write(expected, "c", *pages([1, 2, 3], group=4), *pages([4], group=5), Patch(PAGE, 1, b"patched"))
    write(expected, "c", Put(BODY, 1, b"text"))
    with closing(SQLiteStorage(path, read_only=read_only)) as other:
        assert other.head("c") == storage.head("c")
        assert other.get("c", PAGE, 1) == expected.get("c", PAGE, 1)
        assert other.sum_members("c", PAGE, 4) == expected.sum_members("c", PAGE, 4)
        assert contents(other, "c")[1] == contents(expected, "c")[1]
        assert grouped(other, "c", [4, 5]) == {4: [1, 2, 3], 5: [4]}
        assert (count(path) > 0) is read_only
        version = 4 if read_only else 5
        if not read_only:
            commit(storage, "c", 4, *pages([5], group=5))  # the log was applied by the other connection
        commit(storage, "c", version, *pages([6], group=5))
        assert (head := other.head("c")) is not None
        assert head.version == version + 1
        assert grouped(other, "c", [5]) == {5: [4, 6] if read_only else [4, 5, 6]}


def test_a_snapshot_shows_the_log_as_it_was(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, *pages([2], group=4))
    with snapshot_of(storage, "c") as first:
        commit(storage, "c", 2, *pages([3], group=4))
        with closing(SQLiteStorage(path)) as reader:
            reader._log.may_apply = False  # a snapshot that begins while another writer appends
            with snapshot_of(reader, "c") as second:
                commit(storage, "c", 3, *pages([4], group=4))
                assert grouped(first, "c", [4]) == {4: [1, 2]}
                assert grouped(second, "c", [4]) == {4: [1, 2, 3]}
                assert second.get("c", PAGE, 4) is None
    assert grouped(storage, "c", [4]) == {4: [1, 2, 3, 4]}


def test_a_log_that_a_killed_process_left_is_complete(path: Path, tmp_path: Path) -> None:
    storage = SQLiteStorage(path)
    talk = quire.open(storage, "talk", counter=EstimateCounter())
    for number in range(5):
        talk.user(f"message {number}")
    copy = crash(path, tmp_path)
    assert count(copy) > 0
    with closing(SQLiteStorage(copy)) as found:
        assert quire.doctor(found).symptoms == ()
        assert contents(found, "talk") == contents(storage, "talk")
    assert count(copy) == 0
    storage.close()


def test_a_writer_that_lost_the_race_meets_conflict_and_loses_nothing(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, *pages([2], group=4))
    with closing(SQLiteStorage(path)) as other:
        commit(other, "c", 2, *pages([3], group=4))  # applies the log
        commit(other, "c", 3, *pages([4], group=4))  # is in the log
        assert count(path) == 1
        with pytest.raises(Conflict):
            commit(storage, "c", 2, *pages([9], group=4))
        with pytest.raises(Conflict):
            commit(storage, "c", 3, *pages([9], group=4))
        commit(storage, "c", 4, *pages([5], group=4))
        with pytest.raises(Conflict):
            commit(other, "c", 4, *pages([9], group=4))
        assert grouped(other, "c", [4]) == grouped(storage, "c", [4]) == {4: [1, 2, 3, 4, 5]}


def test_of_two_connections_that_append_at_the_same_version_one_meets_conflict(
    storage: SQLiteStorage, path: Path
) -> None:
    with closing(SQLiteStorage(path)) as other:
        commit(storage, "c", 1, *pages([2], group=4))
        storage._log.settle(1)
        commit(other, "c", 2, *pages([3], group=4))
        storage._log.follow(1, other._log._logs[1].last)  # as if this connection had committed the same version
        commit(other, "c", 3, *pages([4], group=4))
        with pytest.raises(Conflict):
            commit(storage, "c", 3, *pages([9], group=4))
        assert grouped(storage, "c", [4]) == {4: [1, 2, 3, 4]}


def test_a_dropped_context_leaves_no_rows_and_takes_no_commit(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, *pages([2]))
    with closing(SQLiteStorage(path)) as other:
        other.drop("c")
    assert count(path) == 0
    with pytest.raises(Conflict):
        commit(storage, "c", 2, *pages([3]))
    assert count(path) == 0
    assert storage.head("c") is None


def test_a_fork_and_a_scrub_have_what_is_in_the_log(storage: SQLiteStorage, path: Path) -> None:
    commit(storage, "c", 1, Put(MESSAGE, 1, b"hello"), *pages([2], group=4))
    assert count(path) == 1
    storage.fork("c", "f", Commit(2, 3, b"f", ()), {})
    commit(storage, "c", 2, Put(MESSAGE, 2, b"origin"))
    commit(storage, "f", 3, Put(MESSAGE, 2, b"fork"))
    assert [storage.get("f", MESSAGE, key) for key in (1, 2)] == [
        storage.get("c", MESSAGE, 1),
        contents(storage, "f")[1][MESSAGE][1],
    ]
    assert grouped(storage, "f", [4]) == {4: [1, 2]}
    commit(storage, "c", 3, Put(MESSAGE, 3, b"secret"))
    assert count(path) > 0
    storage.scrub(None)
    assert count(path) == 0
    assert [record.value for record in storage.scan("c", MESSAGE)] == [b"hello", b"origin", b"secret"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE commit_log SET writes = x'00' WHERE id & 255 = 3", "'c' is damaged at version 3"),
        ("UPDATE commit_log SET head = x'00' WHERE id & 255 = 3", "'c' is damaged at version 3"),
        ("UPDATE commit_log SET checksum = 'x' WHERE id & 255 = 3", "'c' is damaged at version 3"),
        ("UPDATE commit_log SET id = id + 9 WHERE id & 255 = 4", "'c' is damaged: version 4 is missing"),
        ("DELETE FROM commit_log WHERE id & 255 = 3", "'c' is damaged: version 3 is missing"),
        ("DELETE FROM commit_log WHERE id & 255 < 4", "'c' is damaged: version 2 is missing"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_damage_is_named_and_nothing_is_overwritten(
    storage: SQLiteStorage, path: Path, tmp_path: Path, damage: str, message: str, read_only: bool
) -> None:
    for version in (1, 2, 3):
        commit(storage, "c", version, *pages([version + 1]))
    copy = crash(path, tmp_path)
    with closing(apsw.Connection(str(copy))) as db:
        db.execute(damage)
    before = count(copy)
    with closing(SQLiteStorage(copy, read_only=read_only)) as found:
        with pytest.raises(Corrupt, match=message):
            list(found.scan("c", PAGE))
        if not read_only:
            with pytest.raises(Corrupt, match=message):
                commit(found, "c", 4, *pages([9]))
    assert count(copy) == before


def test_an_older_quire_that_has_the_file_open_cannot_commit(storage: SQLiteStorage, path: Path) -> None:
    for version in (1, 2):
        commit(storage, "c", version, *pages([version + 1]))
    update = "UPDATE context SET version = 3 WHERE name = 'c'"
    with closing(apsw.Connection(str(path))) as older, pytest.raises(apsw.ConstraintError, match="open the file again"):
        older.execute(update)
    write(storage, "c", *pages([9]))
    assert keys_of(storage.scan("c", PAGE)) == [1, 2, 3, 9]


def test_rows_of_no_context_are_found_and_removed(storage: SQLiteStorage, path: Path) -> None:
    storage._db.execute("INSERT INTO commit_log (id, head, writes, checksum) VALUES (?, x'', x'', 0)", (77 << 38 | 1,))
    found = [(symptom.code, symptom.where) for symptom in storage.examine()]
    assert found == [("orphan_rows", "table commit_log")]
    assert [symptom.repaired for symptom in storage.examine(repair=True)] == [True]
    assert storage.examine() == []
    assert count(path) == 0


def test_an_interrupt_after_the_append_loses_nothing(path: Path) -> None:
    storage = SQLiteStorage(path)
    ctx = quire.open(storage, counter=EstimateCounter())
    ctx.user("before")
    execute = storage._tables.execute

    def interrupt(sql: str, *values: Any) -> Any:
        result = execute(sql, *values)
        if sql.startswith("INSERT INTO commit_log"):
            storage._tables.execute = execute
            raise KeyboardInterrupt
        return result

    ctx.user("in the log")
    storage._tables.execute = interrupt  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        ctx.user("interrupted")
    ctx.user("after")
    assert [message.text for message in ctx.messages()] == ["before", "in the log", "interrupted", "after"]
    assert ctx.check() == []
    storage.close()


@pytest.mark.parametrize("step", ["before the memory", "between both", "after the memory"])
def test_an_interrupt_at_any_step_of_an_append_loses_nothing(
    storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def add(log: _Log, head: Head, writes: Sequence[Write], size: int) -> None:
        monkeypatch.undo()
        if step == "between both":
            log.commits.append(writes)
        elif step == "after the memory":
            log.add(head, writes, size)
        raise KeyboardInterrupt

    commit(storage, "c", 1, *pages([2], group=4))
    monkeypatch.setattr(_Log, "add", add)
    with pytest.raises(KeyboardInterrupt):
        commit(storage, "c", 2, *pages([3], group=4))
    assert storage.get("c", PAGE, 3) is not None
    for version in range(3, 9):
        commit(storage, "c", version, *pages([version + 1], group=4))
        assert storage.get("c", PAGE, 3) is not None
    assert grouped(storage, "c", [4]) == {4: [1, 2, 3, 4, 5, 6, 7, 8, 9]}


def test_a_commit_to_a_locked_file_is_refused_and_the_log_stays(path: Path) -> None:
    with closing(SQLiteStorage(path, busy_seconds=0.02)) as storage, closing(apsw.Connection(str(path))) as other:
        for version in range(3):
            commit(storage, "c", version, *pages([version], group=1))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(quire.Busy):
            commit(storage, "c", 3, *pages([3], group=1))
        assert count(path) == 2
        other.execute("ROLLBACK")
        commit(storage, "c", 3, *pages([3], group=1))
        assert grouped(storage, "c", [1]) == {1: [0, 1, 2, 3]}


def test_reads_of_the_log_do_not_wait_for_the_lock(path: Path) -> None:
    with closing(SQLiteStorage(path, busy_seconds=20)) as storage, closing(apsw.Connection(str(path))) as other:
        for version in range(3):
            commit(storage, "c", version, *pages([version], group=1))
        other.execute("BEGIN IMMEDIATE")
        begin = monotonic()
        assert grouped(storage, "c", [1]) == {1: [0, 1, 2]}
        with snapshot_of(storage, "c") as snapshot:
            assert grouped(snapshot, "c", [1]) == {1: [0, 1, 2]}
        with closing(SQLiteStorage(path)) as third:
            assert third.get("c", PAGE, 2) == storage.get("c", PAGE, 2)
        assert monotonic() - begin < 10  # much less than the time for which a commit waits
        assert count(path) == 2
        other.execute("ROLLBACK")
        assert grouped(storage, "c", [1]) == {1: [0, 1, 2]}
        assert count(path) == 0


def some_writes(choose: random.Random) -> list[Write]:
    made: list[Write] = []
    families: list[Family] = [PAGE, NOTE, BODY, MESSAGE]
    for _ in range(choose.randrange(5)):
        family, key = choose.choice(families), choose.randrange(12)
        value = choose.randbytes(choose.choice((3, 30, 3_000)))
        match choose.randrange(5):
            case 0:
                made.append(Delete(family, key))
            case 1:
                made.append(Patch(family, key, value))
            case _ if family == PAGE and choose.random() < 0.8:
                made.append(Put(PAGE, key, value, choose.randrange(3), choose.randbytes(2)))
            case _:
                made.append(Put(family, key, value))
    return made


class Walk:
    """Two writers and a reader of one file, compared with a storage in memory."""

    def __init__(self, path: Path, choose: random.Random) -> None:
        self.path, self.choose = path, choose
        self.model = MemoryStorage()
        self.last = 0
        self.open()

    def open(self) -> None:
        self.writers = [SQLiteStorage(self.path), SQLiteStorage(self.path)]
        self.storages: list[Storage] = [*self.writers, SQLiteStorage(self.path, read_only=True)]

    def close(self) -> None:
        for storage in self.storages:
            storage.close()

    def commit(self, name: str) -> None:
        """Make a commit, mostly with the writer that made the last one. Some commits must meet a conflict."""
        choose, head = self.choose, self.model.head(name)
        version = head.version if head else 0
        self.last = choose.choice((self.last, self.last, self.last, 1 - self.last))
        expect = version if choose.random() < 0.95 else version + 1
        seen = head.value if head and choose.random() < 0.8 else b""
        new = Commit(expect, version + 1, choose.randbytes(4), some_writes(choose), seen)
        made = [is_made(storage, name, new) for storage in (self.model, self.writers[self.last])]
        assert made[0] == made[1]

    def check(self, name: str) -> None:
        model, storage = self.model, self.choose.choice(self.storages)
        assert storage.head(name) == model.head(name)
        match self.choose.randrange(12):
            case 0:
                assert contents(storage, name) == contents(model, name)
            case 1:
                assert grouped(storage, name, range(3)) == grouped(model, name, range(3))
            case 2:
                with snapshot_of(storage, name) as snapshot:
                    assert contents(snapshot, name) == contents(model, name)
            case _:
                family, key = self.choose.choice(FAMILIES), self.choose.randrange(12)
                assert storage.get(name, family, key) == model.get(name, family, key)

    def disturb(self, name: str, folder: Path) -> None:
        """Drop a context, or continue with the file that a killed process leaves."""
        if self.choose.random() < 0.3:
            for storage in (self.model, self.writers[self.last]):
                storage.drop(name)
            assert [storage.head(name) for storage in self.storages] == [None] * 3  # a stale handle meets conflicts
            return
        copy = crash(self.path, folder)
        self.close()
        self.path = copy
        self.open()


def is_made(storage: Storage, name: str, new: Commit) -> bool:
    try:
        storage.commit(name, new)
    except Conflict:
        return False
    return True


@pytest.mark.parametrize("number", range(12))
def test_random_commits_of_two_connections_agree_with_memory(tmp_path: Path, number: int) -> None:
    print(f"QUIRE_SEED={SEED}")  # noqa: T201
    choose = random.Random(f"{SEED} {number}")
    walk = Walk(tmp_path / "store.db", choose)
    for step in range(150):
        name = choose.choice(("a", "b"))
        walk.commit(name)
        walk.check(name)
        if choose.random() < 0.1:
            walk.disturb(name, tmp_path / str(step))
    for storage in walk.storages:
        for name in ("a", "b"):
            assert contents(storage, name) == contents(walk.model, name)
    walk.close()
    assert count(walk.path) == 0
