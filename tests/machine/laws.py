"""The laws of folds and views: what a fold may take, and which views are the same bytes."""

import json

from quire import View
from tests.machine.model import Model
from tests.machine.observed import Tree
from tests.machine.state import ACTIVE, EXPANDED, Page

MOST_CHILDREN = 16
WORTH = 16
"""The words of a text for which a line is shorter; a shorter one may stand between folded ones."""


def view_bytes(view: View) -> str:
    """Return all forms of a view as one text."""
    return json.dumps([view.openai(), view.responses(), view.anthropic()], ensure_ascii=False)


def check_fold(before: Tree, after: Tree, model: Model) -> None:
    """Check what a fold put into chapters: only from below the root, oldest first, and nothing that must stay whole."""
    root = model.root("usr")
    taken = [index for index in before.parents if before.parents[index] == root != after.parents.get(index)]
    for chapter in after.chapters:
        assert sum(1 for parent in after.parents.values() if parent == chapter) <= MOST_CHILDREN
    pages = [page for page in model.attached("usr") if before.parents.get(page.index) == root]
    kept = {page.index for page in _always_whole(model)}
    leaves = {page.index for page in pages if page.index in taken} | (after.hidden - before.hidden)
    assert not leaves & kept, "a fold took what must stay whole"
    newest = max((place for place, page in enumerate(pages) if page.index in leaves), default=0)
    kept |= model.opened.keys() | {page.index for page in _unread(pages)}
    older = [page for page in pages[:newest] if page.index not in leaves | kept and _is_worth_a_line(page, model)]
    assert not older, f"a fold left {[page.index for page in older]}, and took what is newer"


def _always_whole(model: Model) -> list[Page]:
    """Return the pages that no fold may take: pinned ones, the last user message, the open exchange."""
    pages = model.attached("usr")
    users = [page for page in pages if page.role == "user"]
    waiting = model.open_exchange()
    return [page for page in pages if page.pinned or page == waiting or page in users[-1:]]


def _unread(pages: list[Page]) -> list[Page]:
    """Return the exchange whose results the model has not read: only one user message and system messages follow."""
    talk = [page for page in pages if page.role in ("user", "assistant")]
    return [page for page in talk[-2:-1] if talk[-1].role == "user" and len(page.numbers) > 1]


def _is_worth_a_line(page: Page, model: Model) -> bool:
    """Return whether a line for the page is shorter than the page, which is shown and waits for no late result."""
    words = sum(len((model.messages[number].content or "").split()) for number in page.numbers)
    return (page.lifecycle, page.visibility) == (ACTIVE, EXPANDED) and words >= WORTH and not model.pending(page)


def check_prefix(earlier: View, later: View) -> None:
    """Check that a view without its tail is the beginning of the next one."""
    tail = sum(len(part.messages) for part in earlier.tail)
    stable = earlier.messages[: len(earlier.messages) - tail]
    assert later.messages[: len(stable)] == stable
