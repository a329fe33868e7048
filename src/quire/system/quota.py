"""Limits on what one actor may add to a context.

Nothing is ever lost in a context, so everything that an actor added counts for good, even after it was removed.
"""

from msgspec import Struct

from quire.core.plan import Plan
from quire.core.records import AGENTS, PageRecord
from quire.errors import InvalidValue, QuotaExceeded, short_repr


class Quota(Struct, frozen=True, kw_only=True):
    """Limits for one agent: pages and bytes of text in total, nesting depth, and tool calls in one turn.

    Bytes are counted for every text, name and summary that the agent writes, each time it writes them.
    """

    pages: int = 10_000
    bytes: int = 16_000_000
    depth: int = 16
    calls: int = 100


def check_quota(quota: Quota) -> Quota:
    """Return the quota. Raise `InvalidValue` if one of its fields is not a whole number from 0."""
    if not isinstance(quota, Quota):
        raise InvalidValue(f"is {short_repr(quota)}; a quire.Quota is needed.", argument="quota")
    for field in quota.__struct_fields__:
        value = getattr(quota, field)
        if type(value) is not int or value < 0:
            raise InvalidValue(f"is {short_repr(value)}; a whole number from 0 is needed.", argument=f"quota.{field}")
    return quota


def charge(plan: Plan, quota: Quota) -> None:
    """Add what a plan writes to the totals of its actor. Raise `QuotaExceeded` if that is too much."""
    written = [page for page in plan.pages.values() if isinstance(page, PageRecord)]
    pages = sum(page.header.born == plan.seq for page in written)
    size = sum(map(_byte_count, plan.bodies.values())) + sum(_new_title_bytes(plan, page) for page in written)
    if pages or size:
        key = AGENTS + plan.author()
        note = plan.note(key)
        before = note.used if note else (0, 0)
        used = (before[0] + pages, before[1] + size)
        for total, limit, unit in zip(used, (quota.pages, quota.bytes), ("pages", "bytes"), strict=True):
            if total > limit:
                raise QuotaExceeded(f"You would have added {total:,} {unit} in total; the limit is {limit:,}.")
        plan.put_note(key, used=used)
    for page in written:
        _check_depth(plan, page, quota.depth)


def _new_title_bytes(plan: Plan, page: PageRecord) -> int:
    """Return the bytes of the page's name and summary that this plan changes."""
    header, old = page.header, plan.stored_page(page.key)
    if not isinstance(old, PageRecord):
        return _byte_count(header.name) + _byte_count(header.description) if header.born == plan.seq else 0
    texts = ((old.header.name, header.name), (old.header.description, header.description))
    return sum(_byte_count(now) for before, now in texts if now != before)


def _byte_count(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _check_depth(plan: Plan, page: PageRecord, limit: int) -> None:
    if page.parent is None or page.is_cold:
        return
    old = plan.stored_page(page.key)
    if isinstance(old, PageRecord) and old.parent == page.parent:
        return
    height = max((depth for depth, _ in plan.subtree(page)), default=0)
    depth = sum(1 for _ in plan.ancestors(page)) + height
    if depth > limit:
        raise QuotaExceeded(f"{plan.index(page.key)} would be {depth} levels deep; the limit is {limit}.")
