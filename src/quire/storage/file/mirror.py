"""The readable files of the file backend: a JSON header and a text per page, and the list of segments.

They are written after the log and never read as data. If `pages` is deleted, opening the store writes it again.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from quire.model.text import format_json
from quire.storage.base import PAGE, SEGMENT, Family
from quire.storage.file import Description, PageFile
from quire.storage.paths import file_name


class Mirror:
    """The readable files of one context, in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Remove the files of all pages before they are written again. Files of other programs stay."""
        for file in self._files(".json", ".txt", ".new"):
            if file.parent != self._folder:
                file.unlink(missing_ok=True)

    def count(self) -> int:
        """Return the number of readable files."""
        return sum(1 for _ in self._files(".json", ".txt"))

    def write(self, description: Description, changed: Iterable[tuple[Family, int]]) -> None:
        """Update the files of these records."""
        keys = set(changed)
        if any(family == SEGMENT for family, _ in keys):
            _replace(self._folder / "segments.json", _json(description.segments()))
        for family, key in keys:
            if family == PAGE:
                self._write_page(description.page(key))

    def _files(self, *endings: str) -> Iterator[Path]:
        pages = self._folder / "pages"
        inner = sorted(folder for folder in pages.iterdir() if folder.is_dir()) if pages.is_dir() else []
        for folder in (self._folder, *inner):
            yield from (folder / name for name in os.listdir(folder) if name.endswith(endings))

    def _write_page(self, page: PageFile) -> None:
        stem = self._folder / "pages" / file_name(page.segment) / file_name(page.index)
        header, text = stem.with_suffix(".json"), stem.with_suffix(".txt")
        if page.header is None:
            header.unlink(missing_ok=True)
            text.unlink(missing_ok=True)
            return
        body = page.header["body"]
        if not body:
            text.unlink(missing_ok=True)
        elif _body_in(header) != body:
            _replace(text, page.text().encode())
        _replace(header, _json(page.header))


def _body_in(header: Path) -> object:
    """Return the body, or the messages, that the text file holds according to its header; None if unknown."""
    try:
        return json.loads(header.read_bytes())["body"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _json(value: object) -> bytes:
    return format_json(value) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_bytes(data)
    except FileNotFoundError:  # the folder is new, or was deleted
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(data)
    os.replace(fresh, path)
