"""What `--json` prints of the library's values beside pages, under the names that the HTTP API has for them."""

from typing import Any

from quire.model.page_json import STATES
from quire.model.pages import Segment
from quire.search.find import Hit
from quire.system import Entry
from quire.view.view import View

Values = dict[str, Any]


def segment_values(segment: Segment) -> Values:
    """A segment."""
    return {
        "id": segment.id,
        "name": segment.name,
        "description": segment.description,
        "type": segment.type.name,
        "permission": segment.permission.name,
        "max_capacity": segment.max_capacity,
        "root": segment.root_index,
    }


def hit_values(hit: Hit) -> Values:
    """A page that was found."""
    return {
        "index": hit.index,
        "name": hit.name,
        "description": hit.description,
        "score": hit.score,
        "snippet": hit.snippet,
        "path": hit.path,
        "lifecycle": STATES[hit.lifecycle],
        "complete": hit.complete,
    }


def entry_values(entry: Entry) -> Values:
    """A journal entry, without what its records were before."""
    return {
        "seq": entry.seq,
        "time": entry.time,
        "actor": entry.actor,
        "operation": entry.operation,
        "pages": entry.pages,
        "segments": entry.segments,
        "undoes": entry.undoes,
    }


def view_values(view: View) -> Values:
    """What a view is made of, without its messages."""
    return {
        "seq": view.seq,
        "tokens": view.tokens,
        "budget": view.budget,
        "messages": len(view.messages),
        "kinds": view.by_kind(),
        "pages": [
            {"index": shown.index, "kind": part.kind, "shown": shown.granularity, "tokens": shown.tokens}
            for part in view.parts
            for shown in part.pages
        ],
    }
