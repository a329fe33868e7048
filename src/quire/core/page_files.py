"""Pages and segments as the readable JSON and text files of the file backend."""

from typing import Any

from quire.core.records import (
    Gone,
    Header,
    decode_body,
    decode_head,
    decode_message,
    decode_page,
    decode_segment,
    page_number,
    segment_number,
)
from quire.model.clock import to_datetime
from quire.model.messages import messages_to_text
from quire.model.pages import Mark, format_index
from quire.model.text import decode_meta
from quire.storage.base import BODY, MESSAGE, PAGE, SEGMENT
from quire.storage.file import Lookup, PageFile


class ContextDescription:
    """Decodes the records of one context at one head. Every method raises `Corrupt`."""

    def __init__(self, head: bytes, lookup: Lookup) -> None:
        self._head = decode_head(head)
        self._lookup = lookup

    def segments(self) -> list[dict[str, Any]]:
        """Return the JSON of all segments, in order."""
        rows: list[dict[str, Any]] = []
        for number, counter in enumerate(self._head.counters):
            found = self._lookup(SEGMENT, number)
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
        return sorted(rows, key=lambda row: row["position"])

    def page(self, key: int) -> PageFile:
        """Return the readable form of a page."""
        segment, index = self._head.counters[segment_number(key)].segment, self._index(key)
        record = self._lookup(PAGE, key)
        page = decode_page(record) if record else None
        if page is None or isinstance(page, Gone):
            return PageFile(segment, index, None, str)
        header = page.header
        form: dict[str, Any] = {
            "index": index,
            "type": "ContentsPage" if header.folder else "DetailPage",
            "name": header.name,
            "description": header.description,
            "parent": None if page.parent is None else self._index(page.parent),
            "lifecycle": header.lifecycle.name,
            "visibility": header.visibility.name,
            "pinned": header.pinned,
            "author": self._head.actors[header.author],
            "meta": decode_meta(header.meta),
            "summaryTokens": header.summary_tokens,
            "tokens": header.tokens,
            "createdAt": to_datetime(header.created).isoformat(),
            "updatedAt": to_datetime(header.created + header.age).isoformat(),
            "body": list(header.numbers) or header.body,
        }
        if header.mark is not Mark.NONE:
            form["mark"] = header.mark.name
        return PageFile(segment, index, form, lambda: self._text(header))

    def _index(self, key: int) -> str:
        return format_index(self._head.counters[segment_number(key)].segment, page_number(key))

    def _text(self, header: Header) -> str:
        if header.numbers:
            found = ((number, self._lookup(MESSAGE, number)) for number in header.numbers)
            return messages_to_text(decode_message(number, record.value).message for number, record in found if record)
        record = self._lookup(BODY, header.body)
        return decode_body(header.body, record.value) if record else ""
