"""The storage in a folder: a log of objects, and beside it files that people and tools such as `grep` can read.

DIR/.quire/…                          the data: `quire.storage.log`
DIR/<context>/pages/…, segments.json  readable: `quire.storage.folder`
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from quire.errors import OlderFormat
from quire.storage.base import Durability, check_durability
from quire.storage.blobs import Folder
from quire.storage.contract import Commit, Fork, Id, Loaded
from quire.storage.folder import PageFolder
from quire.storage.log import LogStorage
from quire.storage.paths import check_path, file_name

_DATA = ".quire"


class FileStorage(LogStorage):
    """Records in a folder. Several processes and threads can share it.

    With `durability="normal"` a commit survives `kill -9`; with `"full"` it survives power loss too. The folder and its
    files are for their owner only. The readable files are written after each commit.
    """

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "normal") -> None:
        self.path = check_path(path)
        self.durability = check_durability(durability)
        Folder(self.path)  # makes it, or says what is wrong with it
        if not (self.path / _DATA).exists() and any(map(_is_old_log, self.path.glob("*/log"))):
            raise OlderFormat(
                f"{str(self.path)!r} was written by quire 0.2 or older. Export its messages with that version, and"
                " import them here: docs/storage.md shows how."
            )
        self._folders: dict[Id, PageFolder] = {}
        super().__init__(Folder(self.path / _DATA, durability))

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        found = super().load(name, seen)
        if found is not None:
            self._folder(name, found.id).catch_up(found.seq, found.head)
        return found

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        context = super().create(name, commit, copy_of)
        if name is not None:
            self._folder(name, context).catch_up(commit.seq, commit.head)
        return context

    def name(self, context: Id, name: str) -> None:
        super().name(context, name)
        self.load(name)

    def commit(self, context: Id, commit: Commit) -> None:
        super().commit(context, commit)
        if context in self._folders:
            self._folders[context].observe(commit)

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        super().drop(name, seen)
        with suppress(OSError):  # a scrub removes the rest
            PageFolder(self.path / file_name(name), self, 0).remove()

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        left = super().scrub(context)
        if context is None:
            named = set(map(file_name, self.contexts()))
            for marker in self.path.glob("*/pages/.at-*"):
                if marker.parent.parent.name not in named:  # a drop was interrupted
                    PageFolder(marker.parent.parent, self, 0).remove()
        folders = (path for pattern in ("*", "*/pages", "*/pages/*") for path in self.path.glob(pattern))
        links = [str(path) for path in folders if path.is_symlink()]
        return (*left, f"{links[0]!r} is a symbolic link: readable files may be where it leads.") if links else left

    def _folder(self, name: str, context: Id) -> PageFolder:
        return self._folders.setdefault(context, PageFolder(self.path / file_name(name), self, context))


def _is_old_log(path: Path) -> bool:
    """Return whether a file is the log of a context of quire 0.2."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(10) == b"quire log "
    return False
