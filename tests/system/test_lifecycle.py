"""Visibility: expand, hide, archive, restore, recall, pin."""

from collections.abc import Callable

import pytest

from quire import ContextSystem, InvalidOperation, Lifecycle, NoSuchPage, Segment, SegmentType, Visibility
from tests.books import folder, leaf, leaves, listed, new_book, refused

ACTIVE, HOT, COLD = Lifecycle
EXPANDED, HIDDEN = Visibility


def shown(book: ContextSystem, *indices: str) -> list[tuple[Lifecycle, Lifecycle, Visibility]]:
    """Return the stored lifecycle, effective lifecycle and visibility of each page."""
    pages = [book.get_page(index) for index in indices]
    return [(page.lifecycle, page.effective, page.visibility) for page in pages]


def shelf_with_leaf(book: ContextSystem) -> tuple[str, str, str]:
    """Return an outer folder, an inner one, and a leaf in it."""
    outer = folder(book, "outer")
    inner = folder(book, "inner", outer)
    return outer, inner, leaf(book, "leaf", inner)


def test_what_is_below_a_hidden_page_is_effectively_hot() -> None:
    book = new_book()
    outer, inner, page = shelf_with_leaf(book)
    book.hide(outer)
    assert shown(book, outer, inner, page) == [
        (ACTIVE, ACTIVE, HIDDEN),
        (ACTIVE, HOT, EXPANDED),
        (ACTIVE, HOT, EXPANDED),
    ]


def test_expanding_opens_the_page_and_the_whole_chain_above_it() -> None:
    book = new_book()
    outer, inner, page = shelf_with_leaf(book)
    beside = leaf(book, parent=outer)
    for index in (beside, page, inner, outer):
        book.hide(index)
    book.expand(page)
    assert shown(book, outer, inner, page) == [(ACTIVE, ACTIVE, EXPANDED)] * 3
    assert shown(book, beside) == [(ACTIVE, ACTIVE, HIDDEN)]


def test_hiding_an_archived_page_names_the_call_that_would_work() -> None:
    book = new_book()
    outer, _inner, page = shelf_with_leaf(book)
    book.archive(page)
    with refused(book, InvalidOperation):
        book.hide(page)
    book.restore(page)
    book.hide(outer)
    with refused(book, InvalidOperation):
        book.hide(page)


def test_a_root_is_never_archived() -> None:
    book = new_book()
    for cold in (False, True):
        with refused(book, InvalidOperation):
            book.archive("mem-0", cold=cold)


def test_the_roots_of_system_segments_and_of_the_conversation_are_never_hidden() -> None:
    book = new_book()
    book.add_segment(Segment(id="rules", type=SegmentType.SYSTEM))
    book.add_segment(Segment(id="talk", type=SegmentType.USER))
    for root in ("sys-0", "rules-0", "usr-0"):
        with refused(book, InvalidOperation, root):
            book.hide(root)
    book.hide("mem-0")
    book.hide("talk-0")
    assert shown(book, "mem-0", "talk-0") == [(ACTIVE, ACTIVE, HIDDEN)] * 2


# Cold


def test_a_cold_page_leaves_the_tree_with_its_whole_subtree() -> None:
    book = new_book()
    outer, inner, page = shelf_with_leaf(book)
    book.archive(outer, cold=True)
    assert listed(book, "mem-0") == []
    assert book.child_count("mem-0") == 0
    assert not book.has_child("mem-0", outer)
    assert shown(book, outer, inner, page) == [
        (COLD, COLD, EXPANDED),
        (ACTIVE, COLD, EXPANDED),
        (ACTIVE, COLD, EXPANDED),
    ]
    top, below = book.get_page(outer), book.get_page(inner)
    assert (top.parent, top.home, below.parent, below.home) == (None, "mem-0", outer, None)
    assert book.parent(outer) is None
    assert [found.index for found in book.ancestors(page)] == [inner, outer]
    assert [hit.index for hit in book.find("leaf")] == [page]
    assert book.detail(page) == ""


