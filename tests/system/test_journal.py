"""The journal: history, undo of any entry, undo of an undo, and undoing back to every earlier state."""

from typing import Any

import pytest

from quire import (
    InvalidOperation,
    InvalidValue,
    NoSuchPage,
    Permission,
    Segment,
)
from tests.books import folder, leaf, leaves, listed, new_book, new_system, refused
from tests.talks import new_talk

# History


def test_every_commit_is_an_entry_that_says_who_did_what_when_to_which_pages() -> None:
    book = new_system(actor="tester")
    book.add_segment(Segment(id="mem"))
    index = book.acting_as("agent").create_detail_page("name", "summary", "text", "mem-0")
    book.update_page(index, name="other")
    first, second, third = book.history()
    assert [(entry.seq, entry.actor, entry.operation) for entry in (first, second, third)] == [
        (1, "tester", "add_segment"),
        (2, "agent", "create_detail_page"),
        (3, "tester", "update_page"),
    ]
    assert first.time < second.time < third.time
    assert (first.pages, first.segments, second.pages, third.pages) == (("mem-0",), ("mem",), (index,), (index,))
    assert second.changes[0].before is None
    before = third.changes[0].before
    assert before is not None
    assert (before["name"], before["description"], before["parent"]) == ("name", "summary", "mem-0")


def test_a_no_op_and_a_refusal_are_no_entries() -> None:
    book = new_book()
    index = leaf(book)
    seq = book.seq
    book.expand(index)
    with pytest.raises(InvalidOperation):
        book.hide("sys-0")
    assert book.seq == seq == len(list(book.history()))


# Undo


@pytest.mark.parametrize("entry", [0, -1, 99, None, "4", True, 4.0, b"4", [4], 10**40])
def test_an_entry_that_does_not_exist_is_refused(entry: Any) -> None:
    book = new_book()
    leaf(book)
    with refused(book, InvalidValue):
        book.undo(entry)


def test_a_refused_undo_names_the_newest_entry_that_is_in_its_way() -> None:
    book = new_book()
    index = leaf(book)
    created = book.seq
    book.update_page(index, name="other")
    book.hide(index)
    for blocker in (created + 2, created + 1):
        with refused(book, InvalidOperation, repr(index)) as caught:
            book.undo(created)
        (hint,) = caught.value.hints
        assert (hint.call, hint.arguments) == ("undo", str(blocker))
        book.undo(blocker)
    book.undo(created)
    assert listed(book, "mem-0") == []


def test_a_page_that_the_layout_showed_as_a_line_is_hidden_and_not_undone() -> None:
    talk = new_talk(budget=200)
    index, *_ = [leaf(talk.pages, detail="word " * 60) for _ in range(5)]
    talk.user("Hello")
    talk.render()
    talk.pages.expand(index)
    assert [entry.operation for entry in talk.history()][-1] == "expand"
    with refused(talk.pages, InvalidOperation, repr(index)) as caught:
        talk.undo(talk.seq)
    assert [(hint.call, hint.page) for hint in caught.value.hints] == [("hide", index)]


def test_a_page_is_put_back_between_its_old_neighbours() -> None:
    book = new_book()
    a, b, c = leaves(book, 3)
    book.remove_page(b)
    removed = book.seq
    late = leaf(book)
    first = leaf(book)
    book.move_page(first, "mem-0", before=a)
    book.undo(removed)
    assert listed(book, "mem-0") == [first, a, b, c, late]


def test_undoing_a_move_between_segments_turns_the_forwarding_address_around() -> None:
    book = new_book()
    index = leaf(book)
    new = book.move_page(index, "usr-0")[index]
    undone = book.undo(book.seq)
    assert listed(book, "mem-0") == [index]
    with refused(book, NoSuchPage, repr(index)):
        book.get_page(new)
    book.undo(undone)
    with refused(book, NoSuchPage, repr(new)):
        book.get_page(index)


# Undo follows the same rules


def test_undo_is_refused_where_it_would_make_a_cycle() -> None:
    book = new_book()
    a, b = folder(book, "a"), folder(book, "b")
    book.move_page(a, b)
    moved = book.seq
    book.move_page(a, "mem-0")
    book.move_page(b, a)
    with refused(book, InvalidOperation):
        book.undo(moved)
    # untouched pages can still form a cycle: c was in d, and d moves into c
    c, d = folder(book, "c"), folder(book, "d")
    inner = folder(book, "inner", c)
    book.move_page(inner, d)
    out = book.seq
    book.move_page(c, inner)
    with refused(book, InvalidOperation):
        book.undo(out)


# Pins and permissions are security settings


def test_no_undo_brings_an_older_permission_back() -> None:
    book = new_book()
    book.set_segment_permission("mem", Permission.PRIVATE)
    with refused(book, InvalidOperation):
        book.undo(book.seq)
    book.update_segment("mem", name="other")
    named = book.seq
    book.undo(named)
    assert book.get_segment("mem").permission is Permission.PRIVATE
    book.update_segment("mem", name="third")
    named = book.seq
    book.set_segment_permission("mem", Permission.READ_ONLY)
    book.undo(named)  # a later permission is no change that stands in its way
    assert (book.get_segment("mem").name, book.get_segment("mem").permission) == ("Memory", Permission.READ_ONLY)


def test_a_later_change_of_the_same_segment_is_named() -> None:
    book = new_book()
    book.update_segment("mem", name="other")
    book.update_segment("mem", description="about")
    with refused(book, InvalidOperation, "'mem'"):
        book.undo(book.seq - 1)


def test_no_undo_brings_an_older_pin_back_or_lifts_one() -> None:
    book = new_book()
    index = leaf(book)
    book.pin(index)
    with refused(book, InvalidOperation):
        book.undo(book.seq)
    book.unpin(index)
    with refused(book, InvalidOperation):
        book.undo(book.seq)
    assert book.get_page(index).pinned is False


def test_an_undo_leaves_pinned_pages_where_they_are_and_takes_back_the_rest() -> None:
    book = new_book()
    pinned, other = leaves(book, 2)
    shelf = book.create_contents_page("shelf", "", "mem-0", [pinned, other])
    gathered = book.seq
    book.pin(pinned)
    book.undo(gathered)
    assert (listed(book, shelf), listed(book, "mem-0")) == ([pinned], [shelf, other])
