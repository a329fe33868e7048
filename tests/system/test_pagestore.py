"""The per-page calls of document 000: save, load, delete, exists, list."""

from msgspec.structs import replace

from quire import (
    DetailPage,
    NoSuchPage,
    Visibility,
)
from quire.system import PageStorage
from tests.books import folder, leaf, listed, new_book, refused


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
