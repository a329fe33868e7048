"""Anchors: how the view goes on showing what was deferred, from one fold to the next."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.records import Anchor, Gone, PageRecord, encode_record


def changed_anchors(plan: Plan, known: Mapping[int, Anchor]) -> dict[int, Anchor | None]:
    """The anchors that a plan changes: new ones for what it defers, None for what takes its place."""
    if not plan.deferred:
        return dict.fromkeys(known if plan.settles else _released(plan, known)) if known else {}
    keys = (*plan.pages, *(key for key in plan.opened if key not in plan.pages))
    found = {key: _anchored(plan, key, known) for key in keys}
    return {key: anchor for key, anchor in found.items() if anchor is not None}


def place_of(page: PageRecord | Gone | None) -> tuple[int | None, bytes]:
    """The group and the order of a page in the storage."""
    return (page.group, page.rank) if isinstance(page, PageRecord) else (None, b"")


def _anchored(plan: Plan, key: int, anchors: Mapping[int, Anchor]) -> Anchor | None:
    """How the view goes on showing a page that a plan changes or opens; None if that is known already."""
    page, known = plan.page(key), anchors.get(key)
    opened, listed = b"", tuple[int, ...]()
    if key in plan.opened and isinstance(page, PageRecord):
        opened, listed = encode_record(key, page.header), _deferred_below(plan, page, anchors)
    if known is None:
        old = plan.stored(key)
        before = None if old is None else encode_record(key, old if isinstance(old, Gone) else old.header)
        return Anchor(plan.seq, plan.next_message, before, *place_of(old), opened, listed)
    if opened and not known.opened:
        return replace(known, seq=plan.seq, number=plan.next_message, opened=opened, listed=listed)
    return None


def _deferred_below(plan: Plan, folder: PageRecord, anchors: Mapping[int, Anchor]) -> tuple[int, ...]:
    """The pages below a folder that the view goes on showing otherwise, or nowhere."""
    if not folder.header.folder:
        return ()
    pages = (plan.page(key) for key in sorted(anchors.keys() | plan.pages.keys()))
    live = (page for page in pages if isinstance(page, PageRecord) and not page.is_cold)
    return tuple(page.key for page in live if any(above.key == folder.key for above in plan.ancestors(page)))


def _released(plan: Plan, known: Mapping[int, Anchor]) -> set[int]:
    """The anchored pages that a change which shows at once brings to light.

    They are those that it changes, those that the view shows below a folder that it changes, and the folders all of
    these stand in: without them they would be shown nowhere.
    """
    folders = {key for key, page in plan.pages.items() if isinstance(page, Gone) or page.header.folder}
    found = plan.pages.keys() & known.keys()
    if folders - plan.fresh:
        found |= {key for key, anchor in known.items() if not folders.isdisjoint(_above(plan, anchor))}
    for key in (*plan.pages, *found):
        page = plan.page(key)
        if isinstance(page, PageRecord):
            found |= {above.key for above in plan.ancestors(page) if above.key in known}
    return found


def _above(plan: Plan, anchor: Anchor) -> Iterator[int]:
    """The folders in which the view shows an anchored page."""
    key = anchor.group
    while key is not None:
        yield key
        page = plan.stored(key)
        key = page.parent if isinstance(page, PageRecord) else None
