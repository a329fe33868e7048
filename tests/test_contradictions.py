"""Contradictions in documents 000 and 001: one test for each row, named after the rule of the contract."""

import json
import multiprocessing
import threading
from pathlib import Path

import apsw
import pytest

import quire
from quire import (
    Conflict,
    ContentsPage,
    ContextSystem,
    DetailPage,
    FileStorage,
    InvalidOperation,
    InvalidValue,
    Lifecycle,
    MemoryStorage,
    NoSuchPage,
    Segment,
    SQLiteStorage,
    StorageFailure,
)
from quire.storage.base import Commit
from tests.books import everything, folder, leaf, leaves, listed, new_book, new_system, refused


def test_open_uses_sqlite_and_a_bare_system_memory(tmp_path: Path) -> None:
    with quire.open(tmp_path / "agent.db") as context:
        assert isinstance(context.pages.storage, SQLiteStorage)
    assert (tmp_path / "agent.db").read_bytes().startswith(b"SQLite format 3\0")
    assert isinstance(ContextSystem().storage, MemoryStorage)


def test_the_root_is_made_with_the_segment() -> None:
    system = new_system()
    system.add_segment(Segment(id="sys", root_index="sys-0"))
    root = system.get_page("sys-0")
    assert isinstance(root, ContentsPage)
    assert system.get_segment("sys").root_index == root.index


def test_the_root_index_need_not_be_set_on_a_copy() -> None:
    system = new_system()
    mine = Segment(id="sys")
    added = system.add_segment(mine)
    assert (mine.root_index, added.root_index) == ("", "sys-0")
    assert system.create_detail_page("System Prompt", "Main prompt", "You are…", added.root_index) == "sys-1"


class Failing(MemoryStorage):
    """A storage that cannot write."""

    broken = False

    def commit(self, context: str, commit: Commit) -> None:
        if self.broken:
            raise OSError("disk full")
        super().commit(context, commit)


def test_a_page_and_its_place_in_the_folder_are_one_atomic_commit() -> None:
    storage = Failing()
    book = new_book(storage=storage)
    index = book.add_page(DetailPage(name="a", index="mem-1", parent="mem-0"))
    assert listed(book, "mem-0") == [index]
    storage.broken = True
    with refused(book, StorageFailure, "disk full"):
        book.add_page(DetailPage(name="b", index="mem-2", parent="mem-0"))
    with refused(book, StorageFailure, "disk full"):
        book.create_detail_page("c", "", "text", "mem-0")
    storage.broken = False
    assert listed(book, "mem-0") == [index]
    assert book.add_page(DetailPage(name="b", index="mem-2", parent="mem-0")) == "mem-2"
    assert everything(new_system(storage=storage)) == everything(book)


def test_remove_takes_the_subtree_everywhere_cached_or_not() -> None:
    storage = MemoryStorage()
    book = new_book(storage=storage)
    shelf = folder(book)
    inner = folder(book, parent=shelf)
    deep = leaf(book, parent=inner, detail="text")
    for index in (shelf, inner, deep):
        book.evict_page(index)
    assert book.remove_page(shelf) == 3
    for system in (book, new_system(storage=storage)):
        assert listed(system, "mem-0") == []
        assert {page.index for page in system.list_pages()} == {"sys-0", "mem-0", "usr-0"}
        for index in (shelf, inner, deep):
            with pytest.raises(NoSuchPage):
                system.get_page(index)


def test_all_pages_are_listed_and_migrated_evicted_ones_too(tmp_path: Path) -> None:
    book = new_book(max_pages=2)
    pages = leaves(book, 10)
    book.archive(pages[0], cold=True)
    book.evict_lru(0)
    assert [page.index for page in book.list_pages("mem")] == ["mem-0", *pages]
    before = everything(book)
    target = FileStorage(tmp_path / "pages")
    book.set_storage(target, migrate=True)
    assert book.storage is target
    assert everything(book) == before
    assert everything(new_system(storage=FileStorage(tmp_path / "pages"))) == before


def test_the_segment_is_what_stands_before_the_last_dash() -> None:
    book = new_book()
    book.add_segment(Segment(id="usr-archive"))
    archived, spoken = leaf(book, parent="usr-archive-0"), leaf(book, parent="usr-0")
    assert (archived, spoken) == ("usr-archive-1", "usr-1")
    assert (book.segment_of(archived).id, book.segment_of(spoken).id) == ("usr-archive", "usr")
    book.remove_segment("usr-archive")
    with refused(book, NoSuchPage):
        book.segment_of(archived)


def test_every_segment_counts_for_itself() -> None:
    book = new_book()
    assert [book.generate_index(name) for name in ("sys", "usr", "sys", "usr", "mem")] == [
        "sys-1",
        "usr-1",
        "sys-2",
        "usr-2",
        "mem-1",
    ]


def test_none_leaves_a_field_as_it_is_and_an_empty_description_clears_it() -> None:
    book = new_book()
    index = book.create_detail_page("name", "words", "", "mem-0")
    book.update_page(index, name="other")
    assert book.get_page(index).description == "words"
    book.update_page(index, description="")
    assert (book.get_page(index).name, book.get_page(index).description) == ("other", "")
    with refused(book, InvalidValue, "name"):
        book.update_page(index, name="")


