"""One browser and one server per test process, and a separate context for every test.

Every page is monitored: an error on its console, a dialog, or a request to another host fails the test in which it
happens.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import quire
from quire.server.http_server import RunningServer, start
from tests.server.inspector.visitor import Visitor
from tests.server.sample_library import BUDGET, NAME, fill_library

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_copies = count(1)


def _chromium() -> str:
    """Return the path of the browser. Without one the tests are skipped, and fail if CI=true."""
    given = os.environ.get("QUIRE_CHROMIUM")
    found = given or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        words = "No Chromium was found (chromium, google-chrome, or QUIRE_CHROMIUM): the inspector was not tried."
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    return found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser. It closes after these tests, because playwright's event loop would disturb others."""
    path = _chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield launched
        launched.close()


class Stand:
    """The server, its library, and the page that most tests share, because loading a page takes longer than a test."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.path = folder / "library.db"
        fill_library(self.path)
        self._exported = folder / "exported"
        with quire.Library(self.path) as library:
            library.export(NAME, self._exported)
        token = "inspector-" + "0123456789abcdef" * 2
        self.server: RunningServer = start(self.path, port=0, token=token, budget=BUDGET, poll=0.05, grace=1)
        self._shared: Visitor | None = None

    def copy(self) -> str:
        """Copy the demo's context with its history to another name."""
        with quire.Library(self.path) as library:
            return library.import_(self._exported, f"{NAME}-{next(_copies)}")

    def shared(self) -> Visitor:
        """Return the shared page in its initial state."""
        if self._shared is None:
            self._shared = self.page()
            self._shared.enter()
        self._shared.begin()
        return self._shared

    def page(
        self, *, width: int = 1280, height: int = 800, server: RunningServer | None = None, **options: Any
    ) -> Visitor:
        """Open a page in a separate browser profile, at this server or another."""
        made = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        made.set_default_timeout(15_000)
        page: Page = made.new_page()
        return Visitor(page, server or self.server)


@pytest.fixture(scope="package")
def stand(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The objects that all tests share."""
    made = Stand(browser, tmp_path_factory.mktemp("inspector"))
    yield made
    made.server.stop()


class Opener:
    """Opens pages for one test."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self._seen: list[Visitor] = []

    def __call__(self, place: str = "", *, refusals: bool = False, **options: Any) -> Visitor:
        """Open a page. With `refusals` it is separate: the console may report an error response in a later test."""
        if refusals or options:
            visitor = self.stand.page(**options)
            visitor.enter()
            visitor.refusals_expected = refusals
        else:
            visitor = self.stand.shared()
        self._seen.append(visitor)
        visitor.context = self.stand.copy() if place else NAME
        if place:
            visitor.go(place)
        return visitor

    def close(self) -> None:
        """Report the faults of all pages, and close the pages of this test."""
        wrong = [fault for visitor in self._seen for fault in visitor.faults()]
        for visitor in self._seen:
            if visitor is not self.stand._shared:
                visitor.page.context.close()
        assert wrong == []


@pytest.fixture
def visit(stand: Stand) -> Iterator[Opener]:
    """`visit("window")` opens a tab of a new context; `visit(locale="zh-CN")` the library in another browser."""
    opener = Opener(stand)
    yield opener
    opener.close()
