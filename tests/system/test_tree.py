"""The structure of the tree: create, add, update, move, group, remove."""

from typing import Any

import pytest

from quire import (
    ContentsPage,
    DetailPage,
    InvalidOperation,
    InvalidValue,
    Lifecycle,
    NoSuchPage,
    NoSuchSegment,
    Segment,
    Visibility,
)
from tests.books import folder, leaf, leaves, listed, new_book, new_system, refused


def test_a_page_is_handed_out_with_everything_about_it() -> None:
    book = new_book()
    index = book.acting_as("agent").create_detail_page(
        "Seattle", "one two three", "User: hi\nAssistant: hello", "mem-0", meta={"source": ["a", 1, None]}
    )
    page = book.get_page(index)
    assert isinstance(page, DetailPage)
    assert (page.index, page.name, page.description) == ("mem-1", "Seattle", "one two three")
    assert (page.parent, page.home, page.author) == ("mem-0", None, "agent")
    assert (page.lifecycle, page.effective, page.visibility) == (
        Lifecycle.ACTIVE,
        Lifecycle.ACTIVE,
        Visibility.EXPANDED,
    )
    assert (page.pinned, page.message_count, dict(page.meta)) == (False, 0, {"source": ["a", 1, None]})
    assert (page.summary_tokens, page.tokens) == (3, 4)
    assert page.created_seq == page.changed_seq == book.seq == 4
    assert page.created_at == page.updated_at
    assert book.detail(index) == "User: hi\nAssistant: hello"


def test_a_context_with_one_nameless_segment_has_bare_numbers() -> None:
    system = new_system()
    assert system.add_segment(Segment(id="")).root_index == "0"
    assert system.create_detail_page("a", "", "text", "0") == "1"
    assert system.create_contents_page("b", "", "0", ["1"]) == "2"
    assert listed(system, "2") == ["1"]
    assert system.segment_of("1").id == ""
    assert system.generate_index("") == "3"


@pytest.mark.parametrize("name", ["", "   ", "\n", "x" * 201, "a\0b", "a\x1bb", "a\x7f", "\ud800"])
def test_a_name_is_one_visible_line_of_at_most_200_characters(name: str) -> None:
    book = new_book()
    index = leaf(book)
    with refused(book, InvalidValue):
        leaf(book, name)
    with refused(book, InvalidValue):
        book.update_page(index, name=name)


def test_line_breaks_in_names_and_descriptions_become_spaces() -> None:
    book = new_book()
    index = book.create_detail_page("a\nb\r\nc\u2028d", "e\x0bf\x85g", "", "mem-0")
    page = book.get_page(index)
    assert (page.name, page.description) == ("a b c d", "e f g")
    book.update_page(index, name="x" * 200, description="y" * 2_000)
    with refused(book, InvalidValue):
        book.update_page(index, description="y" * 2_001)


def test_updating_with_none_changes_nothing_and_an_empty_description_clears_it() -> None:
    book = new_book()
    index = book.create_detail_page("name", "some words here", "", "mem-0", meta={"a": 1})
    seq = book.seq
    book.update_page(index)
    book.update_page(index, name="name", description="some words here", meta={"a": 1})
    assert book.seq == seq
    book.update_page(index, description="")
    page = book.get_page(index)
    assert (page.name, page.description, page.summary_tokens, dict(page.meta)) == ("name", "", 0, {"a": 1})
    book.update_page(index, meta={})
    assert dict(book.get_page(index).meta) == {}


@pytest.mark.parametrize("meta", [{1: "a"}, {"a": object()}, {"a": float("nan")}, {"a": {1}}, {"a": "x" * 5_000}])
def test_meta_is_a_small_dict_of_plain_values(meta: dict[Any, Any]) -> None:
    book = new_book()
    index = leaf(book)
    with refused(book, InvalidValue):
        book.update_page(index, meta=meta)
    with refused(book, InvalidValue):
        book.create_detail_page("a", "", "", "mem-0", meta=meta)


def test_a_new_detail_replaces_the_old_one_and_is_counted() -> None:
    book = new_book()
    index = leaf(book, detail="one two")
    book.set_detail(index, "one two three")
    assert (book.detail(index), book.get_page(index).tokens) == ("one two three", 3)
    seq = book.seq
    book.set_detail(index, "one two three")
    assert book.seq == seq
    book.set_detail(index, "")
    assert (book.detail(index), book.get_page(index).tokens) == ("", 0)


def test_a_detail_of_any_text_comes_back_as_it_was() -> None:
    book = new_book()
    text = "a\0b\r\n\u2028 <|endoftext|> 语言 \U0001f600" + "x" * 100_000
    assert book.detail(leaf(book, detail=text)) == text


# Adding with an index


def test_a_page_can_bring_a_canonical_index_that_was_never_used() -> None:
    book = new_book()
    assert book.add_page(DetailPage(name="a", index="mem-7", parent="mem-0"), "text") == "mem-7"
    assert book.add_page(ContentsPage(name="b", index="mem-3", parent="mem-0")) == "mem-3"
    assert leaf(book) == "mem-8"
    assert listed(book, "mem-0") == ["mem-7", "mem-3", "mem-8"]
    assert book.detail("mem-7") == "text"


