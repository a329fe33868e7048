"""The readable files: one header and one text per page, updated by every change, and restored when deleted."""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from quire import FileStorage, Segment
from quire.storage.file import log
from tests.storage.folders import abandon, agrees, context_in, filled, readable

Tamper = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_page_is_a_json_file_with_its_body_beside_it(root: Path) -> None:
    storage = FileStorage(root)
    filled(storage)
    header = json.loads((root / "c/pages/mem/mem-3.json").read_text())
    assert (header["index"], header["name"], header["parent"]) == ("mem-3", "second", "mem-2")
    assert (root / "c/pages/mem/mem-3.txt").read_text() == "第二\n" * 3
    assert "二" in (root / "c/pages/mem/mem-3.json").read_text()
    assert not (root / "c/pages/mem/mem-2.txt").exists()
    storage.close()


def test_the_readable_files_follow_every_change(root: Path) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    steps: list[Callable[[], object]] = [
        lambda: system.hide("mem-1"),
        lambda: system.expand("mem-1"),
        lambda: system.update_page("mem-1", name="other", description="说明", meta={"a": None}),
        lambda: system.set_detail("mem-1", "another text"),
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
        lambda: system.update_segment("con", name="Still one"),
        lambda: system.remove_segment("con"),
        lambda: system.unmarshal(system.marshal()),
    ]
    for number, step in enumerate(steps):
        step()
        agrees(root / "c", system)
        assert system.check() == [], number
    storage.close()


def _all_readable(folder: Path) -> None:
    shutil.rmtree(folder / "pages")
    (folder / "segments.json").unlink()


def _all_but_the_log(folder: Path) -> None:
    _all_readable(folder)
    (folder / "stamp.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "tamper",
    [
        _all_readable,
        _all_but_the_log,
        lambda folder: (folder / "segments.json").unlink(),
        lambda folder: (folder / "pages/mem/mem-3.txt").unlink(),
        lambda folder: (folder / "pages/mem/mem-3.json").unlink(),
        lambda folder: shutil.rmtree(folder / "pages/mem"),
    ],
    ids=["all readable", "all but the log", "segments", "a text", "a header", "a segment's folder"],
)
def test_deleted_readable_files_are_written_again_when_the_folder_is_opened(root: Path, tamper: Tamper) -> None:
    storage = FileStorage(root)
    filled(storage)
    storage.close()
    tamper(root / "c")
    storage = FileStorage(root)
    system = context_in(storage).pages
    agrees(root / "c", system)
    assert system.check() == []
    storage.close()


def test_readable_files_deleted_under_an_open_handle_come_back_with_the_next_change(root: Path) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    shutil.rmtree(root / "c/pages/mem")
    system.set_detail("mem-1", "written after the deletion")
    assert readable(root / "c")["mem-1"][1] == "written after the deletion"
    storage.close()


def test_a_crash_between_log_and_readable_files_is_caught_up_with(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    storage.close()
    storage = FileStorage(root)
    system = context_in(storage).pages
    with monkeypatch.context() as patch:
        patch.setattr(log.Mirror, "write", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        system.set_detail("mem-1", "only in the log")
        system.create_detail_page("third", "", "only in the log", "mem-0")
        system.remove_page("mem-2")
    assert readable(root / "c")["mem-1"][1] == "first text"
    abandon(storage)
    storage = FileStorage(root)
    system = context_in(storage).pages
    agrees(root / "c", system)
    assert system.detail("mem-4") == "only in the log"
    storage.close()


def test_failing_readable_files_fail_no_commit_and_are_caught_up_with(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(root)
    system = filled(storage)
    with monkeypatch.context() as patch:
        patch.setattr(log, "_replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        system.set_detail("mem-1", "only in the log")
    assert system.detail("mem-1") == "only in the log"
    system.hide("mem-3")
    agrees(root / "c", system)
    storage.close()
