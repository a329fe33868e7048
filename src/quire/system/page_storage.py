"""PageStorage: the per-page calls of the design documents (save, load, delete, exists, list) over a context system."""

from collections.abc import Iterator

from quire.core.plan import Plan
from quire.core.records import PageRecord
from quire.errors import InvalidOperation, InvalidValue, NoSuchPage, short_repr
from quire.model.pages import ContentsPage, DetailPage, Lifecycle, Page, PageIndex, Visibility
from quire.system import lifecycle, tree
from quire.system.context_system import ContextSystem


class PageStorage:
    """Pages by index over a `ContextSystem`. All its rules apply, and every change is in its journal."""

    def __init__(self, system: ContextSystem) -> None:
        self._system = system

    def save(self, page: Page, detail: str | None = None) -> PageIndex:
        """Add the page, or change the stored one to this name, description, meta, visibility, place and detail.

        A changed lifecycle archives or restores the page. Return its index, which is new if the page moved to another
        segment.
        """
        return self._system._engine.run(self._system.actor, "save", _save, page, detail)

    def load(self, index: PageIndex) -> Page:
        """Return the page with this index. Raises `NoSuchPage`."""
        return self._system.load_page(index)

    def delete(self, index: PageIndex) -> None:
        """Remove the page with everything below it, if it exists, archived or not."""
        if self.exists(index):
            self._system._engine.run(self._system.actor, "remove_page", _delete, index)

    def exists(self, index: PageIndex) -> bool:
        """Return True if the page exists, archived ones included."""
        try:
            self._system.get_page(index)
        except NoSuchPage:
            return False
        return True

    def list(self) -> Iterator[PageIndex]:
        """Iterate over the indices of all pages, archived ones included."""
        return (page.index for page in self._system.list_pages())


def _save(plan: Plan, page: Page, detail: str | None) -> PageIndex:
    if not isinstance(page, DetailPage | ContentsPage):
        raise InvalidValue(f"is {short_repr(page)}; a DetailPage or ContentsPage is needed.", argument="page")
    key = plan.key_of(page.index)
    stored = None if key is None else plan.page(key)
    if not isinstance(stored, PageRecord):
        return tree.add_page(plan, page, detail)
    if stored.header.folder is isinstance(page, DetailPage):
        raise InvalidOperation(f"Cannot save {page.index!r}: a folder cannot replace a leaf, or the reverse.")
    if stored.is_cold:
        lifecycle.recall(plan, page.index)  # only a page in the tree can be changed
        stored = plan.require_page(page.index)
    tree.update_page(plan, page.index, name=page.name, description=page.description, meta=page.meta, detail=detail)
    index = page.index
    if page.parent is not None and plan.key_of(page.parent) != stored.parent:
        index = tree.move_page(plan, index, page.parent).get(index, index)
    if page.visibility is not stored.header.visibility:
        change = lifecycle.hide if page.visibility is Visibility.HIDDEN else lifecycle.expand
        change(plan, index)
    if page.lifecycle is not plan.require_page(index).header.lifecycle:
        if page.lifecycle is Lifecycle.ACTIVE:
            lifecycle.restore(plan, index)
        else:
            lifecycle.archive(plan, index, cold=page.lifecycle is Lifecycle.COLD_ARCHIVED)
    return index


def _delete(plan: Plan, index: PageIndex) -> None:
    top = plan.cold_top(plan.require_page(index))
    if top is not None:
        lifecycle.recall(plan, plan.index(top.key))  # only a page in the tree can be removed
    tree.remove_page(plan, index)
    if top is not None and plan.index(top.key) != index:
        lifecycle.archive(plan, plan.index(top.key), cold=True)
