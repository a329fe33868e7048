"""Vectors: from one embedder only, never incomplete, and not computed twice."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import InvalidValue, MemoryStorage, StorageFailure
from quire.core.derived_records import VECTOR_STATE
from quire.search import vectors
from quire.storage.base import VECTOR, Commit

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


@pytest.mark.parametrize(("name", "width"), [("other", 5), ("one", 5), ("other", 8)])
def test_vectors_of_another_embedder_leave_nothing_of_the_old_ones(tmp_path: Path, name: str, width: int) -> None:
    with quire.open(tmp_path / "book.db", embedder=Letters("one", 8)) as ctx:
        ctx.user("aaa")
        page = ctx.pages.create_detail_page("x", "", "bbb", "mem-0")
        ctx.find("a")
        ctx.pages.remove_page(page)
    for _ in range(2):
        with quire.open(tmp_path / "book.db", embedder=Letters(name, width)) as ctx:
            hits = {hit.index for hit in ctx.find("zz")}
            assert "usr-1" in hits
            stored = {record.key for record in ctx.pages.storage.scan(ctx.pages.context, VECTOR)}
            assert len(stored - {VECTOR_STATE}) == sum(page.parent is not None for page in ctx.pages.list_pages())


class Failing(MemoryStorage):
    """A storage that refuses to write after this many commits of vectors."""

    left = -1

    def commit(self, context: str, commit: Commit) -> None:
        if any(write.family == VECTOR for write in commit.writes):
            if not self.left:
                raise StorageFailure("the disk is full")
            self.left -= 1
        super().commit(context, commit)


def test_half_of_the_vectors_of_another_embedder_are_not_taken_for_those_of_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "_WRITES", 4)
    storage = Failing()
    ctx = quire.open(storage, embedder=Letters("old", 8))
    for text in "abcdefgh":
        ctx.user(text)
    ctx.find("a")
    storage.left = 2
    with pytest.raises(StorageFailure):
        quire.open(storage, embedder=Letters("new", 5)).find("a")
    storage.left = -1
    assert storage.get(ctx.pages.context, VECTOR, VECTOR_STATE) is None
    assert quire.open(storage, embedder=Letters("old", 8)).find("a")[0].index == "usr-1"


def test_a_write_of_another_while_vectors_are_made_costs_only_what_it_changed() -> None:
    storage = MemoryStorage()
    other = quire.open(storage)
    for text in "abcdefgh":
        other.user(text)
    slow = Letters("slow", 8)

    def embedder(texts: list[str]) -> Any:
        if len(texts) > 1 and other.seq < 12:
            other.user("zebra")
        return slow(texts)

    ctx = quire.open(storage, embedder=embedder)
    assert len(ctx.find("zebra")) > 0
    said = [text for text in slow.texts if text.startswith("User: ")]
    assert len(said) == len(set(said))


def test_an_embedder_that_changes_its_mind_about_the_length_is_named() -> None:
    widths = iter([4, 5])
    ctx = quire.open("memory:", embedder=lambda texts: [[1.0] * next(widths)] * len(texts))
    ctx.user("a")
    with pytest.raises(InvalidValue, match="several lengths"):
        ctx.find("a")


def test_a_very_long_question_is_embedded_by_its_beginning() -> None:
    embedder = Letters("one", 3)
    ctx = quire.open("memory:", embedder=embedder, budget=2_000)
    ctx.user("kestrel " * 40_000)
    ctx.render(recall=True)
    assert max(map(len, embedder.texts)) <= 8_000


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
