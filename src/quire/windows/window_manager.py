"""The windows of one context: their pages, the app objects behind the open ones, and the calls of those apps."""

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Header, PageRecord, page_key, page_number, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, NoSuchWindow, QuireError, short_repr
from quire.model.pages import Form, Lifecycle, Permission, SegmentType, Visibility
from quire.model.text import MAX_DESCRIPTION, collapse_whitespace, encode_meta
from quire.system.lifecycle import StoredWindow, WindowMeta, open_chain, stored_window, touch_window
from quire.system.rules import check_unpinned, require_attached
from quire.windows.app import (
    App,
    AppRegistry,
    Close,
    Launch,
    Launcher,
    Refresh,
    RegisteredApp,
    WindowEvent,
    encode_saved,
    freeze_content,
)
from quire.windows.render import Frame, frame_text
from quire.windows.runner import DEFAULT_LIMIT, Job, Outcome, Runner, TimeLimit

ACTION_LIMIT = 30.0
_MAX_ERROR = 300
_MAX_SUMMARY = 500
"""The characters of a window's content that become its summary."""


# Windows as pages: a window is a leaf of the first TOOL segment with its id and what its app saved.


def is_in_tree(page: PageRecord) -> bool:
    """Return whether a window's page is in the tree and not archived. A closed window keeps its place."""
    return not page.is_cold and (page.header.lifecycle is Lifecycle.ACTIVE or page.header.closed)


def is_visible_place(reader: Reader, page: PageRecord) -> bool:
    """Return whether views show the place of a page: below open folders, in a segment that is not PRIVATE."""
    segment = reader.segment(segment_number(page.key))
    if segment is None or segment.gone or segment.permission is Permission.PRIVATE:
        return False
    chain = (above.header for above in reader.ancestors(page))
    return all(above.lifecycle is Lifecycle.ACTIVE and above.visibility is Visibility.EXPANDED for above in chain)


