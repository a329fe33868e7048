"""The SQLite backend: its file, its schema, its locks, and damage to it."""

import os
from pathlib import Path
from threading import Timer

import apsw
import pytest

import quire
from quire import Busy, Context, Corrupt, EstimateCounter, InvalidValue, QuireError, SQLiteStorage, StorageFailure
from quire.errors import NewerFormat
from quire.storage.base import BODY, PAGE, Commit, Durability, Put
from quire.storage.sqlite import schema
from quire.storage.sqlite import storage as sqlite
from quire.testing.case import contents, keys_of, pages, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


def context_at(path: Path) -> Context:
    return quire.open(path, counter=EstimateCounter())


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


def foreign(path: Path, *, user_version: int = 0, application_id: int = 0, wal: bool = False) -> None:
    db = apsw.Connection(str(path))
    if wal:
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE recipe (name TEXT); INSERT INTO recipe VALUES ('soup')")
    db.execute(f"PRAGMA user_version = {user_version}")
    db.execute(f"PRAGMA application_id = {application_id}")
    db.close()


def flip(path: Path, needle: bytes) -> None:
    """Flip one bit of every occurrence of these bytes in the file."""
    data = path.read_bytes()
    assert needle in data
    path.write_bytes(data.replace(needle, bytes([needle[0] ^ 1]) + needle[1:]))


# The file


def test_a_new_file_says_whose_it_is_and_in_which_schema(path: Path) -> None:
    SQLiteStorage(path).close()
    db = apsw.Connection(str(path))
    assert db.pragma("application_id") == int.from_bytes(b"quir")
    assert db.pragma("user_version") == len(schema.MIGRATIONS)
    assert db.pragma("journal_mode") == "wal"
    db.close()


def test_commits_go_to_the_write_ahead_log(path: Path) -> None:
    storage = SQLiteStorage(path)
    before = path.read_bytes()
    write(storage, "c", *pages([1]))
    assert path.read_bytes() == before
    assert (path.parent / "notes.db-wal").stat().st_size > 0
    storage.close()
    assert os.listdir(path.parent) == ["notes.db"]
    assert path.read_bytes() != before


@pytest.mark.parametrize(("durability", "synchronous"), [("normal", 1), ("full", 2)])
def test_durability_decides_when_sqlite_syncs(path: Path, durability: Durability, synchronous: int) -> None:
    storage = SQLiteStorage(path, durability=durability)
    assert storage._db.pragma("synchronous") == synchronous
    storage.close()


# The schema


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    storage = SQLiteStorage(path)
    write(storage, "c", *pages([1]))
    storage._db.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    storage.close()
    before = files(path.parent)
    with pytest.raises(NewerFormat, match="newer quire"):
        SQLiteStorage(path)
    assert files(path.parent) == before


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SQLiteStorage(path)
    write(storage, "c", *pages([1], group=4))
    before = contents(storage, "c")
    storage.close()
    steps = (*schema.MIGRATIONS, "CREATE TABLE extra (id INTEGER PRIMARY KEY);", "INSERT INTO extra VALUES (7);")
    monkeypatch.setattr(sqlite, "MIGRATIONS", steps)
    storage = SQLiteStorage(path)
    assert contents(storage, "c") == before
    assert storage._db.execute("SELECT id FROM extra").get == 7
    assert storage._db.pragma("user_version") == len(steps)
    storage.close()
    SQLiteStorage(path).close()


def test_a_failed_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SQLiteStorage(path)
    write(storage, "c", *pages([1]))
    storage.close()
    before = files(path.parent)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", (*schema.MIGRATIONS, "DROP TABLE page;", "this is not SQL"))
        with pytest.raises(StorageFailure, match="this"):
            SQLiteStorage(path)
    assert files(path.parent) == before
    storage = SQLiteStorage(path)
    assert keys_of(storage.scan("c", PAGE)) == [1]
    storage.close()


# Files that are not ours


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize(("user_version", "application_id"), [(0, 0), (1, 0), (0, 77), (1, 77), (5, 77)])
def test_another_programs_database_is_refused_and_left_alone(
    path: Path, user_version: int, application_id: int, wal: bool
) -> None:
    foreign(path, user_version=user_version, application_id=application_id, wal=wal)
    before = files(path.parent)
    with pytest.raises((InvalidValue, NewerFormat), match=r"another program|newer quire"):
        SQLiteStorage(path)
    assert files(path.parent) == before


