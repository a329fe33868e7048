"""A user of the inspector: a page of the browser that records faults."""

from typing import Any
from urllib.parse import quote

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, Request, expect

from quire.server.http_server import RunningServer
from tests.server.sample_library import NAME

__all__ = ["Visitor", "expect"]

_REFUSALS = "Failed to load resource: the server responded with a status of 4"
"""The console message of Chromium for an error response; a page that causes one has `refusals_expected`."""
expect.set_options(timeout=15_000)


class Visitor:
    """A page, with the actions that tests need."""

    def __init__(self, page: Page, server: RunningServer) -> None:
        self.page = page
        self.server = server
        self.context = NAME
        self.refusals_expected = False
        self._faults: list[str] = []
        page.add_init_script("window.__hit = undefined;")
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._faults.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("dialog", self._dialog)

    def begin(self) -> None:
        """Reset the page to the library and its initial state."""
        self._faults.clear()
        self.page.evaluate("document.querySelectorAll('dialog, .notice').forEach(node => node.remove())")
        self.page.goto(f"{self.server.address}#/")
        self.page.wait_for_selector(".context-row")

    def enter(self) -> None:
        """Open the URL that the server prints."""
        self.page.goto(self.server.url)
        self.page.wait_for_selector(".context-row")

    def go(self, place: str, context: str | None = None) -> None:
        """Go to a tab of the context: `window`, `pages?reveal=usr-1`."""
        self.context = context or self.context
        self.page.goto(f"{self.server.address}#/c/{quote(self.context, safe='')}/{place}")
        tab = place.partition("?")[0]
        expect(self.page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")

    def find(self, selector: str, text: str | None = None) -> Locator:
        """Return the elements that match and contain a text."""
        return self.page.locator(selector, has_text=text) if text is not None else self.page.locator(selector)

    def ask(self, path: str) -> Any:
        """Return a response of the API, requested by the page with its token."""
        return self.page.evaluate(
            "async path => (await fetch(path, {headers: {Authorization: 'Bearer ' +"
            " sessionStorage.getItem('quire-token')}})).json()",
            f"/api/contexts/{quote(self.context, safe='')}{path}",
        )

    def faults(self) -> list[str]:
        """Return the recorded faults."""
        if self.page.evaluate("typeof window.__hit") != "undefined":
            self._faults.append("content ran as a script")
        return self._faults

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if not (self.refusals_expected and message.text.startswith(_REFUSALS)):
            self._faults.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.server.address, "data:")):
            self._faults.append(f"request to {request.url}")

    def _dialog(self, dialog: Dialog) -> None:
        self._faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()
