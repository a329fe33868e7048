"""The pages of the conversation that were opened since the last fold: the next fold leaves them open.

Without this rule, a call that opens an old page in a full view would have no effect.
"""

from collections.abc import Iterator, Set
from typing import NamedTuple

from quire.core.plan import Plan
from quire.core.records import LAST_FOLD, PageRecord, decode_entry, page_key
from quire.model.pages import Lifecycle, Visibility
from quire.storage.base import JOURNAL
from quire.view.draw import shown_pages

OPENED_SHARE = 0.4
"""The share of the budget that all these pages may take. A fold closes a larger page at once."""
_OPERATIONS = frozenset({"expand", "expand_details", "restore", "recall"})


class OpenedPages(NamedTuple):
    """The pages that a fold leaves open, and the folders above them."""

    pages: Set[int] = frozenset()
    above: Set[int] = frozenset()


def find_opened(plan: Plan, budget: int) -> OpenedPages:
    """Return the opened pages, the last opened first, as far as there is room for them."""
    last, conversation = plan.state.note(LAST_FOLD), plan.conversation()
    if last is None or conversation is None:
        return OpenedPages()
    found = sorted(_opened_below(plan, page_key(conversation, 0), last.seq, {}), key=lambda page: -page.header.seq)
    pages: set[int] = set()
    above: set[int] = set()
    left = int(budget * OPENED_SHARE)
    for page in found:
        tokens = _shown_tokens(plan, page)
        if tokens <= left:
            left -= tokens
            pages.add(page.key)
            above.update(folder.key for folder in plan.ancestors(page))
    return OpenedPages(pages, above)


def _opened_below(plan: Plan, folder: int, fold: int, operations: dict[int, str]) -> Iterator[PageRecord]:
    """Yield the pages that were opened after a fold. An opened folder counts if no page in it was opened."""
    for page in plan.members(folder):
        header = page.header
        if header.lifecycle is not Lifecycle.ACTIVE or header.visibility is Visibility.HIDDEN:
            continue
        if header.born <= fold < header.seq and _operation(plan, header.seq, operations) in _OPERATIONS:
            inner = list(_opened_below(plan, page.key, fold, operations)) if header.folder else []
            yield from inner or [page]


def _operation(plan: Plan, seq: int, known: dict[int, str]) -> str:
    """Return the operation of a journal entry; "" if it is not stored."""
    if seq not in known:
        record = plan.state.storage.get(plan.state.context, JOURNAL, seq)
        known[seq] = "" if record is None else decode_entry(seq, record.value).operation
    return known[seq]


def _shown_tokens(plan: Plan, page: PageRecord) -> int:
    leaves = shown_pages(plan, page.key) if page.header.folder else (page,)
    return sum(leaf.header.clip or leaf.header.tokens for leaf in leaves)
