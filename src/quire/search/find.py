"""`find`: from a query to hits, in the scope of a viewer."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypedDict

from msgspec import Struct

from quire.core.reader import Reader
from quire.core.records import Gone, Header, PageRecord
from quire.core.state import State
from quire.errors import InvalidValue, NoSuchSegment, check_names, short_repr
from quire.model.clock import check_moment, to_datetime, to_milliseconds
from quire.model.pages import Form, Lifecycle, PageIndex
from quire.search.index_protocol import Index, IndexLost
from quire.search.indexing import query_index
from quire.search.page_text import OPEN, DisplayText, is_searchable, make_snippet, read_body, read_display_text
from quire.search.query import Query, Scope, all_segments, parse_query
from quire.search.rank import NearestPages, RankedPage, demote, rank
from quire.search.self_search_filter import echo_cache_of
from quire.search.tokenizer import WITHOUT_ACCENTS, normalize_text
from quire.search.vectors import Embedder, try_vectors
from quire.storage.contract import MAX_KEY

_Entry = tuple[RankedPage, PageRecord]
_AGAIN = 8
_MOST_LOOKED_AT = 1_024
"""The most hits that one search checks for echoes; the next search checks further ones."""
_BELOW = 16
"""The number of further hits among which pages below a chapter are searched."""
_LOOKED_AT = 256
"""The number of hits whose text is compared with the query letter for letter."""
_LIFECYCLES = ", ".join(f"Lifecycle.{member.name}" for member in Lifecycle)
_ROLES: dict[str, Callable[[Header], bool]] = {
    "user": lambda header: header.form is Form.USER,
    "assistant": lambda header: header.form is Form.ASSISTANT,
    "system": lambda header: header.form is Form.SYSTEM,
    "tool": lambda header: header.form is Form.TOOL or (header.form is Form.ASSISTANT and len(header.numbers) > 1),
}
_KINDS: dict[str, Callable[[Header], bool]] = {
    "folder": lambda header: header.folder,
    "leaf": lambda header: not header.folder,
    "exchange": lambda header: bool(header.numbers),
    "chapter": lambda header: header.form is Form.CHAPTER,
    "summary": lambda header: header.form is Form.SUMMARY,
    "text": lambda header: not header.folder and header.form is Form.TEXT,
}


class Hit(Struct, frozen=True, kw_only=True):
    """A page that matches a query, best first by `score`.

    `snippet` is the best passage in one line, with «marks» around the matches. `path` has the folders above the page,
    the root first; a page in the cold archive has none. `complete` is True if the page contains everything that was
    asked for. `echo` is True if it only quotes other pages, because a model searched this context there.
    """

    index: PageIndex
    name: str
    description: str
    score: float
    snippet: str = ""
    path: tuple[PageIndex, ...] = ()
    lifecycle: Lifecycle = Lifecycle.ACTIVE
    created_at: datetime = to_datetime(0)
    complete: bool = True
    echo: bool = False

    def __repr__(self) -> str:
        return f"<Hit {self.index}: {short_repr(self.name)}, score {self.score:.2f}>"


class FindFilters(TypedDict, total=False):
    """The fields of `Filters`, as keywords of `find`."""

    segment: str | None
    kind: str | None
    lifecycle: Lifecycle | None
    role: str | None
    since: datetime | None
    until: datetime | None
    actor: str | None


class Filters(Struct, frozen=True, kw_only=True):
    """Conditions on a hit in addition to the query. None accepts everything.

    `kind` is folder, leaf, exchange, chapter, summary or text; `role` is the speaker of an exchange (`tool`: it has
    results); `lifecycle` is the effective one; `since` and `until` bound the time of creation; `actor` is the author.
    """

    segment: str | None = None
    kind: str | None = None
    lifecycle: Lifecycle | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None

    @property
    def needs_pages(self) -> bool:
        """True if pages must be read to apply the filters."""
        return any(getattr(self, field) is not None for field in self.__struct_fields__ if field != "segment")

    def check(self) -> None:
        """Raise `InvalidValue` for an invalid filter."""
        _one_of("kind", self.kind, _KINDS)
        _one_of("role", self.role, _ROLES)
        if self.lifecycle is not None and not isinstance(self.lifecycle, Lifecycle):
            raise InvalidValue(f"is {short_repr(self.lifecycle)}; use {_LIFECYCLES}.", argument="lifecycle")
        for field in ("since", "until"):
            check_moment(getattr(self, field), field)
        if self.actor is not None and not isinstance(self.actor, str):
            raise InvalidValue(f"is {short_repr(self.actor)}; a name is needed.", argument="actor")


def find(
    state: State,
    query: str,
    limit: int = 10,
    *,
    scope: Scope | None = None,
    embedder: Embedder | None = None,
    **filters: Any,
) -> list[Hit]:
    """Return the pages in a scope that match a query, best first. Every search uses this function.

    With an embedder, pages with the same meaning in other words are found too. Filters are those of `Filters`. Raises
    `InvalidValue`, or `NoSuchSegment` for a segment outside the scope.
    """
    wanted = parse_query(query)
    if type(limit) is not int or limit < 0:
        raise InvalidValue(f"is {short_repr(limit)}; a whole number from 0 is needed.", argument="limit")
    check_names(filters, Filters.__struct_fields__, "find")
    chosen = Filters(**filters)
    chosen.check()
    seen = all_segments(state) if scope is None else scope
    within = seen if chosen.segment is None else Scope(frozenset({_segment(state, seen, chosen.segment)}))
    if not limit or not wanted.clauses or not state.version:
        return []
    near, written = _nearest_pages(state, query, embedder), _exact_text(query)
    search = _Search(state, wanted, min(limit, MAX_KEY), seen, within, chosen, near, written)
    try:
        found = query_index(state, search.hits)
    except IndexLost as error:
        raise state.deletion_error() or error from None
    if not found and (gone := state.deletion_error()):
        raise gone
    return found


class UncachedReader(Reader):
    """Reads pages past the state's cache: a search must not evict pages that are in use."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._state = state
        self._seen: dict[int, PageRecord | Gone | None] = {}

    def page(self, key: int) -> PageRecord | Gone | None:
        if key not in self._seen:
            self._seen[key] = self._state.stored.page(key)
        return self._seen[key]


