"""Page indices with one spelling each, and immutable pages."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from quire import ContentsPage, DetailPage, InvalidValue, Lifecycle, Segment, SegmentType, Visibility
from quire.model.pages import MAX_NUMBER, check_segment_id, format_index, parse_index
from tests.books import leaf, new_book

segment_ids = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True)


@given(segment_ids | st.just(""), st.integers(0, MAX_NUMBER))
def test_an_index_has_one_spelling_and_comes_apart_as_it_was_put_together(segment: str, number: int) -> None:
    index = format_index(segment, number)
    assert parse_index(index) == (segment, number)


@given(st.text(max_size=40))
def test_whatever_is_an_index_is_spelled_as_it_would_be_written(text: str) -> None:
    parts = parse_index(text)
    assert parts is None or format_index(*parts) == text


def test_the_number_is_what_follows_the_last_dash() -> None:
    assert parse_index("usr-archive-1") == ("usr-archive", 1)
    assert parse_index("a--1") == ("a-", 1)
    assert parse_index("7") == ("", 7)


@pytest.mark.parametrize(
    "text",
    [
        "usr-01",
        "usr-00",
        "usr-１",
        "usr-²",
        "usr-٣",
        "usr-1\0",
        "usr-1\n",
        "usr- 1",
        "usr-+1",
        "usr-1_0",
        "usr-0x1",
        "usr-",
        "-1",
        "-",
        "usr",
        "",
        "../../x",
        f"usr-{MAX_NUMBER + 1}",
        "usr-" + "9" * 10_000,
    ],
)
def test_look_alikes_and_paths_are_no_index(text: str) -> None:
    assert parse_index(text) is None


@pytest.mark.parametrize("value", [None, 5, b"usr-1", ["usr-1"], 1.0, True])
def test_what_is_no_text_is_no_index(value: object) -> None:
    assert parse_index(value) is None


@given(segment_ids)
def test_a_segment_id_of_the_right_letters_is_legal(segment: str) -> None:
    assert check_segment_id(segment) == segment


@pytest.mark.parametrize("value", ["USR", "-a", "_a", "a b", "é", "a" * 33, "a\n", None, 5, b"usr"])
def test_any_other_segment_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue):
        check_segment_id(value)


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
