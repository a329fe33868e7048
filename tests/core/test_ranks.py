"""Order as byte strings: strictly between, growing slowly, respaced when there is no room."""

import random
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import assume, given

from quire import ContextSystem, MemoryStorage
from quire.core.reader import MAX_RANK_LENGTH, RANK_WIDTH, initial_ranks, rank_after, rank_between
from quire.storage.base import PAGE
from tests.books import leaf, listed, new_book

ranks = st.binary(min_size=1, max_size=12)


@given(ranks, ranks)
def test_between_is_strictly_between_or_there_is_no_room(one: bytes, other: bytes) -> None:
    assume(one != other)
    low, high = sorted((one, other))
    rank = rank_between(low, high)
    if rank is None:
        assert high == low + bytes(len(high) - len(low))
    else:
        assert low < rank < high
        assert len(rank) <= max(len(low), len(high)) + 1


@given(ranks)
def test_before_the_first_and_after_the_last(rank: bytes) -> None:
    first, last = rank_between(None, rank), rank_between(rank, None)
    if first is None:
        assert rank == bytes(len(rank))
    else:
        assert first < rank
    if last is None:
        assert rank[:RANK_WIDTH] == b"\xff" * RANK_WIDTH
    else:
        assert last > rank


@given(ranks)
def test_nothing_stands_between_a_rank_and_itself(rank: bytes) -> None:
    assert rank_between(rank, rank) is None
    low = rank_between(None, rank)
    assert low is None or rank_between(rank, low) is None


def test_appending_keeps_the_width_and_the_order() -> None:
    rank = rank_after(None)
    found = []
    for _ in range(1_000):
        assert rank is not None
        found.append(rank)
        rank = rank_after(rank)
    assert all(low < high for low, high in pairwise(found))
    assert {len(item) for item in found} == {RANK_WIDTH}
    assert found == list(initial_ranks(1_000))


def test_appending_goes_on_after_a_rank_of_any_length() -> None:
    for last in (b"\x01", b"\x80" * 40, b"\x90\x00"):
        rank = rank_after(last)
        assert rank is not None
        assert rank > last
        assert len(rank) == RANK_WIDTH
    assert rank_after(b"\xff" * RANK_WIDTH) is None


def test_inserting_at_one_spot_grows_by_about_a_byte_per_eight() -> None:
    low, high = initial_ranks(2)
    for inserted in range(1, 400):
        rank = rank_between(low, high)
        assert rank is not None
        assert low < rank < high
        assert len(rank) <= RANK_WIDTH + inserted // 7 + 2
        high = rank


def test_no_rank_is_longer_than_the_limit() -> None:
    low, high = initial_ranks(2)
    rank: bytes | None = b""
    while rank is not None:
        rank = rank_between(low, high)
        if rank is not None:
            assert len(rank) <= MAX_RANK_LENGTH
            high = rank


def stored_ranks(storage: MemoryStorage) -> list[bytes]:
    return [record.order for record in storage.scan("default", PAGE)]


def insert_at_one_spot(book: ContextSystem, count: int) -> list[str]:
    """Put pages directly before the last one, again and again."""
    first, last = leaf(book), leaf(book)
    inserted = []
    for _ in range(count):
        page = leaf(book)
        book.move_page(page, "mem-0", before=last)
        inserted.append(page)
    return [first, *inserted, last]


def test_a_folder_is_respaced_when_there_is_no_room_and_keeps_its_order() -> None:
    storage = MemoryStorage()
    book = new_book(storage=storage)
    order = insert_at_one_spot(book, 700)
    assert listed(book, "mem-0") == order
    assert max(len(rank) for rank in stored_ranks(storage)) <= MAX_RANK_LENGTH
    assert book.check() == []


def test_cold_pages_keep_their_places_when_a_folder_is_respaced() -> None:
    book = new_book()
    first, cold, last = leaf(book), leaf(book), leaf(book)
    book.archive(cold, cold=True)
    inserted = []
    for _ in range(700):
        page = leaf(book)
        book.move_page(page, "mem-0", before=last)
        inserted.append(page)
    book.recall(cold)
    assert listed(book, "mem-0") == [first, cold, *inserted, last]


def test_an_undo_after_respacing_still_puts_a_page_between_its_old_neighbours() -> None:
    book = new_book()
    pages = [leaf(book) for _ in range(4)]
    removed = pages[2]
    book.remove_page(removed)
    entry = book.seq
    for _ in range(700):
        page = leaf(book)
        book.move_page(page, "mem-0", before=pages[1])
    book.undo(entry)
    order = listed(book, "mem-0")
    assert order.index(pages[1]) < order.index(removed) < order.index(pages[3])


@given(st.randoms(use_true_random=False))
def test_any_sequence_of_inserts_gives_the_order_of_a_list(chance: random.Random) -> None:
    order: list[bytes] = []
    for _ in range(60):
        place = chance.randrange(len(order) + 1)
        low = order[place - 1] if place else None
        high = order[place] if place < len(order) else None
        rank = rank_between(low, high)
        assert rank is not None
        order.insert(place, rank)
    assert order == sorted(set(order))
