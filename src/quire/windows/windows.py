"""What a view shows of the windows.

Windows: opening apps, acting in their windows, closing them.

What a model's tool calls do with windows: the same operations, behind a check, with an answer in a few words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.records import KEY
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.pages import PageIndex, Visibility
from quire.model.text import check_one_line
from quire.system.quota import Quota, charge
from quire.system.window_pages import StoredWindow, stored_window
from quire.view.options import RenderOptions
from quire.view.preamble import derived_key
from quire.view.tail import Standing, Volatile
from quire.windows.actions import named
from quire.windows.app import NAME as LAUNCHER
from quire.windows.app import App, Close, Happening, Launch, Listed, Refresh, Window, WindowEvent
from quire.windows.render import Frame, frame_line, frame_text
from quire.windows.runner import Job
from quire.windows.window_manager import Drawn, Shop, result_of
from quire.windows.window_store import (
    Live,
    Saved,
    close_window,
    is_open_place,
    is_standing,
    keep_window,
    open_window,
    place_for_windows,
    saving,
    stamp,
)

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
    in_order = sorted(found.values(), key=lambda drawn: (drawn[0].meta.at, drawn[0].key))
    return [_piece(shop, drawn, key, seen) for drawn in in_order]


def _wanted(shop: Shop, state: State, include_obsolete: bool) -> list[StoredWindow]:
    """The windows that a view looks for; where they stand is looked up once for all that stand there."""
    known: dict[int | None, bool] = {}
    wanted = []
    for window in shop.kept(obsolete=include_obsolete):
        if not window.obsolete and shop.registry.find(window.meta.app) is None:
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
        at=window.meta.at,
        standing=_standing(window),
        clipped=None if hidden else partial(frame_text, frame, key),
        line=line,
        holds=partial(_holds, window, seen),
    )


def _standing(window: StoredWindow) -> Standing:
    if window.obsolete:
        return Standing.OBSOLETE
    if window.page.header.pinned:
        return Standing.PINNED
    return Standing.IMPORTANT if window.meta.important else Standing.UNIMPORTANT


def _holds(window: StoredWindow, seen: object, state: State) -> bool:
    """Whether a window is still open, or still closed, where a view looks."""
    if seen == (id(state), state.version):
        return True
    now = stored_window(state.page(window.key))
    if now is None or now.obsolete is not window.obsolete:
        return False
    return is_standing(now.page) and is_open_place(state, now.page)


def _key(state: State) -> str:
    note = state.note(KEY)
    return note.name if note and note.name else derived_key(state.head.identity)


P = ParamSpec("P")
T = TypeVar("T")
_ID = re.compile(r"[\w.:-]{1,64}")


class Windows:
    """The windows of one context: live state that the model sees once, always fresh, and acts on.

    What an app shows is fetched whenever a view is drawn. What it saved is kept with its page, so windows come back
    after a restart as soon as their apps are registered again, and undo takes back what was done in them.
    """

    def __init__(self, engine: Engine, actor: str, *, shop: Shop | None = None, quota: Quota | None = None) -> None:
        self.actor = check_one_line(actor, "actor", 100, empty=False)
        self._engine = engine
        self._shop = Shop(engine) if shop is None else shop
        self._quota = quota

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def acting_as(self, actor: str, *, quota: Quota | None = None) -> "Windows":
        """Return the same windows under another actor's name in the journal. `quota` limits what that actor adds."""
        return Windows(self._engine, actor, shop=self._shop, quota=quota)

    def _run(self, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Plan, charge the quota and commit."""

        def charged(plan: Plan) -> T:
            result = planner(plan, *args, **kwargs)
            if self._quota is not None:
                charge(plan, self._quota)
            return result

        return self._engine.run(self.actor, operation, charged)

    def __repr__(self) -> str:
        return f"<Windows of {self.context!r}: {len(self)} open, {len(self.apps())} apps>"

    def __len__(self) -> int:
        """How many windows are open."""
        return len(self._shop.kept())

    # Apps

    def register(self, /, app: type[App], *arguments: Any, name: str | None = None, **options: Any) -> str:
        """Let windows of an app be opened; its name. The arguments are what its objects are made with.

        Windows that an earlier run left open show again. `name` is for a second app of the same class.
        """
        return self._shop.registry.add(app, arguments, options, name)

    def _has_apps(self) -> bool:
        """Return whether an app is registered, the launcher aside."""
        return len(self._shop.registry) > 1

    def apps(self) -> dict[str, Listed]:
        """The apps by name, with what they are and what opening them takes."""
        return self._shop.apps()

    def _share(self, other: "Windows") -> None:
        """Let another context know the same apps."""
        other._shop.registry.take_over(self._shop.registry)

    def set_limits(self, *, drawing: float | None = None, action: float | None = None) -> None:
        """Set how many seconds an app has to show itself, and to act. Raises `InvalidValue`."""
        for field, value in (("drawing", drawing), ("action", action)):
            if value is not None and not (isinstance(value, int | float) and 0 < value <= 3_600):
                raise InvalidValue(f"{field} is {short_repr(value)}; seconds above 0, at most 3,600, are needed.")
        self._shop.limit = self._shop.limit if drawing is None else float(drawing)
        self._shop.action_limit = self._shop.action_limit if action is None else float(action)

    # Opening, acting, closing

    def open(
        self,
        app: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        window_id: str | None = None,
        important: bool | None = None,
        pinned: bool | None = None,
        append: bool | None = None,
        **more: Any,
    ) -> Window:
        """Open a window of an app; what opening takes is given by name or as a mapping.

        Without a `window_id` it is called after its app. Options that are not given are as the app has them. Raises
        `NoSuchApp`, `InvalidValue` for arguments, or `InvalidOperation` if the app fails; then nothing was changed.
        """
        registered = self._shop.registry.get(app)
        given = registered.opening.check({**(arguments or {}), **more})
        options = _options(registered.kind, important=important, pinned=pinned, append=append)
        self._check_id(window_id)
        self._engine.read(place_for_windows)
        live = Live(registered, (0, 0), "")
        opening = partial(_call, live, "open", given)
        steps = [opening, saving(live)] if hasattr(registered.kind, "open") else [saving(live)]
        outcome = self._shop.run(live.job(*steps, patience=0), self._shop.action_limit)
        _, saved = result_of(live, outcome, f"Opening {app!r}")
        with self._engine.lock:
            page = self._run(
                "window_open",
                open_window,
                window_id,
                registered.name,
                str(_there(live).description),
                saved.text,
                **options,
            )
            window = _sure(stored_window(page))
            live.keep(saved, stamp(window))
            self._shop.lives.put(window, live)
        self._tell("opened", window)
        return self._seen([window])[0]

    def act(self, window_id: str, action: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Do something in a window; what the app says to it.

        Raises `NoSuchWindow`, `NoSuchAction`, `InvalidValue` for arguments, or `InvalidOperation` if the app fails;
        then what it had saved before still holds.
        """
        window, live = self._shop.usable(window_id)
        found = named(live.registered.actions, action)
        given = found.check({**(arguments or {}), **more})
        if found.name == "close":
            return self._close(window, given.get("summary"))
        limit = self._shop.action_limit
        outcome = self._shop.run(
            live.job(partial(_call, live, found.method, given), saving(live), patience=limit), limit
        )
        result, saved = result_of(live, outcome, f"Action {found.name!r} of {window.id!r}")
        text = result if isinstance(result, str) else result.text if isinstance(result, Refresh | Close) else ""
        moves = isinstance(result, Refresh) and window.meta.append
        now = self._keep("window_act", window, live, saved, moves=moves, acted=True)
        if isinstance(result, Launch):
            text = f"Opened {self.open(result.app, result.arguments).id}."
        if now is not None:
            self._tell("acted", now, found.name, text)
            if isinstance(result, Refresh):
                self._tell("refreshed", now)
            if isinstance(result, Close):
                self._close(now, result.summary)
        return text

    def refresh(self, window_id: str, *, append: bool | None = None) -> Window:
        """Keep what a window's app would save now; one that appends takes a new place, and is still shown once."""
        window, live = self._shop.usable(window_id)
        outcome = self._shop.run(live.job(lambda _: None, saving(live), patience=self._shop.limit))
        _, saved = result_of(live, outcome, f"Refreshing {window.id!r}")
        moves = window.meta.append if append is None else append
        now = self._keep("window_refresh", window, live, saved, moves=moves, acted=False)
        if now is None:
            raise InvalidOperation(f"Window {window.id!r} was closed meanwhile.")
        self._tell("refreshed", now)
        return self._seen([now])[0]

    def close(self, window_id: str, summary: str | None = None) -> None:
        """Close a window: it is obsolete and leaves the view. A summary stays with its page and can be found.

        A closed one stays as it is. Raises `NoSuchWindow`, or `InvalidOperation` if it is pinned.
        """
        if summary is not None and not isinstance(summary, str):
            raise InvalidValue(f"summary is {short_repr(summary)}; text is needed.")
        self._close(self._shop.find(window_id), summary)

    # Looking

    def get(self, window_id: str) -> Window:
        """A window as it is now, closed ones too. Raises `NoSuchWindow`."""
        return self._seen([self._shop.find(window_id)])[0]

    def list(self, *, include_obsolete: bool = False) -> Sequence[Window]:
        """The open windows in the order of their places; with `include_obsolete` the closed ones too."""
        return self._seen(self._shop.kept(obsolete=include_obsolete))

    def launcher(self, /, **options: Any) -> Window:
        """The window that lists the apps; it is opened if it is not open."""
        found = next((one for one in self._shop.kept() if one.meta.app == LAUNCHER), None)
        return self.open(LAUNCHER, **options) if found is None else self._seen([found])[0]

    def on(self, listener: Callable[[WindowEvent], None], *kinds: Happening) -> Callable[[], None]:
        """Have a function called when a window was opened, refreshed, acted on or closed; what is returned ends that.

        With `kinds` only for those.
        """
        if not callable(listener):
            raise InvalidValue(f"listener is {short_repr(listener)}; a function is needed.")
        wanted, listeners = frozenset(kinds), self._shop.listeners

        def tell(event: WindowEvent) -> None:
            if not wanted or event.kind in wanted:
                listener(event)

        listeners.append(tell)
        return lambda: listeners.remove(tell) if tell in listeners else None

    def page_of(self, window_id: str) -> PageIndex:
        """The index of a window's page. Raises `NoSuchWindow`."""
        window = self._shop.find(window_id)
        return self._engine.read(lambda state: state.index(window.key))

    def app_of(self, window_id: str) -> str:
        """The name of a window's app. Raises `NoSuchWindow`."""
        return self._shop.find(window_id).meta.app

    def place(self) -> PageIndex:
        """The index of the folder that new windows go to. Raises `InvalidOperation` if there is no TOOL segment."""
        return self._engine.read(lambda state: state.index(place_for_windows(state)))

    def _stop_threads(self) -> None:
        """End the threads that wait to run apps; the next call of one begins another."""
        self._shop.rest()

    def _tail_parts(self, options: RenderOptions) -> Sequence[Volatile]:
        """What a view with these options shows of the windows, fetched now."""
        return pieces(self._shop, include_obsolete=options.include_obsolete)

    # Inside

    def _keep(
        self, operation: str, window: StoredWindow, live: Live, saved: Saved, *, moves: bool, acted: bool
    ) -> StoredWindow | None:
        """Keep what an app saved with its page; the window as it stands then, None if it is closed."""
        with self._engine.lock:
            try:
                text = live.latest(saved)
                now = stored_window(self._run(operation, keep_window, window.key, text, moves=moves, acted=acted))
            except BaseException:  # the object is ahead of what is stored
                live.forget()
                raise
            if now is not None:
                live.keep(saved, stamp(now))
            return now

    def _close(self, window: StoredWindow, summary: str | None) -> str:
        with self._engine.lock:
            was_open = self._run("window_close", close_window, window.key, summary)
            live = self._shop.lives.drop(window.key) if was_open else None
        if live is not None and live.app is not None:
            self._shop.run(Job(live.app.closed))
        if was_open:
            self._tell("closed", window, text=summary or "")
        return ""

    def _tell(self, kind: Happening, window: StoredWindow, action: str = "", text: str = "") -> None:
        if not self._shop.listeners:
            return
        event = WindowEvent(
            kind=kind,
            window=window.id,
            app=window.meta.app,
            page=self._engine.read(lambda state: state.index(window.key)),
            actor=self.actor,
            seq=self._engine.state.version,
            action=action,
            text=text,
        )
        for listener in [*self._shop.listeners]:
            try:
                listener(event)
            except Exception:  # it has happened, whatever anybody thinks of it
                import logging

                logging.getLogger("quire").exception("A listener of windows failed")

    def _seen(self, windows: Sequence[StoredWindow]) -> Sequence[Window]:
        """Windows as values, with what they show now; of those whose app is not there, what is stored."""
        frames = {one.key: frame for one, frame, _ in self._shop.frames(windows)}
        return [self._value(one, frames.get(one.key)) for one in windows]

    def _value(self, window: StoredWindow, frame: Frame | None) -> Window:
        header, meta = window.page.header, window.meta
        stored = Frame(id=window.id, description=header.description, error=f"App {meta.app!r} is not registered.")
        shows = frame or stored
        return Window(
            id=window.id,
            app=meta.app,
            page=self._engine.read(lambda state: state.index(window.key)),
            description=shows.description,
            content=shows.contents,
            actions=shows.actions,
            error=shows.error,
            important=meta.important,
            pinned=header.pinned,
            append=meta.append,
            obsolete=window.obsolete,
            seq=meta.at,
        )

    def _check_id(self, window_id: object) -> None:
        if window_id is None:
            return
        if not isinstance(window_id, str) or not _ID.fullmatch(window_id):
            raise InvalidValue(
                f"window_id is {short_repr(window_id)}; 1 to 64 letters, digits, '_', '-', '.' and ':' are needed."
            )
        if self._shop.is_taken(window_id):
            raise InvalidOperation(f"There is a window {window_id!r} already, or there was one: use another id.")


def _options(kind: type[App], **given: bool | None) -> dict[str, bool]:
    """The options of a new window: as given, else as its app has them."""
    for field, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise InvalidValue(f"{field} is {short_repr(value)}; True or False is needed.")
    return {field: bool(getattr(kind, field)) if value is None else value for field, value in given.items()}


def _call(live: Live, method: str, arguments: Mapping[str, Any], _: object) -> Any:
    return getattr(_there(live), method)(**arguments)


def _there(live: Live) -> App:
    if live.app is None:
        raise RuntimeError("the window was not made")
    return live.app


def _sure(window: StoredWindow | None) -> StoredWindow:
    if window is None:
        raise RuntimeError("a page that was just made holds no window")
    return window
