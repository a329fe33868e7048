"""The objects behind open windows: made by opening or from what was saved, as long as that is what is stored."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from quire.windows.app import App, settled
from quire.windows.frames import Frame, frame_line, frame_text
from quire.windows.keeping import Kept
from quire.windows.registry import Registered, as_saved, from_saved
from quire.windows.runner import Job, Outcome, TimeLimit

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

    def put(self, window: Kept, live: Live) -> None:
        """Let this object stand behind a window."""
        live.id = window.id
        if live.app is not None:
            live.app.id = window.id
        live.stamp = stamp(window)
        self._by_key[window.key] = live

    def get(self, window: Kept, registered: Registered, saved: Callable[[], str]) -> Live:
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


def stamp(window: Kept) -> tuple[int, int]:
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
