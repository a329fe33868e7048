"""Anchors: how the view goes on showing what was deferred, from one fold to the next."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.records import DeferredChange, Gone, PageRecord, encode_record


def plan_deferred_changes(plan: Plan, known: Mapping[int, DeferredChange]) -> dict[int, DeferredChange | None]:
    """The anchors that a plan changes: new ones for what it defers, None for what takes its place."""
    if not plan.is_deferred:
        return dict.fromkeys(known if plan.applies_deferred else _released(plan, known)) if known else {}
    keys = (*plan.pages, *(key for key in plan.opened_pages if key not in plan.pages))
    found = {key: _anchored(plan, key, known) for key in keys}
    return {key: anchor for key, anchor in found.items() if anchor is not None}


def place_of(page: PageRecord | Gone | None) -> tuple[int | None, bytes]:
    """The group and the order of a page in the storage."""
    return (page.group, page.rank) if isinstance(page, PageRecord) else (None, b"")


def _anchored(plan: Plan, key: int, anchors: Mapping[int, DeferredChange]) -> DeferredChange | None:
    """How the view goes on showing a page that a plan changes or opens; None if that is known already."""
    page, known = plan.page(key), anchors.get(key)
    opened, listed = b"", tuple[int, ...]()
    if key in plan.opened_pages and isinstance(page, PageRecord):
        opened, listed = encode_record(key, page.header), _deferred_below(plan, page, anchors)
    if known is None:
        old = plan.stored_page(key)
        before = None if old is None else encode_record(key, old if isinstance(old, Gone) else old.header)
        return DeferredChange(plan.seq, plan.next_message, before, *place_of(old), opened, listed)
    if opened and not known.opened:
        return replace(known, seq=plan.seq, number=plan.next_message, opened=opened, listed=listed)
    return None


def _deferred_below(plan: Plan, folder: PageRecord, anchors: Mapping[int, DeferredChange]) -> tuple[int, ...]:
    """The pages below a folder that the view goes on showing otherwise, or nowhere."""
    if not folder.header.folder:
        return ()
    pages = (plan.page(key) for key in sorted(anchors.keys() | plan.pages.keys()))
    live = (page for page in pages if isinstance(page, PageRecord) and not page.is_cold)
    return tuple(page.key for page in live if any(above.key == folder.key for above in plan.ancestors(page)))


def _released(plan: Plan, known: Mapping[int, DeferredChange]) -> set[int]:
    """The anchored pages that a change which shows at once brings to light.

    They are those that it changes, those that the view shows below a folder that it changes, and the folders all of
    these stand in: without them they would be shown nowhere.
    """
    folders = {key for key, page in plan.pages.items() if isinstance(page, Gone) or page.header.folder}
    found = plan.pages.keys() & known.keys()
    if folders - plan.new_keys:
        found |= {key for key, anchor in known.items() if not folders.isdisjoint(_above(plan, anchor))}
    for key in (*plan.pages, *found):
        page = plan.page(key)
        if isinstance(page, PageRecord):
            found |= {above.key for above in plan.ancestors(page) if above.key in known}
    return found


def _above(plan: Plan, anchor: DeferredChange) -> Iterator[int]:
    """The folders in which the view shows an anchored page."""
    key = anchor.group
    while key is not None:
        yield key
        page = plan.stored_page(key)
        key = page.parent if isinstance(page, PageRecord) else None
