"""Writing the whole context as one JSON document, in the form of the design documents."""

from typing import Any

from quire.clock import as_datetime
from quire.pages import format_index
from quire.reader import slot
from quire.records import PageRecord
from quire.state import State
from quire.system import transcript
from quire.system.present import to_text
from quire.text import decode_meta, readable_json

VERSION = 1


def marshal(state: State) -> bytes:
    """The whole context as JSON: all segments and pages, cold and private ones included; the journal not."""
    live = state.live_segments()
    segments = []
    for number, segment in live:
        counter = state.counters[number]
        segments.append(
            {
                "id": counter.segment,
                "name": segment.name,
                "description": segment.description,
                "type": segment.type,
                "permission": segment.permission,
                "maxCapacity": segment.max_capacity,
                "rootIndex": format_index(counter.segment, 0),
                "nextIndex": counter.next,
                "createdAt": _time(segment.created),
                "updatedAt": _time(segment.updated),
            }
        )
    document = {
        "version": VERSION,
        "segments": segments,
        "pages": {state.index(page.key): _page_form(state, page) for page in state.segment_pages()},
        "nextIndex": max((state.counters[number].next for number, _ in live), default=1) - 1,
        "createdAt": _time(state.head.created),
        "updatedAt": _time(state.head.updated),
    }
    if outdated := state.outdated():  # it may be made of two states
        raise outdated
    return readable_json(document)


def _page_form(state: State, page: PageRecord) -> dict[str, Any]:
    header = page.header
    form: dict[str, Any] = {
        "type": "ContentsPage" if header.folder else "DetailPage",
        "name": header.name,
        "description": header.description,
        "lifecycle": header.lifecycle,
        "visibility": header.visibility,
        "parent": "" if page.parent is None or page.is_cold else state.index(page.parent),
        "pinned": header.pinned,
        "author": state.actor(header.author),
        "createdAt": _time(header.created),
        "updatedAt": _time(header.created + header.age),
    }
    if header.meta:
        form["meta"] = decode_meta(header.meta)
    if page.is_cold:
        form["home"] = _home_form(state, page)
    if header.folder:
        form["children"] = [state.index(child.key) for child in state.members(page.key)]
    else:
        form["detail"] = to_text(state, header)
        form["messageCount"] = header.messages
        form |= transcript.write(state, header)
    return form


def _home_form(state: State, page: PageRecord) -> dict[str, str]:
    """Where a cold page would return to: the folder, and the page before it there, cold ones counted."""
    kept = page.parent is not None and isinstance(state.page(page.parent), PageRecord)  # cold itself, perhaps
    home = page.parent if kept and page.parent is not None else state.home_of(page)
    after = slot(page) if kept else None
    ends = (next(state.members(home, after=after, reverse=True, cold=cold), None) for cold in (False, True))
    left = max((end for end in ends if end is not None), key=slot, default=None)
    return {"parent": state.index(home), "after": "" if left is None else state.index(left.key)}


def _time(milliseconds: int) -> str:
    return as_datetime(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
