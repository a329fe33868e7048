"""Backups: of a store in use, whole or not there, and what a plain copy of files would have lost."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import quire
from quire import Context, Corrupt, InvalidOperation, InvalidValue, Progress, SQLiteStorage, Storage, StorageFailure
from quire.operations.backup import backup
from quire.storage.base import Commit
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import contents
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk


def opened(target: str) -> Storage:
    return quire.open_storage(target, create=False)


def target_in(folder: Path, kind: str) -> str:
    return f"{kind}:{folder / 'copy'}"


@contextmanager
def writing(talk: Context) -> Iterator[None]:
    """Somebody adds messages all the while."""
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
    assert (done.path, done.problems) == (str(tmp_path / "copy"), ())
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
            backup(storage, tmp_path / f"{number}.db")
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
    shutil.copy(path, tmp_path / "plain.db")  # the newest work is still in the log beside it
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
        with pytest.raises(StorageFailure, match=r"Cannot write .*no folder '.*nowhere'; make it first"):
            backup(storage, f"{kind}{tmp_path / 'nowhere' / 'x.db'}")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(StorageFailure, match="no store"):
        backup(tmp_path / "missing.db", tmp_path / "x.db")
    with pytest.raises(InvalidValue):
        backup(storage, 3)  # type: ignore[arg-type]


def test_a_damaged_record_is_copied_and_named(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    talk = full_talk(SQLiteStorage(path), "c")
    talk.pages.storage.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE body SET value = x'00112233445566'")
    db.close()
    done = backup(path, tmp_path / "copy.db")
    assert "c: body record" in done.problems[0]


def test_a_file_that_is_damaged_itself_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    talk = full_talk(SQLiteStorage(path), "c")
    talk.pages.storage.close()
    data = bytearray(path.read_bytes())
    data[8192 * 5 : 8192 * 6] = b"\xa5" * 8192
    path.write_bytes(data)
    with pytest.raises(Corrupt):
        backup(path, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
