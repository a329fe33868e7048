"""The SQLite backend: files of others, newer files, and locks."""

import os
from pathlib import Path
from threading import Timer
from time import perf_counter

import apsw
import pytest

import quire
from quire import Busy, Context, Corrupt, EstimateCounter, InvalidValue, QuireError, SQLiteStorage
from quire.errors import NewerFormat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


def context_in(storage: SQLiteStorage) -> Context:
    return quire.open(storage, counter=EstimateCounter())


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


def foreign(path: Path, *, user_version: int = 0, application_id: int = 0, wal: bool = False) -> None:
    """Make a database of another program."""
    db = apsw.Connection(str(path))
    if wal:
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE recipe (name TEXT); INSERT INTO recipe VALUES ('soup')")
    db.execute(f"PRAGMA user_version = {user_version}")
    db.execute(f"PRAGMA application_id = {application_id}")
    db.close()


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    quire.open(path).close()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 9999")
    db.close()
    before = files(path.parent)
    with pytest.raises(NewerFormat):
        SQLiteStorage(path)
    assert [symptom.code for symptom in quire.doctor(path).symptoms] == [NewerFormat.code]
    assert files(path.parent) == before


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize(("user_version", "application_id"), [(0, 0), (1, 0), (0, 77), (1, 77), (5, 77)])
def test_another_programs_database_is_refused_and_left_alone(
    path: Path, user_version: int, application_id: int, wal: bool
) -> None:
    foreign(path, user_version=user_version, application_id=application_id, wal=wal)
    before = files(path.parent)
    with pytest.raises((InvalidValue, NewerFormat)):
        SQLiteStorage(path)
    assert files(path.parent) == before


@pytest.mark.parametrize("text", [b"just some notes\n" * 99, b"short", b"SQLite format 3\x00" + b"?" * 4_096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    with pytest.raises(Corrupt):
        SQLiteStorage(path)
    assert files(path.parent) == {"notes.db": text}


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with quire.open(path) as ctx:
        ctx.user("hello")
    assert [message.text for message in quire.open(path).messages()] == ["hello"]


def test_opening_a_context_reads_no_others(path: Path) -> None:
    def seconds() -> float:
        times = []
        for _ in range(30):
            start = perf_counter()
            assert library.info("c3").seq
            times.append(perf_counter() - start)
        return min(times)

    with quire.Library(path) as library:
        library.open("c3").user("hello")
        few = seconds()
        library.open("large").import_messages({"role": "user", "content": str(number)} for number in range(5_000))
        assert seconds() < 3 * few


def test_a_refused_file_is_not_held_open(path: Path) -> None:
    foreign(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(QuireError):
            SQLiteStorage(path)
    assert len(os.listdir("/proc/self/fd")) == before


# Locks


def test_an_operation_that_met_a_lock_changes_nothing_and_can_be_done_again(path: Path) -> None:
    storage = SQLiteStorage(path, busy_seconds=0.02)
    ctx = context_in(storage)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        ctx.pages.create_detail_page("n", "", "text", "mem-0")
    with pytest.raises(Busy):
        quire.Library(storage).delete("default")
    other.close()
    assert ctx.pages.children("mem-0") == []
    assert ctx.pages.create_detail_page("n", "", "text", "mem-0") == "mem-1"
    assert ctx.check() == []
    storage.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_lock_held_while_it_is_opened_is_waited_for_and_then_busy(path: Path, read_only: bool) -> None:
    SQLiteStorage(path).close()
    other = apsw.Connection(str(path))
    other.pragma("locking_mode", "exclusive")
    other.execute("BEGIN EXCLUSIVE; CREATE TABLE mine (a)")
    with pytest.raises(Busy):
        SQLiteStorage(path, busy_seconds=0.02, read_only=read_only)
    Timer(0.1, other.close).start()
    SQLiteStorage(path, busy_seconds=60, read_only=read_only).close()


def test_opening_a_new_file_waits_for_another_that_is_making_it(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    release = Timer(0.1, other.execute, ["ROLLBACK"])
    release.start()
    with quire.open(path) as ctx:
        ctx.user("hello")
    release.join()
    other.close()
