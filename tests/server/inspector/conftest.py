"""One browser and one server, and for each test a page and a context.

Each page is watched: an error on its console, a dialog, or a request to another host fails its test.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, expect, sync_playwright

import quire
from quire.windows.apps import Todo
from tests.surfaces.http_service import TOKEN, Service, serving

BUDGET = 2_000
NOISE = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
REFUSAL = "Failed to load resource: the server responded with a status of 4"
"""What Chromium prints for a refused request."""
expect.set_options(timeout=15_000)


def fill(context: quire.Context) -> quire.Context:
    """Fill a context: folded exchanges, notes in every state, a checkpoint, a batch and a window."""
    context.system("You repair the billing service.")
    for turn in range(12):
        context.user(f"Question {turn}: why was invoice INV-{turn} paid twice?")
        context.assistant(None, [{"id": f"c{turn}", "function": {"name": "run_checks", "arguments": "{}"}}])
        context.tool_result(f"c{turn}", f"Check {turn}: " + "the key was used again. " * 20)
        context.assistant(f"Answer {turn}: the key of INV-{turn} changed.")
        context.render()
    context.checkpoint("before the notes")
    pages = context.pages
    folder = pages.create_contents_page("Ticket PAY-4471", "What was learned", "mem-0")
    for name, text in (
        ("Rules", "No migrations."),
        ("退款名单", "17 笔退款，周五 17:00 之前退回。"),
        ("Keys", "24 hours"),
    ):
        pages.create_detail_page(name, f"about {name}", text, folder)
    pages.archive(pages.create_detail_page("Words", "结算、对账", "settlement", folder), cold=True)
    context.windows.register(Todo)
    context.windows.open("todo", window_id="list")
    context.windows.act("list", "add", text="写回归测试")
    context.conversation.batch_start()
    context.user("Only a thought.")
    context.conversation.batch_end(0)
    context.render()
    return context


class Visitor:
    """A user of the inspector: a page of the browser at a context, and the faults that it met."""

    def __init__(self, browser: Browser, service: Service, name: str, **options: Any) -> None:
        self.service, self.name = service, name
        self.address = str(service.client.base_url)
        self.page = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}).new_page()
        self.page.set_default_timeout(15_000)
        self.refusals_expected = False
        self.faults: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._request(request.url))
        self.page.goto(f"{self.address}#token={TOKEN}")
        self.page.wait_for_selector(".context-row")

    def go(self, place: str, name: str | None = None) -> None:
        """Go to a tab of the context, or of another: `window`, `pages?reveal=usr-1`."""
        self.page.goto(f"{self.address}#/c/{quote(name or self.name, safe='')}/{place}")
        tab = place.partition("?")[0]
        expect(self.page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")

    def find(self, selector: str, text: str | None = None) -> Locator:
        """Return the elements that match and contain a text."""
        return self.page.locator(selector) if text is None else self.page.locator(selector, has_text=text)

    def ask(self, path: str) -> Any:
        """Return an answer of the API about the context."""
        return self.service.get(f"/api/contexts/{quote(self.name, safe='')}{path}")

    def open(self) -> quire.Context:
        """Open the context as an agent has it."""
        return self.service.library.open(self.name, budget=BUDGET)

    def newest(self, count: int = 1) -> list[str]:
        """Return the operations of the newest journal entries, the newest first."""
        return [entry["operation"] for entry in self.ask(f"/history?order=desc&limit={count}")["entries"]]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not (self.refusals_expected and message.text.startswith(REFUSAL)):
            self.faults.append(f"console: {message.text}")

    def _request(self, url: str) -> None:
        if not url.startswith((self.address, "data:")):
            self.faults.append(f"request to {url}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser. Without one the tests are skipped, and fail if CI=true."""
    path = os.environ.get("QUIRE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        words = "No Chromium was found (chromium, google-chrome, or QUIRE_CHROMIUM): the inspector was not tried."
        pytest.fail(words) if os.environ.get("CI") == "true" else pytest.skip(words)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(NOISE))
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    with serving(budget=BUDGET, poll=0.05) as service:
        with closing(service.library.open("客服-机票改签")) as other:
            other.user("我想改签。")
        yield service


class Opener:
    """Opens the pages of one test."""

    def __init__(self, browser: Browser, service: Service, name: str) -> None:
        self.browser, self.service, self.name = browser, service, name
        self.opened: list[Visitor] = []

    def __call__(self, place: str, *, refusals: bool = False, **options: Any) -> Visitor:
        """Open a tab of the test's context; options are those of a profile of the browser, such as `locale`."""
        visitor = Visitor(self.browser, self.service, self.name, **options)
        self.opened.append(visitor)
        visitor.refusals_expected = refusals
        visitor.go(place)
        return visitor


@pytest.fixture
def visit(browser: Browser, service: Service, request: pytest.FixtureRequest) -> Iterator[Opener]:
    opener = Opener(browser, service, request.node.name)
    fill(service.library.open(opener.name, budget=BUDGET))
    yield opener
    for visitor in opener.opened:
        if visitor.page.evaluate("typeof window.__hit") != "undefined":
            visitor.faults.append("content ran as a script")
        visitor.page.context.close()
    assert [fault for visitor in opener.opened for fault in visitor.faults] == []