def _nearest_pages(state: State, query: str, embedder: Embedder | None) -> NearestPages | None:
    """Return a function that gives the pages whose vectors are nearest to the query, or None."""
    if embedder is None or (found := try_vectors(query, state, embedder)) is None:
        return None
    vectors, vector = found
    return lambda spans, limit: vectors.like(vector, spans, limit)


def _exact_text(query: str) -> str | None:
    """Return a query that pages should match letter for letter: one word with signs or accents, as `user_id`."""
    text = query.strip()
    if text.endswith("*") or '"' in text or any(map(str.isspace, text)):
        return None
    normalized = normalize_text(text)
    signs = any(not letter.isalnum() for letter in text) or normalized.translate(WITHOUT_ACCENTS) != normalized
    return text.casefold() if signs else None


class _Search(Struct, frozen=True):
    """One search: the query, the viewer's scope, and the filters."""

    state: State
    query: Query
    limit: int
    seen: Scope
    within: Scope
    filters: Filters
    near: NearestPages | None
    written: str | None

    def hits(self, index: Index) -> list[Hit]:
        """Return the hits that an index gives."""
        aside = UncachedReader(self.state)
        echoes = echo_cache_of(self.state, self.seen)
        wanted = self.limit * _AGAIN if self.filters.needs_pages else self.limit
        if self.written is not None:
            wanted = max(wanted, _LOOKED_AT)
        while True:
            ranked = rank(index, self.query, self.seen.spans(), self.within.spans(), wanted, self.near, echoes.keys)
            ahead = sum(entry.key not in echoes.keys for entry in ranked)
            hits = [
                (entry, page)
                for entry in ranked
                if (page := _page(aside, entry.key)) is not None and _passes(self.state, aside, page, self.filters)
            ]
            hits = _without_their_chapters(aside, hits)
            new = echoes.learn(self.state, (page for _, page in hits))
            first = [hit for hit in hits if hit[0].key not in echoes.keys]
            is_filled = len(hits) >= self.limit and (ahead < wanted if not new else wanted > _MOST_LOOKED_AT)
            if _has_chapter(first) and wanted < self.limit + _BELOW and len(ranked) >= wanted:
                wanted = self.limit + _BELOW
                continue
            if len(first) >= self.limit or len(ranked) < wanted or is_filled:
                late = [hit for hit in hits if hit[0].key in echoes.keys]
                late = [(demote(entry) if entry.key in new else entry, page) for entry, page in late]
                return self._make_hits(aside, first, sorted(late, key=lambda hit: (-hit[0].score, hit[0].key)))
            if not new or 2 * len(new) > self.limit:  # else rank the new echoes last, and search once more
                wanted *= _AGAIN

    def _make_hits(self, aside: UncachedReader, first: Sequence[_Entry], echoes: Sequence[_Entry]) -> list[Hit]:
        if self.written is not None:
            first = _as_written_first(self.state, first, self.written)
        first = first[: self.limit]
        echoes = echoes[: self.limit - len(first)]
        return [
            *(_hit(self.state, aside, entry, page, self.query) for entry, page in first),
            *(_hit(self.state, aside, entry, page, self.query, echo=True) for entry, page in echoes),
        ]


