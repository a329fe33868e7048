"""Backups of a store in use: complete or absent, unlike a plain copy of its files."""

import resource
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import quire
from quire import Context, FileStorage, InvalidOperation, InvalidValue, Library, SQLiteStorage, StorageFailure, backup
from quire.testing import FaultyStorage, InjectedFault
from tests.marks import servers
from tests.servers.stores import new_url
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk, stored, texts


def target_in(folder: Path, kind: str) -> str:
    return f"{kind}:{folder / 'copy'}"


def whole(library: Library) -> dict[str, tuple[object, ...]]:
    """Return everything in a store, which is sound."""
    found = {name: new_talk(library.storage, name) for name in library.list()}
    assert all(ctx.check() == [] for ctx in found.values())
    return {name: stored(ctx) for name, ctx in found.items()}


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
@pytest.mark.parametrize("source", ["file", "sqlite", *servers("postgres", "s3")])
def test_a_backup_is_a_store_with_everything_in_it(
    source: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url(source, tmp_path, monkeypatch)
    with Library(url) as library:
        talk = full_talk(library.storage, "谈话")
        talk.fork("fork").user("only here")
        told: list[str] = []
        done = backup(url, target_in(tmp_path, kind), progress=lambda step: told.append(step.phase))
        assert (done.path, done.contexts, done.problems) == (str(tmp_path / "copy"), 2, ())
        assert done.bytes > 0
        assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
        assert {"copy", "verify"} <= set(told)
        with Library(target_in(tmp_path, kind), create=False) as copy:
            assert whole(copy) == whole(library)
            assert copy.open("谈话").find("Seattle")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


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


def test_a_backup_has_what_a_plain_copy_of_the_file_loses(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    talk = new_talk(SQLiteStorage(path), "c")
    talk.user("acknowledged")
    shutil.copy(path, tmp_path / "plain.db")  # the newest commits are still in the log file
    backup(path, tmp_path / "good.db")
    assert texts(quire.open(tmp_path / "good.db", "c")) == ["acknowledged"]
    assert not Library(tmp_path / "plain.db").exists("c")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backup_that_fails_leaves_nothing(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    full_talk(storage, "c")
    counted = FaultyStorage(storage)
    backup(counted, tmp_path / "whole.db")
    (tmp_path / "whole.db").unlink()
    for fail_at in (1, 2, 5, 9, len(counted.calls)):
        with pytest.raises(InjectedFault):
            backup(FaultyStorage(storage, fail_at), tmp_path / "copy.db")
    storage.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"store"}


def test_what_is_there_is_not_overwritten_and_a_bad_target_is_refused(tmp_path: Path) -> None:
    storage = make("memory", tmp_path)
    full_talk(storage, "c")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InvalidOperation):
        backup(storage, tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
    for target in ("postgresql://host/db", 3):
        with pytest.raises(InvalidValue):
            backup(storage, target)  # type: ignore[arg-type]
    for kind in ("", "file:", "sqlite:"):
        with pytest.raises(StorageFailure):
            backup(storage, f"{kind}{tmp_path / 'nowhere' / 'x.db'}")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("read", [lambda p: quire.migrate(p, "memory:"), quire.doctor, lambda p: backup(p, "x")])
def test_a_source_that_does_not_exist_is_not_created(read: object, tmp_path: Path) -> None:
    assert callable(read)
    with pytest.raises(StorageFailure):
        read(tmp_path / "nope.db")
    assert list(tmp_path.iterdir()) == []


# A target without room


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Return an SQLite file with a long context."""
    storage = SQLiteStorage(tmp_path / "live.db")
    full_talk(storage, "c").user("长" * 40_000)
    storage.close()
    return tmp_path / "live.db"


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Limit the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_target_that_takes_no_more_is_named(kind: str, live: Path, tmp_path: Path) -> None:
    with limited(64 << 10), pytest.raises(StorageFailure) as error:
        backup(live, target_in(tmp_path, kind))
    assert str(tmp_path / "copy") in str(error.value)
    assert "live.db" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_disk_without_room_changes_nothing(kind: str, tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "store") if kind == "sqlite" else FileStorage(tmp_path / "store")
    talk = new_talk(storage, "c")
    talk.user("first")
    before = stored(talk)
    with limited(300_000), pytest.raises(StorageFailure):
        talk.user("x" * 1_000_000)
    for each in (talk, new_talk(storage, "c")):
        assert stored(each) == before
        assert each.check() == []
    talk.user("x" * 1_000_000)
    assert new_talk(storage, "c").check() == []
    storage.close()


def test_a_full_disk_leaves_no_half_of_a_copy(live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(db: apsw.Connection) -> None:
        if "copy.db" in db.db_filename("main"):
            db.execute("PRAGMA max_page_count = 9")

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, fill])
    with pytest.raises(StorageFailure) as error:
        backup(live, tmp_path / "copy.db")
    assert repr(str(tmp_path / "copy.db")) in str(error.value)
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []
