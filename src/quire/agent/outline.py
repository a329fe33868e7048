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
    """So many of the lines, with a word on what is left."""
    part = lines[start : start + most]
    if not part:
        return "Nothing there." if not lines else f"There are only {len(lines)} entries."
    left = len(lines) - start - len(part)
    more = [f"… {left} more: go on with start={start + len(part)}."] if left > 0 else []
    return "\n".join([*part, *more])


def contents(sight: Sight) -> Iterator[tuple[int, PageRecord]]:
    """What stands open, level by level below every segment's root, each with its depth; a closed folder is one line."""
    for number, _ in sight.live_segments():
        root = sight.page(page_key(number, 0))
        if isinstance(root, PageRecord):
            yield from _below(sight, root, 0)


def _below(sight: Sight, page: PageRecord, depth: int) -> Iterator[tuple[int, PageRecord]]:
    yield depth, page
    if page.header.folder and page.header.visibility is Visibility.EXPANDED:
        for child in sight.members(page.key):
            yield from _below(sight, child, depth + 1)
