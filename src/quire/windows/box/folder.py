"""A folder that can be looked into and not left: no `..`, no absolute path, no link leads out of it."""

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from quire.errors import InvalidValue, short_repr

_HERE = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BY_HANDLE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class Listed(NamedTuple):
    """A file or folder: its name, its size, whether it is a folder."""

    name: str
    size: int
    folder: bool


class Folder:
    """Read-only sight of the files below one folder. Links are not followed, whoever makes them, and when."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise InvalidValue(f"root is {short_repr(root)}; a folder that exists is needed.")

    def is_folder(self, path: str) -> bool:
        """Whether this is a folder. Raises `InvalidValue` if there is nothing to see."""
        handle = self._open(path)
        try:
            return stat.S_ISDIR(os.fstat(handle).st_mode)
        finally:
            os.close(handle)

    def entries(self, path: str) -> list[Listed]:
        """What stands in a folder, folders first, by name; links and devices are left out."""
        handle = self._open(path)
        try:
            with os.scandir(handle if _BY_HANDLE else os.path.join(self.root, *_steps(path))) as found:
                listed = [entry for entry in map(_listed, found) if entry is not None]
        except NotADirectoryError:
            raise InvalidValue(f"{short_repr(path)} is a file; a folder is needed.") from None
        finally:
            os.close(handle)
        return sorted(listed, key=lambda entry: (not entry.folder, entry.name))

    def read(self, path: str, most: int) -> tuple[bytes, int]:
        """The first bytes of a file, and how many it has. Raises `InvalidValue` unless it is a plain file."""
        handle = self._open(path)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidValue(f"{short_repr(path)} is not a file that can be read; a plain file is needed.")
            return file.read(most), found.st_size

    def files(self, path: str, most: int) -> Iterator[str]:
        """The paths of the files below a folder, by name, at most so many."""
        left, waiting = most, [path]
        while waiting:
            folder = waiting.pop()
            entries = self.entries(folder)
            waiting += reversed([_joined(folder, entry.name) for entry in entries if entry.folder])
            for entry in entries:
                if not entry.folder and left > 0:
                    left -= 1
                    yield _joined(folder, entry.name)

    def _open(self, path: str) -> int:
        """A handle on a file or folder below the root, opened step by step so that no link is ever followed."""
        steps = _steps(path)
        try:
            if not _BY_HANDLE:
                return self._open_by_name(steps)
            handle = os.open(self.root, _HERE)
            for step in steps:
                above, handle = handle, -1
                try:
                    handle = os.open(step, _HERE, dir_fd=above)
                finally:
                    os.close(above)
            return handle
        except (OSError, ValueError):
            raise InvalidValue(
                f"There is no file or folder {short_repr(path)} here; list a folder to see what is."
            ) from None

    def _open_by_name(self, steps: list[str]) -> int:
        full = os.path.join(self.root, *steps)
        if os.path.realpath(full) != full:
            raise OSError("a link")
        return os.open(full, _HERE)


def _steps(path: str) -> list[str]:
    """The names on the way to a path below the root. Raises `InvalidValue` for a way out."""
    steps = [step for step in path.replace("\\", "/").split("/") if step not in ("", ".")]
    if path.startswith(("/", "\\")) or ".." in steps or any(":" in step or "\0" in step for step in steps):
        raise InvalidValue(f"path is {short_repr(path)}; a path below the folder is needed, such as 'src/main.py'.")
    return steps


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder.strip("/.") else name


def _listed(entry: "os.DirEntry[str]") -> Listed | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:  # it went away meanwhile
        return None
    if stat.S_ISDIR(found.st_mode):
        return Listed(entry.name, 0, folder=True)
    return Listed(entry.name, found.st_size, folder=False) if stat.S_ISREG(found.st_mode) else None
