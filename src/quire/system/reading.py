"""The operations that look at segments and pages and change nothing."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidOperation, InvalidValue, shown
from quire.pages import Lifecycle, Page, PageIndex, Segment
from quire.reader import slot
from quire.records import PageRecord, segment_number
from quire.state import State
from quire.system.check import Problem, check
from quire.system.face import Face
from quire.system.present import to_page, to_segment, to_text
from quire.system.rules import child_of, whole_number, yes_or_no

if TYPE_CHECKING:
    from quire.search.finding import Hit


class Reading(Face):
    """Looking at segments and pages."""

    # Segments

    def get_segment(self, segment_id: str) -> Segment:
        """The segment with this id. Raises `NoSuchSegment`."""
        return self._read(lambda state: to_segment(state, state.live_segment(segment_id)))

    def list_segments(self) -> list[Segment]:
        """All segments in display order."""
        return self._read(lambda state: [to_segment(state, number) for number, _ in state.live_segments()])

    def segment_of(self, index: PageIndex) -> Segment:
        """The segment a page is in. Raises `NoSuchPage`."""
        return self._read(lambda state: to_segment(state, segment_number(state.live(index).key)))

    # Pages: reading

    def get_page(self, index: PageIndex) -> Page:
        """The page with this index, in whatever state it is. Raises `NoSuchPage`."""
        return self._read(lambda state: to_page(state, state.live(index)))

    def load_page(self, index: PageIndex) -> Page:
        """The page as stored now, past the cache."""

        def load(state: State) -> Page:
            key = state.key_of(index)
            if key is not None:
                state.evict(key)
            return to_page(state, state.live(index))

        return self._read(load)

    def names(self, indices: Iterable[PageIndex]) -> dict[PageIndex, str]:
        """The names of pages by their indices; what names no page is left out. Raises `InvalidValue`."""
        if isinstance(indices, str | bytes) or not isinstance(indices, Iterable):
            raise InvalidValue(f"indices is {shown(indices)}; several page indices are needed.")

        def read(state: State) -> dict[PageIndex, str]:
            keys = ((index, state.key_of(index)) for index in indices)
            pages = ((index, state.page(key)) for index, key in keys if key is not None)
            return {index: page.header.name for index, page in pages if isinstance(page, PageRecord)}

        return self._read(read)

    def detail(self, index: PageIndex) -> str:
        """The body of a leaf. Raises `InvalidOperation` for a folder."""

        def read(state: State) -> str:
            record = state.live(index)
            if record.header.folder:
                raise InvalidOperation(f"{index!r} is a ContentsPage and has no detail; children({index!r}) lists it.")
            return to_text(state, record.header)

        return self._read(read)

    def children(
        self, index: PageIndex, *, after: PageIndex | None = None, limit: int | None = None, cold: bool = False
    ) -> list[Page]:
        """A folder's children in order, hot ones included, cold ones not; a part of them with `after` and `limit`.

        With `cold` instead those in the cold archive that stood in this folder.
        """

        yes_or_no(cold, "cold")

        def read(state: State) -> list[Page]:
            record = _folder(state, index)
            start = None if after is None else slot(child_of(state, record, after, "after", cold=cold))
            found = islice(state.members(record.key, after=start, cold=cold), _limit(limit))
            return [to_page(state, page) for page in found]

        return self._read(read)

    def has_child(self, index: PageIndex, child: PageIndex) -> bool:
        """Whether the folder lists that page."""

        def read(state: State) -> bool:
            record, other = _folder(state, index), state.live(child)
            return other.parent == record.key and not other.is_cold

        return self._read(read)

    def child_count(self, index: PageIndex) -> int:
        """How many children a folder has, without reading them."""
        return self._read(lambda state: state.child_count(_folder(state, index).key))

    def parent(self, index: PageIndex) -> Page | None:
        """The folder a page stands in; None for a root and for a page that was archived cold."""
        return next(iter(self.ancestors(index)), None)

    def ancestors(self, index: PageIndex) -> list[Page]:
        """The folders above a page, nearest first."""
        return self._read(lambda state: [to_page(state, page) for page in state.ancestors(state.live(index))])

    def list_pages(self, segment_id: str | None = None) -> Iterator[Page]:
        """All pages of a segment or of the context, archived ones included. Streams."""
        number = None if segment_id is None else self._read(lambda state: state.live_segment(segment_id))
        pages = self._read(lambda state: state.segment_pages(number))
        return self._stream(pages, lambda state, page: to_page(state, page))

    def walk(self, index: PageIndex) -> Iterator[tuple[int, Page]]:
        """A page and all below it, parents first, each with its depth. Streams."""
        pairs = self._read(lambda state: state.subtree(state.live(index)))
        return self._stream(pairs, lambda state, pair: (pair[0], to_page(state, pair[1])))

    def find(
        self,
        query: str,
        limit: int = 10,
        *,
        segment: str | None = None,
        kind: str | None = None,
        lifecycle: Lifecycle | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        actor: str | None = None,
    ) -> "list[Hit]":
        """The pages that answer a query by name, description or detail, archived ones too, best first.

        Those that hold every word come first. `"quoted words"` must stand in a row, `begin*` may go on; there are no
        other operators. The filters bound what is found: `kind` (folder, leaf, exchange, chapter, summary, text),
        `role` (who speaks), the effective `lifecycle`, the time of making, the author. Raises `InvalidValue`.
        """
        from quire.search.finding import find  # late: not every program searches

        filters: dict[str, Any] = {
            "segment": segment,
            "kind": kind,
            "lifecycle": lifecycle,
            "role": role,
            "actor": actor,
        }
        embedder = self._engine.embedder
        return self._read(
            lambda state: find(state, query, limit, embedder=embedder, since=since, until=until, **filters)
        )

    def check(self) -> list[Problem]:
        """Everything that is wrong with this context, invariant by invariant; an empty list when nothing is."""
        return self._read(check)


def _folder(state: State, index: PageIndex) -> PageRecord:
    record = state.live(index)
    if not record.header.folder:
        raise InvalidOperation(f"{index!r} is a DetailPage and has no children; detail({index!r}) reads it.")
    return record


def _limit(limit: int | None) -> int | None:
    return None if limit is None else whole_number(limit, "limit")
