"""A viewer of the files in one folder: read-only, with pages and search."""

import os
from typing import Any

from quire.errors import InvalidValue, short_repr
from quire.windows.actions import action
from quire.windows.app import App
from quire.windows.box.folder import Folder

_PAGE = 60
_MOST_BYTES = 16 << 20
_MOST_WIDTH = 400
_MOST_FILES = 2_000
_MOST_SEARCHED = 32 << 20
_MOST_HITS = 30
_MOST_ENTRIES = 300


class Files(App):
    """Shows a folder or a page of a file below one root. Nothing is written, and nothing outside is seen."""

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
            raise InvalidValue(f"text is {short_repr(text)}; something to look for is needed.")
        self._query = text
        return f"Searching for {short_repr(text)}."

    def save(self) -> dict[str, Any]:
        return {"path": self._path, "page": self._page, "query": self._query}

    def restore(self, saved: Any) -> None:
        self._path, self._page, self._query = str(saved["path"]), int(saved["page"]), str(saved["query"])

    def _listing(self) -> str:
        entries = self._folder.entries(self._path)
        shown_ones = [f"{e.name}/" if e.folder else f"{e.name} ({e.size:,} bytes)" for e in entries[:_MOST_ENTRIES]]
        more = [f"… and {len(entries) - _MOST_ENTRIES:,} more"] if len(entries) > _MOST_ENTRIES else []
        return "\n".join([f"{self._path or '.'}: {len(entries)} entries", *shown_ones, *more])

    def _lines(self) -> str:
        lines, size = self._text(self._path)
        if lines is None:
            return f"{self._path}: {size:,} bytes, not text"
        pages = max(1, -(-len(lines) // _PAGE))
        page = min(self._page, pages)
        first = (page - 1) * _PAGE
        numbered = [f"{n} {_narrow(line)}" for n, line in enumerate(lines[first : first + _PAGE], first + 1)]
        cut = f", the first {_MOST_BYTES:,} bytes of {size:,}" if size > _MOST_BYTES else ""
        return "\n".join([f"{self._path}: page {page} of {pages}, {len(lines):,} lines{cut}", *numbered])

    def _hits(self) -> str:
        wanted, found, left = self._query.casefold(), list[str](), _MOST_SEARCHED
        single = not self._folder.is_folder(self._path)
        for path in [self._path] if single else self._folder.files(self._path, _MOST_FILES):
            lines, size = self._text(path)
            left -= min(size, _MOST_BYTES)
            found += [
                f"{path}:{n} {_narrow(line)}" for n, line in enumerate(lines or (), 1) if wanted in line.casefold()
            ]
            if len(found) > _MOST_HITS or left <= 0:
                break
        more = " (the first ones)" if len(found) > _MOST_HITS or left <= 0 else ""
        head = f"{min(len(found), _MOST_HITS)} lines with {short_repr(self._query)} in {self._path or '.'}{more}"
        return "\n".join([head, *found[:_MOST_HITS]])

    def _text(self, path: str) -> tuple[list[str] | None, int]:
        """The lines of a file, None if it is no text, and its size."""
        data, size = self._folder.read(path, _MOST_BYTES)
        if b"\0" in data[:8192]:
            return None, size
        return data.decode("utf-8", "replace").splitlines(), size


def _narrow(line: str) -> str:
    return line if len(line) <= _MOST_WIDTH else f"{line[:_MOST_WIDTH]}… ({len(line):,} characters)"
