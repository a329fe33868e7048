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


@pytest.mark.parametrize("name", ["A", "-a", "_a", "a b", "a.b", "a/b", "../x", "é", "ａ", "a" * 33, "a\n", "a\0"])
def test_a_segment_id_is_lower_case_letters_digits_dash_and_underscore(name: str) -> None:
    book = new_book()
    with refused(book, InvalidValue):
        book.add_segment(Segment(id=name))


def test_an_id_is_not_used_twice_at_a_time() -> None:
    book = new_book()
    with refused(book, InvalidOperation):
        book.add_segment(Segment(id="mem"))


def test_the_empty_id_is_for_a_contexts_only_segment() -> None:
    book = new_book()
    with refused(book, InvalidOperation):
        book.add_segment(Segment(id=""))
    single = new_system()
    single.add_segment(Segment(id=""))
    with refused(single, InvalidOperation):
        single.add_segment(Segment(id="usr"))


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
    with refused(book, InvalidValue):
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


def test_a_permission_is_set_and_setting_it_again_makes_no_entry() -> None:
    book = new_book()
    for permission in Permission:
        book.set_segment_permission("mem", permission)
        assert book.get_segment("mem").permission is permission
    seq = book.seq
    book.set_segment_permission("mem", Permission.PRIVATE)
    assert book.seq == seq
    for wrong in (7, "READ_ONLY", None, True):
        with refused(book, InvalidValue):
            book.set_segment_permission("mem", wrong)  # type: ignore[arg-type]


def test_the_conversation_cannot_be_removed_or_made_private() -> None:
    book = new_book()
    with refused(book, InvalidOperation):
        book.remove_segment("usr")
    with refused(book, InvalidOperation):
        book.set_segment_permission("usr", Permission.PRIVATE)
    with refused(new_system(), InvalidOperation):
        new_system().add_segment(Segment(id="talk", type=SegmentType.USER, permission=Permission.PRIVATE))


def test_the_first_user_segment_is_the_conversation_and_a_second_one_is_not() -> None:
    book = new_book()
    book.add_segment(Segment(id="talk", type=SegmentType.USER, permission=Permission.PRIVATE))
    assert book.remove_segment("talk") == 1
