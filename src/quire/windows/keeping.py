"""Windows in the tree: a window is a leaf of the first TOOL segment that holds its id and what its app saved."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.errors import InvalidOperation
from quire.pages import Form, Lifecycle, Permission, SegmentType, Visibility
from quire.plan import Plan
from quire.reader import Reader
from quire.records import Header, PageRecord, page_key, page_number, segment_number
from quire.state import State
from quire.system.lifecycle import open_chain
from quire.system.rules import unpinned
from quire.text import MAX_DESCRIPTION, decode_meta, encode_meta, in_one_line


class Plate(Struct, frozen=True, kw_only=True):
    """What a page says of its window, in its `meta`: its id and app, the entry that gave it its place, its options, how
    many actions were done in it."""

    window: str
    app: str
    at: int
    important: bool = False
    append: bool = False
    acts: int = 0


class Kept(Struct, frozen=True):
    """A window as it is stored: its page, and what that says of it."""

    page: PageRecord
    plate: Plate

    @property
    def key(self) -> int:
        return self.page.key

    @property
    def id(self) -> str:
        return self.plate.window

    @property
    def obsolete(self) -> bool:
        """Whether it was closed."""
        return self.page.header.closed


def segment_of_windows(reader: Reader) -> int | None:
    """The number of the segment that holds the windows: the first TOOL segment."""
    return next((n for n, segment in reader.live_segments() if segment.type is SegmentType.TOOL), None)


def kept(page: object) -> Kept | None:
    """The window that a page holds, or None."""
    if not isinstance(page, PageRecord) or page.header.form is not Form.WINDOW:
        return None
    try:
        plate = msgspec.convert(decode_meta(page.header.meta), Plate)
    except msgspec.ValidationError:
        return None
    return Kept(page, plate)


def is_standing(page: PageRecord) -> bool:
    """Whether a window's own page is in the tree and not archived; a closed one stays where it was."""
    return not page.is_cold and (page.header.lifecycle is Lifecycle.ACTIVE or page.header.closed)


def is_open_place(reader: Reader, page: PageRecord) -> bool:
    """Whether a page is where a view looks: below open folders, in a segment that is not PRIVATE."""
    segment = reader.segment(segment_number(page.key))
    if segment is None or segment.gone or segment.permission is Permission.PRIVATE:
        return False
    chain = (above.header for above in reader.ancestors(page))
    return all(above.lifecycle is Lifecycle.ACTIVE and above.visibility is Visibility.EXPANDED for above in chain)


class Roster:
    """The windows of a context by id, kept up to date change by change."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._version = -1
        self._segment: int | None = None
        self._by_key: dict[int, Kept] = {}
        self._ids: dict[str, int] = {}

    def update(self, state: State) -> None:
        """Bring it up to date with a state."""
        if state is self._state and state.version == self._version:
            return
        changed = state.changed_since(self._version) if state is self._state else None
        if changed is None or any(page_number(key) == 0 for key in changed):  # a segment came, went or changed
            self._by_key.clear()
            self._ids.clear()
            self._segment = segment_of_windows(state)
            for page in () if self._segment is None else state.segment_pages(self._segment):
                self._take(page.key, kept(page))
        else:
            for key in changed:
                if segment_number(key) == self._segment:
                    self._take(key, kept(state.page(key)))
        self._state, self._version = state, state.version

    def find(self, window: object) -> Kept | None:
        """The window of this id, closed ones too."""
        key = self._ids.get(window) if isinstance(window, str) else None
        return None if key is None else self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def windows(self, *, obsolete: bool = False) -> list[Kept]:
        """The open windows in the order of their places; with `obsolete` those that were closed too."""
        found = [one for one in self._by_key.values() if obsolete or not one.obsolete]
        return sorted(found, key=lambda one: (one.plate.at, one.key))

    def _take(self, key: int, window: Kept | None) -> None:
        old = self._by_key.pop(key, None)
        if old is not None and self._ids.get(old.id) == key:
            del self._ids[old.id]
        if window is not None:
            self._by_key[key] = window
            self._ids[window.id] = key


def place_for_windows(reader: Reader) -> int:
    """The key of the folder that a new window goes to. Raises `InvalidOperation` if there is no TOOL segment."""
    number = segment_of_windows(reader)
    if number is None:
        raise InvalidOperation("There is no segment for windows: add_segment(Segment(id=…, type=SegmentType.TOOL)).")
    return page_key(number, 0)


def open_window(
    plan: Plan,
    window: str | None,
    app: str,
    description: str,
    saved: str,
    *,
    pinned: bool,
    important: bool,
    append: bool,
) -> PageRecord:
    """Plan a page for a new window; without an id it is called after its app and its page's number."""
    root = place_for_windows(plan)
    key = plan.next_key(segment_number(root))
    name = window or f"{app}_{page_number(key)}"
    plate = Plate(window=name, app=app, at=plan.seq, important=important, append=append)
    summary = _line(description)
    header = Header(
        folder=False,
        name=plate.window,
        description=summary,
        **plan.origin(),
        summary_tokens=plan.count(summary),
        body=plan.add_body(saved),
        pinned=pinned,
        meta=_meta(plate),
        form=Form.WINDOW,
    )
    record = plan.create(key, root, plan.append_rank(root), header)
    if pinned:
        open_chain(plan, record)
    return record


def keep_window(plan: Plan, key: int, saved: str, *, moves: bool, acted: bool) -> PageRecord | None:
    """Plan to keep what a window's app saved; `moves` gives it a new place. An action is counted: it is an entry of its
    own whatever it changed. None if the window was closed meanwhile."""
    window = kept(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return None
    page, plate = window.page, window.plate
    if saved != plan.body(page.header.body):
        page = plan.change(page, body=plan.add_body(saved))
    if acted:
        plate = replace(plate, acts=plate.acts + 1)
    if moves and page.parent is not None:
        plate = replace(plate, at=plan.seq)
        return plan.place(page, page.parent, plan.append_rank(page.parent), meta=_meta(plate))
    return plan.change(page, meta=_meta(plate))


def close_window(plan: Plan, key: int, summary: str | None) -> bool:
    """Plan to make a window obsolete; its summary stays as what the page says. False if it already was."""
    window = kept(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return False
    unpinned(plan, window.page, "close")
    fields: dict[str, Any] = {"closed": True, "lifecycle": Lifecycle.HOT_ARCHIVED, "body": 0}
    if summary:
        line, text = _line(summary), _storable(summary)
        fields |= {"description": line, "summary_tokens": plan.count(line)}
        fields |= {"body": plan.add_body(text), "tokens": plan.count(text)}
    plan.change(window.page, **fields)
    return True


def window_pages(state: State) -> Iterator[Kept]:
    """Every window of the context, closed ones too. Streams."""
    number = segment_of_windows(state)
    for page in () if number is None else state.segment_pages(number):
        window = kept(page)
        if window is not None:
            yield window


def _line(text: str) -> str:
    """The text as a page's description, whatever an app or a model wrote."""
    return in_one_line(_storable(text[: 4 * MAX_DESCRIPTION]))[:MAX_DESCRIPTION]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _meta(plate: Plate) -> bytes:
    return encode_meta(msgspec.to_builtins(plate))
