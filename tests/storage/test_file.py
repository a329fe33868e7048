"""The file backend: its log, damage to it, failing writes, locks, and names."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Busy, Conflict, ContextSystem, Corrupt, FileStorage, InvalidValue, Segment, StorageFailure
from quire.storage.base import PAGE, Commit, Durability, Head, Put
from quire.storage.file import log as folderlog
from quire.storage.file import storage as file
from quire.storage.file.frames import encode_frame
from quire.testing.case import HEAD, contents, keys_of, pages, write
from quire.testing.contexts import ACCEPTED
from tests.storage.folders import abandon, agrees, context_in, filled


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


# The log


def last_frame(log: Path, storage: FileStorage, system: ContextSystem) -> int:
    """Make one more commit and abandon the storage; return the length of the frame."""
    before = log.stat().st_size
    system.create_detail_page("last", "", "the last text", "mem-0")
    abandon(storage)
    return log.stat().st_size - before


def test_a_torn_tail_is_dropped_and_the_next_commit_is_fine(root: Path) -> None:
    log = root / "c/log"
    storage = FileStorage(root)
    system = filled(storage)
    before = system.marshal()
    frame = last_frame(log, storage, system)
    whole = log.read_bytes()
    for left in (1, 3, 4, 15, 16, 17, frame // 2, frame - 1):
        log.write_bytes(whole[: len(whole) - frame + left])
        storage = FileStorage(root)
        system = context_in(storage).pages
        assert system.marshal() == before
        assert system.create_detail_page("again", "", "text", "mem-0") == "mem-4"
        assert system.check() == []
        agrees(root / "c", system)
        abandon(storage)
        storage = FileStorage(root)
        assert context_in(storage).pages.detail("mem-4") == "text"
        assert context_in(storage).check() == []
        abandon(storage)


@pytest.mark.parametrize("tail", [b"\x00" * 4_096, b"\xffQL1", b"garbage" * 1_000, b"\xff"])
def test_garbage_behind_the_log_is_dropped(root: Path, tail: bytes) -> None:
    storage = FileStorage(root)
    before = filled(storage).marshal()
    abandon(storage)
    with (root / "c/log").open("ab") as log:
        log.write(tail)
    storage = FileStorage(root)
    system = context_in(storage).pages
    assert system.marshal() == before
    system.set_detail("mem-1", "short")
    storage.close()
    storage = FileStorage(root)
    assert context_in(storage).pages.detail("mem-1") == "short"
    assert context_in(storage).check() == []
    storage.close()


@pytest.mark.parametrize("left", [0, 1, 11, 12, 15, 20])
def test_a_context_killed_while_it_was_made_does_not_exist(root: Path, left: int) -> None:
    storage = FileStorage(root)
    write(storage, "c", *pages([1]))
    abandon(storage)
    os.truncate(root / "c/log", left)
    storage = FileStorage(root)
    assert storage.head("c") is None
    assert list(storage.contexts()) == []
    write(storage, "c", *pages([2]))
    assert keys_of(storage.scan("c", PAGE)) == [2]
    storage.close()
    assert keys_of(FileStorage(root).scan("c", PAGE)) == [2]


def test_a_log_cut_short_after_an_orderly_close_is_corrupt(root: Path) -> None:
    log = root / "c/log"
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    whole = log.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 30):
        log.write_bytes(whole[:size])
        with pytest.raises(Corrupt, match=r"damaged after byte|log is missing or empty"):
            context_in(FileStorage(root))
        assert log.read_bytes() == whole[:size]
    log.write_bytes(whole)
    assert context_in(FileStorage(root)).check() == []


def test_damage_in_the_middle_after_an_orderly_close_is_corrupt(root: Path) -> None:
    log = root / "c/log"
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    whole = log.read_bytes()
    for position in range(30, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        log.write_bytes(damaged)
        with pytest.raises(Corrupt, match="damaged"):
            context_in(FileStorage(root))
        assert log.read_bytes() == damaged


def test_damage_in_the_middle_of_a_fully_durable_log_is_corrupt_even_after_a_crash(root: Path) -> None:
    log = root / "c/log"
    storage = FileStorage(root, durability="full")
    system = filled(storage)
    frame = last_frame(log, storage, system)
    (root / "c/stamp.json").unlink(missing_ok=True)
    whole = log.read_bytes()
    for position in range(30, len(whole) - frame, 97):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        log.write_bytes(damaged)
        with pytest.raises(Corrupt, match="damaged at byte"):
            context_in(FileStorage(root, durability="full"))


def test_a_damaged_title_is_corrupt(root: Path) -> None:
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    data = bytearray((root / "c/log").read_bytes())
    data[3] ^= 1
    (root / "c/log").write_bytes(data)
    with pytest.raises(Corrupt, match="does not begin like"):
        FileStorage(root).head("c")


def test_a_log_under_another_contexts_name_is_corrupt(root: Path) -> None:
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    shutil.copytree(root / "c", root / "d")
    with pytest.raises(Corrupt, match="does not begin like"):
        FileStorage(root).head("d")


def test_a_value_damaged_under_an_open_handle_is_named(root: Path) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    data = (root / "c/log").read_bytes()
    with (root / "c/log").open("r+b") as log:
        log.seek(data.index("第二".encode()))
        log.write(b"?")
    system.evict_lru(0)
    with pytest.raises(Corrupt, match="body record 2 "):
        system.detail("mem-3")
    assert [problem.where for problem in system.check()] == ["body 2"]
    storage.close()


# Failing writes


def half_write(descriptor: int, data: Any, offset: int) -> int:
    REAL_PWRITE(descriptor, data[: len(data) // 2], offset)
    raise OSError(errno.ENOSPC, "No space left on device")


REAL_PWRITE = os.pwrite


def test_a_full_disk_leaves_the_log_intact(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    before, log = system.marshal(), (root / "c/log").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half_write)
        with pytest.raises(StorageFailure, match="No space left"):
            system.create_detail_page("large", "", "x" * 100_000, "mem-0")
    assert (root / "c/log").read_bytes() == log
    assert system.marshal() == before
    assert system.check() == []
    assert system.create_detail_page("large", "", "x" * 100_000, "mem-0") == "mem-4"
    storage.close()
    assert context_in(FileStorage(root)).check() == []


def test_a_full_disk_that_cannot_even_be_tidied_up_leaves_a_log_that_opens(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    before = system.marshal()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half_write)
        patch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "failing")))
        with pytest.raises(StorageFailure):
            system.set_detail("mem-1", "x" * 100_000)
    abandon(storage)
    storage = FileStorage(root)
    system = context_in(storage).pages
    assert system.marshal() == before
    system.set_detail("mem-1", "fits")
    assert system.check() == []
    storage.close()


def test_a_context_that_could_not_be_made_does_not_exist(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(root)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half_write)
        with pytest.raises(StorageFailure, match="No space left"):
            write(storage, "c", *pages([1]))
    assert storage.head("c") is None
    assert list(storage.contexts()) == []
    write(storage, "c", *pages([2]))
    storage.close()
    assert keys_of(FileStorage(root).scan("c", PAGE)) == [2]


def test_writes_that_are_cut_short_are_completed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: REAL_PWRITE(descriptor, data[:700], offset))
    storage = FileStorage(root)
    system = filled(storage)
    system.create_detail_page("large", "", "x" * 100_000, "mem-0")
    storage.close()
    assert context_in(FileStorage(root)).pages.detail("mem-4") == "x" * 100_000


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_sync_that_fails_acknowledges_nothing(
    root: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(root, durability=durability)
    system = filled(storage)
    before = system.marshal()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "failing")))
        if durability == "normal":  # nothing is promised, so nothing is synced
            system.hide("mem-1")
            return
        with pytest.raises(StorageFailure, match="failing"):
            system.hide("mem-1")
    assert system.marshal() == before
    abandon(storage)
    assert context_in(FileStorage(root)).pages.marshal() == before


def test_full_durability_syncs_every_commit_and_the_folders_of_a_new_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def note(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
            real(descriptor)

        return sync

    monkeypatch.setattr(os, "fdatasync", note(os.fdatasync))
    monkeypatch.setattr(os, "fsync", note(os.fsync))
    storage = FileStorage(root, durability="full")
    write(storage, "c", *pages([1]))
    assert {"log", "c", "store"} <= set(synced)
    for key in (2, 3):
        synced.clear()
        write(storage, "c", *pages([key]))
        assert "log" in synced
    storage.close()


# Locks, names, neighbours


def test_a_lock_held_too_long_is_busy_and_changes_nothing(root: Path) -> None:
    storage = FileStorage(root, busy_seconds=0.02)
    write(storage, "c", *pages([1]))
    with (root / "c/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="locked"):
            storage.commit("c", Commit(1, 2, b"", pages([2])))
        with pytest.raises(Busy):
            storage.drop("c")
        write(storage, "d", *pages([1]))
        assert keys_of(storage.scan("c", PAGE)) == [1]
    storage.commit("c", Commit(1, 2, b"", pages([2])))
    assert keys_of(storage.scan("c", PAGE)) == [1, 2]
    storage.close()


class FlockThatLoses:
    """`fcntl` for a writer that waits while another process drops the context and creates it again."""

    LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile: Callable[[], object] | None = meanwhile

    def flock(self, descriptor: int, operation: int) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
            raise BlockingIOError
        fcntl.flock(descriptor, operation)


def test_a_writer_that_waited_out_a_drop_does_not_write_beside_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, other = FileStorage(root), FileStorage(root, busy_seconds=0.02)
    write(other, "c", *pages([1]))
    assert waiting.head("c") == Head(1, HEAD)

    def drop_and_make_again() -> None:
        other.drop("c")
        write(other, "c", *pages([2]))
        monkeypatch.setattr(folderlog, "encode_frame", write_at_the_same_time)

    landed: list[bool] = []

    def write_at_the_same_time(commit: Commit) -> bytes:
        monkeypatch.setattr(folderlog, "encode_frame", encode_frame)
        try:
            other.commit("c", Commit(1, 2, b"other", pages([3])))
            landed.append(True)
        except Busy:
            landed.append(False)
        return encode_frame(commit)

    monkeypatch.setattr(file, "fcntl", FlockThatLoses(drop_and_make_again))
    try:
        waiting.commit("c", Commit(1, 2, b"waiting", pages([4])))
    except Conflict:
        landed.append(False)
    assert landed == [False]
    other.close()
    waiting.close()


def test_hostile_names_never_leave_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "in" / "store"
    storage = FileStorage(root)
    for name in ACCEPTED:
        write(storage, name, *pages([1]))
    system = context_in(storage, "../../y").pages
    system.add_segment(Segment(id="nul"))
    system.create_detail_page("../../x", "/etc/passwd", "\x00 ../..", "nul-0")
    storage.drop("..")
    storage.close()
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == ["store"]
    assert not any(path.is_symlink() for path in root.rglob("*"))


def test_a_commit_to_an_unknown_family_creates_no_folder(root: Path) -> None:
    storage = FileStorage(root)
    with pytest.raises(InvalidValue, match="'nonsense' is not one of segment, page"):
        storage.commit("c", Commit(0, 1, b"", [Put("nonsense", 1, b"")]))  # type: ignore[arg-type]
    assert not list(root.glob("c*"))
    storage.close()


def test_no_two_files_differ_only_in_case(root: Path) -> None:
    storage = FileStorage(root)
    for name in ("A", "a", "AB", "Ab", "aB", "ab", "É", "é", "x" * 200, "X" * 200):
        system = context_in(storage, name).pages
        system.create_detail_page("n", "", "text", "mem-0")
    storage.close()
    everything = [str(path.relative_to(root)) for path in root.rglob("*")]
    assert len({path.casefold() for path in everything}) == len(everything) > 100
    assert all(path == path.lower() for path in everything)


def test_files_that_are_not_ours_are_left_alone(root: Path) -> None:
    root.mkdir()
    (root / "README.txt").write_text("mine")
    (root / "empty").mkdir()
    (root / "photos").mkdir()
    (root / "photos" / "log").write_text("Monday: sunny\n")
    (root / ".git").mkdir()
    storage = FileStorage(root)
    write(storage, "c", *pages([1]))
    assert list(storage.contexts()) == ["c"]
    storage.drop("c")
    storage.close()
    assert sorted(os.listdir(root)) == [".git", "README.txt", "empty", "photos"]
    assert (root / "photos" / "log").read_text() == "Monday: sunny\n"


def test_no_file_stays_open_after_refusals_and_closing(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    storage = FileStorage(root)
    write(storage, "c", *pages([1]))
    for _ in range(5):
        with pytest.raises(Conflict):
            storage.commit("never there", Commit(7, 8, b"", ()))
        with pytest.raises(Conflict):
            storage.commit("c", Commit(7, 8, b"", ()))
        assert storage.head("never there") is None
    storage.close()
    (root / "c/log").write_bytes(b"not a log at all, whatever it is")
    storage = FileStorage(root)
    for _ in range(5):
        with pytest.raises(Corrupt):
            storage.head("c")
    storage.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_thousands_of_commits_are_replayed(root: Path) -> None:
    storage = FileStorage(root)
    for number in range(1, 1_500):
        storage.commit("c", Commit(number - 1, number, b"h", pages([number % 50], group=number % 3)))
    before = contents(storage, "c")
    storage.close()
    assert contents(FileStorage(root), "c") == before


def test_a_handle_on_a_log_that_was_replaced_writes_no_stamp(tmp_path: Path) -> None:
    storage, other = FileStorage(tmp_path), FileStorage(tmp_path)
    ctx = quire.open(storage, "c")
    for number in range(5):
        ctx.user(f"message {number} " * 50)
    assert quire.open(other, "c").seq == ctx.seq
    storage.scrub(["c"])
    other.close()
    assert len(quire.open(FileStorage(tmp_path), "c").messages()) == 5
    assert quire.doctor(FileStorage(tmp_path)).symptoms == ()


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_the_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("text")
    with pytest.raises(StorageFailure, match="a folder is needed, not a file") as error:
        quire.open(f"file:{tmp_path / place}")
    assert repr(str(tmp_path / place)) in str(error.value)
    assert (tmp_path / "taken").read_text() == "text"
