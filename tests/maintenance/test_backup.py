"""Backups of a store in use: complete or absent, unlike a plain copy of its files."""

import re
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

import quire
from quire import (
    Context,
    Corrupt,
    FileStorage,
    InvalidOperation,
    InvalidValue,
    SQLiteStorage,
    Storage,
    StorageFailure,
    backup,
)
from quire.core.context_copy import Progress
from quire.storage.base import DERIVED, FAMILIES, Commit, Family, Record
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import contents
from tests.maintenance.damaging import spoiled
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk


def opened(target: str) -> Storage:
    return quire.open_storage(target, create=False)


def target_in(folder: Path, kind: str) -> str:
    return f"{kind}:{folder / 'copy'}"


@contextmanager
def writing(talk: Context) -> Iterator[None]:
    """Add messages in the background."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.001):
            talk.user("more " * 20)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backup_is_a_store_with_everything_in_it(backend: str, kind: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = full_talk(storage, "谈话")
    talk.fork("fork").user("only here")
    storage.commit("half", Commit(0, -1, b"", ()))
    told: list[Progress] = []
    done = backup(storage, target_in(tmp_path, kind), progress=told.append)
    assert done.path == str(tmp_path / "copy")
    (unfinished,) = done.problems
    assert unfinished.startswith("half: ")
    assert "unfinished copy" in unfinished
    assert done.bytes > 0
    assert {"copy", "verify"} <= {step.phase for step in told}
    copy = opened(target_in(tmp_path, kind))
    for name in ("谈话", "fork"):
        assert contents(copy, name) == contents(storage, name)
        assert quire.open(copy, name).check() == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    copy.close()
    storage.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_is_copied_while_somebody_writes(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = new_talk(storage, "c")
    talk.user("first")
    seqs = []
    with writing(talk):
        for number in range(3):
            before = talk.seq
            backup(storage, tmp_path / f"{number}.db")
            while talk.seq == before:  # on a busy machine, the writer may be late
                time.sleep(0.001)
    for number in range(3):
        with quire.open(tmp_path / f"{number}.db", "c") as copy:
            assert copy.check() == []
            assert len(copy.messages()) == copy.seq - 1
            seqs.append(copy.seq)
    assert seqs == sorted(seqs)
    assert talk.seq >= seqs[-1] > 2
    storage.close()


def test_a_plain_copy_of_the_file_loses_what_a_backup_has(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    talk = new_talk(SQLiteStorage(path), "c")
    talk.user("acknowledged")
    shutil.copy(path, tmp_path / "plain.db")  # the newest commits are still in the log file
    backup(path, tmp_path / "good.db")
    assert [message.content for message in quire.open(tmp_path / "good.db", "c").messages()] == ["acknowledged"]
    assert not quire.Library(tmp_path / "plain.db").exists("c")
    assert talk.check() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backup_that_fails_leaves_nothing(backend: str, tmp_path: Path) -> None:
    place = tmp_path / "store"
    storage = make(backend, place)
    full_talk(storage, "c")
    for fail_at in (1, 2, 5, 9, 15):
        with pytest.raises(InjectedFault):
            backup(FaultyStorage(storage, fail_at), tmp_path / "copy.db")
    storage.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"store"}


def test_what_is_there_is_not_overwritten_and_a_bad_target_is_named(tmp_path: Path) -> None:
    storage = make("memory", tmp_path)
    full_talk(storage, "c")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InvalidOperation, match="exists already"):
        backup(storage, tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
    with pytest.raises(InvalidValue, match="migrate"):
        backup(storage, "postgresql://host/db")
    for kind in ("", "file:", "sqlite:"):
        with pytest.raises(StorageFailure, match=r"Cannot write .*no folder '.*nowhere'. Create it first"):
            backup(storage, f"{kind}{tmp_path / 'nowhere' / 'x.db'}")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(StorageFailure, match="no store"):
        backup(tmp_path / "missing.db", tmp_path / "x.db")
    with pytest.raises(InvalidValue):
        backup(storage, 3)  # type: ignore[arg-type]


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Return an SQLite file with three contexts, one of them a fork, and a search index."""
    path = tmp_path / "live.db"
    storage = SQLiteStorage(path)
    full_talk(storage, "c").find("Seattle")
    full_talk(storage, "d").fork("谈话").user("更多")
    storage.close()
    return path


