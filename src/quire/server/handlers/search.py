"""Search: pages that answer a query, with what was found marked."""

import re
from typing import Any

from quire.model.page_json import STATES
from quire.model.pages import Lifecycle
from quire.search.find import Hit
from quire.search.snippets import CLOSE, OPEN
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.server.handlers.pages import segment_of

_LIFECYCLES = {state: lifecycle for lifecycle, state in STATES.items()}
_MARKED = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")


def find(desk: Desk, request: Asked) -> told.Hits:
    """The pages that answer a query, best first."""
    query: asked.SearchQuery = request.query
    lifecycle: Lifecycle | None = None if query.lifecycle is None else _LIFECYCLES[query.lifecycle]
    filters: dict[str, Any] = {
        "segment": query.segment,
        "role": query.role,
        "kind": query.kind,
        "lifecycle": lifecycle,
    }
    with desk.shelf.use(request.path["c"]) as opened:
        hits = opened.context.find(query.q, query.limit, **filters)
        return told.Hits(hits=[_line(hit) for hit in hits], seq=opened.context.seq)


def _line(hit: Hit) -> told.HitLine:
    return told.HitLine(
        index=hit.index,
        name=hit.name,
        description=hit.description,
        score=hit.score,
        snippet=_pieces(hit.snippet),
        path=list(hit.path),
        lifecycle=STATES[hit.lifecycle],
        segment=segment_of(hit.index),
        complete=hit.complete,
    )


def _pieces(snippet: str) -> list[told.Piece]:
    """The passage, cut at the marks around what was found."""
    pieces = [told.Piece(text=text, hit=n % 2 == 1) for n, text in enumerate(_MARKED.split(snippet))]
    return [piece for piece in pieces if piece.text]
