"""What a model's tool calls do with windows: the same operations, behind a check, with an answer in a few words."""

from collections.abc import Callable, Mapping
from typing import Any

from quire.pages import PageIndex
from quire.windows.facade import Windows
from quire.windows.launcher import NAME as LAUNCHER


class WindowCalls:
    """Windows for one agent. `check` is asked before everything that touches a page, and raises what it refuses."""

    def __init__(self, windows: Windows, check: Callable[[PageIndex], None]) -> None:
        self._windows = windows
        self._check = check

    def create(self, app: str, arguments: Mapping[str, Any]) -> str:
        """Open a window; the answer names it."""
        self._check(self._windows.place())
        window = self._windows.open(app, arguments)
        return f"Opened {window.id}."

    def act(self, window: str, action: str, arguments: Mapping[str, Any]) -> str:
        """Do something in a window; what its app says to it."""
        self._check(self._windows.page_of(window))
        if self._windows.app_of(window) == LAUNCHER:  # what it does is opening
            self._check(self._windows.place())
        return self._windows.act(window, action, arguments) or "Done."

    def close(self, window: str, summary: str | None = None) -> str:
        """Close a window, with a summary that stays."""
        self._check(self._windows.page_of(window))
        self._windows.close(window, summary)
        return f"Closed {window}: {summary}" if summary else f"Closed {window}."
