"""The terms of a page: parts of names, times, words without accents, and not the text that quire added."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import ContextSystem, ToolCall
from quire.search import indexing as catching
from quire.search import page_text as texts
from quire.search.tokenizer import split_terms
from quire.windows.apps import Todo
from tests.books import leaf, new_book
from tests.search.storages import BACKENDS, BRIEF, found, storage_of

_ACROSS = [
    ("iphone", "我的 iPhone15 手机"),
    ("IOS", "since iOS17"),
    ("oauth", "OAuth2Token"),
    ("OAuth2", "OAuth2Token"),
    ("postgresql", "PostgreSQL14"),
    ("UserName", "getUserName()"),
    ("httpresponse", "parseHTTPResponse"),
    ("sendEmail", "sendEmailNow"),
    ("user_name", "getUserName"),
    ('"bar baz"', "fooBarBaz2"),
    ("2024-05-20", "at 2024-05-20T10:30:00Z"),
    ("10:30:00", "at 2024-05-20T10:30:00.123Z"),
    ("2024-05-20T10:30:00Z", "2024-05-20 10:30:00"),
    ("10:30", "10:30am"),
    ("2.3.1", "版本v2.3.1"),
    ("v2.3", "v2.3.1"),
    ("9fceb02", "commit 9fceb02d0ae598e95dc970b74767f19372d61af8"),
    ("елка", "Ёлка"),
    ("ισχυς", "η ισχύς"),
    ("lodz", "Łódź"),
    ("orsted", "H. C. Ørsted"),
    ('"viet nam"', "ở Việt Nam"),
    ("Việt", "Viet Nam"),
    ("istanbul", "İSTANBUL"),
    ("STRASSE", "Straße"),
]


@pytest.fixture(params=BRIEF)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = new_book(storage=storage_of(request.param, tmp_path))
    yield made
    made.storage.close()


def test_names_moments_and_words_without_accents_are_found_and_shown(book: ContextSystem) -> None:
    pages = {text: leaf(book, "x", detail=f"{'天气。' * 60} {text} {'天气。' * 60}") for _, text in _ACROSS}
    for query, text in _ACROSS:
        hits = {hit.index: hit for hit in book.find(query, 50) if hit.complete}
        assert pages[text] in hits, query
        assert "«" in hits[pages[text]].snippet, query
    assert found(book, '"name parse"') == []  # parts of two names are not a phrase
    assert not any(hit.complete for hit in book.find("3.1.2"))


def test_accents_that_were_written_come_first(book: ContextSystem) -> None:
    plain, accented = (leaf(book, "x", detail=text) for text in ("resume resume", "mon résumé"))
    assert found(book, "résumé") == [accented, plain]
    assert found(book, "resume") == [plain, accented]


@pytest.mark.parametrize("kind", BACKENDS)
def test_what_quire_writes_before_a_message_is_no_word_of_it(tmp_path: Path, kind: str) -> None:
    storage = storage_of(kind, tmp_path)
    ctx = quire.open(storage)
    ctx.add({"role": "user", "content": "用户 pump", "name": "ada"})
    ctx.assistant("valve")
    ctx.assistant(tool_calls=[ToolCall("c1", "look_up", '{"what": "水泵"}')])
    ctx.tool_result("c1", "gauge")
    for query in ("user", "assistant", "call result", "Result of"):
        assert ctx.find(query) == [], query
    for query, page in {"ada": "usr-1", "look_up": "usr-3", "what": "usr-3", "水泵": "usr-3", "c1": "usr-3"}.items():
        assert [hit.index for hit in ctx.find(query)] == [page], query
    ctx.user("my user id")
    assert [(hit.index, hit.snippet) for hit in ctx.find("user id")] == [("usr-4", "User: my «user» «id»")]
    storage.close()


def test_a_window_is_found_by_its_words_and_not_by_those_of_its_app() -> None:
    ctx = quire.open("memory:")
    ctx.windows.register(Todo)
    todo = ctx.windows.open("todo").id
    for entry in ("theta task", "买水泵"):
        ctx.windows.act(todo, "add", text=entry)
    assert ctx.find("entries") == []
    assert ctx.find("theta")[0].snippet == "«theta» task 买水泵"
    assert ctx.find("水泵")[0].snippet == "theta task 买«水泵»"


def test_an_index_that_was_cut_by_other_rules_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quire.open(tmp_path / "book.db") as ctx:
        ctx.user("iPhone15")
        monkeypatch.setattr(catching, "TOKENIZER_VERSION", b"1")
        monkeypatch.setattr(texts, "tokenize", lambda text: (split_terms(text), []))
        assert ctx.find("iphone") == []
        monkeypatch.undo()
        assert [hit.index for hit in ctx.find("iphone")] == ["usr-1"]
