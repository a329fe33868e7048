"""The inspector's files: no other hosts, no markup made from content, and all texts in both languages."""

import re
from pathlib import Path

import quire.server

FOLDER = Path(quire.server.__file__).parent / "inspector"
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.js"))}
MARKUP = r"innerHTML\s*=|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|\.srcdoc"
ELSEWHERE = r"(?:https?:)?//[\w.-]+\.[a-z]{2,}"


def words(language: str) -> dict[str, str]:
    """Return the texts of a language by key."""
    pairs = re.findall(r'(?:"([\w. ]+)"|\b(\w+)):\s*"((?:[^"\\]|\\.)*)"', SCRIPTS[f"words-{language}.js"])
    return {quoted or plain: text for quoted, plain, text in pairs}


def test_no_file_makes_markup_of_texts_or_loads_from_elsewhere() -> None:
    assert len(SCRIPTS) > 5
    for name, text in SCRIPTS.items():
        assert re.findall(MARKUP, text) == [], name
        assert re.findall(ELSEWHERE, text.replace("http://www.w3.org/2000/svg", "")) == [], name
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<style|\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)", page) == []
    assert all(address.startswith("/static/") for address in re.findall(r'(?:src|href)="([^"]+)"', page))
    assert not any(re.findall(r"@import|url\(", path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.css"))


def test_both_languages_have_every_text_that_a_script_uses() -> None:
    english, chinese = words("en"), words("zh")
    plain = {key: text for key, text in english.items() if not key.endswith("_one")}
    assert sorted(plain) == sorted(chinese)
    for key, text in plain.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key
    used = {key for text in SCRIPTS.values() for key in re.findall(r'\bt\("([^"]+)"', text)}
    assert used - english.keys() == set()
