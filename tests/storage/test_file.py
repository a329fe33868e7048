"""The file backend: the readable folder of pages, names, and files of others."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import quire
from quire import FileStorage, Segment, StorageFailure
from quire.testing.contexts import ACCEPTED
from tests.storage.folders import agrees, context_in, filled


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_page_is_a_json_file_with_its_body_beside_it(root: Path) -> None:
    storage = FileStorage(root)
    filled(storage)
    (header,) = root.glob("*/pages/mem/mem-3.json")
    form = json.loads(header.read_text())
    assert (form["index"], form["name"], form["parent"]) == ("mem-3", "second", "mem-2")
    assert header.with_suffix(".txt").read_text() == "第二\n" * 3
    assert "二" in header.read_text()
    assert not header.with_name("mem-2.txt").exists()
    storage.close()


def test_the_readable_files_follow_every_change(root: Path) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    steps: list[Callable[[], object]] = [
        lambda: system.hide("mem-1"),
        lambda: system.expand("mem-1"),
        lambda: system.update_page("mem-1", name="other", description="说明", meta={"a": None}),
        lambda: system.set_detail("mem-1", ""),
        lambda: system.set_detail("mem-1", "and another"),
        lambda: system.pin("mem-3"),
        lambda: system.unpin("mem-3"),
        lambda: system.archive("mem-3"),
        lambda: system.restore("mem-3"),
        lambda: system.archive("mem-2", cold=True),
        lambda: system.recall("mem-3"),
        lambda: system.move_page("mem-1", "mem-2", before="mem-3"),
        lambda: system.move_page("mem-2", "usr-0"),
        lambda: system.undo(system.seq),
        lambda: system.remove_page("mem-2"),
        lambda: system.undo(system.seq),
        lambda: system.add_segment(Segment(id="con", name="A device")),
        lambda: system.create_detail_page("in it", "", "text", "con-0"),
        lambda: system.remove_segment("con"),
        lambda: system.unmarshal(system.marshal()),
    ]
    for number, step in enumerate(steps):
        step()
        agrees(root, system)
        assert system.check() == [], number
    storage.close()


@pytest.mark.parametrize("pattern", ["*/pages", "*/pages/mem", "*/pages/mem/mem-3.txt", "*/pages/mem/mem-3.json"])
def test_deleted_readable_files_are_written_again_when_the_folder_is_opened(root: Path, pattern: str) -> None:
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    (found,) = root.glob(pattern)
    shutil.rmtree(found) if found.is_dir() else found.unlink()
    storage = FileStorage(root)
    system = context_in(storage).pages
    agrees(root, system)
    assert system.check() == []
    storage.close()


# Names and neighbours


def test_hostile_names_never_leave_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "in" / "store"
    storage = FileStorage(root)
    for name in ACCEPTED[::6]:
        context_in(storage, name)
    system = context_in(storage, "../../y").pages
    system.add_segment(Segment(id="nul"))
    system.create_detail_page("../../x", "/etc/passwd", "x ../..", "nul-0")
    quire.Library(storage).delete(ACCEPTED[0])
    storage.close()
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == ["store"]
    assert not any(path.is_symlink() for path in root.rglob("*"))


def test_no_two_files_differ_only_in_case(root: Path) -> None:
    storage = FileStorage(root)
    for name in ("A", "a", "AB", "Ab", "aB", "ab", "É", "é", "x" * 200, "X" * 200):
        context_in(storage, name).pages.create_detail_page("n", "", "text", "mem-0")
    storage.close()
    everything = [str(path.relative_to(root)) for path in root.rglob("*")]
    assert len({path.casefold() for path in everything}) == len(everything) > 100


def test_files_that_are_not_ours_are_left_alone(root: Path) -> None:
    (root / "photos").mkdir(parents=True)
    (root / "README.txt").write_text("mine")
    (root / "empty").mkdir()
    (root / "photos" / "log").write_text("Monday: sunny\n")
    (root / ".git").mkdir()
    with quire.Library(FileStorage(root)) as library:
        library.create("c").user("hello")
        assert list(library.list()) == ["c"]
        library.delete("c")
    assert {".git", "README.txt", "empty", "photos"} <= set(os.listdir(root))
    assert (root / "photos" / "log").read_text() == "Monday: sunny\n"


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_the_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("text")
    with pytest.raises(StorageFailure) as error:
        quire.open(f"file:{tmp_path / place}")
    assert repr(str(tmp_path / place)) in str(error.value)
    assert (tmp_path / "taken").read_text() == "text"
