"""The pages of the conversation that were opened since the last fold: the next fold leaves them open.

Without this rule, a call that opens an old page in a full view would have no effect.
"""

from collections.abc import Iterator, Set
from typing import NamedTuple

from quire.core.entries import read_entry
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import LAST_FOLD, PageRecord, page_key, segment_number
from quire.model.pages import Lifecycle, Visibility
from quire.view.draw import shown_pages
from quire.view.options import OPENED_SHARE

_LINE_TOKENS = 16
"""The estimated tokens of the line of a hidden page without its summary."""
_OPERATIONS = frozenset({"expand", "expand_details", "restore", "recall"})


class OpenedPages(NamedTuple):
    """The pages that a fold leaves open, and the folders above them."""

    pages: Set[int] = frozenset()
    above: Set[int] = frozenset()


def find_opened(plan: Plan, budget: int) -> OpenedPages:
    """Return the opened pages that have room. The last opened ones are taken first."""
    last, conversation = plan.state.note(LAST_FOLD), plan.conversation()
    if last is None or conversation is None:
        return OpenedPages()
    found = sorted(_opened_below(plan, page_key(conversation, 0), last.seq, {}), key=lambda page: -page.header.seq)
    pages: set[int] = set()
    above: set[int] = set()
    left = opened_room(plan, page_key(conversation, 0), budget)
    for page in found:
        tokens = opened_tokens(plan, page, left)
        if tokens <= left:
            left -= tokens
            pages.add(page.key)
            above.update(folder.key for folder in plan.ancestors(page))
    return OpenedPages(pages, above)


def _opened_below(plan: Plan, folder: int, fold: int, operations: dict[int, str]) -> Iterator[PageRecord]:
    """Yield the pages that were opened after a fold. An opened folder counts if no page in it was opened."""
    for page in plan.members(folder):
        header = page.header
        if not header.born <= fold < header.seq:  # it was not opened since then: most pages
            continue
        if header.lifecycle is not Lifecycle.ACTIVE or header.visibility is Visibility.HIDDEN:
            continue
        if _operation(plan, header.seq, operations) in _OPERATIONS:
            inner = list(_opened_below(plan, page.key, fold, operations)) if header.folder else []
            yield from inner or [page]


def _operation(plan: Plan, seq: int, known: dict[int, str]) -> str:
    """Return the operation of a journal entry; "" if it is not stored."""
    if seq not in known:
        entry = read_entry(plan.state, seq)
        known[seq] = "" if entry is None else entry.operation
    return known[seq]


def opened_room(reader: Reader, key: int, budget: int) -> int:
    """Return the tokens that opened pages may take: a share of the budget or of the capacity of their segment."""
    segment = reader.segment(segment_number(key))
    return int(OPENED_SHARE * min(budget, (segment and segment.max_capacity) or budget))


def opened_tokens(reader: Reader, page: PageRecord, most: int) -> int:
    """Return about how many tokens a page takes if it is open. For a folder, stop counting above `most`."""
    header = page.header
    if not header.folder:
        return header.clip or header.tokens
    tokens = 0
    for leaf in shown_pages(reader, page.key):
        inner = leaf.header
        is_line = inner.folder or inner.visibility is Visibility.HIDDEN
        tokens += (inner.line_tokens or _LINE_TOKENS + inner.summary_tokens) if is_line else inner.clip or inner.tokens
        if tokens > most:
            break
    return tokens
