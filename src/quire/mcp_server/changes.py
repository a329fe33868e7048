"""What changed since it was last looked at, of what somebody listens to. Plain calls, one at a time.

A resource changed if it would be read otherwise now. So nobody hears of what they cannot see, by whatever it is that a
change of it would move.
"""

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from quire.errors import QuireError
from quire.mcp_server.book import Book
from quire.model.pages import PageIndex, parse_index
from quire.system import Entry

_MOST = 200
"""Entries that are looked at; after more of them the list is said to have changed."""


class Found(NamedTuple):
    """What changed: the list of tools, the list of resources, and what is read at these addresses."""

    tools: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()


class Changes:
    """Remembers what was last seen of a context."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._texts: dict[str, int | None] = {}
        self._seq, self._tools, self._segments = self._now()

    def begin(self, uris: Collection[str], *, anew: bool) -> None:
        """Remember what stands at these addresses; `anew` if nobody listened before, so that nobody missed anything."""
        if anew:
            self._seq, self._tools, self._segments = self._now()
        for uri in uris:
            if uri not in self._texts:
                self._texts[uri] = self._text(uri)

    def look(self, uris: Collection[str]) -> Found:
        """What changed since the last look, of what stands at these addresses and of the lists."""
        self._texts = {uri: text for uri, text in self._texts.items() if uri in uris}
        before, tools, segments = self._seq, self._tools, self._segments
        self._seq, self._tools, self._segments = self._now()
        if self._seq == before:
            return Found(self._tools != tools)
        other = self._segments != segments or self._has_other_pages(before)
        return Found(self._tools != tools, other, tuple(uri for uri in uris if self._is_other(uri)))

    def _now(self) -> tuple[int, tuple[str, ...], frozenset[str]]:
        seq = self._book.seq()
        return seq, tuple(self._book.tool_names()), self._book.segments()

    def _is_other(self, uri: str) -> bool:
        text = self._text(uri)
        is_other = uri in self._texts and self._texts[uri] != text
        self._texts[uri] = text
        return is_other

    def _text(self, uri: str) -> int | None:
        """What is read there, as a number; None if nothing can be."""
        try:
            return hash(self._book.read(uri))
        except QuireError:
            return None

    def _has_other_pages(self, before: int) -> bool:
        """Whether the list of resources is another one."""
        if self._seq < before or self._seq - before > _MOST:
            return True
        entries = islice(self._book.context.history(before), _MOST)
        return any(self._has_listed(entry) for entry in entries)

    def _has_listed(self, entry: Entry) -> bool:
        """Whether an entry made, took away or renamed a page that an agent sees."""
        touched = ((change.index, change.before) for change in entry.changes if change.index)
        return any(
            before is None or (before["name"], before["description"]) != self._book.listed_as(index)
            for index, before in touched
            if self._is_seen(index)
        )

    def _is_seen(self, index: PageIndex) -> bool:
        parts = parse_index(index)
        return parts is not None and parts.segment in self._segments