class StoredWindows:
    """The windows of a context by id. `update` applies the changes since the last call."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._version = -1
        self._segment: int | None = None
        self._by_key: dict[int, StoredWindow] = {}
        self._ids: dict[str, int] = {}

    def update(self, state: State) -> None:
        """Apply the changes up to this state."""
        if state is self._state and state.version == self._version:
            return
        changed = state.pages_changed_since(self._version) if state is self._state else None
        if changed is None or any(page_number(key) == 0 for key in changed):  # a segment was added, removed or changed
            self._by_key.clear()
            self._ids.clear()
            self._segment = state.first_segment(SegmentType.TOOL)
            for page in () if self._segment is None else state.segment_pages(self._segment):
                self._take(page.key, stored_window(page))
        else:
            for key in changed:
                if segment_number(key) == self._segment:
                    self._take(key, stored_window(state.page(key)))
        self._state, self._version = state, state.version

    def find(self, window: object) -> StoredWindow | None:
        """Return the window of this id, also a closed one; None if there is none."""
        key = self._ids.get(window) if isinstance(window, str) else None
        return None if key is None else self._by_key[key]

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def windows(self, *, obsolete: bool = False) -> list[StoredWindow]:
        """Return the open windows in the order of their places; with `obsolete` the closed ones too."""
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
    """Return the key of the folder for new windows. Raise `InvalidOperation` if there is no TOOL segment."""
    number = reader.first_segment(SegmentType.TOOL)
    if number is None:
        raise InvalidOperation(
            "There is no segment for windows. A segment of the type TOOL is needed.",
            Hint("add_segment", arguments="Segment(id='win', type=SegmentType.TOOL)", purpose="to add one"),
        )
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
    identity: str,
    closing: Mapping[int, str | None],
) -> PageRecord:
    """Plan a page for a new window. The default id is the name of the app and the number of the page.

    The windows of `closing` are closed, each with its summary.
    """
    for key, text in closing.items():
        close_window(plan, key, text)
    root = place_for_windows(plan)
    key = plan.next_key(segment_number(root))
    name = window or f"{app}_{page_number(key)}"
    meta = WindowMeta(window=name, app=app, at=plan.seq, important=important, append=append, identity=identity)
    summary = _line(plan.redact(description))
    header = Header(
        folder=False,
        name=meta.window,
        description=summary,
        **plan.origin(),
        summary_tokens=plan.count(summary),
        body=plan.add_body(redact_saved(plan, saved)),
        pinned=pinned,
        meta=_meta(meta),
        form=Form.WINDOW,
    )
    record = plan.create(key, root, plan.append_rank(root), header)
    if pinned:
        open_chain(plan, record)
    return record


def reuse_window(plan: Plan, key: int) -> PageRecord | None:
    """Plan to show an open window as if it was opened now. Return None if it was closed in the meantime."""
    window = stored_window(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return None
    page = open_chain(plan, window.page)
    return _move_to_end(plan, page, window.meta) if window.meta.append else touch_window(plan, page)


def _move_to_end(plan: Plan, page: PageRecord, meta: WindowMeta) -> PageRecord:
    parent = page.parent if page.parent is not None else place_for_windows(plan)
    return plan.place(page, parent, plan.append_rank(parent), meta=_meta(replace(meta, at=plan.seq)))


def save_window(plan: Plan, key: int, saved: str, *, moves: bool, acted: bool) -> PageRecord | None:
    """Plan to store what a window's app saved, and that it was used. `moves` gives the window a new place.

    An action is counted, so that it is a journal entry even if it changed nothing. Return None if the window was closed
    in the meantime.
    """
    window = stored_window(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return None
    page, meta, saved = window.page, window.meta, redact_saved(plan, saved)
    if saved != plan.body(page.header.body):
        page = plan.change(page, body=plan.add_body(saved))
    if acted:
        meta = replace(meta, acts=meta.acts + 1)
    if moves:
        return _move_to_end(plan, page, meta)
    return touch_window(plan, plan.change(page, meta=_meta(meta)))


def close_window(plan: Plan, key: int, summary: str | None) -> bool:
    """Plan to close a window; its summary becomes the text of the page. Return False if it was closed before."""
    window = stored_window(plan.page(key))
    if window is None or window.obsolete or plan.cold_top(window.page) is not None:
        return False
    check_unpinned(plan, window.page, "close")
    fields: dict[str, Any] = {"closed": True, "lifecycle": Lifecycle.HOT_ARCHIVED, "body": 0}
    summary = plan.redact(summary)
    if summary:
        line, text = _line(summary), _storable(summary)
        fields |= {"description": line, "summary_tokens": plan.count(line)}
        fields |= {"body": plan.add_body(text), "tokens": plan.count(text)}
    plan.change(window.page, **fields)
    return True


def redact_saved(plan: Plan, saved: str) -> str:
    """Return the state of an app, which is JSON text, without what `redact` removes."""
    return saved if plan.redaction is None else plan.redaction.json_text(saved)


def _line(text: str) -> str:
    """Return the text of an app or a model as the description of a page."""
    return collapse_whitespace(_storable(text[: 4 * MAX_DESCRIPTION]))[:MAX_DESCRIPTION]


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _meta(meta: WindowMeta) -> bytes:
    return encode_meta(msgspec.to_builtins(meta))


# The objects behind open windows

Step = Callable[[Any], Any]


class Saved(NamedTuple):
    """The saved state of an app, with a number that grows with every save of the instance."""

    text: str
    number: int


class Instance:
    """The app object of one open window, and the last frame it showed."""

    def __init__(self, registered: RegisteredApp, state_id: tuple[int, int], saved: str) -> None:
        self.registered = registered
        self.state_id = state_id
        self.saved = saved
        self.app: App | None = None
        self.id = ""
        self.lock = threading.Lock()
        self.late = False
        """True if its last call exceeded the time limit. The call may still be running."""
        self._frame: tuple[str, Frame] | None = None
        self._text = ""
        self._saves = 0
        self._stored_number = 0

    def job(self, *steps: Step, patience: float) -> Job:
        """Return a call of the app, which creates the object if needed. Each step gets the last one's result."""
        return Job(
            lambda: run_steps([self._make_app, self._restore_app, *steps]),
            self.lock,
            patience=0 if self.late else patience,
        )

    def is_current(self, window: StoredWindow, registered: RegisteredApp) -> bool:
        """Return whether the object has the stored state of this window and was made by this app."""
        is_same = self.registered is registered and self.id == window.id
        return is_same and self.state_id == state_id(window)

    def forget(self) -> None:
        """Make the next call create the object again from its saved state, if it has one: it differs from the store."""
        if self.saved:
            self.state_id = (-1, -1)

    def number_saved(self, saved: str) -> "Saved":
        """Number what the app saved, because concurrent actions may store their results in another order."""
        self._saves += 1
        return Saved(saved, self._saves)

    def newest_saved(self, saved: "Saved") -> str:
        """Return the text to store: that of `saved`, or the stored one if it is newer."""
        return saved.text if saved.number >= self._stored_number else self.saved

    def set_stored(self, saved: "Saved", state: tuple[int, int]) -> None:
        """Record that `saved` is stored, and the id of the stored state."""
        self.saved = self.newest_saved(saved)
        self._stored_number = max(self._stored_number, saved.number)
        self.state_id = state

    def content_job(self, patience: float) -> Job:
        """Return a call that gets the description and the content of the window."""
        return self.job(self._content, self._describe_content, patience=patience)

    def summary_job(self, patience: float) -> Job:
        """Return a call that gets the summary of the window, or the beginning of its content."""
        steps = (lambda _: self.require_app().summary(), lambda text: text or self._content(text), _summarise)
        return self.job(*steps, patience=patience)

    def frame(self, window: str, outcome: Outcome) -> Frame:
        """Return the frame of the window, with an error instead of the content if the call failed."""
        self.late = isinstance(outcome.error, TimeLimit)
        if outcome.error is None:
            description, contents = outcome.value
            return Frame(id=window, description=description, contents=contents, actions=self.registered.actions)
        error = f"{type(outcome.error).__name__}: {error_text(outcome.error)}"
        described = str(self.registered.kind.description)
        return Frame(id=window, description=described, error=error, actions=self.registered.actions)

    def text(self, frame: Frame, key: str) -> str:
        """Return the frame as text for the model. It is formatted again only if it changed."""
        if self._frame is None or self._frame != (key, frame):
            self._frame, self._text = (key, frame), frame_text(frame, key)
        return self._text

    def _make_app(self, _: object) -> App:
        if self.app is not None:
            return self.app
        app = self.registered.make()
        app.id = self.id
        return app

    def _restore_app(self, app: App) -> Any:
        if self.app is not None:
            return None
        given = app.restore(json.loads(self.saved)) if self.saved else None
        return run_steps([lambda _: given, lambda _: setattr(self, "app", app)])

    def _content(self, _: object) -> Any:
        return self.require_app().content()

    def _describe_content(self, content: object) -> tuple[str, Any]:
        return str(self.require_app().description), freeze_content(content)

    def require_app(self) -> App:
        """Return the app object. Raise `RuntimeError` if no call has created it yet."""
        if self.app is None:
            raise RuntimeError("the app object does not exist")
        return self.app


