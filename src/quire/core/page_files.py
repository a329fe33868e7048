"""Pages as other stores show them: as the readable files of a folder, and as items of a backend with five calls."""

from collections.abc import Iterable, Iterator
from typing import Any

from quire.core.codec import decode_body, decode_head, decode_message, decode_note, decode_page, note_kind
from quire.core.records import (
    MESSAGES,
    SEGMENTS,
    Gone,
    Header,
    HeadRecord,
    PageRecord,
    SegmentRecord,
    page_number,
    segment_number,
)
from quire.model.clock import to_datetime
from quire.model.messages import messages_to_text
from quire.model.pages import Mark, format_index
from quire.model.text import decode_meta, format_json
from quire.storage.contract import NOTE, PAGE, TEXT, Family
from quire.storage.folder import Lookup
from quire.storage.paths import file_name


def describe(
    seq: int, head: bytes, lookup: Lookup, changed: Iterable[tuple[Family, int]]
) -> Iterator[tuple[str, bytes | None]]:
    """Yield the files of changed records, as paths and contents; no content if there is no such page. Raises `Corrupt`.

    `lookup` returns the records of the context at entry `seq`, whose head is given.
    """
    known = decode_head(seq, head)
    has_segments = False
    for family, key in changed:
        has_segments = has_segments or (family == NOTE and note_kind(key) == SEGMENTS)
        if family == PAGE:
            yield from _page_files(known, lookup, key)
    if has_segments:
        yield "segments.json", format_json(_segments(known, lookup))


def _segments(head: HeadRecord, lookup: Lookup) -> list[dict[str, Any]]:
    """Return the JSON of all segments, in order."""
    rows: list[dict[str, Any]] = []
    for number, counter in enumerate(head.counters):
        found = lookup(NOTE, SEGMENTS + number)
        segment = decode_note(found) if found else None
        if isinstance(segment, SegmentRecord) and not segment.gone:
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


def _page_files(head: HeadRecord, lookup: Lookup, key: int) -> Iterator[tuple[str, bytes | None]]:
    index = _index(head, key)
    path = f"pages/{file_name(head.counters[segment_number(key)].segment)}/{file_name(index)}"
    record = lookup(PAGE, key)
    page = decode_page(record) if record else None
    if page is None or isinstance(page, Gone):
        yield f"{path}.json", None
        yield f"{path}.txt", None
        return
    text = _text(lookup, page.header)
    yield f"{path}.json", format_json(_form(head, index, page))
    yield f"{path}.txt", text.encode() if text else None


def _form(head: HeadRecord, index: str, page: PageRecord) -> dict[str, Any]:
    header = page.header
    form: dict[str, Any] = {
        "index": index,
        "type": "ContentsPage" if header.folder else "DetailPage",
        "name": header.name,
        "description": header.description,
        "parent": None if page.parent is None else _index(head, page.parent),
        "lifecycle": header.lifecycle.name,
        "visibility": header.visibility.name,
        "pinned": header.pinned,
        "author": head.actors[header.author],
        "meta": decode_meta(header.meta),
        "summaryTokens": header.summary_tokens,
        "tokens": header.tokens,
        "createdAt": to_datetime(header.created).isoformat(),
        "updatedAt": to_datetime(header.created + header.age).isoformat(),
        "body": list(header.numbers) or header.body,
    }
    return form if header.mark is Mark.NONE else {**form, "mark": header.mark.name}


def _index(head: HeadRecord, key: int) -> str:
    return format_index(head.counters[segment_number(key)].segment, page_number(key))


def _text(lookup: Lookup, header: Header) -> str:
    if header.numbers:
        found = (lookup(TEXT, MESSAGES + number) for number in header.numbers)
        return messages_to_text(decode_message(record).message for record in found if record)
    record = lookup(TEXT, header.body) if header.body else None
    return decode_body(record) if record else ""
