"""find: other forms of a word are found behind exact matches; quoted words and names in code stay exact."""

import random
from pathlib import Path

import pytest

from quire.search.query import parse_query
from quire.search.tokenizer import inflections, stem
from tests.search.storages import found, shelves

GROUPS = """refund refunds refunded refunding; buy buys buying bought; hope hopes hoped hoping; hop hops hopped hopping
plan plans planned planning; plane planes; car cars; care cares cared caring; create creates created creating
agree agrees agreed agreeing; try tries tried trying; watch watches watched watching; box boxes; class classes
move moves moved moving; make makes made making; use uses used using; city cities; decide decides decided deciding
run runs ran running; go goes going went gone; visit visits visited visiting; string strings; speed speeds"""


def groups() -> list[list[str]]:
    return [group.split() for line in GROUPS.splitlines() for group in line.split(";")]


def test_the_forms_of_a_word_have_one_stem_and_other_words_another() -> None:
    stems = [{stem(word) for word in group} for group in groups()]
    assert [found for found in stems if len(found) > 1] == []
    assert len(set().union(*stems)) == len(stems)


def test_every_form_gives_the_others() -> None:
    for group in groups():
        for word in group:
            assert set(inflections(word)) >= set(group) - {word}


@pytest.mark.parametrize("query", ["user_ids", "getUsers", "engines.py", '"refunds"', "refunds*", "v2s", "北京"])
def test_names_quoted_words_and_beginnings_have_no_other_forms(query: str) -> None:
    assert all(not clause.forms for clause in parse_query(query).clauses)


def test_other_forms_come_behind_exact_matches_on_every_backend(tmp_path: Path) -> None:
    with shelves(tmp_path) as books:
        answers = []
        for book in books:
            texts = ("I want a refund", "The refunds team", "We buy apples", "refundable", "user_ids", "zebra")
            one, two, apples, _, ids, zebra = (book.create_detail_page("x", "", text, "mem-0") for text in texts)
            assert found(book, "refunds") == [two, one]
            assert found(book, "refund") == [one, two]
            assert found(book, "buying") == found(book, "bought apple") == [apples]
            assert found(book, '"refunds"') == [two]
            assert [hit.complete for hit in book.find("user_id")] == [False]  # it has "user" only
            assert found(book, "user_ids") == [ids]
            assert set(found(book, "zebra refunding")) == {zebra, one, two}
            assert [hit.complete for hit in book.find("refunding team")] == [True, False]
            answers.append([(hit.index, hit.score, hit.snippet) for hit in book.find("refunded teams")])
        assert answers.count(answers[0]) == len(books)
        assert answers[0][0][2] == "The «refunds» «team»"


def test_the_hits_are_those_of_a_scan(tmp_path: Path) -> None:
    chance = random.Random(5)
    words = [word for group in groups()[:8] for word in group]
    with shelves(tmp_path) as books:
        pages = [[*chance.choices(words, k=3)] for _ in range(60)]
        indices = [[book.create_detail_page("x", "", " ".join(text), "mem-0") for text in pages] for book in books]
        for query in (chance.choices(words, k=2) for _ in range(20)):
            wanted = {n for n, text in enumerate(pages) if {stem(word) for word in query} <= set(map(stem, text))}
            for book, names in zip(books, indices, strict=True):
                hits = book.find(" ".join(query), 100)
                assert {hit.index for hit in hits if hit.complete} == {names[n] for n in wanted}
                assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
