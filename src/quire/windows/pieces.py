"""What a view shows of the windows."""

from functools import partial

from quire.pages import Visibility
from quire.records import KEY
from quire.state import State
from quire.view.preamble import derived_key
from quire.view.tail import Standing, Volatile
from quire.windows.frames import frame_line, frame_text
from quire.windows.keeping import Kept, is_drawn, kept
from quire.windows.shop import Drawn, Shop

_ROUNDS = 3


def pieces(shop: Shop, *, include_obsolete: bool = False) -> list[Volatile]:
    """The windows as pieces of a view's tail, fetched now.

    Not under the lock: apps may use the context while they are drawn, and open or close windows.
    """
    found: dict[int, Drawn] = {}
    key = ""
    for _ in range(_ROUNDS):
        with shop.engine.lock:
            state = shop.state()
            key = _key(state)
            wanted = [one for one in shop.kept(obsolete=include_obsolete) if _is_wanted(shop, state, one)]
        missing = [one for one in wanted if one.key not in found]
        if not missing:
            break
        found.update((drawn[0].key, drawn) for drawn in shop.frames(missing))
    in_order = sorted(found.values(), key=lambda drawn: (drawn[0].plate.at, drawn[0].key))
    return [_piece(shop, drawn, key) for drawn in in_order]


def _is_wanted(shop: Shop, state: State, window: Kept) -> bool:
    known = window.obsolete or shop.registry.find(window.plate.app) is not None
    return known and is_drawn(state, window.page)


def _piece(shop: Shop, drawn: Drawn, key: str) -> Volatile:
    window, frame, live = drawn
    hidden = window.page.header.visibility is Visibility.HIDDEN and not window.obsolete
    line = partial(frame_line, frame, key)
    whole = frame_text(frame, key) if live is None else live.text(frame, key)
    return Volatile(
        "window",
        window.key,
        shop.engine.state.index(window.key),
        line() if hidden else whole,
        at=window.plate.at,
        standing=_standing(window),
        clipped=None if hidden else partial(frame_text, frame, key),
        line=line,
        holds=partial(_holds, window),
    )


def _standing(window: Kept) -> Standing:
    if window.obsolete:
        return Standing.OBSOLETE
    if window.page.header.pinned:
        return Standing.PINNED
    return Standing.IMPORTANT if window.plate.important else Standing.UNIMPORTANT


def _holds(window: Kept, state: State) -> bool:
    """Whether a window is still open, or still closed, where a view looks."""
    now = kept(state.page(window.key))
    return now is not None and now.obsolete is window.obsolete and is_drawn(state, now.page)


def _key(state: State) -> str:
    note = state.note(KEY)
    return note.name if note and note.name else derived_key(state.head.identity)
