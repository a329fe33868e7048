"""check(): a sound context has no problems, also beside other writers; damage is named and never shown as content."""

from pathlib import Path

import pytest

import quire
from quire import Conflict, Corrupt, MemoryStorage
from tests.books import folder, leaf, new_book, new_system


def test_a_context_that_someone_else_changed_is_sound() -> None:
    storage = MemoryStorage()
    book = new_book(storage=storage)
    page = leaf(book, parent=folder(book), detail="text")
    other = new_system(storage=storage)
    other.update_page(page, name="another")
    assert (book.check(), other.check(), new_system().check()) == ([], [], [])
    assert book.refresh()
    assert book.check() == []


def test_a_change_of_others_in_a_temporary_block_is_a_conflict() -> None:
    storage = MemoryStorage()
    ctx, other = quire.open(storage), quire.open(storage)
    with ctx.temporary():
        ctx.user("mine")
        assert ctx.check() == []
        other.refresh()
        other.user("theirs")
        with pytest.raises(Conflict):
            ctx.check()
    assert ctx.check() == []


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
def test_a_body_with_other_bytes_is_named_and_never_returned(scheme: str, tmp_path: Path) -> None:
    url, text = f"{scheme}:{tmp_path / 'store'}", "the kestrel nests in the tower " * 9
    with quire.open(url) as ctx:
        page = ctx.pages.create_detail_page("note", "", text, "mem-0")
    for file in (file for file in tmp_path.rglob("*") if file.is_file()):
        file.write_bytes(file.read_bytes().replace(b"kestrel", b"kestral"))
    with pytest.raises(Corrupt), quire.open(url) as ctx:
        ctx.pages.detail(page)
