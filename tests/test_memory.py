"""The cache and the reads of each operation, counted at the storage."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quire import ContentsPage, ContextSystem, InvalidValue, MemoryStorage
from quire.storage.base import BODY, MAX_KEY, PAGE, Commit, Family, Head, Record
from tests.books import folder, leaf, leaves, listed, new_book, new_system, refused


class CountingStorage(MemoryStorage):
    """Count every call, every record read and every record written, by family."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def head(self, context: str) -> Head | None:
        self.counts["head"] += 1
        return super().head(context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        self.counts[f"get {family}"] += 1
        return super().get(context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        return self._counted("scan", family, super().scan(context, family, start, stop, reverse=reverse))

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        return self._counted("members", family, super().members(context, family, group, after=after, reverse=reverse))

    def commit(self, context: str, commit: Commit) -> None:
        self.counts["commit"] += 1
        self.counts.update(f"{type(write).__name__} {write.family}" for write in commit.writes)
        super().commit(context, commit)

    def _counted(self, call: str, family: Family, records: Iterator[Record]) -> Iterator[Record]:
        self.counts[f"{call} {family}"] += 1
        for record in records:
            self.counts[f"{call} {family} record"] += 1
            yield record

    def of(self, action: Callable[[], Any]) -> dict[str, int]:
        """Return the cost of an action."""
        self.counts.clear()
        action()
        return dict(self.counts)


def counted(**options: Any) -> tuple[ContextSystem, CountingStorage]:
    storage = CountingStorage()
    return new_book(storage=storage, **options), storage


def reopened(storage: CountingStorage, **options: Any) -> ContextSystem:
    return new_system(storage=storage, **options)


# The cache


def test_at_most_max_pages_stay_in_memory() -> None:
    book, storage = counted(max_pages=5)
    leaves(book, 30)
    assert book.cached_pages <= 5
    walked = [page.index for page in book.list_pages()]
    assert len(walked) == 33
    assert book.cached_pages <= 5
    book = reopened(storage, max_pages=5)
    for index in walked:
        book.get_page(index)
        assert book.cached_pages <= 5


def test_the_least_recently_used_page_goes_first() -> None:
    book, storage = counted()
    a, b, c, d = leaves(book, 4)
    book = reopened(storage, max_pages=4)  # the root and three more
    for index in (a, b, c, a, d):
        book.get_page(index)
    assert storage.of(lambda: book.get_page(a)) == {}
    assert storage.of(lambda: book.get_page(c)) == {}
    assert storage.of(lambda: book.get_page(b))["get page"] == 1


def test_pinned_pages_stay() -> None:
    book, storage = counted()
    pages = leaves(book, 10)
    book.pin(pages[0])
    book = reopened(storage, max_pages=3)
    for index in pages:
        book.get_page(index)
    book.evict_lru(0)
    assert storage.of(lambda: book.get_page(pages[0])) == {
        "get page": 1
    }  # reads the folder above the page, not the page
    book.evict_lru(0)
    assert storage.of(lambda: book.get_page(pages[1])) == {"get page": 2}


def test_at_most_max_bytes_of_bodies_stay_in_memory() -> None:
    book, storage = counted()
    pages = [leaf(book, detail=str(number) * 1_000) for number in range(5)]
    book = reopened(storage, max_bytes=3_500)
    for index in pages:
        assert len(book.detail(index)) == 1_000
    for index in pages[-3:]:
        assert storage.of(lambda index=index: book.detail(index)) == {}  # type: ignore[misc]
    assert storage.of(lambda: book.detail(pages[0]))["get body"] == 1


def test_a_body_larger_than_max_bytes_is_read_and_not_kept() -> None:
    book, storage = counted()
    small, large = leaf(book, detail="x" * 100), leaf(book, detail="y" * 10_000)
    book = reopened(storage, max_bytes=1_000)
    book.detail(small)
    assert len(book.detail(large)) == 10_000
    assert storage.of(lambda: book.detail(large))["get body"] == 1
    assert storage.of(lambda: book.detail(small)) == {}


def test_an_evicted_page_is_read_again_with_its_body() -> None:
    book, storage = counted()
    index = leaf(book, detail="text")
    book.detail(index)
    assert storage.of(lambda: book.detail(index)) == {}
    book.evict_page(index)
    found = storage.of(lambda: book.detail(index))
    assert (found["get page"], found["get body"]) == (1, 1)


@pytest.mark.parametrize("index", ["mem-1", "mem-99", "nope-1", "../../x", "MEM-1", ""])
def test_evicting_an_uncached_page_is_a_no_op(index: str) -> None:
    book, storage = counted()
    leaf(book)
    book = reopened(storage)
    before, cached = book.marshal(), book.cached_pages
    book.evict_page(index)
    assert (book.marshal(), book.cached_pages) == (before, cached)


def test_evicting_the_least_recently_used_says_how_many_went() -> None:
    book, _ = counted()
    leaves(book, 10)
    cached = book.cached_pages
    assert book.evict_lru(4) == cached - 4
    assert book.cached_pages == 4
    assert book.evict_lru(100) == 0
    with refused(book, InvalidValue, "max_pages"):
        book.evict_lru(-1)


def test_nothing_is_lost_by_evicting_everything_between_any_two_calls() -> None:
    book, _ = counted(max_pages=1, max_bytes=0)
    shelf = folder(book)
    pages = [leaf(book, parent=shelf, detail=f"text {number}") for number in range(5)]
    book.move_page(pages[3], shelf, before=pages[0])
    book.hide(pages[1])
    book.evict_lru(0)
    assert listed(book, shelf) == [pages[3], pages[0], pages[1], pages[2], pages[4]]
    assert [book.detail(index) for index in pages] == [f"text {number}" for number in range(5)]
    assert book.check() == []


def test_loading_a_page_goes_past_the_cache() -> None:
    book, storage = counted()
    index = leaf(book)
    assert storage.of(lambda: book.get_page(index)) == {}
    assert storage.of(lambda: book.load_page(index))["get page"] == 1


# Reads and writes of an operation


HEADER_CHANGES: dict[str, Callable[[ContextSystem, str], object]] = {
    "hide": lambda book, index: book.hide(index),
    "rename": lambda book, index: book.update_page(index, name="other", description="words", meta={"a": 1}),
    "move": lambda book, index: book.move_page(index, "mem-1"),
    "emigrate": lambda book, index: book.move_page(index, "usr-0"),
    "archive": lambda book, index: book.archive(index),
    "archive cold": lambda book, index: book.archive(index, cold=True),
    "pin": lambda book, index: book.pin(index),
    "remove": lambda book, index: book.remove_page(index),
    "gather": lambda book, index: book.create_contents_page("chapter", "", "mem-0", [index]),
    "look": lambda book, index: (book.get_page(index), book.children("mem-0"), book.ancestors(index)),
}


@pytest.mark.parametrize("name", HEADER_CHANGES)
def test_a_body_is_neither_read_nor_written_when_a_header_changes(name: str) -> None:
    book, storage = counted()
    folder(book)
    index = leaf(book, detail="x" * 100_000)
    book = reopened(storage)
    cost = storage.of(lambda: HEADER_CHANGES[name](book, index))
    assert cost
    assert [what for what in cost if BODY in what] == []


def test_the_body_is_read_once_and_kept() -> None:
    book, storage = counted()
    index = leaf(book, detail="text")
    book = reopened(storage)
    assert storage.of(lambda: book.detail(index))["get body"] == 1
    assert storage.of(lambda: book.detail(index)) == {}
    book.hide(index)
    assert storage.of(lambda: book.detail(index)) == {}


def cost_at(size: int, action: Callable[[ContextSystem], object], *, warm: bool) -> dict[str, int]:
    """Return the cost of an action on a folder with this many leaves, in a new handle or in one that just did it."""
    book, storage = counted()
    leaves(book, size)
    book = reopened(storage)
    if warm:
        action(book)
    return storage.of(lambda: action(book))


COSTS: dict[str, Callable[[ContextSystem], object]] = {
    "append": lambda book: leaf(book, "new", detail="text"),
    "append a folder": lambda book: folder(book, "new"),
    "hide": lambda book: book.hide("mem-7"),
    "rename": lambda book: book.update_page("mem-7", name=f"name {book.seq}"),
    "set detail": lambda book: book.set_detail("mem-7", f"text {book.seq}"),
    "pin": lambda book: book.pin("mem-7"),
    "move to the end": lambda book: book.move_page("mem-7", "mem-0"),
    "move before": lambda book: book.move_page("mem-7", "mem-0", before="mem-3"),
    "archive cold": lambda book: book.archive("mem-9", cold=True),
    "recall": lambda book: book.recall("mem-9"),
    "remove": lambda book: book.remove_page("mem-8"),
    "gather": lambda book: book.create_contents_page("chapter", "", "mem-0", ["mem-5", "mem-6"]),
    "read a page": lambda book: (book.get_page("mem-7"), book.detail("mem-7"), book.child_count("mem-0")),
    "read ten children": lambda book: book.children("mem-0", limit=10),
    "undo": lambda book: book.undo(book.seq),
}


@pytest.mark.parametrize("name", COSTS)
def test_an_operation_costs_the_same_on_n_and_on_ten_n_pages(name: str) -> None:
    assert cost_at(20, COSTS[name], warm=False) == cost_at(200, COSTS[name], warm=False)


@pytest.mark.parametrize("name", ["append", "append a folder", "hide", "rename", "set detail", "read a page"])
def test_an_operation_costs_the_same_again_in_a_warm_handle(name: str) -> None:
    assert cost_at(20, COSTS[name], warm=True) == cost_at(200, COSTS[name], warm=True)


def test_opening_costs_the_same_on_n_and_on_ten_n_pages() -> None:
    def opening(size: int) -> dict[str, int]:
        book, storage = counted()
        leaves(book, size)
        return storage.of(lambda: reopened(storage))

    assert opening(20) == opening(200)
    assert not any(PAGE in what for what in opening(20))


def test_appending_writes_the_page_its_body_and_its_entry_and_reads_nothing() -> None:
    book, storage = counted()
    leaves(book, 3)
    cost = storage.of(lambda: leaf(book, detail="text"))
    assert cost.pop("commit") == 1
    assert {what: count for what, count in cost.items() if not what.startswith("Put")} == {}
    assert (cost["Put page"], cost["Put body"], cost["Put journal"]) == (1, 1, 1)


def test_a_folder_counts_its_children_without_reading_them() -> None:
    book, storage = counted()
    leaves(book, 50)
    book = reopened(storage)

    def count() -> None:
        page = book.get_page("mem-0")
        assert isinstance(page, ContentsPage)
        assert page.child_count == book.child_count("mem-0") == 50

    cost = storage.of(count)
    assert cost.get("members page record", 0) <= 2
    assert cost.get("scan page", 0) == 0
