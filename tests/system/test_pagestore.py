"""The per-page calls of document 000: save, load, delete, exists, list."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from quire import (
    ContentsPage,
    DetailPage,
    FileStorage,
    InvalidOperation,
    MemoryStorage,
    NoSuchPage,
    SQLiteStorage,
    Storage,
    Visibility,
)
from quire.system import PageStorage
from tests.books import folder, leaf, listed, new_book, new_system, refused


def test_a_page_is_saved_loaded_listed_and_deleted() -> None:
    book = new_book()
    pages = PageStorage(book)
    index = pages.save(DetailPage(name="a", index="mem-5", parent="mem-0"), "text")
    assert index == "mem-5"
    assert pages.exists(index)
    assert (pages.load(index).name, book.detail(index)) == ("a", "text")
    assert list(pages.list()) == ["sys-0", "mem-0", "mem-5", "usr-0"]
    pages.delete(index)
    assert not pages.exists(index)
    with refused(book, NoSuchPage):
        pages.load(index)


def test_saving_a_stored_page_brings_it_to_what_is_given_in_one_entry() -> None:
    book = new_book()
    pages = PageStorage(book)
    index, shelf = leaf(book, detail="text"), folder(book)
    seq = book.seq
    page = replace(
        pages.load(index), name="other", description="words", parent=shelf, meta={"a": 1}, visibility=Visibility.HIDDEN
    )
    assert pages.save(page, "new text") == index
    assert book.seq == seq + 1
    stored = book.get_page(index)
    assert (stored.name, stored.description, stored.parent) == ("other", "words", shelf)
    assert (dict(stored.meta), stored.visibility) == ({"a": 1}, Visibility.HIDDEN)
    assert (book.detail(index), listed(book, "mem-0")) == ("new text", [shelf])
    pages.save(replace(page, visibility=Visibility.EXPANDED))
    assert book.get_page(index).visibility is Visibility.EXPANDED
    assert book.detail(index) == "new text"


def test_saving_what_is_stored_already_makes_no_entry() -> None:
    book = new_book()
    pages = PageStorage(book)
    index = leaf(book, detail="text")
    seq = book.seq
    pages.save(pages.load(index), "text")
    assert book.seq == seq


def test_saving_through_a_rule_is_refused_as_a_whole() -> None:
    book = new_book()
    pages = PageStorage(book)
    shelf = folder(book)
    inside = folder(book, parent=shelf)
    with refused(book, InvalidOperation, "subtree"):
        pages.save(replace(pages.load(shelf), name="other", parent=inside))
    with refused(book, InvalidOperation, "folder"):
        pages.save(DetailPage(name="a", index=shelf, parent="mem-0"))


def test_deleting_takes_the_subtree_and_what_is_not_there_is_fine() -> None:
    book = new_book()
    pages = PageStorage(book)
    shelf = folder(book)
    leaf(book, parent=shelf)
    pages.delete(shelf)
    seq = book.seq
    for index in (shelf, "mem-99", "../../x", "MEM-1", ""):
        pages.delete(index)
        assert not pages.exists(index)
    assert book.seq == seq
    assert list(pages.list()) == ["sys-0", "mem-0", "usr-0"]


def test_an_archived_page_exists() -> None:
    book = new_book()
    pages = PageStorage(book)
    index = leaf(book)
    book.archive(index, cold=True)
    assert pages.exists(index)
    assert index in list(pages.list())


def test_a_folder_can_be_saved() -> None:
    book = new_book()
    pages = PageStorage(book)
    index = pages.save(ContentsPage(name="chapter", parent="mem-0"))
    assert isinstance(pages.load(index), ContentsPage)


def test_saving_a_page_into_another_segment_gives_its_new_index() -> None:
    book = new_book()
    index = leaf(book)
    moved = PageStorage(book).save(replace(book.get_page(index), parent="usr-0"))
    assert moved == "usr-1"
    assert book.get_page(moved).parent == "usr-0"


def test_a_page_below_a_hidden_folder_can_be_saved_as_it_is() -> None:
    book = new_book()
    folder = book.create_contents_page("Folder", "", "mem-0")
    index = leaf(book, parent=folder)
    book.hide(index)
    book.hide(folder)
    seq = book.seq
    store = PageStorage(book)
    assert store.save(store.load(index)) == index
    assert book.seq == seq


def opener(backend: str, place: Path) -> Callable[[], Storage]:
    """Opens one store of that kind, repeatedly."""
    if backend == "memory":
        kept = MemoryStorage()
        return lambda: kept
    return lambda: FileStorage(place) if backend == "file" else SQLiteStorage(place)


@pytest.mark.parametrize("backend", ["memory", "file", "sqlite"])
def test_the_calls_are_the_same_on_every_backend_and_what_is_saved_stays(backend: str, tmp_path: Path) -> None:
    open_store = opener(backend, tmp_path / "store")
    pages = PageStorage(new_book(storage=open_store()))
    kept = pages.save(DetailPage(name="笔记", parent="mem-0"), "正文")
    gone = pages.save(DetailPage(name="gone", parent="mem-0"), "text")
    pages.delete(gone)
    book = new_system(storage=open_store())
    pages = PageStorage(book)
    assert (pages.load(kept).name, book.detail(kept)) == ("笔记", "正文")
    assert (pages.exists(kept), pages.exists(gone)) == (True, False)
    assert list(pages.list()) == ["sys-0", "mem-0", kept, "usr-0"]
