"""What every face on the windows of one context shares: the apps, the windows that are stored, and their objects."""

from collections.abc import Callable, Sequence
from typing import Any

from quire.core.engine import Engine
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, NoSuchWindow, QuireError, short_repr
from quire.system.rules import require_attached
from quire.system.window_pages import StoredWindow
from quire.windows.app import NAME as LAUNCHER
from quire.windows.app import Close, Launch, Launcher, Listed, Refresh, Registered, Registry, WindowEvent
from quire.windows.render import Frame
from quire.windows.runner import DEFAULT_LIMIT, Job, Outcome, Runner, TimeLimit
from quire.windows.window_store import Live, Lives, Roster, Saved, said

ACTION_LIMIT = 30.0
_SAID = 300
Drawn = tuple[StoredWindow, Frame, Live | None]


class Shop:
    """The windows of one handle."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.registry = Registry()
        self.lives = Lives()
        self.limit = DEFAULT_LIMIT
        self.action_limit = ACTION_LIMIT
        self.listeners: list[Callable[[WindowEvent], None]] = []
        self._roster = Roster()
        self._runner = Runner()
        self.registry.add(Launcher, (self.apps,), {})

    def apps(self) -> dict[str, Listed]:
        """The apps by name, without the launcher."""
        return {name: listed for name, listed in self.registry.listed().items() if name != LAUNCHER}

    def state(self) -> State:
        """The state, with everything here up to date with it. Hold the lock."""
        state = self.engine.current()
        self._roster.update(state)
        self.lives.keep_only(self._roster)
        return state

    def kept(self, *, obsolete: bool = False) -> list[StoredWindow]:
        """The open windows in the order of their places; with `obsolete` the closed ones too."""
        with self.engine.lock:
            self.state()
            return self._roster.windows(obsolete=obsolete)

    def is_empty(self) -> bool:
        """Whether there is no window, open or closed: the everyday case of a view."""
        with self.engine.lock:
            self._roster.update(self.engine.current())
            return not self._roster

    def find(self, window_id: object) -> StoredWindow:
        """The window of this id, closed ones too. Raises `NoSuchWindow`."""
        with self.engine.lock:
            self.state()
            found = self._roster.find(window_id)
            if found is None:
                raise NoSuchWindow(window_id, [one.id for one in self._roster.windows()])
            return found

    def is_taken(self, window_id: str) -> bool:
        """Whether a window has or had this id."""
        with self.engine.lock:
            self.state()
            return self._roster.find(window_id) is not None

    def usable(self, window_id: object) -> tuple[StoredWindow, Live]:
        """A window that something can be done in, with its object. Raises `NoSuchWindow` or `InvalidOperation`."""
        with self.engine.lock:
            window, state = self.find(window_id), self.engine.state
            if window.obsolete:
                raise InvalidOperation(f"Window {window.id!r} is closed; open a new one of {window.meta.app!r}.")
            require_attached(state, state.index(window.key), "use the window")
            return window, self._live(state, window, self.registry.get(window.meta.app))

    def run(self, job: Job, limit: float | None = None) -> Outcome:
        """What one call of an app gave."""
        return self._runner.run([job], self.limit if limit is None else limit)[0]

    def rest(self) -> None:
        """End the threads that wait for work: nobody is expected to come."""
        self._runner.rest()

    def frames(self, windows: Sequence[StoredWindow]) -> list[Drawn]:
        """What windows show now, fetched from their apps; those whose app is not registered are left out."""
        found: list[tuple[StoredWindow, Frame | Live]] = []
        with self.engine.lock:
            state = self.engine.current()
            for window in windows:
                registered = self.registry.find(window.meta.app)
                if window.obsolete:
                    found.append((window, _what_is_left(state, window)))
                elif registered is not None:
                    found.append((window, self._live(state, window, registered)))
        jobs = [it.looked_at(self.limit / 2) for _, it in found if isinstance(it, Live)]
        outcomes = iter(self._runner.run(jobs, self.limit))
        return [
            (window, it.frame(window.id, next(outcomes)), it) if isinstance(it, Live) else (window, it, None)
            for window, it in found
        ]

    def _live(self, state: State, window: StoredWindow, registered: Registered) -> Live:
        body = window.page.header.body
        return self.lives.get(window, registered, lambda: state.body(body))


def result_of(live: Live, outcome: Outcome, doing: str) -> tuple[Any, Saved]:
    """What an app returned, and what it saved. Raises what it raised, as an error of ours.

    An app that failed is made anew from what it had saved before, if it saves anything.
    """
    error = outcome.error
    if error is None:
        result, saved = outcome.value
        if result is None or isinstance(result, str | Refresh | Close | Launch):
            return result, saved
        error = InvalidOperation(f"it returned {short_repr(result)}; text, None, Refresh() or Close() is needed.")
    live.late = isinstance(error, TimeLimit)
    live.forget()
    if isinstance(error, InvalidValue) or (isinstance(error, QuireError) and not isinstance(error, InvalidOperation)):
        raise error
    named = said(error) if isinstance(error, InvalidOperation | TimeLimit) else f"{type(error).__name__}: {said(error)}"
    raise InvalidOperation(f"{doing} failed: {named[:_SAID]}") from error


def _what_is_left(state: State, window: StoredWindow) -> Frame:
    """A closed window: its summary, if it left one."""
    header = window.page.header
    return Frame(id=window.id, description=header.description, contents=state.body(header.body), obsolete=True)
