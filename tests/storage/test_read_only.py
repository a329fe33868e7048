"""Stores on a read-only file system: they open, are read completely, and refuse writes with `ReadOnly`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quire

READER = Path(__file__).with_name("read_only_reader.py")
MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
EXPECTED = """messages 2 seq 3 problems 0
view hello again
found 2
contexts ['default']
ReadOnly read_only
healthy True
backup 1
ReadOnly read_only
"""


def read_in(folder: Path, where: str) -> str:
    """Return what a process prints that sees the folder on a read-only file system."""
    program = shutil.which("unshare")
    command = [program or "", "-rm", "sh", "-c", MOUNT, str(folder), sys.executable, str(READER), where]
    if program is None or subprocess.run([*command[:-3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("a read-only mount needs user namespaces")
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return run.stdout + run.stderr


def fill(where: str) -> None:
    with quire.open(where) as ctx:
        ctx.user("hello")
        ctx.user("hello again")


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_store_on_a_read_only_file_system_is_read(scheme: str, tmp_path: Path) -> None:
    where = f"{scheme}:{tmp_path / 'store'}"
    fill(where)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert read_in(tmp_path, where) == EXPECTED
    assert sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_file_that_a_writer_has_open_is_read_with_its_log(tmp_path: Path) -> None:
    where = f"sqlite:{tmp_path / 'store'}"
    ctx = quire.open(where)
    ctx.user("hello")
    ctx.user("hello again")
    assert read_in(tmp_path, where) == EXPECTED
    ctx.close()


def test_commits_that_cannot_be_read_are_not_left_out(tmp_path: Path) -> None:
    """Without the -shm file, SQLite cannot read the log of a file in a read-only folder."""
    source = tmp_path / "source.db"
    ctx = quire.open(source)
    ctx.user("hello")
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("source.db", "source.db-wal"):
        shutil.copy(tmp_path / name, folder / name)
    ctx.close()
    answer = read_in(folder, f"sqlite:{folder / 'source.db'}")
    assert "StorageFailure" in answer
    assert "source.db-wal" in answer


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_store_without_the_permission_to_write_is_read(scheme: str, tmp_path: Path) -> None:
    where = f"{scheme}:{tmp_path / 'store'}"
    fill(where)
    paths = [tmp_path, *tmp_path.rglob("*")]
    for path in reversed(paths):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with quire.open(where) as ctx:
            assert len(ctx.messages()) == 2
            with pytest.raises(quire.errors.ReadOnly):
                ctx.user("One more")
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
