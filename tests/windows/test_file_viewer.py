"""The file viewer: pages, search, and no way out of its folder."""

import json
import os
from pathlib import Path

import pytest
from parts.file_viewer import Files

from quire import InvalidValue


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src" / "深").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("".join(f"line {n}\n" for n in range(1, 151)))
    (folder / "src" / "深" / "笔记.txt").write_text("第一行\n预算是八千\n", encoding="utf-8")
    (folder / "data.bin").write_bytes(b"\x00\x01\x02")
    (tmp_path / "secret.txt").write_text("the secret")
    return folder


def test_a_folder_is_listed_folders_first(root: Path) -> None:
    files = Files(root)
    files.open()
    assert files.content() == ".: 2 entries\nsrc/\ndata.bin (3 bytes)"
    files.show("src")
    assert files.content() == "src: 2 entries\n深/\nmain.py (1,242 bytes)"


def test_a_file_is_shown_page_by_page(root: Path) -> None:
    files = Files(root)
    files.show("src/main.py")
    assert files.content().splitlines()[:2] == ["src/main.py: page 1 of 3, 150 lines", "1 line 1"]
    files.page(3)
    assert files.content().splitlines()[-1] == "150 line 150"
    files.page(99)
    assert "page 3 of 3" in files.content()
    files.page(-5)
    assert "page 1 of 3" in files.content()


def test_search_finds_lines_below_the_folder_and_in_the_file(root: Path) -> None:
    files = Files(root)
    files.open()
    files.search("预算")
    assert files.content() == "1 lines with '预算' in .\nsrc/深/笔记.txt:2 预算是八千"
    files.show("src/main.py")
    files.search("LINE 15")
    assert files.content().splitlines()[1:] == ["src/main.py:15 line 15", "src/main.py:150 line 150"]
    files.search("line")
    assert files.content().splitlines()[0] == "30 lines with 'line' in src/main.py (the first ones)"
    with pytest.raises(InvalidValue, match="text"):
        files.search("  ")


def test_what_is_no_text_is_not_shown_as_text(root: Path) -> None:
    files = Files(root)
    files.show("data.bin")
    assert files.content() == "data.bin: 3 bytes, not text"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "src/../../secret.txt",
        "..",
        "/etc/passwd",
        "\\etc",
        "src\\..\\..\\secret.txt",
        "C:/secret",
        "a\0b",
        "missing",
        "src/main.py/x",
        "x" * 100_000,
    ],
)
def test_no_path_leads_out_of_the_folder(root: Path, path: str) -> None:
    files = Files(root)
    with pytest.raises(InvalidValue):
        files.show(path)
    assert files.content().startswith(".: 2 entries")


def test_links_are_neither_listed_nor_followed(root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    (root / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inside").symlink_to(root / "src")
    files = Files(root)
    assert files.content() == ".: 2 entries\nsrc/\ndata.bin (3 bytes)"
    for path in ("out/secret.txt", "leak.txt", "out", "inside", "inside/main.py"):
        with pytest.raises(InvalidValue, match="no file or folder"):
            files.show(path)
    files.search("secret")
    assert files.content().startswith("0 lines")


def test_a_link_that_takes_the_place_of_a_file_shows_nothing(root: Path, tmp_path: Path) -> None:
    files = Files(root)
    files.show("src/main.py")
    (root / "src" / "main.py").unlink()
    (root / "src" / "main.py").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidValue):
        files.content()
    os.rename(root / "src", root / "moved")
    (root / "src").symlink_to(tmp_path)
    files = Files(root)
    with pytest.raises(InvalidValue):
        files.show("src/secret.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_neither_hangs_nor_shows(root: Path) -> None:
    os.mkfifo(root / "pipe")
    files = Files(root)
    assert "pipe" not in files.content()
    files.show("pipe")
    with pytest.raises(InvalidValue, match="regular file"):
        files.content()


def test_the_place_comes_back(root: Path) -> None:
    files = Files(root)
    files.show("src/main.py", page=2)
    again = Files(root)
    again.restore(json.loads(json.dumps(files.save())))
    assert again.content() == files.content()
    assert "page 2 of 3" in again.content()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a folder that exists"):
        Files(tmp_path / "nowhere")
