"""Finding pages by words."""

import pytest

from quire import InvalidValue
from tests.books import leaf, new_book, refused


def test_pages_with_every_word_come_before_those_with_some() -> None:
    book = new_book()
    b = book.create_detail_page("Flights", "to Boston", "departs on May 21, May 22, May 23", "mem-0")
    a = book.create_detail_page("Flights", "to Seattle", "departs on May 20", "mem-0")
    found = book.find("seattle FLIGHTS may")
    assert [(hit.index, hit.complete) for hit in found] == [(a, True), (b, False)]
    assert [hit.index for hit in book.find('"to seattle" flights')] == [a]
    assert book.find("tacoma spokane") == []


def test_a_name_counts_more_than_a_description_and_that_more_than_a_detail() -> None:
    book = new_book()
    detail = book.create_detail_page("x", "y", "kestrel", "mem-0")
    description = book.create_detail_page("x", "kestrel", "z", "mem-0")
    name = book.create_detail_page("kestrel", "y", "z", "mem-0")
    hits = book.find("kestrel")
    assert [hit.index for hit in hits] == [name, description, detail]
    assert hits[0].score > hits[1].score > hits[2].score > 0
    assert (hits[0].name, hits[0].description) == ("kestrel", "y")


def test_a_two_character_chinese_word_is_found() -> None:
    book = new_book()
    index = leaf(book, "Go语言讨论", detail="解释goroutine的调度机制")
    for query in ("语言", "调度", "GOROUTINE"):
        assert [hit.index for hit in book.find(query)] == [index]


def test_archived_pages_are_found() -> None:
    book = new_book()
    hot, cold = leaf(book, "kestrel"), leaf(book, "kestrel")
    book.archive(hot)
    book.archive(cold, cold=True)
    assert {hit.index for hit in book.find("kestrel")} == {hot, cold}
    book.remove_page(hot)
    assert [hit.index for hit in book.find("kestrel")] == [cold]


def test_equal_pages_come_in_the_order_of_their_making_and_the_limit_holds() -> None:
    book = new_book()
    pages = [leaf(book, "kestrel") for _ in range(5)]
    assert [hit.index for hit in book.find("kestrel", limit=3)] == pages[:3]
    assert book.find("kestrel", limit=0) == []


def test_a_query_without_words_finds_nothing() -> None:
    book = new_book()
    leaf(book, "kestrel")
    for query in ("", "  \n", "\ud800", "x\0y", '"', "*", "OR falcon", "name:falcon"):
        assert book.find(query) == []


@pytest.mark.parametrize("limit", [-1, 1.5, "3", None, True])
def test_a_wrong_limit_is_refused(limit: int) -> None:
    book = new_book()
    with refused(book, InvalidValue, "limit"):
        book.find("kestrel", limit)


def test_searching_does_not_push_out_what_is_in_use() -> None:
    book = new_book(max_pages=4)
    for number in range(20):
        leaf(book, f"kestrel {number}", detail="text")
    book.get_page("mem-1")
    cached = book.cached_pages
    assert len(book.find("kestrel", limit=20)) == 20
    assert book.cached_pages == cached
