"""Segments: adding, removing, changing, permissions, the conversation."""

from typing import Any

import pytest

from quire import (
    ContentsPage,
    InvalidOperation,
    InvalidValue,
    NoSuchPage,
    NoSuchSegment,
    Permission,
    Segment,
    SegmentType,
)
from tests.books import folder, leaf, leaves, new_book, new_system, refused


def test_a_segment_comes_with_its_root_and_its_defaults() -> None:
    system = new_system()
    added = system.add_segment(Segment(id="notes"))
    assert added == system.get_segment("notes")
    assert (added.id, added.name, added.description, added.root_index) == ("notes", "notes", "", "notes-0")
    assert (added.type, added.permission, added.max_capacity) == (SegmentType.CUSTOM, Permission.READ_WRITE, 0)
    assert added.created_at == added.updated_at
    root = system.get_page("notes-0")
    assert isinstance(root, ContentsPage)
    assert (root.parent, root.name, root.child_count) == (None, "notes", 0)


def test_segments_are_shown_in_the_order_of_adding() -> None:
    book = new_book()
    book.add_segment(Segment(id="a"))
    book.remove_segment("mem")
    book.add_segment(Segment(id="mem"))
    assert [segment.id for segment in book.list_segments()] == ["sys", "usr", "a", "mem"]


def test_a_segment_brought_back_by_undo_takes_its_old_place_in_the_display() -> None:
    book = new_book()
    book.add_segment(Segment(id="last"))
    book.remove_segment("mem")
    removed = book.seq
    book.remove_segment("last")
    book.add_segment(Segment(id="mem-2"))
    book.undo(book.seq - 1)
    book.undo(removed)
    assert [segment.id for segment in book.list_segments()] == ["sys", "mem", "usr", "last", "mem-2"]


def test_a_segment_added_after_a_document_stays_last_when_the_document_is_undone() -> None:
    book = new_book()
    book.unmarshal('{"segments": [{"id": "one"}], "pages": {"one-0": {"type": "ContentsPage", "name": "one"}}}')
    loaded = book.seq
    book.add_segment(Segment(id="late"))
    book.undo(loaded)
    assert [segment.id for segment in book.list_segments()] == ["sys", "mem", "usr", "late"]


def test_changing_the_callers_copy_changes_nothing() -> None:
    book = new_book()
    mine = book.get_segment("mem")
    with pytest.raises(AttributeError):
        mine.name = "other"  # type: ignore[misc]
    assert book.get_segment("mem").name == "Memory"


@pytest.mark.parametrize("name", ["A", "-a", "_a", "a b", "a.b", "a/b", "../x", "é", "ａ", "a" * 33, "a\n", "a\0"])
def test_a_segment_id_is_lower_case_letters_digits_dash_and_underscore(name: str) -> None:
    book = new_book()
    with refused(book, InvalidValue, "id"):
        book.add_segment(Segment(id=name))


def test_the_longest_and_the_oddest_ids_are_fine() -> None:
    book = new_book()
    for name in ("a" * 32, "0", "a-", "a--1", "usr-1", "usr-archive"):
        book.add_segment(Segment(id=name))
        index = leaf(book, parent=f"{name}-0")
        assert (index, book.segment_of(index).id) == (f"{name}-1", name)
    assert book.check() == []


def test_an_id_is_not_used_twice_at_a_time() -> None:
    book = new_book()
    with refused(book, InvalidOperation, "mem"):
        book.add_segment(Segment(id="mem"))


def test_the_empty_id_is_for_a_contexts_only_segment() -> None:
    book = new_book()
    with refused(book, InvalidOperation, "empty id"):
        book.add_segment(Segment(id=""))
    single = new_system()
    single.add_segment(Segment(id=""))
    with refused(single, InvalidOperation, "empty id"):
        single.add_segment(Segment(id="usr"))


def test_the_empty_id_does_not_come_back_beside_others() -> None:
    system = new_system()
    system.add_segment(Segment(id=""))
    system.remove_segment("")
    system.add_segment(Segment(id="a"))
    with refused(system, InvalidOperation):
        system.undo(2)


def test_a_given_root_index_must_be_the_one_that_is_made() -> None:
    book = new_book()
    with refused(book, InvalidValue, "root_index"):
        book.add_segment(Segment(id="a", root_index="mem-0"))
    assert book.add_segment(Segment(id="a", root_index="a-0")).root_index == "a-0"


