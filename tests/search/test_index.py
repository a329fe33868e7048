"""Concurrent use of indexes: other handles, threads between two reads, and very many pages or contexts."""

from pathlib import Path
from typing import Any

import pytest

import quire
from quire import MemoryStorage, NoSuchSegment, Permission, Segment
from quire.search import index as kept
from quire.search import indexing as catching
from quire.search.find import find
from quire.search.index import LayeredIndex, MemoryIndex, PerStorageCache
from quire.search.indexing import catch_up, query_index
from quire.search.query import agent_scope
from quire.search.tokenizer import tokenize
from quire.storage.base import Head
from quire.storage.search_protocol import Document, IndexState, Phrase, SearchIndex
from tests.books import leaf, new_book
from tests.search.storages import BACKENDS, found, storage_of


def test_what_was_counted_before_another_handle_made_the_index_anew_is_not_used(tmp_path: Path) -> None:
    with quire.open(tmp_path / "book.db") as one, quire.open(tmp_path / "book.db") as two:
        one.user("kestrel")
        assert one.find("falcon dragon") == []
        storage: Any = two.pages.storage
        storage.search(two.pages._engine.state.context).clear()
        two.refresh()
        note = two.pages.create_detail_page("falcon", "", "", "mem-0")
        two.find("kestrel")  # the index has been written as often as before
        assert [hit.index for hit in one.find("falcon dragon")] == [note]


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_context_that_was_deleted_and_made_again_is_another_one(tmp_path: Path, kind: str) -> None:
    book = new_book(storage=storage_of(kind, tmp_path))
    leaf(book, "kestrel")
    assert found(book, "kestrel") == ["mem-1"]
    book.storage.drop(book.context)
    new_book(storage=book.storage)
    book.refresh()
    pages = [leaf(book, "falcon"), leaf(book, "falcon")]  # as many entries as before, and one more
    assert (found(book, "kestrel"), found(book, "falcon")) == ([], pages)
    book.storage.close()


class Between(MemoryStorage):
    """A storage in which another thread writes and searches directly after a read of a context's head."""

    def __init__(self) -> None:
        super().__init__()
        self.then: list[Any] = []

    def head(self, context: str) -> Head | None:
        head = super().head(context)
        if self.then:
            self.then.pop()()
        return head


def test_an_index_that_is_ahead_of_what_was_read_a_moment_ago_is_not_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Between()
    book = new_book(storage=storage)
    leaf(book, "kestrel")
    index = query_index(storage, book.context, lambda index: index)
    assert isinstance(index, MemoryIndex)
    emptied: list[None] = []
    monkeypatch.setattr(index, "clear", lambda: emptied.append(None))

    def other() -> None:
        leaf(book, "falcon")
        assert query_index(storage, book.context, lambda found: found is index)

    storage.then.append(other)
    catch_up(index, storage, book.context)
    assert (emptied, found(book, "falcon")) == ([], ["mem-2"])


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_search_is_made_again_if_the_index_is_emptied_in_its_middle(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = new_book(storage=storage_of(kind, tmp_path))
    leaf(book, "kestrel")
    index: Any = query_index(book.storage, book.context, lambda index: index)
    count = type(index).count
    emptied: list[SearchIndex] = []

    def count_and_empty(self: SearchIndex, *args: Any) -> int:
        if not emptied:
            emptied.append(self)
            self.clear()
        return int(count(self, *args))

    monkeypatch.setattr(type(index), "count", count_and_empty)
    assert found(book, "kestrel") == ["mem-1"]
    assert emptied
    book.storage.close()


def test_a_prefix_is_looked_up_once_however_many_pages_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    book = new_book()
    pages = [leaf(book, f"word{n} 数据 据{n}") for n in range(50)]
    looked: list[str] = []
    beginning = MemoryIndex._beginning

    def noted(self: MemoryIndex, start: str) -> list[int]:
        looked.append(start)
        return beginning(self, start)

    monkeypatch.setattr(MemoryIndex, "_beginning", noted)
    assert set(found(book, "wor*", 100)) == set(pages)
    assert set(found(book, "据", 100)) == set(pages)
    assert len(looked) <= 8


@pytest.mark.parametrize("kind", BACKENDS)
def test_as_many_hits_as_there_are_may_be_asked_for(tmp_path: Path, kind: str) -> None:
    book = new_book(storage=storage_of(kind, tmp_path))
    page = leaf(book, "kestrel")
    assert found(book, "kestrel", 10**30) == found(book, "kestrel", 10**30, kind="leaf") == [page]
    book.storage.close()


def test_much_text_is_taken_in_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    book = new_book()
    leaf(book, "first")
    book.find("first")
    monkeypatch.setattr(catching, "_BATCH_TERMS", 10)
    taken: list[int] = []
    update = MemoryIndex.update

    def noted(self: MemoryIndex, seen: Any, then: IndexState, documents: list[Document], gone: Any = ()) -> bool:
        taken.append(len(documents))
        return update(self, seen, then, documents, gone)

    monkeypatch.setattr(MemoryIndex, "update", noted)
    pages = [leaf(book, "next", detail="many words " * 4) for _ in range(5)]
    assert set(found(book, "many")) == set(pages)
    assert max(taken) == 2
    assert sum(taken) == 5


def test_only_so_many_indexes_are_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_CONTEXTS", 2)
    storage = MemoryStorage()
    shelf: PerStorageCache[object] = PerStorageCache()
    a, b = (shelf.get(storage, name, object) for name in "ab")
    assert shelf.get(storage, "a", object) is a
    assert shelf.get(MemoryStorage(), "a", object) is not a
    shelf.get(storage, "c", object)
    assert shelf.get(storage, "a", object) is a
    assert shelf.get(storage, "b", object) is not b


def test_pages_that_count_above_only_are_cut_out_of_what_lies_below() -> None:
    below, above = MemoryIndex(), MemoryIndex()
    for index, keys in ((below, range(1, 9)), (above, (3, 4))):
        index.update(None, IndexState(1, b""), [Document(key, ["pump"]) for key in keys])
    both = LayeredIndex(below, above, [1, 3, 4, 8, 99])
    assert both.amount([(0, 5), (6, 20)]).documents == 6
    assert both.count(Phrase(("pump",)), [(1, 8)], 100) == 6
    assert [both.amount([(key, key)]).documents for key in (1, 2, 3, 8, 99)] == [0, 1, 1, 0, 0]


def test_the_error_for_an_unknown_segment_names_no_private_one() -> None:
    book = new_book()
    book.add_segment(Segment(id="secret", permission=Permission.PRIVATE))
    state = book._engine.current()
    with pytest.raises(NoSuchSegment, match="mem") as error:
        find(state, "pump", scope=agent_scope(state), segment="nope")
    assert "secret" not in str(error.value)


def test_the_size_of_a_document_counts_its_parts_and_estimates_plain_text() -> None:
    words = build_size("plain words " * 1_000)
    assert 1_500 < words < 2_500
    assert build_size("水" * 1_000) >= 1_000
    names = " ".join(f"BaCeDiFoGuHy{number}" for number in range(1_000))
    assert build_size(names) > build_size(names.lower()) + 1_000  # the parts of compound names


def build_size(text: str) -> int:
    body, parts = tokenize(text)
    return Document(1, body, parts=parts).size
