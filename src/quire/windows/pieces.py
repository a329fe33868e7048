"""What a view shows of the windows."""

from functools import partial

from quire.pages import Visibility
from quire.records import KEY
from quire.state import State
from quire.view.preamble import derived_key
from quire.view.tail import Standing, Volatile
from quire.windows.frames import frame_line, frame_text
from quire.windows.keeping import Kept, is_open_place, is_standing, kept
from quire.windows.shop import Drawn, Shop

_ROUNDS = 3


def pieces(shop: Shop, *, include_obsolete: bool = False) -> list[Volatile]:
    """The windows as pieces of a view's tail, fetched now.

    Not under the lock: apps may use the context while they are drawn, and open or close windows.
    """
    if shop.is_empty():
        return []
    found: dict[int, Drawn] = {}
    key, seen = "", None
    for _ in range(_ROUNDS):
        with shop.engine.lock:
            state = shop.state()
            if seen == (id(state), state.version):
                break
            key, seen = _key(state), (id(state), state.version)
            missing = [one for one in _wanted(shop, state, include_obsolete) if one.key not in found]
        found.update((drawn[0].key, drawn) for drawn in shop.frames(missing))
    in_order = sorted(found.values(), key=lambda drawn: (drawn[0].plate.at, drawn[0].key))
    return [_piece(shop, drawn, key, seen) for drawn in in_order]


def _wanted(shop: Shop, state: State, include_obsolete: bool) -> list[Kept]:
    """The windows that a view looks for; where they stand is looked up once for all that stand there."""
    known: dict[int | None, bool] = {}
    wanted = []
    for window in shop.kept(obsolete=include_obsolete):
        if not window.obsolete and shop.registry.find(window.plate.app) is None:
            continue
        parent = window.page.parent
        if parent not in known:
            known[parent] = is_open_place(state, window.page)
        if known[parent] and is_standing(window.page):
            wanted.append(window)
    return wanted


def _piece(shop: Shop, drawn: Drawn, key: str, seen: object) -> Volatile:
    window, frame, live = drawn
    hidden = window.page.header.visibility is Visibility.HIDDEN and not window.obsolete
    line = partial(frame_line, frame, key) if live is None else partial(live.line, frame, key)
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
        holds=partial(_holds, window, seen),
    )


def _standing(window: Kept) -> Standing:
    if window.obsolete:
        return Standing.OBSOLETE
    if window.page.header.pinned:
        return Standing.PINNED
    return Standing.IMPORTANT if window.plate.important else Standing.UNIMPORTANT


def _holds(window: Kept, seen: object, state: State) -> bool:
    """Whether a window is still open, or still closed, where a view looks."""
    if seen == (id(state), state.version):
        return True
    now = kept(state.page(window.key))
    if now is None or now.obsolete is not window.obsolete:
        return False
    return is_standing(now.page) and is_open_place(state, now.page)


def _key(state: State) -> str:
    note = state.note(KEY)
    return note.name if note and note.name else derived_key(state.head.identity)
