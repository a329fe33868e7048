"""Simulated power failures: a disk that keeps any part of what was not synced.

The programs under test write real files. A `Disk` records what each file held at its last sync. After a failure, every
block that changed since then is the old one or the new one, as chance decides. A block that was never written is zeros.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

BLOCK = 512


class Disk:
    """The content of files at their last sync."""

    def __init__(self) -> None:
        self.synced: dict[str, bytes] = {}

    def sync(self, path: str) -> None:
        """Record the content of a file."""
        if os.path.isfile(path):
            self.synced[os.path.realpath(path)] = Path(path).read_bytes()

    def fail(self, source: Path, target: Path, chance: Random) -> None:
        """Copy a file or a folder as a power failure leaves it."""
        if source.is_dir():
            target.mkdir()
            for path in source.iterdir():
                self.fail(path, target / path.name, chance)
            return
        if source.suffix in (".json", ".txt", ".new"):  # readable files and the stamp are replaced, not overwritten
            shutil.copy(source, target)
        elif not source.name.endswith("-shm"):
            target.write_bytes(self._image(source, chance))

    def _image(self, path: Path, chance: Random) -> bytes:
        """Return the content of a file after a failure."""
        old, new = self.synced.get(os.path.realpath(path), b""), path.read_bytes()
        size = max(len(old), len(new))
        blocks = []
        for start in range(0, size, BLOCK):
            before, after = (data[start : start + BLOCK].ljust(BLOCK, b"\0") for data in (old, new))
            blocks.append(chance.choice([before, after]))
        length = len(new) if chance.random() < 0.7 else chance.randint(min(len(old), len(new)), size)
        return b"".join(blocks)[:length]


@contextmanager
def recorded_calls(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record the files that the program syncs itself."""
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, _recording(getattr(os, name), disk))
        patch.setattr(os, "link", _recording_link(os.link, disk))
        yield


def _recording(sync: Any, disk: Disk) -> Any:
    def call(file: int) -> None:
        sync(file)
        disk.sync(os.readlink(f"/proc/self/fd/{file}"))

    return call


def _recording_link(link: Any, disk: Disk) -> Any:
    def call(path: str, other: str) -> None:
        link(path, other)
        if os.path.realpath(path) in disk.synced:
            disk.sync(other)

    return call


@contextmanager
def recorded_sqlite(disk: Disk) -> Iterator[None]:
    """Record the files that SQLite syncs, with a VFS over the usual one."""

    base = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, inherit: str, name: Any, flags: Any) -> None:
            self.path = name.filename() if isinstance(name, apsw.URIFilename) else name
            super().__init__(inherit, name, flags)

        def xSync(self, flags: int) -> None:  # noqa: N802 - the name in SQLite
            super().xSync(flags)
            disk.sync(self.path)

    class Vfs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("recorded", base, makedefault=True)

        def xOpen(self, name: Any, flags: Any) -> File:  # noqa: N802 - the name in SQLite
            return File(base, name, flags)

    vfs = Vfs()
    try:
        yield
    finally:
        vfs.unregister()