@pytest.mark.parametrize(
    "fields",
    [
        {"type": 9},
        {"type": "USER"},
        {"permission": 4},
        {"permission": True},
        {"max_capacity": -1},
        {"max_capacity": 1.5},
        {"max_capacity": True},
        {"name": "x" * 201},
        {"name": "a\0"},
        {"description": "x" * 2_001},
        {"description": 5},
    ],
)
def test_a_segment_with_a_wrong_field_is_refused_and_the_field_named(fields: dict[str, Any]) -> None:
    book = new_book()
    with refused(book, InvalidValue, next(iter(fields))):
        book.add_segment(Segment(id="a", **fields))


def test_removing_a_segment_takes_all_its_pages_cold_ones_too() -> None:
    book = new_book()
    a, b = leaves(book, 2)
    book.archive(a, cold=True)
    shelf = folder(book)
    inside = leaf(book, parent=shelf)
    assert book.remove_segment("mem") == 5
    with refused(book, NoSuchSegment, "'sys'", "'usr'"):
        book.get_segment("mem")
    for index in ("mem-0", a, b, shelf, inside):
        with refused(book, NoSuchPage):
            book.get_page(index)
    assert {page.index for page in book.list_pages()} == {"sys-0", "usr-0"}
    with refused(book, NoSuchSegment):
        book.remove_segment("mem")


def test_a_segment_added_again_goes_on_with_its_old_numbers() -> None:
    book = new_book()
    leaves(book, 2)
    book.remove_segment("mem")
    book.add_segment(Segment(id="mem"))
    assert leaf(book) == "mem-3"


def test_numbers_are_counted_per_segment() -> None:
    book = new_book()
    assert [leaf(book, parent=f"{name}-0") for name in ("mem", "usr", "mem", "usr")] == [
        "mem-1",
        "usr-1",
        "mem-2",
        "usr-2",
    ]


def test_updating_a_segment_changes_what_is_given() -> None:
    book = new_book()
    before = book.get_segment("mem")
    book.update_segment("mem", name="Notes", max_capacity=4_000)
    after = book.get_segment("mem")
    assert (after.name, after.description, after.max_capacity) == ("Notes", before.description, 4_000)
    assert after.updated_at > before.updated_at
    assert after.created_at == before.created_at
    seq = book.seq
    book.update_segment("mem", name="Notes", description="", max_capacity=4_000)
    book.update_segment("mem")
    assert book.seq == seq


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": 5}, {"description": b""}, {"max_capacity": -1}, {"max_capacity": "4"}]
)
def test_a_wrong_update_of_a_segment_is_refused(fields: dict[str, Any]) -> None:
    book = new_book()
    with refused(book, InvalidValue, next(iter(fields))):
        book.update_segment("mem", **fields)
    with refused(book, NoSuchSegment):
        book.update_segment("nope", name="x")


def test_a_permission_is_set_and_setting_it_again_makes_no_entry() -> None:
    book = new_book()
    for permission in Permission:
        book.set_segment_permission("mem", permission)
        assert book.get_segment("mem").permission is permission
    seq = book.seq
    book.set_segment_permission("mem", Permission.PRIVATE)
    assert book.seq == seq
    for wrong in (7, "READ_ONLY", None, True):
        with refused(book, InvalidValue, "permission"):
            book.set_segment_permission("mem", wrong)  # type: ignore[arg-type]


def test_the_conversation_cannot_be_removed_or_made_private() -> None:
    book = new_book()
    with refused(book, InvalidOperation, "conversation"):
        book.remove_segment("usr")
    with refused(book, InvalidOperation, "PRIVATE"):
        book.set_segment_permission("usr", Permission.PRIVATE)
    with refused(new_system(), InvalidOperation, "PRIVATE"):
        new_system().add_segment(Segment(id="talk", type=SegmentType.USER, permission=Permission.PRIVATE))


def test_the_first_user_segment_is_the_conversation_and_a_second_one_is_not() -> None:
    book = new_book()
    book.add_segment(Segment(id="talk", type=SegmentType.USER, permission=Permission.PRIVATE))
    assert book.remove_segment("talk") == 1


def test_undoing_its_adding_does_not_remove_the_conversation() -> None:
    book = new_book()
    with refused(book, InvalidOperation):
        book.undo(3)
    assert [segment.id for segment in book.list_segments()] == ["sys", "mem", "usr"]


def test_the_segment_of_a_page_is_found_by_its_index() -> None:
    book = new_book()
    index = leaf(book)
    assert book.segment_of(index) == book.segment_of("mem-0") == book.get_segment("mem")
    with refused(book, NoSuchPage):
        book.segment_of("mem-99")
