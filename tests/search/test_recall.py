"""Recalled passages for a question: relevant, short, in order, once, and within their share of the budget."""

import random
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire import InvalidValue, Permission, Segment
from quire.search import rank
from quire.search.index import MemoryIndex
from quire.search.memory_scores import GAP, Memory, WordCache
from quire.search.query import agent_scope, all_segments, parse_query
from quire.search.recall import (
    MAX_WHOLE,
    RecallText,
    find_memories,
    likeness_functions,
    rank_memories,
    word_cache_of,
)
from quire.search.vectors import get_vectors
from quire.storage.base import MAX_KEY
from quire.storage.search_protocol import Document, IndexState

DAY = 86_400_000


def count(text: str) -> int:
    return len(text.split())


def recall(
    question: str, said: list[Memory], room: int, visible: Collection[int] = (), words: WordCache | None = None
) -> RecallText:
    return rank_memories(question, said, words=words).lay_out(room, count, visible)


def talk(*texts: str, start: int = 0) -> list[Memory]:
    return [
        Memory(100 + place, place, start + place * 1_000, ("Ada", "Bob")[place % 2], text)
        for place, text in enumerate(texts)
    ]


def test_the_answer_comes_back_with_its_neighbours_in_order_and_the_date_once() -> None:
    said = talk("Hello there", "What did you buy?", "I bought a kestrel kite", "How nice of you", "Bye now")
    said += [Memory(200 + n, 50 + n, 20 * DAY + n, "Ada", f"filler number {n} about nothing") for n in range(30)]
    found = recall("Which kite did Ada buy?", said, 30)
    assert found.text.startswith("1 Jan 1970\n")
    assert "Ada: I bought a kestrel kite\n" in found.text
    assert found.text.count("1 Jan 1970") == 1
    keys = [page.key for page in found.pages]
    assert keys == sorted(keys)
    assert 102 in keys
    best = max(found.pages, key=lambda page: page.score)
    assert (best.key, best.score) == (102, 1.0)
    assert "kit" in best.reason


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 80))
def test_it_never_takes_more_room_nor_a_page_twice_nor_one_that_is_visible(seed: int, room: int) -> None:
    chance = random.Random(seed)
    words = ["pump", "valve", "tank", "gauge", "water", "kite", "水泵", "数据"]
    said = talk(*(" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(chance.randint(0, 30))))
    visible = {memory.key for memory in said if chance.random() < 0.3}
    found = recall(" ".join(chance.choices(words, k=3)), [*said, *said[:5]], room, visible=visible)
    keys = [page.key for page in found.pages]
    assert len(keys) == len(set(keys))
    assert not visible.intersection(keys)
    assert count(found.text) <= room


def test_nothing_comes_back_for_nothing() -> None:
    said = talk("kestrel", "falcon")
    assert recall("", said, 100) == RecallText()
    assert recall("!!!", said, 100) == RecallText()
    assert recall("owl", said, 100) == RecallText()
    assert recall("kestrel", [], 100) == RecallText()
    assert recall("kestrel", said, 0) == RecallText()


def test_a_session_speaks_for_its_exchanges() -> None:
    trip = talk("We planned the Lisbon trip", "The tram was yellow", "The hotel too")
    other = [
        Memory(500 + n, 20 + n, 9 * GAP + n, "Ada", text) for n, text in enumerate(["A taxi", "The tram was blue"])
    ]
    found = recall("What colour was the tram on the Lisbon trip?", [*trip, *other], 100)
    scores = {page.key: page.score for page in found.pages}
    assert scores[101] > scores[501]


def test_a_long_page_is_brought_back_as_the_passage_that_answers() -> None:
    long = "filler words " * 2_000 + "the kestrel nests in the tower " + "filler words " * 2_000
    found = recall("Where does the kestrel nest?", [Memory(1, -1, 0, "Notes", long)], 400)
    assert "kestrel nests in the tower" in found.text
    assert count(found.text) < 400


def test_exchanges_and_notes_are_gathered_as_far_as_a_viewer_may_see_them() -> None:
    ctx = quire.open("memory:")
    ctx.pages.add_segment(Segment(id="secret", permission=Permission.PRIVATE))
    ctx.pages.create_detail_page("secret", "", "kestrel of the secret", "secret-0")
    note = ctx.pages.create_detail_page("note", "", "a kestrel note", "mem-0")
    ctx.add({"role": "user", "name": "Ada", "content": "I saw a kestrel"})
    ctx.assistant("Where?")
    gone = ctx.user("kestrel, to be deleted")
    ctx.conversation.delete([gone])
    state = ctx.pages._engine.current()
    found = {state.index(memory.key): memory for memory in find_memories(state, "kestrel", agent_scope(state))}
    assert set(found) == {"usr-1", "usr-2", note}
    assert (found["usr-1"].speaker, found["usr-2"].speaker) == ("Ada", "Assistant")
    assert found["usr-2"].place == found["usr-1"].place + 1
    everybody = find_memories(state, "kestrel", all_segments(state))
    assert len(everybody) == 4


def test_of_a_long_conversation_only_what_matters_is_gathered() -> None:
    ctx = quire.open("memory:")
    ctx.import_messages([{"role": "user", "content": f"message number {n}"} for n in range(MAX_WHOLE)])
    ctx.user("the kestrel nests here")
    ctx.assistant("in the tower")
    state = ctx.pages._engine.current()
    found = find_memories(state, "Where does the kestrel nest?", all_segments(state))
    assert 90 < len(found) <= 125  # the found ones, and a sample of all messages
    answer = recall("Where does the kestrel nest?", found, 30, words=word_cache_of(state))
    assert "the kestrel nests here\nAssistant: in the tower" in answer.text


def test_visible_memories_count_for_the_share_and_selective_recall_needs_a_difference() -> None:
    said = [Memory(n, n * 2, n * GAP * 2, "Ada", f"the pump number {n} ran well") for n in range(80)]
    said.append(Memory(900, 900, 900 * GAP, "Ada", "the kestrel nests above the pump"))
    ranked = rank_memories("Where does the kestrel nest?", said)
    assert [page.key for page in ranked.lay_out(60, count, selective=True).pages] == [900]
    assert ranked.lay_out(60, count, {900}, selective=True).pages == ()
    flat = rank_memories("Did the pump run well?", said[:80])
    filled = flat.lay_out(60, count, share=60)
    best = {page.key for page in filled.pages}
    assert len(best) >= 5
    assert flat.lay_out(60, count, best).pages  # others take their place
    assert len(flat.lay_out(60, count, best, share=60).pages) < len(best) / 2  # the visible ones fill the share


def letters(texts: list[str]) -> list[list[float]]:
    """Vectors that count letters: enough to compare texts."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


@pytest.mark.parametrize("where", ["memory:", "sqlite", "file"])
def test_vectors_follow_the_pages(where: str, tmp_path: Any) -> None:
    pytest.importorskip("numpy")
    calls: list[str] = []

    def embedder(texts: list[str]) -> list[list[float]]:
        calls.extend(texts)
        return letters(texts)

    places = {"sqlite": str(tmp_path / "a.db"), "file": f"file:{tmp_path / 'a'}"}
    with quire.open(places.get(where, where), embedder=embedder) as ctx:
        ctx.user("zzz zzz")
        page = ctx.pages.create_detail_page("x", "", "qqq qqq", "mem-0")
        assert ctx.find("qqqqq")[0].index == page
        asked = len(calls)
        assert ctx.find("qqqqq")[0].index == page
        assert len(calls) == asked + 1  # only the query
        ctx.pages.set_detail(page, "vvv vvv")
        assert ctx.find("vvvvv")[0].index == page
        assert len(calls) == asked + 3
        ctx.pages.hide(page)
        ctx.find("vvvvv")
        assert len(calls) == asked + 4
        ctx.pages.remove_page(page)
        assert page not in [hit.index for hit in ctx.find("vvvvv")]
        assert ctx.check() == []
        assert ctx.find("zzz")[0].complete


def test_a_full_match_comes_before_one_in_other_words() -> None:
    pytest.importorskip("numpy")
    ctx = quire.open("memory:", embedder=letters)
    like = ctx.pages.create_detail_page("x", "", "etartsek kestrle", "mem-0")
    full = ctx.pages.create_detail_page("y", "", "a kestrel and many other words about something else", "mem-0")
    assert [hit.index for hit in ctx.find("kestrel")][:2] == [full, like]


def test_a_bad_embedder_is_named() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(InvalidValue, match="embedder"):
        quire.open("memory:", embedder="nope")  # type: ignore[arg-type]
    for bad in (lambda texts: [], lambda texts: [[1.0]] * 99, lambda texts: [["x"]] * len(texts), lambda texts: None):
        ctx = quire.open("memory:", embedder=bad)
        ctx.user("hello")
        with pytest.raises(InvalidValue, match="embedder"):
            ctx.find("hello")


def test_likeness_speaks_for_an_exchange_and_its_neighbours() -> None:
    pytest.importorskip("numpy")
    ctx = quire.open("memory:", embedder=letters)
    for text in ("aaa", "zzz", "bbb", "ccc", "ddd"):
        ctx.user(text)
    state = ctx.pages._engine.current()
    given = find_memories(state, "z", all_segments(state))
    alone, around = (give(given) for give in likeness_functions(state, "zz", given, letters))
    assert alone[1] > 0.8
    assert [alone[n] for n in (0, 2, 3, 4)] == [0.0] * 4
    assert around[0] > 0 < around[2]
    assert around[4] == 0
    assert likeness_functions(state, "zz", given, None) == []
    assert get_vectors("zz", state.storage, state.context, letters)[0].rows([]).shape[0] == 0


def test_a_search_for_candidates_scores_few_pages_however_common_the_words_are(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {key: ["the", "pump", "ran", *(["kestrel"] if key == 77 else ["well"])] for key in range(1, 5_001)}
    for key in range(100, 1_100):  # words on fewer pages than are scored, which together are on more
        texts[key].append("odd" if key % 2 else "even")
    index = MemoryIndex()
    index.update(None, IndexState(1, b""), [Document(key, body) for key, body in texts.items()])
    weights = rank.Weights(index, [(0, MAX_KEY)])
    scored: list[int] = []
    make = rank.make_scorer

    def counting(*given: Any) -> Any:
        score = make(*given)

        def count_place(place: Any) -> float:
            scored.append(place.rowid)
            return score(place)

        return count_place

    monkeypatch.setattr(rank, "make_scorer", counting)
    for words, best in (("kestrel pump", 77), ("pump well", None), ("kestrel", 77), ("odd even kestrel", 77)):
        scored.clear()
        found = rank.rank_partial(index, parse_query(words), weights, [(0, MAX_KEY)], 50)
        assert len(scored) <= 2 * rank.MAX_SCORED + 512
        assert best is None or found[0][1] == best
        assert len(found) == (1 if words in ("kestrel", "kestrel pump") else 50)
        assert len({key for _, key in found}) == len(found)


def test_candidates_follow_edits_of_the_conversation_from_question_to_question() -> None:
    ctx = quire.open("memory:")
    said = [ctx.user(f"message {number} about a pump") for number in range(30)]
    scope = all_segments(ctx.pages._engine.current())

    def ask() -> dict[str, str]:
        state = ctx.pages._engine.current()
        return {state.index(memory.key): memory.text for memory in find_memories(state, "pump", scope)}

    before = ask()
    assert len(before) == 30
    gone, kept = list(before)[3], list(before)[5]
    ctx.conversation.delete([said[3]])
    ctx.user("one more pump")
    after = ask()
    assert gone not in after
    assert after[kept] == before[kept]
    assert len(after) == 30
    fresh = quire.open(ctx.pages.storage)
    state = fresh.pages._engine.current()
    assert {state.index(one.key): one.text for one in find_memories(state, "pump", all_segments(state))} == after
