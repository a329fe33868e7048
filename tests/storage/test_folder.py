"""The storage in a folder: its contract, and its readable files after changes, failures and other writers."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import FileStorage
from quire.errors import Conflict, InvalidValue, OlderFormat
from quire.storage.contract import NOTE, PAGE, Family, Fork, Storage
from quire.storage.folder import register_describer
from quire.testing import StorageContract
from quire.testing.case import append, commit_of, id_of, pages, write


class TestFile(StorageContract):
    def open_storage(self, place: Path) -> Storage:
        return FileStorage(place)


def describe(
    seq: int, head: bytes, look_up: Any, records: Iterable[tuple[Family, int]]
) -> Iterator[tuple[str, bytes | None]]:
    """Make a file of each page: its value, and the entry that wrote it."""
    for family, key in records:
        if family == NOTE:
            yield "segments.json", head
        elif family == PAGE:
            found = look_up(PAGE, key)
            yield f"pages/s{key % 3}/{key}.txt", None if found is None else found.value
            yield f"pages/s{key % 3}/{key}.json", None if found is None else b"%d" % seq


@pytest.fixture(autouse=True)
def described() -> Iterator[None]:
    before = register_describer(describe)
    yield
    register_describer(before)


def shown(root: Path, name: str = "c") -> dict[int, bytes]:
    """Return the readable texts by key."""
    found = {int(path.stem): path.read_bytes() for path in (root / name).glob("pages/*/*.txt")}
    assert {int(path.stem) for path in (root / name).glob("pages/*/*.json")} == found.keys()
    return found


def stored(storage: Storage, name: str = "c") -> dict[int, bytes]:
    return {record.key: record.value for record in storage.scan(id_of(storage, name), PAGE)}


def test_the_files_follow_every_commit(tmp_path: Path) -> None:
    root = tmp_path / "store"
    storage = FileStorage(root)
    for key in range(1, 9):
        write(storage, "c", *pages([key, key + 20]))
        assert shown(root) == stored(storage)
    write(storage, "c", delete=[(PAGE, 3), (PAGE, 99)])
    assert shown(root) == stored(storage)
    times = {path: path.stat().st_mtime_ns for path in root.glob("c/pages/*/*")}
    again = FileStorage(root)
    assert shown(root) == stored(again)
    assert times == {path: path.stat().st_mtime_ns for path in root.glob("c/pages/*/*")}
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in [root, *root.rglob("*")]}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_forks_and_copies_have_files_when_they_have_names(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    source = write(storage, "c", *pages([1, 2]))
    storage.create("f", commit_of(1, *pages([3])), Fork(source, 1))
    context = storage.create(None, commit_of(1, *pages([5])))
    storage.commit(context, commit_of(2, *pages([6])))
    storage.name(context, "copy")
    assert [sorted(shown(tmp_path, name)) for name in ("c", "f", "copy")] == [[1, 2], [1, 2, 3], [5, 6]]


def test_files_of_commits_that_nobody_described_are_written_later(tmp_path: Path) -> None:
    writer = FileStorage(tmp_path)
    write(writer, "c", *pages([1]))
    register_describer(None)
    write(FileStorage(tmp_path), "c", *pages([2]), delete=[(PAGE, 1)])
    assert sorted(shown(tmp_path)) == [1]
    register_describer(describe)
    write(writer, "c", *pages([3]))
    assert shown(tmp_path) == stored(writer)


def test_two_writers_in_turn_keep_the_files_right(tmp_path: Path) -> None:
    one, other = FileStorage(tmp_path), FileStorage(tmp_path)
    for turn in range(20):
        write(one if turn % 3 else other, "c", *pages([turn]), delete=[(PAGE, max(turn - 4, 0))] if turn else [])
        assert shown(tmp_path) == stored(one)
    with pytest.raises(Conflict):
        other.commit(id_of(other, "c"), commit_of(3, *pages([99])))
    assert shown(tmp_path) == stored(one)


def test_a_failure_of_the_files_does_not_stop_a_commit(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    write(storage, "c", *pages([1]))
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "c").write_text("in the way")
    append(storage, "c", b"more")
    write(storage, "c", *pages([2]))
    assert stored(FileStorage(tmp_path)).keys() == {1, 2}


def test_a_drop_removes_the_files_and_nothing_else(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    for name in ("c", "d"):
        write(storage, name, *pages([1]))
    (tmp_path / "c" / "mine").touch()
    (tmp_path / "photos" / "pages").mkdir(parents=True)
    for name in ("c", "d"):
        storage.drop(name)
    storage.scrub()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".quire", "c", "photos"]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["mine"]


def test_files_of_an_interrupted_drop_are_removed_by_a_scrub(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    write(storage, "a b", *pages([1]))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "a%20b", copy)
    storage.drop("a b")
    copy.rename(tmp_path / "a%20b")
    storage.scrub()
    assert [path.name for path in tmp_path.iterdir()] == [".quire"]


@pytest.mark.parametrize("link", ["c", "c/pages", "c/pages/s1"])
def test_nothing_is_written_through_a_link(link: str, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    write(FileStorage(root), "c", *pages([1]))
    elsewhere.mkdir()
    shutil.rmtree(root / link)
    (root / link).symlink_to(elsewhere)
    storage = FileStorage(root)
    write(storage, "c", *pages([4]))
    storage.drop("c")
    assert list(elsewhere.iterdir()) == []


def test_an_older_store_and_a_wrong_option_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "log").write_bytes(b'quire log 1 "c"\n')
    with pytest.raises(OlderFormat):
        FileStorage(tmp_path)
    with pytest.raises(InvalidValue):
        FileStorage(tmp_path / "new", durability="some")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
