"""Windows in the tree: a window is a leaf of the first TOOL segment that holds its id and what its app saved.

The objects behind open windows: made by opening or from what was saved, as long as that is what is stored.
"""

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Header, PageRecord, page_key, page_number, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation
from quire.model.pages import Form, Lifecycle, Permission, Visibility
from quire.model.text import MAX_DESCRIPTION, collapse_whitespace, encode_meta
from quire.system.lifecycle import open_chain
from quire.system.rules import check_unpinned
from quire.system.window_pages import StoredWindow, WindowMeta, segment_of_windows, stored_window
from quire.windows.app import App, Registered, as_saved, from_saved, settled
from quire.windows.render import Frame, frame_line, frame_text
from quire.windows.runner import Job, Outcome, TimeLimit


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
        self._by_key: dict[int, StoredWindow] = {}
        self._ids: dict[str, int] = {}

    def update(self, state: State) -> None:
        """Bring it up to date with a state."""
        if state is self._state and state.version == self._version:
            return
        changed = state.pages_changed_since(self._version) if state is self._state else None
        if changed is None or any(page_number(key) == 0 for key in changed):  # a segment came, went or changed
            self._by_key.clear()
            self._ids.clear()
            self._segment = segment_of_windows(state)
            for page in () if self._segment is None else state.segment_pages(self._segment):
                self._take(page.key, stored_window(page))
        else:
            for key in changed:
                if segment_number(key) == self._segment:
                    self._take(key, stored_window(state.page(key)))
        self._state, self._version = state, state.version

    def find(self, window: object) -> StoredWindow | None:
        """The window of this id, closed ones too."""
        key = self._ids.get(window) if isinstance(window, str) else None
        return None if key is None else self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def windows(self, *, obsolete: bool = False) -> list[StoredWindow]:
        """The open windows in the order of their places; with `obsolete` those that were closed too."""
        found = [one for one in self._by_key.values() if obsolete or not one.obsolete]
        return sorted(found, key=lambda one: (one.meta.at, one.key))

    def _take(self, key: int, window: StoredWindow | None) -> None:
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
    meta = WindowMeta(window=name, app=app, at=plan.seq, important=important, append=append)
    summary = _line(description)
    header = Header(
        folder=False,
        name=meta.window,
        description=summary,
        **plan.origin(),
        summary_tokens=plan.count(summary),
        body=plan.add_body(saved),
        pinned=pinned,
        meta=_meta(meta),
        form=Form.WINDOW,
    )
    record = plan.create(key, root, plan.append_rank(root), header)
    if pinned:
        open_chain(plan, record)
    return record


