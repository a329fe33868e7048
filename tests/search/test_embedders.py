"""Pages are found by meaning with an embedder, and by words alone while it fails."""

from pathlib import Path

import pytest

import quire
from quire import InvalidValue

pytest.importorskip("numpy")


class Letters:
    """Counts the first letters of the alphabet."""

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.width = width
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [[1.0 + text.count(chr(97 + n)) for n in range(self.width)] for text in texts]


def test_an_embedder_that_changes_its_mind_about_the_length_is_named() -> None:
    widths = iter([4, 5])
    ctx = quire.open("memory:", embedder=lambda texts: [[1.0] * next(widths)] * len(texts))
    ctx.user("a")
    with pytest.raises(InvalidValue):
        ctx.find("a")


def test_an_agent_finds_by_meaning_what_it_may_see() -> None:
    ctx = quire.open("memory:", embedder=Letters("one", 26))
    ctx.user("stressed")
    assert "usr-1" in [hit.index for hit in ctx.agent.find("desserts")]


def test_words_alone_answer_while_the_embedder_fails(caplog: pytest.LogCaptureFixture) -> None:
    def away(texts: list[str]) -> list[list[float]]:
        raise ConnectionError("no answer")

    ctx = quire.open("memory:", embedder=away, budget=500)
    ctx.user("I want flight HAT136.")
    for turn in range(12):
        ctx.assistant(f"Noted, {turn}. " + "More words on other things. " * 8)
        ctx.user(f"And then, {turn}? " + "Nothing of note. " * 8)
    ctx.user("Which flight did I want?")
    assert [hit.index for hit in ctx.find("HAT136")] == ["usr-1"]
    assert "HAT136" in str(ctx.render(recall=0.4).openai()[-1])
    assert "no answer" in caplog.text


def test_a_word_in_quotes_is_required_and_what_is_unlike_is_no_hit() -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "dog" in text.lower() or "puppy" in text.lower() else [0.0, 1.0] for text in texts]

    ctx = quire.open("memory:", embedder=embed)
    dog = ctx.pages.create_detail_page("Pets", "", "The dog likes walks.", "mem-0")
    ctx.pages.create_detail_page("Shop", "", "We need bread.", "mem-0")
    assert [hit.index for hit in ctx.find("puppy")] == [dog]
    assert ctx.find('"puppy"') == []
    assert [hit.index for hit in ctx.find('"dog"')] == [dog]


def letters(texts: list[str]) -> list[list[float]]:
    """Vectors that count letters: enough to compare texts."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


def test_a_full_match_comes_before_one_in_other_words() -> None:
    ctx = quire.open("memory:", embedder=letters)
    like = ctx.pages.create_detail_page("x", "", "etartsek kestrle", "mem-0")
    full = ctx.pages.create_detail_page("y", "", "a kestrel and many other words about something else", "mem-0")
    assert [hit.index for hit in ctx.find("kestrel")][:2] == [full, like]


def test_a_bad_embedder_is_named() -> None:
    with pytest.raises(InvalidValue):
        quire.open("memory:", embedder="nope")  # type: ignore[arg-type]
    for bad in (lambda texts: [], lambda texts: [[1.0]] * 99, lambda texts: [["x"]] * len(texts), lambda texts: None):
        ctx = quire.open("memory:", embedder=bad)
        ctx.user("hello")
        with pytest.raises(InvalidValue):
            ctx.find("hello")


@pytest.mark.parametrize(("name", "width"), [("other", 5), ("other", 8)])
def test_another_embedder_embeds_every_page_again(tmp_path: Path, name: str, width: int) -> None:
    for embedder in (Letters("one", 8), Letters(name, width)):
        with quire.open(tmp_path / "book.db", embedder=embedder) as ctx:
            if ctx.seq < 2:
                ctx.user("aaa")
            assert [hit.index for hit in ctx.find("zz")] == ["usr-1"]
        assert [text for text in embedder.texts if "aaa" in text]