def _without_their_chapters(reader: Reader, hits: list[_Entry]) -> list[_Entry]:
    """Drop a chapter if a page below it is a hit that is as complete: a chapter is named after its pages."""
    if not _has_chapter(hits):
        return hits
    below: dict[int, bool] = {}
    for entry, page in hits:
        if page.header.form is not Form.CHAPTER:
            for folder in reader.ancestors(page):
                below[folder.key] = below.get(folder.key, False) or entry.complete
    return [
        (entry, page)
        for entry, page in hits
        if page.header.form is not Form.CHAPTER or page.key not in below or below[page.key] < entry.complete
    ]


def _has_chapter(hits: Sequence[_Entry]) -> bool:
    return any(page.header.form is Form.CHAPTER for _, page in hits)


def _as_written_first(state: State, hits: Sequence[_Entry], written: str) -> list[_Entry]:
    """Put pages that contain the query letter for letter before those that contain its words."""
    most = max((entry.score for entry, _ in hits), default=0.0)
    exact, others = [], []
    for entry, page in hits:
        header = page.header
        body = "" if header.folder else read_body(state.stored, header)
        if written in f"{header.name}\n{header.description}\n{body}".casefold():
            exact.append((entry._replace(score=entry.score + most), page))
        else:
            others.append((entry, page))
    return exact + others


def _page(reader: Reader, key: int) -> PageRecord | None:
    page = reader.page(key)
    return page if isinstance(page, PageRecord) and is_searchable(page) else None


def _passes(state: State, reader: Reader, page: PageRecord, filters: Filters) -> bool:
    header = page.header
    return (
        (filters.kind is None or _KINDS[filters.kind](header))
        and (filters.role is None or _ROLES[filters.role](header))
        and (filters.actor is None or state.actor(header.author) == filters.actor)
        and (filters.since is None or header.created >= to_milliseconds(filters.since))
        and (filters.until is None or header.created < to_milliseconds(filters.until))
        and (filters.lifecycle is None or reader.effective_lifecycle(page) is filters.lifecycle)
    )


def _hit(
    state: State, reader: Reader, ranked: RankedPage, page: PageRecord, query: Query, *, echo: bool = False
) -> Hit:
    header = page.header
    above = list(reader.ancestors(page))
    return Hit(
        index=state.index(page.key),
        name=header.name,
        description=header.description,
        score=ranked.score,
        snippet=_passage(state, header, query),
        path=tuple(state.index(folder.key) for folder in reversed(above)),
        lifecycle=reader.effective_lifecycle(page),
        created_at=to_datetime(header.created),
        complete=ranked.complete,
        echo=echo,
    )


def _passage(state: State, header: Header, query: Query) -> str:
    """Return the passage to show of a page: from its body, or from its description if the body has none."""
    body = DisplayText("") if header.folder else read_display_text(state.stored, header)
    passage = make_snippet(body.text, query.words, labels=body.labels) if body.text else ""
    if OPEN in passage or not header.description:
        return passage or make_snippet(header.name, query.words)
    described = make_snippet(header.description, query.words)
    return described if OPEN in described or not passage else passage


def _segment(state: State, scope: Scope, segment: str) -> int:
    known = {state.counters[number].segment: number for number in sorted(scope.segments)}
    if not isinstance(segment, str) or segment not in known:
        raise NoSuchSegment(segment, list(known))  # does not name segments outside the scope
    return known[segment]


def _one_of(field: str, value: object, known: dict[str, Any]) -> None:
    if value is not None and (not isinstance(value, str) or value not in known):
        raise InvalidValue(f"is {short_repr(value)}; use one of {', '.join(known)}.", argument=field)