def state_id(window: StoredWindow) -> tuple[int, int]:
    """Return an id of the stored state of a window."""
    return window.page.header.born, window.page.header.body


def save_step(instance: Instance) -> Step:
    """Return a step that adds what the app saves to the result of the step before."""

    def save(result: Any) -> Any:
        given = instance.app.save() if instance.app is not None else None
        return run_steps([lambda _: given, lambda saved: (result, instance.number_saved(encode_saved(saved)))])

    return save


def _summarise(content: object) -> str:
    found = freeze_content(content)
    text = found if isinstance(found, str) else "; ".join(f"{name}: {item}" for name, item in found)
    return collapse_whitespace(text[:_MAX_SUMMARY])


def error_text(error: BaseException) -> str:
    """Return the text of any error."""
    try:
        return str(error)
    except Exception:
        return ""


def run_steps(steps: Sequence[Step]) -> Any:
    """Run steps in order, each with the result of the one before. The result is awaitable if one of them is."""
    value: Any = None
    for n, step in enumerate(steps):
        value = step(value)
        if hasattr(value, "__await__"):
            return _await_steps(value, steps[n + 1 :])
    return value


async def _await_steps(value: Awaitable[Any], steps: Sequence[Step]) -> Any:
    found = await value
    for step in steps:
        found = step(found)
        if hasattr(found, "__await__"):
            found = await found
    return found


