"""The inspector in a real browser: the time from a click or key to the result on the screen, by the browser's clock."""

import random
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Error, Page, sync_playwright

import quire
from bench.figures import Figure
from bench.measure import prose
from quire.server.http_server import start

BUDGET = 16_000
NAME = "bench"
ROUNDS = 9
LIMITS = ((10_000, 100.0), (100_000, 300.0))
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


class Interaction(NamedTuple):
    """An interaction in JavaScript: the condition before it, the action, and the condition for its end."""

    name: str
    before: str
    act: str
    done: str


def _to(tab: str) -> str:
    return f"location.hash = '#/c/{NAME}/{tab}'"


def _is_at(tab: str, what: str) -> str:
    """Return the expression that is true when a tab is visible and has the element."""
    return f"document.querySelector('#screen-{tab}:not([hidden]) {what}')"


def _row(name: str) -> str:
    """Return the expression of the tree's row with a name."""
    names = "[...document.querySelectorAll('.tree-name')]"
    return f"{names}.find((name) => name.textContent === '{name}')?.closest('.tree-row')"


_WORDS = "['阀门', '水泵', '退款'][round % 3]"
_FORM = "['anthropic', 'responses', 'openai'][round % 3]"
INTERACTIONS: Sequence[Interaction] = (
    Interaction(
        "open the context from the library",
        "location.hash = '#/'; await until(() => document.querySelector('.context-row'))",
        _to("window"),
        _is_at("window", ".cell"),
    ),
    Interaction(
        "drag the budget",
        "was = document.querySelector('.gauge').textContent",
        "const range = document.querySelector('#budget'); range.value = 300 + 40 * round;"
        " range.dispatchEvent(new Event('input'))",
        "document.querySelector('.gauge').textContent !== was",
    ),
    Interaction(
        "go to the tree", f"{_to('window')}; await frames(3)", _to("pages"), _is_at("pages", ".tree-row.is-open")
    ),
    Interaction(
        "open a folder of half of all pages",
        f"await until(() => {_row('Everything')});"
        f" if ({_row('Note 1')}) {_row('Everything')}.querySelector('.twisty').click();"
        f" await until(() => !{_row('Note 1')})",
        f"{_row('Everything')}.querySelector('.twisty').click()",
        _row("Note 1"),
    ),
    Interaction(
        "scroll three screens in it",
        "null",
        "const tree = document.querySelector('.tree'); tree.scrollTop += 3 * tree.clientHeight;"
        " wanted = Math.floor((tree.scrollTop + tree.clientHeight / 2) / 36)",
        "document.querySelector(`.tree-row[data-place='${wanted}']`)",
    ),
    Interaction(
        "show a page",
        "const rows = [...document.querySelectorAll('.tree-row:has(.leaf)')]; row = rows[10 + round];"
        " wanted = row.querySelector('.tree-index').textContent",
        "row.click()",
        "document.querySelector('.panel-top .mono')?.textContent === wanted",
    ),
    Interaction(
        "hide a page or open it",
        "document.querySelector('.tree').scrollTop = 0;"
        f" await until(() => {_row('Station')}); {_row('Station')}.click();"
        " await until(() => document.querySelector('.panel-name')?.textContent === 'Station');"
        " was = document.querySelector('[data-operation=hide]') ? 'hide' : 'expand'",
        "document.querySelector(`[data-operation=${was}]`).click()",
        "!document.querySelector(`[data-operation=${was}]`)"
        " && !!document.querySelector('.tree-row.chosen.is-hidden') === (was === 'hide')",
    ),
    Interaction(
        "find two Chinese characters",
        f"{_to('search')}; await until(() => document.querySelector('.search-field'))",
        f"const field = document.querySelector('.search-field'); field.value = {_WORDS};"
        " field.dispatchEvent(new Event('input'))",
        f"document.querySelector('.hit mark')?.textContent === {_WORDS}",
    ),
    Interaction(
        "see what the model sees", f"{_to('window')}; await frames(3)", _to("model"), _is_at("model", ".message")
    ),
    Interaction(
        "see it in another provider's form",
        "was = document.querySelector('.message')",
        f"document.querySelector(`[data-value=${{{_FORM}}}]`).click()",
        "document.querySelector('.message') && document.querySelector('.message') !== was",
    ),
    Interaction(
        "go to the timeline", f"{_to('model')}; await frames(3)", _to("timeline"), _is_at("timeline", ".entry")
    ),
    Interaction(
        "see what an entry changed",
        f"{_to('timeline')}; await until(() => document.querySelector('.entry')); await frames(2)",
        "const head = Number(document.querySelector('.figures .seq').textContent.replace(/[^0-9]/g, '')) - round;"
        " was = document.querySelector('.compare-sum');"
        f" location.hash = `#/c/{NAME}/compare?ls=${{head - 1}}&rs=${{head}}`",
        "document.querySelector('.compare-sum') && document.querySelector('.compare-sum') !== was",
    ),
)
_HARNESS = """
const frames = async (count) => { for (let n = 0; n < count; n += 1) await new Promise(requestAnimationFrame); };
const until = async (holds) => {
  const end = performance.now() + 20000;
  while (!holds()) {
    if (performance.now() > end) throw new Error('it never happened');
    await new Promise(requestAnimationFrame);
  }
};
"""


def run(folder: Path, size: int) -> list[Figure]:
    """Measure every interaction at every size. Without a browser there are no figures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("no chromium here: the inspector is not measured\n")
        return []
    quick = size < LIMITS[-1][0]
    figures = []
    for pages, limit in LIMITS:
        pages = pages // 10 if quick else pages
        path = folder / f"{pages}.db"
        sys.stderr.write(f"building a context of {pages:,} pages …\n")
        build(path, pages)
        with start(path, port=0, token="b" * 32, budget=BUDGET, grace=1) as server, _page(chromium) as page:
            page.goto(server.url)
            page.wait_for_selector(".context-row")
            figures += [_figure(page, interaction, pages, limit) for interaction in INTERACTIONS]
    return figures


def build(path: Path, pages: int) -> None:
    """Create a context: half of the pages are notes in one folder, the others a folded conversation."""
    chance = random.Random(5)
    words = ("检查阀门", "更换水泵", "办理退款", "读压力表")
    with quire.open(path, NAME, budget=BUDGET) as context:
        context.system("You keep the log of a pumping station.")
        messages = [
            {"role": ("user", "assistant")[n % 2], "content": f"{n}: {words[n % 4]} {prose(chance, 200)}"}
            for n in range(pages // 2)
        ]
        context.import_messages(messages)
        context.render()
        context.pages.create_detail_page("Station", "Where it is", prose(chance, 400), "mem-0")
        folder = context.pages.create_contents_page("Everything", "All notes", "mem-0")
        for n in range(1, pages // 2 + 1):
            context.pages.create_detail_page(f"Note {n}", words[n % 4], prose(chance, 120), folder)
        context.pages.archive(folder)
        context.find("阀门")  # updates the index before the measurement
        context.user("现在怎么样？")
        context.render()
        context.assistant("一切正常。")


@contextmanager
def _page(chromium: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def _figure(page: Page, interaction: Interaction, pages: int, limit: float) -> Figure:
    spent = [_measure(page, interaction, n) for n in range(ROUNDS)]
    note = f"median of {ROUNDS}; the slowest {max(spent):.0f} ms"
    return Figure(f"{interaction.name}, {pages:,} pages", statistics.median(spent), "ms", limit, note)


def _measure(page: Page, interaction: Interaction, number: int) -> float:
    """Return the milliseconds from the action to the frame after its result appeared."""
    script = f"""async () => {{ {_HARNESS}
      const round = {number};
      let was, wanted, row;
      {interaction.before};
      await frames(2);
      const start = performance.now();
      {interaction.act};
      await until(() => {interaction.done});
      await frames(1);
      return performance.now() - start;
    }}"""
    try:
        spent: float = page.evaluate(script)
    except Error as error:
        seen = page.locator(".screen-area").inner_text()
        raise RuntimeError(f"{interaction.name}: {error}; the page says: {seen[-500:]}") from error
    return spent
