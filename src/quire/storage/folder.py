"""The readable files of a context in a folder. They are written after a commit, and never read as data.

    DIR/<context>/segments.json
    DIR/<context>/pages/<segment>/<index>.json and <index>.txt
    DIR/<context>/pages/.at-<id>-<entry>-<files>    which entry the files show, and how many there are

A storage cannot decode records, so the core registers a describer, which makes files of them. A process without one
writes no files; the next process with one catches up. A backend with five calls gets its items from the same describer.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Final

from quire.errors import QuireError
from quire.storage.blobs import write_private
from quire.storage.contract import NOTE, PAGE, Commit, Family, Id, Record, Storage

Lookup = Callable[[Family, int], Record | None]
"""Returns a record of the context, or None."""
Describer = Callable[[int, bytes, Lookup, Iterable[tuple[Family, int]]], Iterator[tuple[str, bytes | None]]]
"""Yields the paths and contents of the files of these records, without content for a file that must not exist.

It gets the number of an entry, the head there, and a function that returns records. Raises `Corrupt`.
"""
_describer: Describer | None = None
_FAILED: Final = -1
"""If the files cannot be written, such as those of a damaged page, they wait for the next process."""


def register_describer(describer: Describer | None) -> Describer | None:
    """Use this describer for all readable files in the process. Return the one before."""
    global _describer
    before, _describer = _describer, describer
    return before


def describer() -> Describer | None:
    """Return the describer of the process, if there is one."""
    return _describer


class PageFolder:
    """The readable files of one context. A failure is ignored: it does not undo the commit."""

    def __init__(self, folder: Path, storage: Storage, context: Id) -> None:
        self._folder, self._pages = folder, folder / "pages"
        self._storage, self._context = storage, context
        self._lock = RLock()
        self._at = self._count = 0
        """The entry that the files show, and how many they are."""

    def catch_up(self, seq: int, head: bytes) -> None:
        """Write all files again unless they show this entry. Call it when the context is loaded."""
        with self._lock, suppress(OSError, QuireError):
            if self._at in (seq, _FAILED) or _describer is None or self._leads_away():
                return
            self._at = _FAILED
            self._count = sum(1 for _ in self._files(".json", ".txt"))
            if not os.path.exists(self._marker(seq)):
                self.remove()
                self._count = 0
                families: tuple[Family, ...] = (NOTE, PAGE)
                records = (
                    (each, record.key) for each in families for record in self._storage.scan(self._context, each)
                )
                try:
                    self._write_all(_describer(seq, head, self._look_up, records))
                except IndexError:  # another writer was faster: a record is newer than the head
                    self._at = 0
                    return
                self._write(self._marker(seq), b"")
            self._at = seq

    def observe(self, commit: Commit) -> None:
        """Write the files of what a commit changed. Call it when the commit is made."""
        with self._lock, suppress(OSError, QuireError, IndexError):
            if _describer is None or self._at <= 0 or self._at != commit.first - 1:
                self.catch_up(commit.seq, commit.head)
                return
            before, self._at = self._marker(self._at), 0
            known = {(family, record.key): record for family, record in commit.put}

            def look_up(family: Family, key: int) -> Record | None:
                return known.get((family, key)) or self._look_up(family, key)

            self._write_all(_describer(commit.seq, commit.head, look_up, (*known, *commit.delete)))
            os.rename(before, self._marker(commit.seq))
            self._at = commit.seq

    def remove(self) -> None:
        """Remove the files, and the folders that are empty then. Files of other programs stay."""
        if not self._leads_away():
            for path in (*self._files(".json", ".txt", ".new"), *self._pages.glob(".at-*")):
                path.unlink(missing_ok=True)
            for folder in (*self._segments(), self._pages, self._folder):
                with suppress(OSError):  # it is not empty
                    folder.rmdir()

    def _look_up(self, family: Family, key: int) -> Record | None:
        return self._storage.get(self._context, family, [key])[0]

    def _marker(self, seq: int) -> str:
        return f"{self._pages}/.at-{self._context:x}-{seq}-{self._count}"

    def _segments(self) -> list[Path]:
        return [path for path in self._pages.iterdir() if path.is_dir()] if self._pages.is_dir() else []

    def _files(self, *endings: str) -> Iterator[Path]:
        for folder in filter(Path.is_dir, (self._folder, *self._segments())):
            yield from (folder / name for name in os.listdir(folder) if name.endswith(endings))

    def _leads_away(self) -> bool:
        """Return whether a link leads out of the folder: an erasure could not promise anything there."""
        return any(path.is_symlink() for path in (self._folder, self._pages, *self._segments()))

    def _write_all(self, files: Iterator[tuple[str, bytes | None]]) -> None:
        """Write and remove files. A reader sees the old content of a file or the new one, never a part of a change."""
        for name, data in files:
            path = f"{self._folder}/{name}"
            is_there = os.path.exists(path)
            self._count += (data is not None) - is_there
            if data is None:
                if is_there:
                    os.unlink(path)
            elif is_there:
                write_private(f"{path}.new", data)
                os.replace(f"{path}.new", path)
            else:
                self._write(path, data)

    def _write(self, path: str, data: bytes) -> None:
        """Write a new file."""
        try:
            write_private(path, data)
        except FileNotFoundError:  # the folder is new, or was deleted
            for folder in (self._folder, self._pages, os.path.dirname(path)):
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            write_private(path, data)