def test_no_column_needs_quoting(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "book.db")
    book = new_book(storage=storage)
    leaf(book, detail="text")
    storage.close()
    db = apsw.Connection(str(tmp_path / "book.db"))
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    assert "page" in tables
    for table in tables:
        columns = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})").fetchall()]
        assert "index" not in columns
        db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    db.close()


@pytest.mark.parametrize("name", ["../../x", "a/b", "con", ".", "..", "A", "a" * 200, "语言", "%2e%2e", "~", "-rf"])
def test_names_are_encoded_and_nothing_leaves_the_folder(tmp_path: Path, name: str) -> None:
    store = tmp_path / "outer" / "store"
    (tmp_path / "x").write_text("mine")
    storage = FileStorage(store)
    book = new_book(storage=storage, context=name)
    book.add_segment(Segment(id="nul"))
    index = leaf(book, "a/../b", "nul-0", detail="text")
    assert list(storage.contexts()) == [name]
    storage.close()
    assert (tmp_path / "x").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"outer", "x"}
    assert {path.name for path in (tmp_path / "outer").iterdir()} == {"store"}
    assert new_system(storage=FileStorage(store), context=name).detail(index) == "text"


def test_names_that_differ_only_in_case_are_apart_on_any_file_system(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path)
    for name in ("book", "Book", "BOOK"):
        leaf(new_book(storage=storage, context=name), name)
    assert len({path.name.lower() for path in tmp_path.iterdir()}) == 3
    assert [new_system(storage=storage, context=name).get_page("mem-1").name for name in ("book", "Book", "BOOK")] == [
        "book",
        "Book",
        "BOOK",
    ]


def test_a_move_makes_no_cycle_and_gives_new_indices_in_another_segment() -> None:
    book = new_book()
    outer = folder(book)
    inner = folder(book, parent=outer)
    with refused(book, InvalidOperation, "subtree"):
        book.move_page(outer, inner)
    assert book.move_page(inner, "usr-0") == {inner: "usr-1"}
    assert book.segment_of("usr-1").id == "usr"


def test_threads_share_a_context_safely(tmp_path: Path) -> None:
    book = new_book(storage=SQLiteStorage(tmp_path / "book.db"))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(25):
                page = leaf(book, f"thread {number}", detail="text")
                book.hide(page)
                book.get_page(page)
                listed(book, "mem-0")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(listed(book, "mem-0"))) == 100
    assert book.seq == 3 + 200
    assert book.check() == []


def _write(path: str, name: str) -> None:
    """Run another process: write ten pages, and retry after conflicts."""
    book = new_system(storage=SQLiteStorage(path))
    for number in range(10):
        while True:
            try:
                leaf(book, f"{name} {number}")
                break
            except Conflict:
                book.refresh()


def test_processes_share_a_context_safely(tmp_path: Path) -> None:
    path = str(tmp_path / "book.db")
    book = new_book(storage=SQLiteStorage(path))
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_write, args=(path, name)) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    with pytest.raises(Conflict, match="refresh"):
        leaf(book)
    assert book.refresh()
    names = sorted(page.name for page in book.children("mem-0"))
    assert names == sorted(f"{name} {number}" for name in ("one", "two") for number in range(10))
    assert book.check() == []


def test_a_detail_page_is_one_unit_and_a_turn_is_a_folder_of_them() -> None:
    book = new_book()
    question = book.create_detail_page("question", "", "User: hi", "usr-0")
    answer = book.create_detail_page("answer", "", "Assistant: hello", "usr-0")
    turn = book.create_contents_page("turn", "greeting", "usr-0", [question, answer])
    assert (listed(book, "usr-0"), listed(book, turn)) == ([turn], [question, answer])
    assert [book.detail(index) for index in (question, answer)] == ["User: hi", "Assistant: hello"]


def test_pages_have_no_setters_and_places_and_states_change_by_operations() -> None:
    book = new_book()
    shelf, index = folder(book), leaf(book)
    page = book.get_page(index)
    for setter in ("add_child", "set_parent", "set_lifecycle", "set_visibility", "set_name"):
        assert not hasattr(page, setter)
    for field in ("parent", "lifecycle", "visibility", "name"):
        with pytest.raises(AttributeError):
            setattr(page, field, None)
    book.move_page(index, shelf)
    book.archive(index)
    assert (book.get_page(index).parent, book.get_page(index).lifecycle) == (shelf, Lifecycle.HOT_ARCHIVED)
    book.restore(index)
    assert book.get_page(index).lifecycle is Lifecycle.ACTIVE


def test_a_cold_page_stays_in_the_same_store_and_recall_brings_it_back(tmp_path: Path) -> None:
    book = new_book(storage=SQLiteStorage(tmp_path / "book.db"))
    index = leaf(book, "kestrel", detail="text")
    book.archive(index, cold=True)
    book.storage.close()
    book = new_system(storage=SQLiteStorage(tmp_path / "book.db"))
    assert book.get_page(index).lifecycle is Lifecycle.COLD_ARCHIVED
    assert [hit.index for hit in book.find("kestrel")] == [index]
    assert json.loads(book.marshal())["pages"][index]["detail"] == "text"
    book.recall(index)
    assert (listed(book, "mem-0"), book.detail(index)) == ([index], "text")
