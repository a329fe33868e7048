"""Windows: opening windows of apps, acting in them, closing them, and showing them in the tail of a view."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args

from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.records import page_key, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, names_options, short_repr
from quire.model.pages import PageIndex, Visibility
from quire.model.text import check_one_line
from quire.system.lifecycle import StoredWindow, stored_window
from quire.system.rules import Quota, charge
from quire.view.options import RenderOptions
from quire.view.preamble import context_key
from quire.view.tail import Priority, TailPiece
from quire.windows.actions import find_action
from quire.windows.app import LAUNCHER, App, AppInfo, Close, EventKind, Launch, Refresh, Window, WindowEvent
from quire.windows.render import Frame, frame_line, frame_text, more_windows_line
from quire.windows.runner import Job
from quire.windows.window_manager import (
    Instance,
    Saved,
    WindowFrame,
    WindowManager,
    close_window,
    is_in_tree,
    is_visible_place,
    open_window,
    place_for_windows,
    result_of,
    reuse_window,
    save_step,
    save_window,
    state_id,
)

_ROUNDS = 3
"""The number of times that windows opened during drawing are drawn too."""


def _visible_windows(manager: WindowManager, state: State, include_obsolete: bool) -> list[StoredWindow]:
    """Return the windows that a view shows. Each parent folder is checked once."""
    known: dict[int | None, bool] = {}
    wanted = []
    for window in manager.stored_windows(obsolete=include_obsolete):
        if not window.obsolete and manager.registry.find(window.meta.app) is None:
            continue
        parent = window.page.parent
        if parent not in known:
            known[parent] = is_visible_place(state, window.page)
        if known[parent] and is_in_tree(window.page):
            wanted.append(window)
    return wanted


def _tail_part(manager: WindowManager, drawn: WindowFrame, key: str, seen: object) -> TailPiece:
    window, frame, instance = drawn
    if manager.engine.redaction is not None:
        frame = _redact_frame(frame, manager.engine.redaction.text)
    state = manager.engine.state
    index = state.index(window.key)
    is_hidden = window.page.header.visibility is Visibility.HIDDEN and not window.obsolete
    line = partial(frame_line, frame, key, index)
    whole = frame_text(frame, key) if instance is None else instance.text(frame, key)
    return TailPiece(
        "window",
        window.key,
        index,
        line() if is_hidden else whole,
        entry=window.meta.at,
        used=window.used,
        priority=_priority(window),
        clip=None if is_hidden else partial(frame_text, frame, key),
        line=line,
        gather=partial(_gather_windows, key, state.index(page_key(segment_number(window.key), 0))),
        is_current=partial(_is_still_shown, window, seen),
        is_hidden=is_hidden,
        name=window.id,
    )


def _redact_frame(frame: Frame, redact: Callable[[str], str]) -> Frame:
    contents = frame.contents
    clean = redact(contents) if isinstance(contents, str) else tuple((redact(n), redact(text)) for n, text in contents)
    return replace(frame, description=redact(frame.description), contents=clean, error=redact(frame.error))


def _gather_windows(key: str, root: PageIndex, pieces: Sequence[TailPiece]) -> str:
    return more_windows_line(key, [(piece.name, piece.index) for piece in pieces], root)


def _priority(window: StoredWindow) -> Priority:
    if window.obsolete:
        return Priority.OBSOLETE
    if window.page.header.pinned:
        return Priority.PINNED
    return Priority.IMPORTANT if window.meta.important else Priority.UNIMPORTANT


def _is_still_shown(window: StoredWindow, seen: object, state: State) -> bool:
    """Return whether a window is still at a visible place, and still open or still closed."""
    if seen == (id(state), state.version):
        return True
    now = stored_window(state.page(window.key))
    if now is None or now.obsolete is not window.obsolete:
        return False
    return is_in_tree(now.page) and is_visible_place(state, now.page)


P = ParamSpec("P")
T = TypeVar("T")
_ID = re.compile(r"[\w.:-]{1,64}")


@names_options
class Windows:
    """The windows of one context: live state that a model sees once, always current, and acts on.

    Every view asks the apps for their content. What an app saves is stored with the page of its window. So windows
    return after a restart, when their apps are registered again, and undo reverts actions in them.
    """

    def __init__(
        self, engine: Engine, actor: str, *, manager: WindowManager | None = None, quota: Quota | None = None
    ) -> None:
        self.actor = check_one_line(actor, "actor", 100, empty=False)
        self._engine = engine
        self._manager = WindowManager(engine) if manager is None else manager
        self._quota = quota

    @property
    def context(self) -> str:
        """The name of the context in its storage."""
        return self._engine.state.context

    def acting_as(self, actor: str, *, quota: Quota | None = None) -> "Windows":
        """Return the same windows under another actor's name in the journal. `quota` limits what that actor adds."""
        return Windows(self._engine, actor, manager=self._manager, quota=quota)

    def _run(self, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Plan, charge the quota and commit."""

        def plan_and_charge(plan: Plan) -> T:
            result = planner(plan, *args, **kwargs)
            if self._quota is not None:
                charge(plan, self._quota)
            return result

        return self._engine.run(self.actor, operation, plan_and_charge)

    def __repr__(self) -> str:
        return f"<Windows of {self.context!r}: {len(self)} open, {len(self.apps())} apps>"

    def __len__(self) -> int:
        """Return the number of open windows."""
        return len(self._manager.stored_windows())

    # Apps

    def register(
        self,
        /,
        app: type[App],
        *arguments: Any,
        name: str | None = None,
        most: int | None = None,
        one_per: str | None = None,
        **options: Any,
    ) -> str:
        """Register an app and return its name. Its objects are created with the arguments.

        Windows that an earlier process left open are shown again. Use `name` for a second app of the same class. With
        `most`, opening one window more closes the least recently used one, with its summary. With `one_per`, opening a
        window with the same value of this parameter shows the open one again. Raise `InvalidValue`.
        """
        return self._manager.registry.add(app, arguments, options, name, most=most, one_per=one_per)

    def _has_apps(self) -> bool:
        """Return whether an app is registered, the launcher aside."""
        return len(self._manager.registry) > 1

    def apps(self) -> dict[str, AppInfo]:
        """Return the apps by name, each with its description and the arguments to open it."""
        return self._manager.registry.describe_apps()

    def _share(self, other: "Windows") -> None:
        """Register the same apps in another context."""
        other._manager.registry.add_missing(self._manager.registry)

    def set_limits(self, *, drawing: float | None = None, action: float | None = None) -> None:
        """Set the time limits of an app in seconds: for its content and for an action. Raise `InvalidValue`."""
        for field, value in (("drawing", drawing), ("action", action)):
            if value is not None and (not isinstance(value, int | float) or value is True or not 0 < value <= 3_600):
                raise InvalidValue(
                    f"is {short_repr(value)}; seconds above 0, at most 3,600, are needed.", argument=field
                )
        self._manager.limit = self._manager.limit if drawing is None else float(drawing)
        self._manager.action_limit = self._manager.action_limit if action is None else float(action)

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
        """Open a window of an app. Its arguments are given by name or as a mapping.

        The default `window_id` comes from the app's name. The default options are those of the app. If the app has one
        window per value of a parameter (see `register`), the open one is shown again, with its id and options.

        Raise `NoSuchApp`, `InvalidValue` for wrong arguments, or `InvalidOperation` if the app fails; then nothing is
        changed.
        """
        registered = self._manager.registry.get(app)
        given = registered.opening.check({**(arguments or {}), **more})
        options = _options(registered.kind, important=important, pinned=pinned, append=append)
        identity = registered.identify(given)
        if self._engine.redaction is not None:
            identity = self._engine.redaction.text(identity)
        same = self._manager.find_same(registered, identity)
        if same is not None:
            return self._reuse(same, window_id)
        self._check_id(window_id)
        self._engine.read(place_for_windows)
        summaries = {one.key: self._manager.summarise(one) for one in self._manager.surplus_windows(registered)}
        instance = Instance(registered, (0, 0), "")
        opening = partial(_call, instance, "open", given)
        steps = [opening, save_step(instance)] if hasattr(registered.kind, "open") else [save_step(instance)]
        outcome = self._manager.run(instance.job(*steps, patience=0), self._manager.action_limit)
        _, saved = result_of(instance, outcome, f"Opening {app!r}")
        window = None
        try:
            with self._engine.lock:
                same = self._manager.find_same(registered, identity)  # another thread may have opened it
                closing = self._manager.surplus_windows(registered) if same is None else []
                texts = {one.key: summaries.get(one.key) for one in closing}
                window = same or self._add(instance, saved, window_id, identity=identity, closing=texts, **options)
        finally:
            if window is None or same is not None:  # no window uses this instance
                self._manager.run(Job(instance.require_app().closed))
        if same is not None:
            return self._reuse(same, window_id)
        for one in closing:
            self._finish_closing(one, texts[one.key])
        self._notify("opened", window)
        return self._to_windows([window])[0]

    def act(self, window_id: str, action: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Run an action of a window and return the app's answer.

        Raise `NoSuchWindow`, `NoSuchAction`, `InvalidValue` for wrong arguments, or `InvalidOperation` if the app
        fails; then what it saved before stays valid.
        """
        window, instance = self._manager.require_usable(window_id)
        found = find_action(instance.registered.actions, action)
        given = found.check({**(arguments or {}), **more})
        if found.name == "close":
            return self._close(window, given.get("summary"))
        limit = self._manager.action_limit
        outcome = self._manager.run(
            instance.job(partial(_call, instance, found.method, given), save_step(instance), patience=limit), limit
        )
        result, saved = result_of(instance, outcome, f"Action {found.name!r} of {window.id!r}")
        text = result if isinstance(result, str) else result.text if isinstance(result, Refresh | Close) else ""
        moves = isinstance(result, Refresh) and window.meta.append
        now = self._save("window_act", window, instance, saved, moves=moves, acted=True)
        if isinstance(result, Launch):
            text = f"Opened {self.open(result.app, result.arguments).id}."
        if now is not None:
            self._notify("acted", now, found.name, text)
            if isinstance(result, Refresh):
                self._notify("refreshed", now)
            if isinstance(result, Close):
                self._close(now, result.summary)
        return text

    def refresh(self, window_id: str, *, append: bool | None = None) -> Window:
        """Store what a window's app saves now. A window with `append` moves to the end; it is still shown once."""
        window, instance = self._manager.require_usable(window_id)
        outcome = self._manager.run(instance.job(lambda _: None, save_step(instance), patience=self._manager.limit))
        _, saved = result_of(instance, outcome, f"Refreshing {window.id!r}")
        moves = window.meta.append if append is None else append
        now = self._save("window_refresh", window, instance, saved, moves=moves, acted=False)
        if now is None:
            raise InvalidOperation(f"Window {window.id!r} was closed in the meantime.")
        self._notify("refreshed", now)
        return self._to_windows([now])[0]

    def close(self, window_id: str, summary: str | None = None) -> None:
        """Close a window: it becomes obsolete and leaves the view. A summary is stored in its page and can be found.

        Closing a closed window changes nothing. Raise `NoSuchWindow`, or `InvalidOperation` if it is pinned.
        """
        if summary is not None and not isinstance(summary, str):
            raise InvalidValue(f"is {short_repr(summary)}; text is needed.", argument="summary")
        self._close(self._manager.find(window_id), summary)

    # Reading

    def get(self, window_id: str) -> Window:
        """Return a window with its current content, also a closed one. Raise `NoSuchWindow`."""
        return self._to_windows([self._manager.find(window_id)])[0]

    def list(self, *, include_obsolete: bool = False) -> Sequence[Window]:
        """Return the open windows in the order of their places; with `include_obsolete` the closed ones too."""
        return self._to_windows(self._manager.stored_windows(obsolete=include_obsolete))

    def launcher(self, /, **options: Any) -> Window:
        """Return the window that lists the apps. Open it if it is not open."""
        found = next((one for one in self._manager.stored_windows() if one.meta.app == LAUNCHER), None)
        return self.open(LAUNCHER, **options) if found is None else self._to_windows([found])[0]

    def on(self, listener: Callable[[WindowEvent], None], *kinds: EventKind) -> Callable[[], None]:
        """Call a function after a window was opened, refreshed, acted on or closed; with `kinds` only after those.

        Return a function that removes the listener. Raise `InvalidValue` for an unknown kind.
        """
        if not callable(listener):
            raise InvalidValue(f"is {short_repr(listener)}; a function is needed.", argument="listener")
        known = get_args(EventKind)
        for kind in kinds:
            if kind not in known:
                raise InvalidValue(f"has {short_repr(kind)}; {', '.join(known)} are accepted.", argument="kinds")
        wanted, listeners = frozenset(kinds), self._manager.listeners

        def tell(event: WindowEvent) -> None:
            if not wanted or event.kind in wanted:
                listener(event)

        listeners.append(tell)
        return lambda: listeners.remove(tell) if tell in listeners else None

    def page_of(self, window_id: str) -> PageIndex:
        """Return the index of a window's page. Raise `NoSuchWindow`."""
        window = self._manager.find(window_id)
        return self._engine.read(lambda state: state.index(window.key))

    def app_of(self, window_id: str) -> str:
        """Return the name of a window's app. Raise `NoSuchWindow`."""
        return self._manager.find(window_id).meta.app

    def place(self) -> PageIndex:
        """Return the index of the folder for new windows. Raise `InvalidOperation` if there is no TOOL segment."""
        return self._engine.read(lambda state: state.index(place_for_windows(state)))

    def _stop_threads(self) -> None:
        """End the threads that wait for calls of apps. The next call starts a new one."""
        self._manager.runner.stop_threads()

    def _tail_parts(self, options: RenderOptions) -> Sequence[TailPiece]:
        """Return the windows for the tail of a view, with what they show now.

        The lock is not held, because apps may use the context while they are drawn, and open or close windows.
        """
        manager = self._manager
        if manager.is_empty():
            return []
        found: dict[int, WindowFrame] = {}
        key, seen = "", None
        for _ in range(_ROUNDS):
            with manager.engine.lock:
                state = manager.state()
                if seen == (id(state), state.version):
                    break
                key, seen = context_key(state), (id(state), state.version)
                visible = _visible_windows(manager, state, options.include_obsolete)
                missing = [one for one in visible if one.key not in found]
            found.update((drawn[0].key, drawn) for drawn in manager.frames(missing))
        in_order = sorted(found.values(), key=lambda drawn: (drawn[0].meta.at, drawn[0].key))
        return [_tail_part(manager, drawn, key, seen) for drawn in in_order]

    # Internal

    def _save(
        self, operation: str, window: StoredWindow, instance: Instance, saved: Saved, *, moves: bool, acted: bool
    ) -> StoredWindow | None:
        """Store what an app saved in its page. Return the window, or None if it is closed."""
        with self._engine.lock:
            try:
                text = instance.newest_saved(saved)
                now = stored_window(self._run(operation, save_window, window.key, text, moves=moves, acted=acted))
            except BaseException:  # the object differs from the store
                instance.forget()
                raise
            if now is not None:
                instance.set_stored(saved, state_id(now))
            return now

    def _add(self, instance: Instance, saved: Saved, window_id: str | None, **options: Any) -> StoredWindow:
        """Store a new window of an app object."""
        description = str(instance.require_app().description)
        name = instance.registered.name
        window = stored_window(
            self._run("window_open", open_window, window_id, name, description, saved.text, **options)
        )
        assert window is not None
        instance.set_stored(saved, state_id(window))
        self._manager.put_instance(window, instance)
        return window

    def _reuse(self, window: StoredWindow, window_id: str | None) -> Window:
        """Show an open window again instead of opening another one."""
        if window_id not in (None, window.id):
            raise InvalidOperation(
                f"Window {window.id!r} is open with {window.meta.identity}; it cannot get the id {window_id!r}."
            )
        now = stored_window(self._run("window_open", reuse_window, window.key))
        if now is None:
            raise InvalidOperation(f"Window {window.id!r} was closed in the meantime.")
        self._notify("refreshed", now)
        return self._to_windows([now])[0]

    def _close(self, window: StoredWindow, summary: str | None) -> str:
        if self._run("window_close", close_window, window.key, summary):
            self._finish_closing(window, summary)
        return ""

    def _finish_closing(self, window: StoredWindow, summary: str | None) -> None:
        """Release the app object of a window that was closed, and call the listeners."""
        with self._engine.lock:
            instance = self._manager.drop_instance(window)
        if instance is not None and instance.app is not None:
            self._manager.run(Job(instance.app.closed))
        self._notify("closed", window, text=summary or "")

    def _notify(self, kind: EventKind, window: StoredWindow, action: str = "", text: str = "") -> None:
        if not self._manager.listeners:
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
        for listener in [*self._manager.listeners]:
            try:
                listener(event)
            except Exception:  # a listener cannot undo what happened
                import logging

                logging.getLogger("quire").exception("A listener of windows failed")

    def _to_windows(self, windows: Sequence[StoredWindow]) -> Sequence[Window]:
        """Return windows with their current content; without a registered app, with what is stored."""
        frames = {one.key: frame for one, frame, _ in self._manager.frames(windows)}
        return [self._to_window(one, frames.get(one.key)) for one in windows]

    def _to_window(self, window: StoredWindow, frame: Frame | None) -> Window:
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
            summary=shows.contents if window.obsolete and isinstance(shows.contents, str) else "",
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
                f"is {short_repr(window_id)}; 1 to 64 letters, digits, '_', '-', '.' and ':' are needed.",
                argument="window_id",
            )
        if any(window.id == window_id for window in self._manager.stored_windows(obsolete=True)):
            raise InvalidOperation(f"There is or was a window {window_id!r}. Use another id.")


def _options(kind: type[App], **given: bool | None) -> dict[str, bool]:
    """Return the options of a new window: as given, otherwise those of its app."""
    for field, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise InvalidValue(f"is {short_repr(value)}; True or False is needed.", argument=field)
    return {field: bool(getattr(kind, field)) if value is None else value for field, value in given.items()}


def _call(instance: Instance, method: str, arguments: Mapping[str, Any], _: object) -> Any:
    return getattr(instance.require_app(), method)(**arguments)
