"""Pages and segments handed out are values: nobody changes the system with one."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from quire import ContentsPage, DetailPage, Lifecycle, Segment, SegmentType, Visibility
from tests.books import leaf, new_book

CHANGES: list[Callable[[DetailPage], object]] = [
    lambda page: setattr(page, "name", "other"),
    lambda page: setattr(page, "lifecycle", Lifecycle.COLD_ARCHIVED),
    lambda page: setattr(page, "visibility", Visibility.HIDDEN),
    lambda page: setattr(page, "parent", "usr-0"),
    lambda page: delattr(page, "name"),
    lambda page: setattr(page, "meta", {"a": 2}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_page_handed_out_cannot_be_changed(change: Callable[[DetailPage], object]) -> None:
    book = new_book()
    index = book.create_detail_page("name", "", "text", "mem-0", meta={"a": 1})
    page = book.get_page(index)
    assert isinstance(page, DetailPage)
    with pytest.raises((AttributeError, TypeError)):
        change(page)
    assert book.get_page(index) == page
    assert dict(page.meta) == {"a": 1}


def test_changing_what_was_given_as_meta_changes_nothing_stored() -> None:
    book = new_book()
    mine = {"a": [1]}
    index = book.create_detail_page("name", "", "", "mem-0", meta=mine)
    mine["a"].append(2)
    theirs: Any = book.get_page(index).meta
    theirs["a"].append(3)
    assert dict(book.get_page(index).meta) == {"a": [1]}
    assert dict(book.load_page(index).meta) == {"a": [1]}


def test_a_page_handed_out_does_not_follow_later_changes() -> None:
    book = new_book()
    index = leaf(book)
    before = book.get_page(index)
    book.update_page(index, name="other")
    assert (before.name, book.get_page(index).name) == ("leaf", "other")


def test_a_segment_cannot_be_changed_either() -> None:
    segment = Segment(id="a", type=SegmentType.USER)
    with pytest.raises(AttributeError):
        segment.type = SegmentType.SYSTEM  # type: ignore[misc]


def test_pages_know_their_kind() -> None:
    page, folder = DetailPage(name="a"), ContentsPage(name="b")
    assert (page.message_count, folder.child_count) == (0, 0)
    assert not hasattr(folder, "message_count")
    assert not hasattr(page, "child_count")


def test_times_are_aware() -> None:
    book = new_book()
    page = book.get_page("mem-0")
    assert page.created_at.tzinfo is UTC
    assert page.created_at > datetime(2023, 1, 1, tzinfo=UTC)
