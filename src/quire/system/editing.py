"""The operations that change segments and pages. Each plans, commits and applies; the rules are in the planners."""

from collections.abc import Iterable, Mapping
from typing import Any

from quire.pages import Page, PageIndex, Permission, Segment, format_index
from quire.system import lifecycle, segments, tree
from quire.system.face import Face
from quire.system.present import to_segment


class Editing(Face):
    """Changing segments and pages."""

    # Segments

    def add_segment(self, segment: Segment) -> Segment:
        """Add a segment and its root page; the segment as stored."""
        self.run("add_segment", segments.add_segment, segment)
        return self._read(lambda state: to_segment(state, state.live_segment(segment.id)))

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages, cold ones too; how many pages went."""
        return self.run("remove_segment", segments.remove_segment, segment_id)

    def update_segment(
        self,
        segment_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        max_capacity: int | None = None,
    ) -> None:
        """Change a segment's name, description or capacity; None leaves it as it is."""
        self.run(
            "update_segment",
            segments.update_segment,
            segment_id,
            name=name,
            description=description,
            max_capacity=max_capacity,
        )

    def set_segment_permission(self, segment_id: str, permission: Permission) -> None:
        """Set what the agent may do in a segment. No undo or rollback brings an older permission back."""
        self.run("set_segment_permission", segments.set_segment_permission, segment_id, permission)

    # Pages: creating and changing

    def create_detail_page(
        self,
        name: str,
        description: str,
        detail: str,
        parent: PageIndex,
        *,
        pinned: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PageIndex:
        """Add a leaf with a text at the end of a folder. `pinned=None` pins in SYSTEM segments only."""
        return self.run(
            "create_detail_page",
            tree.create_detail_page,
            name,
            description,
            detail,
            parent,
            pinned=pinned,
            meta=meta,
        )

    def create_contents_page(
        self,
        name: str,
        description: str,
        parent: PageIndex,
        children: Iterable[PageIndex] = (),
        *,
        pinned: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PageIndex:
        """Add a folder and gather the given pages of the same segment under it, in the given order.

        It stands at the end of its parent, or where its first child stood if that was in the same parent.
        """
        return self.run(
            "create_contents_page",
            tree.create_contents_page,
            name,
            description,
            parent,
            children,
            pinned=pinned,
            meta=meta,
        )

    def add_page(self, page: Page, detail: str | None = None) -> PageIndex:
        """Add a page that carries its index and parent; an index of `""` takes the next one."""
        return self.run("add_page", tree.add_page, page, detail)

    def update_page(
        self,
        index: PageIndex,
        *,
        name: str | None = None,
        description: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Change a page's name, description or meta; None leaves it as it is, `""` clears a description."""
        self.run("update_page", tree.update_page, index, name=name, description=description, meta=meta)

    def set_detail(self, index: PageIndex, detail: str) -> None:
        """Give a text page another body."""
        self.run("set_detail", tree.set_detail, index, detail)

    def move_page(
        self, source: PageIndex, target: PageIndex, before: PageIndex | None = None
    ) -> dict[PageIndex, PageIndex]:
        """Move a page with its subtree into a folder, at its end or before one of its children.

        In another segment the pages get new indices: the dict gives old → new. Within one segment it is empty.
        """
        return self.run("move_page", tree.move_page, source, target, before)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with everything below it; how many pages went. undo() brings them back."""
        return self.run("remove_page", tree.remove_page, index)

    def generate_index(self, segment_id: str) -> PageIndex:
        """An index of the segment that was never used, taken out of use for `add_page`."""
        with self._engine.lock:
            state = self._engine.current()
            return format_index(segment_id, state.reserve(state.live_segment(segment_id)))

    # Pages: what is shown

    def expand(self, index: PageIndex) -> None:
        """Open a page and the whole chain above it."""
        self.run("expand", lifecycle.expand, index)

    def hide(self, index: PageIndex) -> None:
        """Show only the page's summary line."""
        self.run("hide", lifecycle.hide, index)

    def archive(self, index: PageIndex, *, cold: bool = False) -> None:
        """Take a page out of the window. Cold, it leaves the tree with its subtree until `recall`."""
        self.run("archive", lifecycle.archive, index, cold=cold)

    def restore(self, index: PageIndex) -> None:
        """Bring a hot page back into the window as it was, opening the chain above it."""
        self.run("restore", lifecycle.restore, index)

    def recall(self, index: PageIndex) -> PageIndex:
        """Bring the cold subtree that holds this page back to its place, or under the root if that is gone."""
        return self.run("recall", lifecycle.recall, index)

    def pin(self, index: PageIndex) -> None:
        """Show a page whole, always: it and all above it cannot be hidden, moved or removed until `unpin`."""
        self.run("pin", lifecycle.pin, index)

    def unpin(self, index: PageIndex) -> None:
        """Lift a pin."""
        self.run("unpin", lifecycle.unpin, index)