@pytest.mark.parametrize(
    "call",
    [
        lambda book, index: book.hide(index),
        lambda book, index: book.expand(index),
        lambda book, index: book.restore(index),
        lambda book, index: book.archive(index),
        lambda book, index: book.archive(index, cold=True),
        lambda book, index: book.pin(index),
        lambda book, index: book.unpin(index),
        lambda book, index: book.update_page(index, name="new"),
        lambda book, index: book.remove_page(index),
        lambda book, index: book.move_page(index, "mem-0"),
        lambda book, index: book.move_page("mem-1", index),
        lambda book, index: book.create_contents_page("x", "", "mem-0", [index]),
        lambda book, index: book.create_detail_page("x", "", "", index),
    ],
)
def test_anything_but_recall_on_a_cold_page_is_refused_and_recall_is_named(
    call: Callable[[ContextSystem, str], object],
) -> None:
    book = new_book()
    leaf(book)
    outer, inner, _page = shelf_with_leaf(book)
    book.archive(outer, cold=True)
    for index in (outer, inner):
        with refused(book, InvalidOperation):
            call(book, index)


def test_recall_puts_a_page_after_its_nearest_surviving_sibling() -> None:
    book = new_book()
    a, b, c, d, e = leaves(book, 5)
    for index in (b, c, d):
        book.archive(index, cold=True)
    late = leaf(book)
    book.recall(d)
    assert listed(book, "mem-0") == [a, d, e, late]
    book.remove_page(a)
    book.recall(b)
    assert listed(book, "mem-0") == [b, d, e, late]
    book.remove_page(d)
    book.recall(c)
    assert listed(book, "mem-0") == [b, c, e, late]


def test_a_page_whose_folder_is_gone_returns_under_the_root() -> None:
    book = new_book()
    outer, inner, page = shelf_with_leaf(book)
    z = leaf(book)
    book.archive(page, cold=True)
    book.remove_page(outer)
    assert book.get_page(page).home == "mem-0"
    book.recall(page)
    assert listed(book, "mem-0") == [z, page]
    with pytest.raises(NoSuchPage):
        book.get_page(inner)


# Pins


def test_pinning_opens_the_page_and_the_chain_above_it() -> None:
    book = new_book()
    outer, inner, page = shelf_with_leaf(book)
    book.hide(page)
    book.archive(inner)
    book.hide(outer)
    book.pin(page)
    assert shown(book, outer, inner, page) == [(ACTIVE, ACTIVE, EXPANDED)] * 3
    assert [book.get_page(index).pinned for index in (outer, inner, page)] == [False, False, True]


@pytest.mark.parametrize(
    "call",
    [
        lambda book, index: book.hide(index),
        lambda book, index: book.archive(index),
        lambda book, index: book.archive(index, cold=True),
        lambda book, index: book.move_page(index, "usr-0"),
        lambda book, index: book.move_page(index, "mem-0", before="mem-1"),
        lambda book, index: book.remove_page(index),
        lambda book, index: book.create_contents_page("x", "", "mem-0", [index]),
    ],
)
def test_a_pinned_page_and_all_above_it_stay_until_it_is_unpinned(
    call: Callable[[ContextSystem, str], object],
) -> None:
    book = new_book()
    leaf(book)
    outer, inner, page = shelf_with_leaf(book)
    book.pin(page)
    for index in (outer, inner, page):
        with refused(book, InvalidOperation):
            call(book, index)
    book.unpin(page)
    call(book, page)
    assert book.check() == []


def test_pages_of_a_system_segment_are_pinned_unless_the_developer_says_otherwise() -> None:
    book = new_book()
    prompt = book.create_detail_page("prompt", "", "You are…", "sys-0")
    chapter = book.create_contents_page("chapter", "", "sys-0")
    loose = book.create_detail_page("example", "", "…", "sys-0", pinned=False)
    note = book.create_detail_page("note", "", "…", "mem-0", pinned=True)
    assert [book.get_page(index).pinned for index in (prompt, chapter, loose, note)] == [True, True, False, True]
    with refused(book, InvalidOperation):
        book.hide(prompt)
    book.hide(loose)
    book.unpin(prompt)
    book.hide(prompt)
