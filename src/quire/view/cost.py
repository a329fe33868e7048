"""What sending a view costs with a prompt cache, and what broke the prefix it shares with the view before."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.model.pages import Lifecycle, Visibility
from quire.view.parts import Folded, Part, Shown


class Price(Struct, frozen=True, kw_only=True):
    """What tokens cost: read from the prompt cache, written to it, or neither."""

    read: float = 0.1
    write: float = 1.25
    plain: float = 1.0


class Bill(Struct, frozen=True, kw_only=True):
    """What sending a view costs, in plain tokens: how many are read from the cache, written to it, and neither.

    `why` says in a sentence why the rest was not read from it. Whether the provider still holds the prefix is its own
    affair: caches live for minutes, and nobody tells when one ends.
    """

    read: int
    written: int
    plain: int
    cost: float
    why: str


def turned_folders(reader: Reader, before: Sequence[Part], now: Sequence[Part]) -> dict[int, str]:
    """What happened to pages that are gone from a view because a folder was opened or closed, each in a sentence."""
    stay, told = _by_page(now), {}
    for shown in (shown for part in before for shown in part.pages):
        page = reader.page(shown.key) if shown.key not in stay else None
        if not isinstance(page, PageRecord) or page.header.lifecycle is not Lifecycle.ACTIVE:
            continue
        closed = [stay[above.key] for above in reader.ancestors(page) if above.key in stay]
        if page.header.folder and page.header.visibility is Visibility.EXPANDED:
            told[shown.key] = f"Page {shown.index} was opened: its pages stand in its place."
        elif closed and closed[-1].granularity == "line":
            told[shown.key] = f"Page {closed[-1].index} was hidden: it is one line now."
    return told


def why_not_cached(
    before: Sequence[Part], now: Sequence[Part], fold: Folded | None, turned: Mapping[int, str] | None = None
) -> str:
    """What broke the prefix that a view shares with the one before, in one sentence.

    `turned` says what happened to pages that are gone, where that is known.
    """
    if not before:
        return "It is the first view: there was none to share a beginning with."
    place = next((n for n, (old, new) in enumerate(zip(before, now, strict=False)) if not same(old, new)), None)
    if place is None:
        return _longer(now[len(before) :]) if len(now) >= len(before) else _shorter(before[len(now) :])
    if fold is not None and fold.exchanges:
        return f"A fold took {_counted(fold.exchanges, 'exchange')} into {_counted(fold.chapters, 'new chapter')}."
    return _changed(before, now, place, turned or {})


def same(one: Part, other: Part) -> bool:
    """Whether two pieces are sent as the same words."""
    return one is other or one.says_the_same(other)


def _longer(fresh: Sequence[Part]) -> str:
    messages = sum(len(part.messages) for part in fresh)
    return f"Only {_counted(messages, 'new message')} at the end." if messages else "Nothing changed."


def _shorter(gone: Sequence[Part]) -> str:
    pages = [shown.index for part in gone for shown in part.pages]
    return f"Page {pages[0]} is gone from the end." if pages else "The end is gone."


def _changed(before: Sequence[Part], now: Sequence[Part], place: int, turned: Mapping[int, str]) -> str:
    old, new = before[place], now[place]
    was, shown = _by_page(before), _by_page(now)
    for page in old.pages:
        current = shown.get(page.key)
        if current is None:
            return turned.get(page.key) or f"Page {page.index} is gone from the view."
        if current.granularity != page.granularity:
            return f"Page {page.index} {_TURNED[current.granularity]}."
    fresh = next((page for page in new.pages if page.key not in was), None)
    if fresh is not None:
        return f"Page {fresh.index} came in before what was there."
    if not old.pages:
        return f"The {old.kind} changed." if old.kind == new.kind else f"The {new.kind} came in."
    if {page.key for page in old.pages}.isdisjoint(page.key for page in new.pages):
        left = not new.pages or (place + 1 < len(before) and same(before[place + 1], new))
        return f"Page {(old if left else new).pages[0].index} moved."
    return f"Page {_differing(old, shown).index} changed."


_TURNED = {
    "line": "was hidden: it is one line now",
    "whole": "was opened",
    "clipped": "was clipped",
}


def _by_page(parts: Sequence[Part]) -> dict[int, Shown]:
    return {shown.key: shown for part in parts for shown in part.pages}


def _differing(old: Part, shown: dict[int, Shown]) -> Shown:
    """The page of a piece that takes more or less than it did; the first if none does."""
    return next((page for page in old.pages if shown[page.key].tokens != page.tokens), old.pages[0])


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
