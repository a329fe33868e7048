"""Hostile content: every field is shown as text and never becomes markup or script."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

import quire
from quire import App, Segment, action
from quire.server.http_server import RunningServer, start
from tests.server.inspector.conftest import Stand
from tests.server.inspector.visitor import Visitor, expect
from tests.server.payloads import PAYLOADS

BUDGET = 60_000
_FOREIGN = """() => {
  const tags = new Set(('HTML HEAD META TITLE LINK SCRIPT BODY NOSCRIPT MAIN HEADER NAV ASIDE SECTION ARTICLE DIV'
    + ' SPAN P A B I H1 H2 H3 SMALL PRE CODE KBD MARK TIME OL UL LI DL DT DD BUTTON FORM FIELDSET LEGEND LABEL INPUT'
    + ' SELECT OPTION TEXTAREA DATALIST DETAILS SUMMARY DIALOG IMG SVG PATH').split(' '));
  const ours = (value) => value.startsWith('#') || value.startsWith('/static/');
  const wrong = (node) => !tags.has(node.tagName.toUpperCase())
    || [...node.attributes].some(({name, value}) => name.startsWith('on') || name === 'srcdoc' || name === 'action'
      || (['href', 'src', 'data', 'formaction', 'xlink:href'].includes(name) && !ours(value)));
  const found = [...document.querySelectorAll('*')].filter(wrong).map((node) => node.outerHTML.slice(0, 200));
  const scripts = document.querySelectorAll('script, style').length;
  return scripts === 1 ? found : [...found, `${scripts} scripts and styles`];
}"""


class Noisy(App):
    """An app with hostile content everywhere."""

    name = "noisy"
    description = PAYLOADS[0]

    def content(self) -> Mapping[str | int, str]:
        return {f"item{number}": text for number, text in enumerate(PAYLOADS)}

    @action(PAYLOADS[1])
    def shout(self, words: str) -> str:
        return PAYLOADS[2]


def _fill(path: Path, name: str) -> None:
    """Create a context with a payload in every text field."""
    with quire.open(path, name, budget=BUDGET) as context:
        context.pages.add_segment(Segment(id="bad", name=PAYLOADS[3], description=PAYLOADS[4]))
        context.system(PAYLOADS[5])
        for number, text in enumerate(PAYLOADS):
            context.pages.create_detail_page(text, text, f"{number} {text}", "bad-0")
        for number, text in enumerate(PAYLOADS):
            if number % 5:
                context.user(f"{number} {text}")
                continue
            call = {"id": f"{number} {text}", "type": "function", "function": {"name": text, "arguments": text}}
            context.assistant(f"{number} {text}", tool_calls=[call])
            context.tool_result(f"{number} {text}", f"{number} {text}")
        context.checkpoint(PAYLOADS[6])
        context.as_agent(PAYLOADS[7]).create_detail_page(PAYLOADS[8], PAYLOADS[9], PAYLOADS[10], "mem-0")
        context.windows.register(Noisy)
        context.windows.open("noisy")


@pytest.fixture(scope="module")
def served(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, str]]:
    """A server with that context, and its name."""
    path = tmp_path_factory.mktemp("hostile") / "library.db"
    name = "\"'><img src=x onerror=window.__hit=1>"
    _fill(path, name)
    with start(path, port=0, token="h" * 32, budget=BUDGET, apps=(Noisy,), grace=1) as server:
        yield server, name


@pytest.fixture(scope="module")
def page_there(stand: Stand, served: tuple[RunningServer, str]) -> Iterator[Visitor]:
    """A page of that server."""
    made = stand.page(server=served[0])
    made.enter()
    yield made
    made.page.context.close()


@pytest.fixture
def visitor(page_there: Visitor, served: tuple[RunningServer, str]) -> Iterator[Visitor]:
    """The page in its initial state; faults are reported at the end."""
    page_there.begin()
    page_there.context = served[1]
    yield page_there
    assert page_there.faults() == []


def _is_clean(visitor: Visitor) -> None:
    assert visitor.page.evaluate(_FOREIGN) == []


def test_there_are_150_payloads_and_the_check_would_find_one(visitor: Visitor) -> None:
    assert len(set(PAYLOADS)) == 150
    _is_clean(visitor)
    visitor.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<details open ontoggle=x>')")
    assert visitor.page.evaluate(_FOREIGN) == ['<details open="" ontoggle="x"></details>']
    visitor.page.evaluate("document.body.lastElementChild.remove()")
    visitor._faults.clear()  # the policy refused the handler and logged it to the console


def test_every_message_is_text_in_every_form(visitor: Visitor) -> None:
    visitor.go("model")
    expect(visitor.find(".message").first).to_be_visible()
    for form in ("openai", "anthropic", "responses"):
        visitor.page.click(f"[data-value={form}]")
        expect(visitor.find(".message", f"149 {PAYLOADS[149]}").last).to_be_attached()
        shown = visitor.page.evaluate("document.querySelector('.messages').textContent")
        missing = [text for number, text in enumerate(PAYLOADS) if f"{number} {text}" not in shown]
        assert missing == []
        _is_clean(visitor)


def test_every_page_is_text_in_the_tree_and_in_its_panel(visitor: Visitor, request: pytest.FixtureRequest) -> None:
    visitor.go("pages")
    visitor.find(".tree-row", PAYLOADS[0]).first.wait_for()
    tree, seen = visitor.find(".tree"), set[str]()
    tree.focus()
    for _ in range(26):
        seen |= set(visitor.find(".tree-name").all_text_contents())
        _is_clean(visitor)
        tree.press("PageDown")
    assert {text.strip() for text in PAYLOADS} <= {name.strip() for name in seen}
    for number in range(0, 150, 1 if request.config.getoption("--long") else 30):
        visitor.page.goto(f"{visitor.page.url.partition('?')[0]}?reveal=bad-{number + 1}")
        row = visitor.find(f"[id='row-bad-{number + 1}']")
        row.click()
        expect(visitor.find(".panel .mono").first).to_have_text(f"bad-{number + 1}")
        expect(visitor.find(".panel .content")).to_contain_text(f"{number} {PAYLOADS[number]}".strip())
        _is_clean(visitor)


def test_everything_else_is_text_too(visitor: Visitor) -> None:
    visitor.refusals_expected = True
    visitor.go("window")
    expect(visitor.find(".cell").first).to_be_visible()
    visitor.find(".cell").nth(5).hover()
    expect(visitor.find(".tip")).to_be_visible()
    _is_clean(visitor)
    visitor.go("timeline")
    expect(visitor.find(".entry-actor", PAYLOADS[7])).to_have_count(1)
    expect(visitor.find(".chip.checkpoint")).to_have_text(PAYLOADS[6])
    _is_clean(visitor)
    visitor.go("apps")
    expect(visitor.find(".window-card h2")).to_have_text(PAYLOADS[0])
    assert visitor.find(".window-items dd").all_text_contents() == list(PAYLOADS)
    visitor.find(".window-card .button", "shout").click()
    visitor.page.fill("dialog [name=words]", "x")
    visitor.find("dialog .primary").click()
    expect(visitor.find(".notice")).to_have_text(PAYLOADS[2])
    _is_clean(visitor)
    visitor.go("compare?ls=100&rs=160")
    expect(visitor.find(".change").first).to_be_visible()
    _is_clean(visitor)
    visitor.go("search")
    for text in PAYLOADS[::30]:
        with visitor.page.expect_response("**/search?**"):
            visitor.page.fill(".search-field", text)
    _is_clean(visitor)


def test_addresses_and_errors_are_text_too(visitor: Visitor) -> None:
    visitor.refusals_expected = True
    for text in PAYLOADS[::25]:
        visitor.page.goto(f"{visitor.server.address}#/c/{quote(text, safe='')}/window?page={quote(text, safe='')}")
        expect(visitor.find(".problem").first).to_be_visible()
        expect(visitor.find("h1")).to_have_text(text.strip())
        _is_clean(visitor)