@pytest.mark.parametrize("text", [b"just some notes\n" * 99, b"short", b"SQLite format 3\x00" + b"?" * 4_096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    with pytest.raises(Corrupt, match="no SQLite file"):
        SQLiteStorage(path)
    assert files(path.parent) == {"notes.db": text}


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    storage = SQLiteStorage(path)
    write(storage, "c", *pages([1]))
    storage.close()


def test_a_refused_file_is_not_held_open(path: Path) -> None:
    foreign(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(QuireError):
            SQLiteStorage(path)
    assert len(os.listdir("/proc/self/fd")) == before


# Locks and failures


def test_a_lock_held_too_long_is_busy_and_changes_nothing(path: Path) -> None:
    storage = SQLiteStorage(path, busy_seconds=0.02)
    write(storage, "c", *pages([1]))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match="locked"):
        storage.commit("c", Commit(1, 2, b"", pages([2])))
    with pytest.raises(Busy):
        storage.drop("c")
    assert keys_of(storage.scan("c", PAGE)) == [1]
    other.execute("ROLLBACK")
    other.close()
    storage.commit("c", Commit(1, 2, b"", pages([2])))
    assert keys_of(storage.scan("c", PAGE)) == [1, 2]
    storage.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_lock_held_while_it_is_opened_is_waited_for_and_then_busy(path: Path, read_only: bool) -> None:
    SQLiteStorage(path).close()
    other = apsw.Connection(str(path))
    other.pragma("locking_mode", "exclusive")
    other.execute("BEGIN EXCLUSIVE; UPDATE context SET version = version")
    with pytest.raises(Busy):
        SQLiteStorage(path, busy_seconds=0.02, read_only=read_only)
    Timer(0.1, other.close).start()
    SQLiteStorage(path, busy_seconds=60, read_only=read_only).close()


def test_an_operation_that_met_a_lock_can_be_done_again(path: Path) -> None:
    storage = SQLiteStorage(path, busy_seconds=0.02)
    context = quire.open(storage, counter=EstimateCounter())
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        context.pages.create_detail_page("n", "", "text", "mem-0")
    other.close()
    assert context.pages.children("mem-0") == []
    assert context.pages.create_detail_page("n", "", "text", "mem-0") == "mem-1"
    assert context.check() == []
    storage.close()


def test_a_full_disk_changes_nothing(path: Path) -> None:
    storage = SQLiteStorage(path)
    context = quire.open(storage, counter=EstimateCounter())
    context.pages.create_detail_page("first", "", "text", "mem-0")
    before = context.pages.marshal(), contents(storage, "default")
    storage._db.pragma("max_page_count", storage._db.pragma("page_count"))
    with pytest.raises(StorageFailure, match="full"):
        context.pages.create_detail_page("large", "", "x" * 1_000_000, "mem-0")
    assert (context.pages.marshal(), contents(storage, "default")) == before
    storage._db.pragma("max_page_count", 1 << 30)
    assert context.pages.create_detail_page("large", "", "x" * 1_000_000, "mem-0") == "mem-2"
    assert context.check() == []
    storage.close()


def test_opening_a_new_file_waits_for_another_that_is_making_it(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    release = Timer(0.1, other.execute, ["ROLLBACK"])
    release.start()
    storage = SQLiteStorage(path)
    release.join()
    write(storage, "c", *pages([1]))
    storage.close()
    other.close()


def test_numbers_of_dropped_contexts_are_not_used_again(path: Path) -> None:
    storage = SQLiteStorage(path)
    for _ in range(3):
        write(storage, "c")
        storage.drop("c")
    write(storage, "c")
    assert storage._db.execute("SELECT id FROM context").get == 4
    storage.close()


# Damage


def test_a_damaged_body_is_named(path: Path) -> None:
    with context_at(path) as context:
        context.pages.create_detail_page("whole", "", "an undamaged text", "mem-0")
        index = context.pages.create_detail_page("hurt", "", "needle in a page", "mem-0")
    flip(path, b"needle in a page")
    with context_at(path) as context:
        assert context.pages.get_page(index).name == "hurt"
        with pytest.raises(Corrupt, match="body record 2 "):
            context.pages.detail(index)
        assert [problem.where for problem in context.check()] == ["body 2"]
        assert context.pages.detail("mem-1") == "an undamaged text"


def test_a_damaged_page_is_named(path: Path) -> None:
    with context_at(path) as context:
        for name in ("first", "needle", "third"):
            context.pages.create_detail_page(name, "", "text", "mem-0")
    flip(path, b"needle")
    with context_at(path) as context:
        for read in (context.pages.get_page, context.pages.detail, context.pages.hide):
            with pytest.raises(Corrupt, match="'default': page mem-2 is damaged"):
                read("mem-2")
        with pytest.raises(Corrupt):
            context.pages.children("mem-0")
        assert "mem-2" in [problem.where for problem in context.check()]
        assert context.pages.get_page("mem-3").name == "third"


def test_a_damaged_head_and_a_damaged_segment_are_named(path: Path) -> None:
    with context_at(path):
        pass
    whole = path.read_bytes()
    flip(path, b"The agent's own notes")
    with pytest.raises(Corrupt, match="segment record 1 "):
        context_at(path)
    path.write_bytes(whole)
    db = apsw.Connection(str(path))
    db.execute("UPDATE context SET head = substr(head, 1, length(head) - 1)")
    db.close()
    with pytest.raises(Corrupt, match="head record"):
        context_at(path)


def test_a_damaged_database_page_is_corrupt(path: Path) -> None:
    storage = SQLiteStorage(path)
    write(storage, "c", *(Put(BODY, key, bytes(600)) for key in range(600)))
    storage.close()
    data = bytearray(path.read_bytes())
    size = 8_192
    for start in range(size * 2, len(data), size):
        data[start : start + 8] = b"\x99" * 8
    path.write_bytes(data)
    storage = SQLiteStorage(path)
    with pytest.raises(Corrupt, match="damaged"):
        list(storage.scan("c", BODY))
    storage.close()


def test_a_file_cut_short_is_corrupt(path: Path) -> None:
    storage = SQLiteStorage(path)
    write(storage, "c", *(Put(BODY, key, bytes(600)) for key in range(600)))
    storage.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(Corrupt, match="damaged"):
        list(SQLiteStorage(path).scan("c", BODY))


def test_a_head_put_back_to_an_older_one_is_refused_before_anything_is_overwritten(path: Path) -> None:
    storage = SQLiteStorage(path)
    talk = quire.open(storage, "书", counter=EstimateCounter())
    talk.user("一")
    fork = talk.fork("分支")  # its journal does not begin at 1
    older = storage.head("书")
    assert older is not None
    talk.user("二")
    for name in ("书", "分支"):
        assert quire.open(storage, name).seq == (talk.seq if name == "书" else fork.seq)
    assert storage.prefetch("none").head is None
    storage._db.execute("UPDATE context SET version = ?, head = ? WHERE name = '书'", (older.version, older.value))
    before = contents(storage, "书")
    with pytest.raises(Corrupt, match=rf"'书' is damaged: it is at version {older.version}"):
        quire.open(storage, "书")
    found = quire.doctor(storage, repair=True)
    assert [(symptom.code, symptom.context) for symptom in found.symptoms] == [("corrupt", "书")]
    assert contents(storage, "书") == before
    storage.close()


def test_a_new_context_is_created_and_filled_with_one_read(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "quire.db")
    read: list[str] = []

    def note(cursor: object, sql: str, values: object) -> bool:
        read.extend([sql] if sql.lstrip().startswith("SELECT") else [])
        return True

    storage._db.exec_trace = note
    ctx = quire.open(storage, "new")
    ctx.add([{"role": role, "content": "text"} for role in ("user", "assistant") * 10])
    ctx.user("and then?")
    storage._db.exec_trace = None
    assert len(read) == 1
    assert len(list(quire.open(storage, "new").messages())) == 21
    storage.close()


def test_the_log_of_a_small_file_stays_short(path: Path) -> None:
    storage = SQLiteStorage(path)
    log = path.with_name(f"{path.name}-wal")
    longest = 0
    for number in range(800):  # each writes four pages of 8 kB
        write(storage, "c", *(Put(family, 1, bytes([number % 256]) * 6_000) for family in (BODY, PAGE, "note", "call")))
        longest = max(longest, log.stat().st_size)
    size = path.stat().st_size
    storage.close()
    assert size < 500_000
    assert longest < 5_000_000