# The manager of all windows of a context

WindowFrame = tuple[StoredWindow, Frame, Instance | None]


class WindowManager:
    """The apps, stored windows, instances and listeners that all `Windows` of one context share."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.registry = AppRegistry()
        self.runner = Runner()
        self.limit = DEFAULT_LIMIT
        self.action_limit = ACTION_LIMIT
        self.listeners: list[Callable[[WindowEvent], None]] = []
        self._stored = StoredWindows()
        self._instances: dict[int, Instance] = {}
        """The app objects of open windows, by page key."""
        self.registry.add(Launcher, (self.registry.describe_apps,), {})

    def state(self) -> State:
        """Return the current state, and update the stored windows to it. The caller holds the lock."""
        state = self.engine.current()
        self._stored.update(state)
        for key in [key for key in self._instances if key not in self._stored]:
            del self._instances[key]
        return state

    def stored_windows(self, *, obsolete: bool = False) -> list[StoredWindow]:
        """Return the open windows in the order of their places; with `obsolete` the closed ones too."""
        with self.engine.lock:
            self.state()
            return self._stored.windows(obsolete=obsolete)

    def is_empty(self) -> bool:
        """Return whether there is no window, open or closed. Most views have none."""
        with self.engine.lock:
            self._stored.update(self.engine.current())
            return not self._stored

    def find(self, window_id: object) -> StoredWindow:
        """Return the window of this id, also a closed one. Raise `NoSuchWindow`."""
        with self.engine.lock:
            self.state()
            found = self._stored.find(window_id)
            if found is None:
                raise NoSuchWindow(window_id, [one.id for one in self._stored.windows()])
            return found

    def require_usable(self, window_id: object) -> tuple[StoredWindow, Instance]:
        """Return an open window with its instance. Raise `NoSuchWindow` or `InvalidOperation`."""
        with self.engine.lock:
            window, state = self.find(window_id), self.engine.state
            if window.obsolete:
                raise InvalidOperation(f"Window {window.id!r} is closed. Open a new window of {window.meta.app!r}.")
            require_attached(state, state.index(window.key), "use the window")
            return window, self._instance(state, window, self.registry.get(window.meta.app))

    def find_same(self, registered: RegisteredApp, identity: str) -> StoredWindow | None:
        """Return the open window of an app with this identity, the last used one; None if there is none."""
        same = [one for one in self._windows_of(registered) if identity and one.meta.identity == identity]
        return same[-1] if same else None

    def surplus_windows(self, registered: RegisteredApp) -> list[StoredWindow]:
        """Return the windows to close before one more is opened, the least recently used first.

        Pinned windows are never closed. Raise `InvalidOperation` if they are as many as the app may have.
        """
        if registered.most is None:
            return []
        row = self._windows_of(registered)
        free = [one for one in row if not one.page.header.pinned]
        count = max(0, len(row) + 1 - registered.most)
        if count > len(free):
            raise InvalidOperation(
                f"App {registered.name!r} may have {registered.most} open windows, and all of them are pinned.",
                Hint("unpin", self.engine.state.index(row[0].key), purpose="to let the window be closed"),
            )
        return free[:count]

    def _windows_of(self, registered: RegisteredApp) -> list[StoredWindow]:
        """Return the open windows of an app that are in the tree, the least recently used first."""
        mine = [one for one in self.stored_windows() if one.meta.app == registered.name and is_in_tree(one.page)]
        return sorted(mine, key=lambda one: (one.used, one.key))

    def summarise(self, window: StoredWindow) -> str | None:
        """Return the summary of a window from its app, else the beginning of its content; None if the app fails."""
        _, instance = self.require_usable(window.id)
        outcome = self.run(instance.summary_job(self.limit / 2))
        return None if outcome.error is not None else str(outcome.value)

    def run(self, job: Job, limit: float | None = None) -> Outcome:
        """Run one call of an app and return its outcome."""
        return self.runner.run([job], self.limit if limit is None else limit)[0]

    def frames(self, windows: Sequence[StoredWindow]) -> list[WindowFrame]:
        """Return the frames of windows, from their apps. Windows without a registered app are left out."""
        found: list[tuple[StoredWindow, Frame | Instance]] = []
        with self.engine.lock:
            state = self.engine.current()
            for window in windows:
                registered = self.registry.find(window.meta.app)
                if window.obsolete:
                    found.append((window, _closed_frame(state, window)))
                elif registered is not None:
                    found.append((window, self._instance(state, window, registered)))
        jobs = [it.content_job(self.limit / 2) for _, it in found if isinstance(it, Instance)]
        outcomes = iter(self.runner.run(jobs, self.limit))
        return [
            (window, it.frame(window.id, next(outcomes)), it) if isinstance(it, Instance) else (window, it, None)
            for window, it in found
        ]

    def put_instance(self, window: StoredWindow, instance: Instance) -> None:
        """Make this the instance of a window."""
        instance.id = window.id
        if instance.app is not None:
            instance.app.id = window.id
        instance.state_id = state_id(window)
        self._instances[window.key] = instance

    def drop_instance(self, window: StoredWindow) -> Instance | None:
        """Remove and return the instance of a window."""
        return self._instances.pop(window.key, None)

    def _instance(self, state: State, window: StoredWindow, registered: RegisteredApp) -> Instance:
        """Return the instance of a window; a new one if the stored state is not the one that the instance saved."""
        instance = self._instances.get(window.key)
        if instance is None or not instance.is_current(window, registered):
            instance = Instance(registered, state_id(window), state.body(window.page.header.body))
            self.put_instance(window, instance)
        return instance


def result_of(instance: Instance, outcome: Outcome, doing: str) -> tuple[Any, Saved]:
    """Return what an app returned and what it saved. Raise its error as a `QuireError`.

    An app that failed is created again from what it saved before, if it saved anything.
    """
    error = outcome.error
    if error is None:
        result, saved = outcome.value
        if result is None or isinstance(result, str | Refresh | Close | Launch):
            return result, saved
        error = InvalidOperation(f"it returned {short_repr(result)}; a text, None, a Refresh or a Close is needed.")
    instance.late = isinstance(error, TimeLimit)
    instance.forget()
    if isinstance(error, InvalidValue) or (isinstance(error, QuireError) and not isinstance(error, InvalidOperation)):
        raise error
    kind = "" if isinstance(error, InvalidOperation | TimeLimit) else f"{type(error).__name__}: "
    text = f"{kind}{error_text(error)}"
    raise InvalidOperation(f"{doing} failed: {text[:_MAX_ERROR]}") from error


def _closed_frame(state: State, window: StoredWindow) -> Frame:
    """Return the frame of a closed window: its summary, if it has one."""
    header = window.page.header
    return Frame(id=window.id, description=header.description, contents=state.body(header.body), obsolete=True)