def test_an_index_is_never_used_twice() -> None:
    book = new_book()
    index = leaf(book)
    moved = leaf(book)
    book.remove_page(index)
    book.move_page(moved, "usr-0")
    for used in (index, moved, "usr-1", "mem-0"):
        segment = used.partition("-")[0]
        with refused(book, InvalidOperation, used):
            book.add_page(DetailPage(name="again", index=used, parent=f"{segment}-0"))
    assert leaf(book) == "mem-3"


def test_a_generated_index_is_taken_out_of_use() -> None:
    book = new_book()
    assert [book.generate_index("mem"), book.generate_index("usr"), book.generate_index("mem")] == [
        "mem-1",
        "usr-1",
        "mem-2",
    ]
    assert leaf(book) == "mem-3"
    assert book.add_page(DetailPage(name="a", index="mem-1", parent="mem-0")) == "mem-1"
    with refused(book, NoSuchSegment):
        book.generate_index("nope")


# Gathering


def test_what_cannot_be_gathered_is_refused_and_named() -> None:
    book = new_book()
    shelf = folder(book)
    inside = leaf(book, parent=shelf)
    stranger = leaf(book, parent="usr-0")
    pinned = leaf(book)
    book.pin(pinned)
    cold = leaf(book)
    book.archive(cold, cold=True)
    for parent, children, name in [
        ("mem-0", [stranger], stranger),
        ("mem-0", ["mem-0"], "mem-0"),
        ("mem-0", [inside, inside], inside),
        ("mem-0", [shelf, inside], inside),
        (shelf, [shelf], shelf),
        ("mem-0", [pinned], pinned),
        ("mem-0", [cold], "recall"),
    ]:
        with refused(book, InvalidOperation, name):
            book.create_contents_page("chapter", "", parent, children)
    with refused(book, NoSuchPage, "mem-99"):
        book.create_contents_page("chapter", "", "mem-0", ["mem-99"])
    with refused(book, InvalidValue):
        book.create_contents_page("chapter", "", "mem-0", "mem-1")


# Moving


def test_a_page_moves_to_the_end_or_before_a_child() -> None:
    book = new_book()
    a, b, c = leaves(book, 3)
    assert book.move_page(a, "mem-0") == {}
    assert listed(book, "mem-0") == [b, c, a]
    assert book.move_page(a, "mem-0", before=c) == {}
    assert listed(book, "mem-0") == [b, a, c]
    assert book.move_page(c, "mem-0", before=b) == {}
    assert listed(book, "mem-0") == [c, b, a]


def test_a_page_cannot_move_into_its_own_subtree() -> None:
    book = new_book()
    outer = folder(book)
    inner = folder(book, parent=outer)
    for target in (outer, inner):
        with refused(book, InvalidOperation):
            book.move_page(outer, target)
        with refused(book, InvalidOperation):
            book.create_contents_page("above", "", target, [outer])


def test_a_root_is_not_moved_or_removed() -> None:
    book = new_book()
    shelf = folder(book)
    with refused(book, InvalidOperation):
        book.move_page("mem-0", shelf)
    with refused(book, InvalidOperation):
        book.move_page("mem-0", "usr-0")
    with refused(book, InvalidOperation):
        book.remove_page("mem-0")


def test_moving_to_another_segment_gives_the_subtree_new_indices() -> None:
    book = new_book()
    chapter = folder(book)
    inside = leaf(book, parent=chapter, detail="text")
    sibling = leaf(book, parent="usr-0")
    mapping = book.move_page(chapter, "usr-0", before=sibling)
    assert mapping == {chapter: "usr-2", inside: "usr-3"}
    assert (listed(book, "usr-0"), listed(book, "usr-2"), listed(book, "mem-0")) == (["usr-2", sibling], ["usr-3"], [])
    assert book.detail("usr-3") == "text"
    assert book.segment_of("usr-3").id == "usr"


def test_the_old_index_names_the_new_one_however_often_a_page_moved() -> None:
    book = new_book()
    index = leaf(book)
    book.move_page(index, "usr-0")
    with refused(book, NoSuchPage, "'usr-1'") as caught:
        book.get_page(index)
    assert caught.value.moved_to == "usr-1"  # type: ignore[attr-defined]
    book.move_page("usr-1", "mem-0")
    for old in (index, "usr-1"):
        with refused(book, NoSuchPage, "'mem-2'"):
            book.hide(old)


def test_pages_that_move_into_a_system_segment_are_pinned_and_shown() -> None:
    book = new_book()
    chapter = folder(book)
    inside = leaf(book, parent=chapter)
    book.hide(chapter)
    mapping = book.move_page(chapter, "sys-0")
    for index in (chapter, inside):
        page = book.get_page(mapping[index])
        assert (page.pinned, page.effective, page.visibility) == (True, Lifecycle.ACTIVE, Visibility.EXPANDED)


# Reading


def test_all_pages_are_listed_archived_ones_included() -> None:
    book = new_book()
    a, b, c = leaves(book, 3)
    book.archive(a)
    book.archive(b, cold=True)
    assert [page.index for page in book.list_pages("mem")] == ["mem-0", a, b, c]
    assert [page.index for page in book.list_pages()] == ["sys-0", "mem-0", a, b, c, "usr-0"]
    with refused(book, NoSuchSegment):
        list(book.list_pages("nope"))
