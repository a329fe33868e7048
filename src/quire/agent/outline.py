"""Listing pages for a model: one line each, so many at a time."""

from collections.abc import Iterator, Sequence

from quire.agent.sight import Sight
from quire.pages import ContentsPage, Lifecycle, Page, Visibility
from quire.records import PageRecord, page_key

_SUMMARY = 120


def entry(page: Page, depth: int = 0) -> str:
    """The line of a page: its index, size and state, its name and summary."""
    state = ""
    if page.lifecycle is not Lifecycle.ACTIVE:
        state = " archived"
    elif page.pinned:
        state = " pinned"
    elif page.visibility is Visibility.HIDDEN:
        state = " hidden"
    size = f"{page.child_count} pages" if isinstance(page, ContentsPage) else str(page.tokens)
    about = f": {page.description[:_SUMMARY]}" if page.description else ""
    return f"{'  ' * depth}[{page.index} {size}{state}] {page.name}{about}"


def listing(lines: Sequence[str], start: int, most: int) -> str:
    """So many lines that begin at `start`, given with at least one more if there is one, and how to go on."""
    if not lines:
        return f"There is nothing from {start} on." if start else "Nothing there."
    more = [f"… more: go on with start={start + most}."] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


def contents(sight: Sight) -> Iterator[tuple[int, PageRecord]]:
    """What stands open, level by level below every segment's root, each with its depth; a closed folder is one line."""
    for number, _ in sight.live_segments():
        root = sight.page(page_key(number, 0))
        if isinstance(root, PageRecord):
            yield from _below(sight, root)


def _below(sight: Sight, root: PageRecord) -> Iterator[tuple[int, PageRecord]]:
    rows = [iter((root,))]
    while rows:
        page = next(rows[-1], None)
        if page is None:
            rows.pop()
            continue
        yield len(rows) - 1, page
        header = page.header
        if header.folder and header.lifecycle is Lifecycle.ACTIVE and header.visibility is Visibility.EXPANDED:
            rows.append(sight.members(page.key))
