"""Vectors: from one embedder only, never incomplete, and not computed twice."""

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import quire
from quire import Corrupt, InvalidValue, MemoryStorage, StorageFailure
from quire.core.derived_records import VECTOR_STATE, decode_vector
from quire.core.records import ContextMark
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


def test_vectors_have_one_byte_for_each_number_and_those_with_two_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    storage = MemoryStorage()
    embedder = Letters("one", 8)
    ctx = quire.open(storage, embedder=embedder)
    for text in ("aab", "abcdefgh", "hhhh", "a"):
        ctx.user(text)
    with monkeypatch.context() as earlier:  # as quire 0.1 stored them
        earlier.setattr(vectors, "_to_bytes", lambda rows: rows.astype("<f2"))
        earlier.setattr(vectors.Vectors, "_put", lambda *_: None)
        earlier.setattr(vectors, "model_id", lambda embedder, width, numbers="": crc32(b"one 8"))
        ctx.find("zz")
    sizes = {len(record.value) for record in storage.scan(ctx.pages.context, VECTOR) if record.key != VECTOR_STATE}
    assert min(sizes) > 16
    embedder.texts.clear()
    again = quire.open(storage, embedder=embedder)
    vectors._known._all.clear()
    found, vector = vectors.get_vectors("User: hhhh", again.pages.storage, again.pages.context, embedder)
    assert embedder.texts == ["User: hhhh"]  # no page was embedded again
    key = found.like(vector, [(0, 1 << 60)], 1)[0][1]
    assert again.pages._engine.current().message(2).page == key
    again.user("bbbb")
    again.find("zz")
    stored = {record.key: record.value for record in storage.scan(ctx.pages.context, VECTOR)}
    state = again.pages._engine.current()
    assert len(stored[state.message(4).page]) < min(sizes)
    assert found.rows([key]).dtype == numpy.float32


def test_rows_stay_right_while_vectors_are_added_replaced_and_removed() -> None:
    """Against a dict of rows, with exact products."""
    import random

    import numpy

    chance = random.Random(5)
    found = vectors.Vectors(1, 4, 0)
    rows: dict[int, Any] = {}
    for step in range(600):
        key = chance.randrange(300)
        if chance.random() < 0.3:
            rows.pop(key, None)
            found._drop(key)
        else:
            rows[key] = vectors._to_bytes(numpy.array([[chance.uniform(-1, 1) for _ in range(4)]]))[0]
            found._put(key, rows[key])
        if step % 50 == 49:
            vector = numpy.array([0.5, -0.5, 0.5, 0.5], dtype=numpy.float32)
            exact = {
                key: float(row.astype("f4") / numpy.linalg.norm(row.astype("f4")) @ vector)
                for key, row in rows.items()
                if key < 100 or key > 150
            }
            best = sorted(exact, key=lambda key: (-exact[key], key))[:20]
            like = found.like(vector, [(0, 99), (151, 400)], 20)
            assert [score for score, _ in like] == pytest.approx([exact[key] for key in best])


def test_the_state_of_the_vectors_has_the_mark_of_its_context_after_a_purge() -> None:
    ctx = quire.open("memory:", embedder=Letters("one", 8))
    page = ctx.pages.create_detail_page("x", "", "bbb", "mem-0")
    ctx.user("aaa")
    ctx.find("a")
    ctx.pages.purge(page)
    record = ctx.pages.storage.get(ctx.name, VECTOR, VECTOR_STATE)
    assert record is not None
    with pytest.raises(Corrupt, match="another context"):
        decode_vector(record.key, record.value, ContextMark(b"else"))
