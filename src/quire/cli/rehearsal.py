"""What a rollback would change."""

from collections.abc import Iterable

from msgspec import Struct

from quire import Context, ContextSystem
from quire.errors import NoSuchPage
from quire.model.page_json import STATES
from quire.model.pages import DetailPage, Mark, PageIndex


class Turned(Struct, frozen=True):
    """A page that would stand otherwise: how it stands now, and how it would."""

    index: PageIndex
    name: str
    now: str
    then: str


class Rehearsal(Struct, frozen=True):
    """What a rollback would do: the entries it takes back, the pages that change, the messages left, pins that stay."""

    entries: int
    pages: list[Turned]
    messages_now: int
    messages_then: int
    pins: int


def rehearse(context: Context, to: str | int) -> Rehearsal:
    """What `rollback(to)` would change; it writes nothing. Raises what the rollback would."""
    past = context.as_of(to)
    reached = context.pages.checkpoints()[to] if isinstance(to, str) else to
    touched = [index for entry in past.history(context.seq) for index in entry.pages]
    there = (index for index in touched if _is_there(context.pages, index) or _is_there(past.pages, index))
    turned = [_turned(index, context.pages, past.pages) for index in there]
    pins = pins_since(context, reached)
    return Rehearsal(context.seq - reached, turned, len(context.messages()), len(past.messages()), pins)


def pins_since(context: Context, to: str | int) -> int:
    """How many pages that were touched since are pinned: a rollback leaves their pins."""
    reached = context.pages.checkpoints().get(to) if isinstance(to, str) else to
    if reached is None:
        return 0  # the rollback says what is wrong with it
    return _pins([index for entry in context.history(reached) for index in entry.pages], context.pages)


def _pins(touched: Iterable[PageIndex], pages: ContextSystem) -> int:
    return sum(_is_pinned(pages, index) for index in set(touched))


def _is_pinned(pages: ContextSystem, index: PageIndex) -> bool:
    try:
        return bool(pages.get_page(index).pinned)
    except NoSuchPage:
        return False


def _is_there(pages: ContextSystem, index: PageIndex) -> bool:
    """Whether there is such a page; an index that it had between two moves names none."""
    try:
        pages.get_page(index)
    except NoSuchPage:
        return False
    return True


def _turned(index: PageIndex, pages: ContextSystem, past: ContextSystem) -> Turned:
    now, then = _state(pages, index), _state(past, index)
    return Turned(index, _name(index, pages, past), now, "says something else" if now == then else then)


def _name(index: PageIndex, *systems: ContextSystem) -> str:
    for system in systems:
        try:
            return system.get_page(index).name
        except NoSuchPage:
            continue
    return ""


def _state(pages: ContextSystem, index: PageIndex) -> str:
    """How a page stands, in a word or two."""
    try:
        page = pages.get_page(index)
    except NoSuchPage:
        return "not there"
    if isinstance(page, DetailPage) and page.mark is not Mark.NONE:
        return page.mark.name.lower()
    place = page.parent or page.home
    state = f"{STATES[page.effective]}, {page.visibility.name.lower()}"
    return f"{state}, in {place}" if place else state
