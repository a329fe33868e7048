"""The power topic: the simulated disk, and its control."""

import shutil
from pathlib import Path
from random import Random

import pytest

from proof import power
from proof.disk import Call, Disk, File, Write
from proof.topic import Options


def call(name: str, *arguments: str, result: int = 0) -> Call:
    return Call(name, list(arguments), result)


def images(disk: Disk, folder: Path) -> set[tuple[tuple[str, bytes], ...]]:
    """Return the disks that many failures leave."""
    found = set()
    for number in range(300):
        target = folder / str(number)
        disk.fail(target, Random(number))
        found.add(tuple(sorted((path.name, path.read_bytes()) for path in target.rglob("*") if path.is_file())))
    return found


def test_a_disk_keeps_what_was_synced_and_any_part_of_the_rest(tmp_path: Path) -> None:
    disk = Disk(Path("/d"))
    for one in (
        call("openat", "AT_FDCWD</>", '"/d/a"', "O_RDWR|O_CREAT", result=3),
        call("pwrite64", "3</d/a>", '"\\x31\\x32"', "2", "0", result=2),
        call("fsync", "3</d/a>"),
        call("fsync", "4</d>"),
        call("pwrite64", "3</d/a>", '"\\x33"', "1", "2", result=1),
        call("pwrite64", "3</d/a>", '"\\x34"', "1", "3", result=1),
        call("rename", '"/d/a"', '"/d/b"'),
    ):
        disk.apply(one)
    contents = {b"12", b"123", b"12\x004", b"1234"}
    assert images(disk, tmp_path) == {((name, content),) for name in "ab" for content in contents}


def test_a_write_tears_between_sectors_only() -> None:
    file = File(pending=[Write(100, b"x" * 1_000)])
    found = {file.image(Random(number), tear=True) for number in range(300)}
    parts = [bytes(100) + b"x" * 412, b"x" * 512, b"x" * 76]
    assert b"" in found
    assert b"".join(parts) in found
    assert b"".join([bytes(512), parts[1]]) in found
    assert len(found) == 8


def test_an_unknown_call_is_refused() -> None:
    with pytest.raises(ValueError, match="not simulated: copy_file_range"):
        Disk(Path("/d")).apply(call("copy_file_range", "3</d/a>", "NULL", "4</d/b>", "NULL", "9", "0"))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_control_is_found_and_full_loses_nothing(tmp_path: Path) -> None:
    (control,) = power.control(Options(folder=tmp_path / "control", seed=3, backends=("file",)))
    assert control.found, control.evidence
    failures = power.Failures("file", "full", 3, 6, tmp_path / "full")
    assert failures.check_recording() == ""
    assert failures.run(10, Random(3), None) == (10, [])
