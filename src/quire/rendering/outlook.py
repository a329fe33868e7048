"""How full a view is, by what, and what a fold would take next."""

from collections.abc import Mapping

from msgspec import Struct

from quire.pages import PageIndex

_NAMED = 4
LINE_TOKENS = 72
"""What the line in a view's tail may take."""
_WORDS = {
    "system": "system prompt",
    "preamble": "how to read this",
    "segment": "notes",
    "folded": "folded lines",
    "exchange": "conversation",
    "note": "notes in the conversation",
    "opened": "pages you opened",
    "opening": "opening",
}


class Outlook(Struct, frozen=True, kw_only=True):
    """What a view takes of its budget, in all and by kind of piece, and the pages that the next fold would fold.

    `reserved` is kept for the reply and for what is sent beside the view: it is not free.
    """

    budget: int
    used: int
    kinds: Mapping[str, int] = {}
    next_fold: tuple[PageIndex, ...] = ()
    reserved: int = 0

    @property
    def free(self) -> int:
        """The tokens that are left before something is folded."""
        return max(0, self.budget - self.reserved - self.used)

    def line(self) -> str:
        """All of it in one line."""
        coming = f"; a fold would take {_span(self.next_fold)} next" if self.next_fold else ""
        return self.short_line() + coming

    def short_line(self) -> str:
        """How full it is, and no more."""
        reserved = f"{self.reserved:,} reserved, " if self.reserved else ""
        return f"{self.used:,} of {self.budget:,} tokens used, {reserved}{self.free:,} free"

    def __str__(self) -> str:
        largest = sorted(self.kinds.items(), key=lambda item: -item[1])
        by_kind = [f"{tokens:,} {_WORDS.get(kind, kind)}" for kind, tokens in largest if tokens]
        return "\n".join([f"{self.line()}.", f"By kind: {', '.join(by_kind)}."])


def _span(pages: tuple[PageIndex, ...]) -> str:
    if len(pages) <= _NAMED:
        return ", ".join(pages)
    return f"{pages[0]} to {pages[-1]} ({len(pages)} pages)"
