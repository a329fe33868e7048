"""The readable side of the file backend: a JSON header per page, its body beside it, and the list of segments.

It is written after the log and never read for the truth: delete `pages`, and opening the store writes it again.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from quire.core.records import (
    Gone,
    Header,
    HeadRecord,
    decode_body,
    decode_message,
    decode_page,
    decode_segment,
    page_number,
    segment_number,
)
from quire.model.clock import as_datetime
from quire.model.messages import as_text
from quire.model.pages import Mark, format_index
from quire.model.text import decode_meta, readable_json
from quire.storage.base import BODY, MESSAGE, PAGE, SEGMENT, Family, Record, file_name

Lookup = Callable[[Family, int], Record | None]


class Mirror:
    """The readable files of one context, below its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def clear(self) -> None:
        """Remove the readable files of all pages, to be written anew; what is not ours stays."""
        for file in self._files(".json", ".txt", ".new"):
            if file.parent != self._folder:
                file.unlink(missing_ok=True)

    def count(self) -> int:
        """How many readable files there are."""
        return sum(1 for _ in self._files(".json", ".txt"))

    def _files(self, *endings: str) -> Iterator[Path]:
        pages = self._folder / "pages"
        inner = sorted(folder for folder in pages.iterdir() if folder.is_dir()) if pages.is_dir() else []
        for folder in (self._folder, *inner):
            yield from (folder / name for name in os.listdir(folder) if name.endswith(endings))

    def write(self, head: HeadRecord, touched: Iterable[tuple[Family, int]], lookup: Lookup) -> None:
        """Bring the files of these records up to date with what `lookup` finds."""
        keys = set(touched)
        if any(family == SEGMENT for family, _ in keys):
            self._write_segments(head, lookup)
        for family, key in keys:
            if family == PAGE:
                self._write_page(head, key, lookup)

    def _write_segments(self, head: HeadRecord, lookup: Lookup) -> None:
        rows: list[dict[str, Any]] = []
        for number, counter in enumerate(head.counters):
            found = lookup(SEGMENT, number)
            segment = decode_segment(number, found.value) if found else None
            if segment is not None and not segment.gone:
                rows.append(
                    {
                        "id": counter.segment,
                        "name": segment.name,
                        "description": segment.description,
                        "type": segment.type.name,
                        "permission": segment.permission.name,
                        "maxCapacity": segment.max_capacity,
                        "position": segment.position,
                    }
                )
        _replace(self._folder / "segments.json", _json(sorted(rows, key=lambda row: row["position"])))

    def _write_page(self, head: HeadRecord, key: int, lookup: Lookup) -> None:
        index = _index(head, key)
        stem = self._stem(head, key, index)
        header, text = stem.with_suffix(".json"), stem.with_suffix(".txt")
        record = lookup(PAGE, key)
        page = decode_page(record) if record else None
        if page is None or isinstance(page, Gone):
            header.unlink(missing_ok=True)
            text.unlink(missing_ok=True)
            return
        body: int | list[int] = list(page.header.numbers) or page.header.body
        if not body:
            text.unlink(missing_ok=True)
        elif _body_of(header) != body:
            _replace(text, _text(page.header, lookup).encode())
        parent = None if page.parent is None else _index(head, page.parent)
        form: dict[str, Any] = {
            "index": index,
            "type": "ContentsPage" if page.header.folder else "DetailPage",
            "name": page.header.name,
            "description": page.header.description,
            "parent": parent,
            "lifecycle": page.header.lifecycle.name,
            "visibility": page.header.visibility.name,
            "pinned": page.header.pinned,
            "author": head.actors[page.header.author],
            "meta": decode_meta(page.header.meta),
            "summaryTokens": page.header.summary_tokens,
            "tokens": page.header.tokens,
            "createdAt": as_datetime(page.header.created).isoformat(),
            "updatedAt": as_datetime(page.header.created + page.header.age).isoformat(),
            "body": body,
        }
        if page.header.mark is not Mark.NONE:
            form["mark"] = page.header.mark.name
        _replace(header, _json(form))

    def _stem(self, head: HeadRecord, key: int, index: str) -> Path:
        segment = file_name(head.counters[segment_number(key)].segment)
        return self._folder / "pages" / segment / file_name(index)


def _index(head: HeadRecord, key: int) -> str:
    return format_index(head.counters[segment_number(key)].segment, page_number(key))


def _text(header: Header, lookup: Lookup) -> str:
    if header.numbers:
        found = ((number, lookup(MESSAGE, number)) for number in header.numbers)
        return as_text(decode_message(number, record.value).message for number, record in found if record)
    record = lookup(BODY, header.body)
    return decode_body(header.body, record.value) if record else ""


def _body_of(header: Path) -> object:
    """Which body, or which messages, the text beside this header is; None if there is no telling."""
    try:
        return json.loads(header.read_bytes())["body"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _json(value: object) -> bytes:
    return readable_json(value) + b"\n"


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new, never a part."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_bytes(data)
    except FileNotFoundError:  # the folder was never made, or someone deleted it
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(data)
    os.replace(fresh, path)
