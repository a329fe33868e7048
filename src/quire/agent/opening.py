"""Whether a page that an agent opens has room in its window."""

from quire.errors import InvalidOperation
from quire.pages import Form, Visibility
from quire.records import PageRecord
from quire.state import State
from quire.view.draw import shown_pages
from quire.view.steady import Steady

MOST = 0.4
"""The part of a window that one page may take: what is larger would be folded again at once."""


def check_room(state: State, page: PageRecord, budget: int) -> None:
    """Raise `InvalidOperation` for a page that is too large to be shown, saying how to read it."""
    header = page.header
    if header.form is Form.WINDOW:
        return  # it stands in the tail, which has its own measure
    leaves = shown_pages(Steady(state, state.anchors()), page.key) if header.folder else ()
    tokens = sum(map(_size, leaves)) if header.folder else header.clip or header.tokens
    if tokens <= budget * MOST:
        return
    index = state.index(page.key)
    if header.folder:
        raise InvalidOperation(
            f"Cannot open {index!r}: what is in it takes {tokens:,} tokens, your window has {budget:,}."
            f" read_page({index!r}) lists it; open what you need of it."
        )
    raise InvalidOperation(
        f"Cannot open {index!r}: it takes {tokens:,} tokens, your window has {budget:,}."
        f" read_page({index!r}, start=0, length=4000) reads it piece by piece."
    )


def _size(page: PageRecord) -> int:
    header = page.header
    if header.folder or header.visibility is Visibility.HIDDEN:
        return header.line_tokens
    return header.clip or header.tokens
