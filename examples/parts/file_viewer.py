"""A viewer of the files in one folder: read-only, with pages and search."""

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from quire import App, action
from quire.errors import InvalidValue, short_repr

_PAGE = 60
_MAX_BYTES = 16 << 20
_MAX_WIDTH = 400
_MAX_FILES = 2_000
_MAX_SEARCHED = 32 << 20
_MAX_HITS = 30
_MAX_ENTRIES = 300


class Files(App):
    """Shows a folder, or one page of a file, below one root. It writes nothing and reads nothing outside the root."""

    name = "files"
    description = "A viewer of files"

    def __init__(self, root: str | os.PathLike[str] = ".") -> None:
        self._folder = Folder(root)
        self._path = ""
        self._page = 1
        self._query = ""

    def open(self, path: str = "") -> None:
        self.show(path)

    def content(self) -> str:
        if self._query:
            return self._hits()
        if self._folder.is_folder(self._path):
            return self._listing()
        return self._lines()

    @action("Show a file or a folder")
    def show(self, path: str, page: int = 1) -> str:
        self._folder.is_folder(path)
        self._path, self._page, self._query = path, max(1, page), ""
        return f"Showing {path or 'the folder'}."

    @action("Show another page of the file")
    def page(self, number: int) -> str:
        self._page, self._query = max(1, number), ""
        return f"Page {self._page}."

    @action("Find lines with a text in the file or below the folder shown")
    def search(self, text: str) -> str:
        if not text.strip():
            raise InvalidValue(f"is {short_repr(text)}; a text to search for is needed.", argument="text")
        self._query = text
        return f"Searching for {short_repr(text)}."

    def save(self) -> dict[str, Any]:
        return {"path": self._path, "page": self._page, "query": self._query}

    def restore(self, saved: Any) -> None:
        self._path, self._page, self._query = str(saved["path"]), int(saved["page"]), str(saved["query"])

    def _listing(self) -> str:
        entries = self._folder.entries(self._path)
        lines = [f"{e.name}/" if e.folder else f"{e.name} ({e.size:,} bytes)" for e in entries[:_MAX_ENTRIES]]
        more = [f"… and {len(entries) - _MAX_ENTRIES:,} more"] if len(entries) > _MAX_ENTRIES else []
        return "\n".join([f"{self._path or '.'}: {len(entries)} entries", *lines, *more])

    def _lines(self) -> str:
        lines, size = self._text(self._path)
        if lines is None:
            return f"{self._path}: {size:,} bytes, not text"
        pages = max(1, -(-len(lines) // _PAGE))
        page = min(self._page, pages)
        first = (page - 1) * _PAGE
        numbered = [f"{n} {_narrow(line)}" for n, line in enumerate(lines[first : first + _PAGE], first + 1)]
        cut = f", the first {_MAX_BYTES:,} bytes of {size:,}" if size > _MAX_BYTES else ""
        return "\n".join([f"{self._path}: page {page} of {pages}, {len(lines):,} lines{cut}", *numbered])

    def _hits(self) -> str:
        wanted, found, left = self._query.casefold(), list[str](), _MAX_SEARCHED
        single = not self._folder.is_folder(self._path)
        for path in [self._path] if single else self._folder.files(self._path, _MAX_FILES):
            lines, size = self._text(path)
            left -= min(size, _MAX_BYTES)
            found += [
                f"{path}:{n} {_narrow(line)}" for n, line in enumerate(lines or (), 1) if wanted in line.casefold()
            ]
            if len(found) > _MAX_HITS or left <= 0:
                break
        more = " (the first ones)" if len(found) > _MAX_HITS or left <= 0 else ""
        head = f"{min(len(found), _MAX_HITS)} lines with {short_repr(self._query)} in {self._path or '.'}{more}"
        return "\n".join([head, *found[:_MAX_HITS]])

    def _text(self, path: str) -> tuple[list[str] | None, int]:
        """Return the lines of a file (None if it is not text) and its size."""
        data, size = self._folder.read(path, _MAX_BYTES)
        if b"\0" in data[:8192]:
            return None, size
        return data.decode("utf-8", "replace").splitlines(), size


def _narrow(line: str) -> str:
    return line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}… ({len(line):,} characters)"


# The guarded folder: no `..`, no absolute path and no link leads out of it.

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BY_HANDLE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class FolderEntry(NamedTuple):
    """A file or folder: its name, its size, whether it is a folder."""

    name: str
    size: int
    folder: bool


class Folder:
    """Read-only access to the files below one folder. It never follows a link, even one that is made during a read."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise InvalidValue(f"is {short_repr(root)}; a folder that exists is needed.", argument="root")

    def is_folder(self, path: str) -> bool:
        """Return whether the path is a folder. Raise `InvalidValue` if there is nothing to read."""
        handle = self._open(path)
        try:
            return stat.S_ISDIR(os.fstat(handle).st_mode)
        finally:
            os.close(handle)

    def entries(self, path: str) -> list[FolderEntry]:
        """Return the entries of a folder: folders first, then by name. Links and devices are left out."""
        handle = self._open(path)
        try:
            with os.scandir(handle if _BY_HANDLE else os.path.join(self.root, *_steps(path))) as found:
                entries = [entry for entry in map(_entry, found) if entry is not None]
        except NotADirectoryError:
            raise InvalidValue(f"{short_repr(path)} is a file; a folder is needed.") from None
        finally:
            os.close(handle)
        return sorted(entries, key=lambda entry: (not entry.folder, entry.name))

    def read(self, path: str, limit: int) -> tuple[bytes, int]:
        """Return the first `limit` bytes of a file and its size. Raise `InvalidValue` unless it is a regular file."""
        handle = self._open(path)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidValue(f"{short_repr(path)} is not a regular file.")
            return file.read(limit), status.st_size

    def files(self, path: str, limit: int) -> Iterator[str]:
        """Yield the paths of at most `limit` files below a folder, by name."""
        left, waiting = limit, [path]
        while waiting:
            folder = waiting.pop()
            entries = self.entries(folder)
            waiting += reversed([_join(folder, entry.name) for entry in entries if entry.folder])
            for entry in entries:
                if not entry.folder and left > 0:
                    left -= 1
                    yield _join(folder, entry.name)

    def _open(self, path: str) -> int:
        """Open a file or folder below the root, one path step at a time, so that no link is followed."""
        steps = _steps(path)
        try:
            if not _BY_HANDLE:
                return self._open_by_name(steps)
            handle = os.open(self.root, _FLAGS)
            for step in steps:
                above, handle = handle, -1
                try:
                    handle = os.open(step, _FLAGS, dir_fd=above)
                finally:
                    os.close(above)
            return handle
        except (OSError, ValueError):
            raise InvalidValue(
                f"There is no file or folder {short_repr(path)} here. Show a folder to list its entries."
            ) from None

    def _open_by_name(self, steps: list[str]) -> int:
        full = os.path.join(self.root, *steps)
        if os.path.realpath(full) != full:
            raise OSError("a link")
        return os.open(full, _FLAGS)


def _steps(path: str) -> list[str]:
    """Return the names on the way to a path below the root. Raise `InvalidValue` for a path that leads out of it."""
    steps = [step for step in path.replace("\\", "/").split("/") if step not in ("", ".")]
    if path.startswith(("/", "\\")) or ".." in steps or any(":" in step or "\0" in step for step in steps):
        raise InvalidValue(
            f"is {short_repr(path)}; a path below the folder is needed, such as 'src/main.py'.", argument="path"
        )
    return steps


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder.strip("/.") else name


def _entry(entry: "os.DirEntry[str]") -> FolderEntry | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # removed in the meantime
        return None
    if stat.S_ISDIR(status.st_mode):
        return FolderEntry(entry.name, 0, folder=True)
    return FolderEntry(entry.name, status.st_size, folder=False) if stat.S_ISREG(status.st_mode) else None
