"""The inspector's files: no other hosts, no markup from content, and all texts in both languages."""

import re
from pathlib import Path
from typing import get_type_hints

import pytest

import quire.server
from quire.server.handlers.pages import find_pages

FOLDER = Path(quire.server.__file__).parent / "inspector"
SCRIPTS = sorted(FOLDER.glob("*.js"))
LANGUAGES = ("en", "zh")
_LINES = 400


def _words(language: str) -> dict[str, str]:
    """Return the texts of a language by key."""
    text = (FOLDER / f"words-{language}.js").read_text()
    pairs = re.findall(r'(?:"([\w. ]+)"|\b(\w+)):\s*"((?:[^"\\]|\\.)*)"', text)
    return {quoted or plain: words for quoted, plain, words in pairs}


def test_there_is_something_to_look_at() -> None:
    assert len(SCRIPTS) > 20
    assert len(_words("en")) > 200


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_markup_of_strings_and_stays_short(path: Path) -> None:
    text = path.read_text()
    forbidden = r"innerHTML\s*=|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|\.srcdoc"
    assert re.findall(forbidden, text) == []
    assert re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert len(text.splitlines()) <= _LINES


def test_the_page_has_no_inline_code_and_loads_only_its_own_files() -> None:
    text = (FOLDER / "index.html").read_text()
    assert re.findall(r"<style|\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)", text) == []
    loaded = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert all(address.startswith("/static/") for address in loaded)
    for address in loaded:
        assert (FOLDER / address.removeprefix("/static/")).is_file(), address
    for style in FOLDER.glob("*.css"):
        assert re.findall(r"@import|url\(", style.read_text()) == []


def test_every_import_names_a_file() -> None:
    for path in SCRIPTS:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (FOLDER / name).is_file(), f"{path.name} imports {name}"


def test_both_languages_have_the_same_keys_and_the_same_places() -> None:
    english, chinese = (_words(language) for language in LANGUAGES)
    plain = {key: words for key, words in english.items() if not key.endswith("_one")}
    assert sorted(plain) == sorted(chinese)
    for key, words in plain.items():
        assert sorted(re.findall(r"\{\w+\}", words)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key


def test_the_search_asks_for_no_more_hits_than_the_route_returns() -> None:
    found = re.search(r"const MANY = (\d+);", (FOLDER / "search.js").read_text())
    limit = get_type_hints(find_pages, include_extras=True)["limit"].__metadata__[0].le
    assert found is not None
    assert int(found[1]) <= limit


def test_every_key_that_a_script_asks_for_has_words() -> None:
    english = _words("en")
    for path in SCRIPTS:
        for key in re.findall(r'\bt\("([^"]+)"', path.read_text()):
            assert key in english, f"{path.name} asks for {key}"


def test_every_key_is_used() -> None:
    text = "".join(path.read_text() for path in SCRIPTS if not path.name.startswith("words-"))
    groups = set(re.findall(r'(?:named\("|t\(`)([\w]+)', text))
    asked = set(re.findall(r'"([\w.]+)"', text))
    unused = [key for key in _words("zh") if key not in asked and key.partition(".")[0] not in groups]
    assert unused == []
