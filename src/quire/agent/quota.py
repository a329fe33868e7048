"""How much an agent may add. Nothing is ever lost here, so what it added counts for good, removed or not."""

from msgspec import Struct

from quire.errors import InvalidValue, QuotaExceeded, shown
from quire.pages import PageIndex
from quire.plan import Plan
from quire.records import AGENTS, PageRecord


class Quota(Struct, frozen=True, kw_only=True):
    """What an agent may add in all (pages, bytes of text), how deep it may nest, and its tool calls in one turn.

    Bytes are those of bodies, names and summaries that it writes, again and again if it writes them again.
    """

    pages: int = 10_000
    bytes: int = 16_000_000
    depth: int = 16
    calls: int = 100


def check_quota(quota: Quota) -> Quota:
    """The quota if all of it makes sense. Raises `InvalidValue`."""
    if not isinstance(quota, Quota):
        raise InvalidValue(f"quota is {shown(quota)}; a quire.Quota is needed.")
    for field in quota.__struct_fields__:
        value = getattr(quota, field)
        if type(value) is not int or value < 0:
            raise InvalidValue(f"quota.{field} is {shown(value)}; a whole number from 0 is needed.")
    return quota


def charge(plan: Plan, quota: Quota) -> None:
    """Count what a plan adds for its actor, and refuse what is too much. Raises `QuotaExceeded`."""
    written = [page for page in plan.pages.values() if isinstance(page, PageRecord)]
    pages = sum(page.header.born == plan.seq for page in written)
    size = sum(map(_size, plan.bodies.values())) + sum(_words(plan, page) for page in written)
    if pages or size:
        key = AGENTS + plan.author()
        note = plan.note(key)
        before = note.used if note else (0, 0)
        used = (before[0] + pages, before[1] + size)
        for has, most, what in zip(used, (quota.pages, quota.bytes), ("pages", "bytes"), strict=True):
            if has > most:
                raise QuotaExceeded(f"this would be {has:,} {what} added in all, the limit is {most:,}")
        plan.put_note(key, used=used)
    for page in written:
        _shallow(plan, page, quota.depth)


def _words(plan: Plan, page: PageRecord) -> int:
    """The bytes of a name and a summary, as far as they are new."""
    header, old = page.header, plan.stored(page.key)
    if not isinstance(old, PageRecord):
        return _size(header.name) + _size(header.description) if header.born == plan.seq else 0
    words = ((old.header.name, header.name), (old.header.description, header.description))
    return sum(_size(now) for was, now in words if now != was)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _shallow(plan: Plan, page: PageRecord, most: int) -> None:
    if page.parent is None or page.is_cold:
        return
    old = plan.stored(page.key)
    if isinstance(old, PageRecord) and old.parent == page.parent:
        return
    height = max((depth for depth, _ in plan.subtree(page)), default=0)
    depth = sum(1 for _ in plan.ancestors(page)) + height
    if depth > most:
        index: PageIndex = plan.index(page.key)
        raise QuotaExceeded(f"{index} would stand {depth} levels deep, the limit is {most}")