def at_once(path: Path, *sql: str) -> None:
    with closing(apsw.Connection(str(path))) as db:
        for step in sql:
            db.execute(step)
            assert db.changes() > 0


FIRST = "WHERE id = (SELECT min(id) FROM {})"
DAMAGES = {
    "a body": ("UPDATE body SET value = x'00112233445566'", r"c: body 1: body record 1 is damaged"),
    "a lost body": (f"DELETE FROM body {FIRST.format('body')}", r"c: usr-8: .*body.* is missing"),
    "a lost message": (f"DELETE FROM message {FIRST.format('message')}", r"c: sys-1: .*message.* is missing"),
    "a lost entry": ("DELETE FROM journal WHERE id & 63 = 3", r"c: journal 3: .*missing; the next .* 4"),
    "a lost share": ("DELETE FROM shared", r"谈话: sys-1: .*message.* is missing"),
    "a head": (
        "UPDATE context SET head = CAST(x'00' || substr(head, 2) AS BLOB) WHERE name = 'c'",
        r"c: head: head record 0 is damaged",
    ),
    "no head": ("UPDATE context SET head = 'text' WHERE name = 'c'", "its head in table context is 'text'"),
    "a row of a wrong type": ("UPDATE page SET ord = 7 WHERE id & 63 = 1", "its ord in table page is 7"),
    "a lost name": ("DELETE FROM context WHERE name = 'c'", "no row with its name"),
    "an older head": (
        "UPDATE context SET version = version - 2 WHERE name = 'c'",
        r"c: head: .*(version 24|out of date|another context or version)",
    ),
    "a name that is no text": ("UPDATE context SET name = x'e8af8d' WHERE name = 'c'", "but its name is"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_or_missing_is_copied_and_named(damage: str, live: Path, tmp_path: Path) -> None:
    sql, said = DAMAGES[damage]
    at_once(live, sql)
    done = backup(live, tmp_path / "copy.db")
    assert any(re.search(said, problem) for problem in done.problems), done.problems
    assert {symptom.code for symptom in quire.doctor(tmp_path / "copy.db").symptoms} == {
        symptom.code for symptom in quire.doctor(live).symptoms
    }
    assert any(re.search(said, problem) for problem in backup(live, f"file:{tmp_path / 'copy'}").problems)


def test_every_damaged_record_is_named_once(live: Path, tmp_path: Path) -> None:
    at_once(live, "UPDATE journal SET value = x'00' WHERE id IN (SELECT id FROM journal LIMIT 2 OFFSET 2)")
    done = backup(live, tmp_path / "copy.db")
    assert [problem.partition(" is ")[0] for problem in done.problems] == [
        "c: journal 3: journal record 3",
        "c: journal 4: journal record 4",
    ]


def test_a_name_with_a_flipped_bit_is_told(live: Path, tmp_path: Path) -> None:
    data = live.read_bytes()
    live.write_bytes(data.replace("谈话".encode(), b"\xe8\xb0\x48" + "话".encode()))
    assert [symptom.code for symptom in quire.doctor(live).symptoms] == ["corrupt"]
    with pytest.raises(Corrupt, match="a text in it cannot be read"):
        list(quire.Library(live).list())
    assert "a text in it cannot be read" in backup(live, tmp_path / "copy.db").problems[0]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_damaged_context_of_a_folder_is_named_and_the_others_are_copied(kind: str, tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    for name in ("a", "c", "d", "谈话"):
        full_talk(storage, name)
    storage.close()
    log = tmp_path / "store" / "c" / "log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    (tmp_path / "store" / "d" / "log").unlink()
    done = backup(f"file:{tmp_path / 'store'}", target_in(tmp_path, kind))
    assert [problem.partition(": not copied: ")[0] for problem in done.problems] == ["c", "d"]
    assert done.contexts == 2
    copy = opened(target_in(tmp_path, kind))
    assert list(copy.contexts()) == ["a", "谈话"]
    copy.close()


@pytest.mark.parametrize(("table", "length"), [("page_group", 8192), ("page_group", 1), ("search_data", 8192)])
def test_what_is_derived_and_damaged_is_made_anew_in_the_copy(
    table: str, length: int, live: Path, tmp_path: Path
) -> None:
    before = contents(SQLiteStorage(live), "谈话")
    spoiled(live, table, b"\xa5" * length)
    done = backup(live, tmp_path / "copy.db")
    assert done.problems
    assert done.contexts == 3
    copy = SQLiteStorage(tmp_path / "copy.db")
    assert contents(copy, "谈话") == before
    assert quire.doctor(copy).healthy
    assert quire.open(copy, "c").find("Seattle")
    copy.close()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("family", sorted(DERIVED))
def test_a_damaged_table_of_derived_records_is_made_again_in_the_copy(
    family: Family, kind: str, live: Path, tmp_path: Path
) -> None:
    with quire.open(live, "c", embedder=lambda texts: [[len(text)] for text in texts]) as talk:
        talk.find("Seattle")
    storage = SQLiteStorage(live)
    before = {name: kept(storage, name) for name in ("谈话", "c")}
    storage.close()
    spoiled(live, family)
    done = backup(live, target_in(tmp_path, kind))
    assert done.contexts == 3
    assert f"table {family}: " in done.problems[0]
    copy = opened(target_in(tmp_path, kind))
    assert {name: kept(copy, name) for name in before} == before
    assert quire.doctor(copy).symptoms == ()
    with quire.open(copy, "谈话") as talk:
        assert talk.check() == []
        assert talk.find("Seattle") != []
        talk.user("and on")
    copy.close()


def kept(storage: Storage, name: str) -> dict[str, list[Record]]:
    """Return the records of a context that are not derived."""
    return {family: list(storage.scan(name, family)) for family in FAMILIES if family not in DERIVED}


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_damaged_table_of_texts_is_no_derived_data(kind: str, live: Path, tmp_path: Path) -> None:
    spoiled(live, "body")
    if kind == "sqlite":
        with pytest.raises(Corrupt, match="table body"):
            backup(live, target_in(tmp_path, kind))
        return
    done = backup(live, target_in(tmp_path, kind))
    assert done.contexts == 0
    assert sum(": not copied: " in problem for problem in done.problems) == 3


def test_a_search_index_that_cannot_be_opened_is_made_anew(live: Path, tmp_path: Path) -> None:
    live.write_bytes(live.read_bytes().replace(b"contentless_delete", b"contentlessOdelete"))
    done = backup(live, tmp_path / "copy.db")
    assert [problem.partition(":")[0] for problem in done.problems] == ["search index"]
    assert quire.doctor(tmp_path / "copy.db").healthy
    assert [(symptom.code, symptom.repaired) for symptom in quire.doctor(live, repair=True).symptoms] == [
        ("search_damaged", True)
    ]


def test_a_table_that_is_gone_is_damage(live: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(live))) as db:
        db.execute("DROP TABLE body")
    with pytest.raises(Corrupt, match="no such table: body"):
        backup(live, tmp_path / "copy.db")
    assert {symptom.code for symptom in quire.doctor(live).symptoms} == {"corrupt"}


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_target_that_takes_no_more_is_named(kind: str, live: Path, tmp_path: Path) -> None:
    with quire.open(live, "long") as talk:
        talk.user("长" * 40_000)
    with limited(64 << 10), pytest.raises(StorageFailure) as error:
        backup(live, target_in(tmp_path, kind))
    assert repr(str(tmp_path / "copy")) in str(error.value)
    assert "live.db" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Limit the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("source", ["sqlite", "file"])
def test_a_full_disk_is_called_that(source: str, live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(db: apsw.Connection) -> None:
        if "copy.db" in db.db_filename("main"):
            db.execute("PRAGMA max_page_count = 9")

    store = str(live) if source == "sqlite" else backup(live, f"file:{tmp_path / 'store'}").path
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, fill])
    with pytest.raises(StorageFailure, match="disk is full") as error:
        backup(store if source == "sqlite" else f"file:{store}", tmp_path / "copy.db")
    assert repr(str(tmp_path / "copy.db")) in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == []


@pytest.mark.parametrize("table", ["context", "body"])
def test_a_file_that_is_damaged_itself_is_no_backup(table: str, live: Path, tmp_path: Path) -> None:
    spoiled(live, table, b"\xa5" * 8192)
    with pytest.raises(Corrupt, match="doctor"):
        backup(live, tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == []
