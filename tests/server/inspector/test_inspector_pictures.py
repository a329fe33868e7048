"""The screenshots of the documentation. QUIRE_SCREENSHOTS=1 renews them; their sizes are always checked."""

import os
from pathlib import Path

import pytest

from tests.server.inspector.conftest import Opener
from tests.server.inspector.png import repacked
from tests.server.inspector.visitor import Visitor, expect

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
NAMES = (
    "inspector-library",
    "inspector-window",
    "inspector-budget",
    "inspector-pages",
    "inspector-model",
    "inspector-compare",
    "inspector-timeline",
    "inspector-search-zh",
    "inspector-window-zh-dark",
    "inspector-apps",
    "inspector-phone",
    "inspector-phone-zh-dark",
)
_LARGEST = 150_000

making = pytest.mark.skipif(
    os.environ.get("QUIRE_SCREENSHOTS") != "1", reason="pictures are made with QUIRE_SCREENSHOTS=1"
)


def _shot(visitor: Visitor, name: str) -> None:
    """Take a screenshot when the page is idle."""
    IMAGES.mkdir(exist_ok=True)
    visitor.page.mouse.move(0, 0)
    visitor.page.wait_for_load_state("load")
    visitor.page.wait_for_timeout(600)
    picture = visitor.page.screenshot(animations="disabled")
    (IMAGES / f"{name}.png").write_bytes(repacked(picture))


def _at_demo(visitor: Visitor, place: str, ready: str) -> None:
    visitor.go(place, "coding-agent")
    expect(visitor.find(ready).first).to_be_visible()


@making
def test_pictures_in_english(visit: Opener) -> None:
    visitor = visit(locale="en-US")
    _shot(visitor, "inspector-library")
    _at_demo(visitor, "window", ".cell")
    _shot(visitor, "inspector-window")
    visitor.page.fill(".budget-number", "1300")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".changes h2")).to_contain_text("1,300")
    visitor.find(".budget-number").blur()
    _shot(visitor, "inspector-budget")
    visitor.find(".budget .button").click()
    _at_demo(visitor, "pages", ".tree-row")
    visitor.find(".tree-row", "Ticket PAY-4471").locator(".twisty").click()
    visitor.page.check("#cold")
    visitor.find(".tree-row", "退款名单").click()
    visitor.find("#why").click()
    expect(visitor.find(".why")).to_contain_text("Shown")
    visitor.find("#why").blur()
    _shot(visitor, "inspector-pages")
    visitor.page.keyboard.press("Escape")
    _at_demo(visitor, "timeline", ".entry")
    for key in ("PageDown", "PageDown", "PageDown", "PageDown"):
        visitor.find(".timeline").press(key)
    visitor.find(".entry", "Fold").first.click()
    visitor.find(".timeline").blur()
    _shot(visitor, "inspector-timeline")
    fold = visitor.ask("/history?operation=fold&limit=1")["entries"][0]["seq"]
    _at_demo(visitor, f"compare?ls={fold - 1}&rs={fold + 1}", ".change")
    _shot(visitor, "inspector-compare")
    _at_demo(visitor, "apps", ".window-card")
    _shot(visitor, "inspector-apps")


@making
def test_pictures_in_chinese_and_in_the_dark(visit: Opener) -> None:
    visitor = visit(locale="zh-CN", color_scheme="dark")
    _at_demo(visitor, "window", ".cell")
    _shot(visitor, "inspector-window-zh-dark")
    light = visit(locale="zh-CN")
    _at_demo(light, "search", ".search-field")
    light.page.fill(".search-field", "退款")
    expect(light.find(".hit").first).to_be_visible()
    light.find(".search-field").blur()
    _shot(light, "inspector-search-zh")


@making
def test_pictures_of_a_phone(visit: Opener) -> None:
    visitor = visit(width=390, height=844, locale="en-US")
    _at_demo(visitor, "window", ".cell")
    _shot(visitor, "inspector-phone")
    dark = visit(width=390, height=844, locale="zh-CN", color_scheme="dark")
    _at_demo(dark, "pages", ".tree-row")
    expect(dark.find(".tree-row.is-hidden").first).to_be_visible()
    _shot(dark, "inspector-phone-zh-dark")


@making
def test_a_picture_of_a_broken_cache(visit: Opener) -> None:
    visitor = visit(locale="en-US")
    _at_demo(visitor, "pages", ".tree-row")
    visitor.find(".tree-row", "run_checks").click()
    visitor.find(".panel [data-operation=hide]").click()
    expect(visitor.find(".notice")).to_be_visible()
    visitor.page.keyboard.press("Escape")
    _at_demo(visitor, "window", ".broke")
    visitor.page.evaluate("document.querySelector('.notice')?.remove()")
    visitor.find(".cache-note .more").click()
    expect(visitor.find(".break")).to_be_in_viewport()
    _shot(visitor, "inspector-model")


def test_every_picture_is_there_and_small() -> None:
    found = {path.stem: path.stat().st_size for path in IMAGES.glob("inspector-*.png")}
    assert sorted(found) == sorted(NAMES)
    assert {name: size for name, size in found.items() if size > _LARGEST} == {}