def keep_window(plan: Plan, key: int, saved: str, *, moves: bool, acted: bool) -> PageRecord | None:
    """Plan to keep what a window's app saved; `moves` gives it a new place. An action is counted: it is an entry of its
    own whatever it changed. None if the window was closed meanwhile."""
    window = stored_window(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return None
    page, meta = window.page, window.meta
    if saved != plan.body(page.header.body):
        page = plan.change(page, body=plan.add_body(saved))
    if acted:
        meta = replace(meta, acts=meta.acts + 1)
    if moves and page.parent is not None:
        meta = replace(meta, at=plan.seq)
        return plan.place(page, page.parent, plan.append_rank(page.parent), meta=_meta(meta))
    return plan.change(page, meta=_meta(meta))


def close_window(plan: Plan, key: int, summary: str | None) -> bool:
    """Plan to make a window obsolete; its summary stays as what the page says. False if it already was."""
    window = stored_window(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return False
    check_unpinned(plan, window.page, "close")
    fields: dict[str, Any] = {"closed": True, "lifecycle": Lifecycle.HOT_ARCHIVED, "body": 0}
    if summary:
        line, text = _line(summary), _storable(summary)
        fields |= {"description": line, "summary_tokens": plan.count(line)}
        fields |= {"body": plan.add_body(text), "tokens": plan.count(text)}
    plan.change(window.page, **fields)
    return True


def _line(text: str) -> str:
    """The text as a page's description, whatever an app or a model wrote."""
    return collapse_whitespace(_storable(text[: 4 * MAX_DESCRIPTION]))[:MAX_DESCRIPTION]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _meta(meta: WindowMeta) -> bytes:
    return encode_meta(msgspec.to_builtins(meta))


Step = Callable[[Any], Any]


class Saved(NamedTuple):
    """What an app saved, and in which turn of its own."""

    text: str
    turn: int


class Live:
    """The object of one open window, and the last frame it gave."""

    __slots__ = (
        "_frame",
        "_kept",
        "_line",
        "_text",
        "_turn",
        "app",
        "id",
        "late",
        "lock",
        "registered",
        "saved",
        "stamp",
    )

    def __init__(self, registered: Registered, stamp: tuple[int, int], saved: str, app: App | None = None) -> None:
        self.registered = registered
        self.stamp = stamp
        self.saved = saved
        self.app = app
        self.id = ""
        self.lock = threading.Lock()
        self.late = False
        """Whether its last call did not come back in time; it may still be running."""
        self._frame: tuple[str, Frame] | None = None
        self._text = ""
        self._line = ""
        self._turn = 0
        self._kept = 0

    def job(self, *steps: Step, patience: float) -> Job:
        """A call of its app: the object is made first if it is not there yet; each step gets what the last one gave."""
        return Job(
            lambda: chained([self._made, self._restored, *steps]), self.lock, patience=0 if self.late else patience
        )

    def forget(self) -> None:
        """Let it be made anew from what it saved, if it ever saved anything: what it is now is not what is stored."""
        if self.saved:
            self.stamp = (-1, -1)

    def took(self, saved: str) -> "Saved":
        """Number what the app saved: two who act at once may come to keep it in another order."""
        self._turn += 1
        return Saved(saved, self._turn)

    def latest(self, saved: "Saved") -> str:
        """What is to be kept: this, unless something later already is."""
        return saved.text if saved.turn >= self._kept else self.saved

    def keep(self, saved: "Saved", kept: tuple[int, int]) -> None:
        """Note that it is kept now, under this stamp."""
        self.saved = self.latest(saved)
        self._kept = max(self._kept, saved.turn)
        self.stamp = kept

    def looked_at(self, patience: float) -> Job:
        """A call that gives the description and the content of the window."""
        return self.job(self._content, self._described, patience=patience)

    def frame(self, window: str, outcome: Outcome) -> Frame:
        """What the window shows, or the error that stands in its place."""
        self.late = isinstance(outcome.error, TimeLimit)
        if outcome.error is None:
            description, contents = outcome.value
            return Frame(id=window, description=description, contents=contents, actions=self.registered.actions)
        error = f"{type(outcome.error).__name__}: {said(outcome.error)}"
        described = str(self.registered.kind.description)
        return Frame(id=window, description=described, error=error, actions=self.registered.actions)

    def text(self, frame: Frame, key: str) -> str:
        """The frame as the model reads it, written anew only if it differs from the last."""
        if self._frame is None or self._frame != (key, frame):
            self._frame, self._text, self._line = (key, frame), frame_text(frame, key), ""
        return self._text

    def line(self, frame: Frame, key: str) -> str:
        """The frame without its content."""
        self.text(frame, key)
        self._line = self._line or frame_line(frame, key)
        return self._line

    def _made(self, _: object) -> App:
        if self.app is not None:
            return self.app
        app = self.registered.make()
        app.id = self.id
        return app

    def _restored(self, app: App) -> Any:
        if self.app is not None:
            return None
        given = app.restore(from_saved(self.saved)) if self.saved else None
        return chained([lambda _: given, lambda _: self._ready(app)])

    def _ready(self, app: App) -> None:
        self.app = app

    def _content(self, _: object) -> Any:
        return self._there.content()

    def _described(self, content: object) -> tuple[str, Any]:
        return str(self._there.description), settled(content)

    @property
    def _there(self) -> App:
        if self.app is None:
            raise RuntimeError("the window was not made")
        return self.app


class Lives:
    """The objects behind the open windows of one handle, by page."""

    def __init__(self) -> None:
        self._by_key: dict[int, Live] = {}

    def put(self, window: StoredWindow, live: Live) -> None:
        """Let this object stand behind a window."""
        live.id = window.id
        if live.app is not None:
            live.app.id = window.id
        live.stamp = stamp(window)
        self._by_key[window.key] = live

    def get(self, window: StoredWindow, registered: Registered, saved: Callable[[], str]) -> Live:
        """The object behind a window; if another state of it is stored than the one it saved, a new one."""
        live = self._by_key.get(window.key)
        if live is None or live.stamp != stamp(window) or live.registered is not registered or live.id != window.id:
            live = Live(registered, stamp(window), saved())
            self.put(window, live)
        return live

    def drop(self, key: int) -> Live | None:
        """Forget the object of a window."""
        return self._by_key.pop(key, None)

    def keep_only(self, keys: Any) -> None:
        """Forget the objects of windows that are no more."""
        for key in [key for key in self._by_key if key not in keys]:
            del self._by_key[key]


def stamp(window: StoredWindow) -> tuple[int, int]:
    """What tells one stored state of a window from another."""
    return window.page.header.born, window.page.header.body


def saving(live: Live) -> Step:
    """A step that gives what the step before gave, and what the app saves after it."""

    def save(result: Any) -> Any:
        given = live.app.save() if live.app is not None else None
        return chained([lambda _: given, lambda saved: (result, live.took(as_saved(saved)))])

    return save


def said(error: BaseException) -> str:
    """What an error says, whatever it is."""
    try:
        return str(error)
    except Exception:
        return ""


def chained(steps: Sequence[Step]) -> Any:
    """Take steps one after another, each with what the one before gave; awaitable as soon as one of them is."""
    value: Any = None
    for n, step in enumerate(steps):
        value = step(value)
        if hasattr(value, "__await__"):
            return _awaited(value, steps[n + 1 :])
    return value


async def _awaited(value: Awaitable[Any], rest: Sequence[Step]) -> Any:
    found = await value
    for step in rest:
        found = step(found)
        if hasattr(found, "__await__"):
            found = await found
    return found
