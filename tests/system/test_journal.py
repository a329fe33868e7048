"""The journal: history, undo of any entry, undo of an undo, and undoing back to every earlier state."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from quire import (
    ContextSystem,
    DetailPage,
    InvalidOperation,
    InvalidValue,
    MemoryStorage,
    NoSuchPage,
    Permission,
    Segment,
    SegmentType,
    Visibility,
)
from quire.core.records import PAGE_CODE, decode_entry
from quire.storage.base import JOURNAL, PAGE, SEGMENT
from tests.books import folder, leaf, leaves, listed, new_book, new_system, refused


def outline(book: ContextSystem) -> dict[str, Any]:
    """Return the context without its times and counters, which no undo restores."""
    document = json.loads(book.marshal())
    for form in [*document["segments"], *document["pages"].values()]:
        del form["updatedAt"]
        form.pop("nextIndex", None)
    return {"segments": document["segments"], "pages": document["pages"]}


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


def test_history_runs_oldest_first_from_where_it_is_asked_to() -> None:
    book = new_book()
    leaves(book, 3)
    assert [entry.seq for entry in book.history()] == [1, 2, 3, 4, 5, 6]
    assert [entry.seq for entry in book.history(after=4)] == [5, 6]
    assert list(book.history(after=6)) == []
    assert list(book.history(after=1_000)) == []


def test_a_segment_change_tells_what_the_segment_was() -> None:
    book = new_book()
    book.set_segment_permission("mem", Permission.PRIVATE)
    entry = list(book.history())[-1]
    assert (entry.pages, entry.segments) == ((), ("mem",))
    before = entry.changes[0].before
    assert before is not None
    assert (before["name"], before["permission"]) == ("Memory", Permission.READ_WRITE)


def test_a_no_op_and_a_refusal_are_no_entries() -> None:
    book = new_book()
    index = leaf(book)
    seq = book.seq
    book.expand(index)
    with pytest.raises(InvalidOperation):
        book.hide("sys-0")
    assert book.seq == seq == len(list(book.history()))


# Undo


def changes_of(book: ContextSystem) -> list[Callable[[], object]]:
    """Every kind of call that can be undone, on a context with a folder of leaves and a cold page."""
    return [
        lambda: book.add_segment(Segment(id="new", type=SegmentType.TOOL, max_capacity=5)),
        lambda: book.remove_segment("mem"),
        lambda: book.update_segment("mem", name="other", description="words", max_capacity=7),
        lambda: book.create_detail_page("new", "words", "text", "mem-1"),
        lambda: book.create_contents_page("new", "words", "mem-0", ["mem-3", "mem-2"]),
        lambda: book.add_page(DetailPage(name="new", index="mem-70", parent="mem-1", visibility=Visibility.HIDDEN)),
        lambda: book.update_page("mem-2", name="other", description="words", meta={"a": 1}),
        lambda: book.set_detail("mem-2", "other text"),
        lambda: book.hide("mem-1"),
        lambda: book.expand("mem-5"),
        lambda: book.archive("mem-1"),
        lambda: book.archive("mem-1", cold=True),
        lambda: book.restore("mem-5"),
        lambda: book.recall("mem-6"),
        lambda: book.move_page("mem-2", "mem-1"),
        lambda: book.move_page("mem-3", "mem-0", before="mem-1"),
        lambda: book.move_page("mem-1", "usr-0"),
        lambda: book.remove_page("mem-1"),
        lambda: book.unmarshal(new_book().marshal()),
    ]


def shelved() -> ContextSystem:
    """mem-1 is a folder with mem-4 and mem-5 (hot); its siblings are the leaves mem-2, mem-3 and the cold mem-6."""
    book = new_book()
    shelf = folder(book)
    leaf(book, "second", detail="text")
    leaf(book, "third")
    leaf(book, "fourth", shelf)
    book.archive(leaf(book, "fifth", shelf))
    book.archive(leaf(book, "sixth"), cold=True)
    return book


@pytest.mark.parametrize("number", range(19))
def test_undo_brings_back_what_was_and_undoing_that_is_redo(number: int) -> None:
    book = shelved()
    before = outline(book)
    calls = changes_of(book)
    assert len(calls) == 19
    calls[number]()
    after, entry = outline(book), book.seq
    assert after != before
    undone = book.undo(entry)
    assert (undone, book.seq) == (entry + 1, entry + 1)
    assert outline(book) == before
    assert book.check() == []
    last = list(book.history())[-1]
    assert (last.operation, last.undoes) == ("undo", entry)
    book.undo(undone)
    assert outline(book) == after
    book.undo(book.seq)
    assert outline(book) == before
    assert book.check() == []


def test_undo_keeps_everything_that_came_after() -> None:
    book = new_book()
    a, b = leaves(book, 2)
    book.update_page(a, name="first")
    entry = book.seq
    book.update_page(b, name="second")
    c = leaf(book)
    book.undo(entry)
    assert [book.get_page(index).name for index in (a, b, c)] == ["leaf 0", "second", "leaf"]


def test_an_entry_can_be_given_as_a_value_or_by_its_seq() -> None:
    book = new_book()
    index = leaf(book)
    book.update_page(index, name="other")
    book.undo(list(book.history())[-1])
    assert book.get_page(index).name == "leaf"


@pytest.mark.parametrize("entry", [0, -1, 99, None, "4", True, 4.0, b"4", [4], 10**40])
def test_an_entry_that_does_not_exist_is_refused(entry: Any) -> None:
    book = new_book()
    leaf(book)
    with refused(book, InvalidValue, "history()"):
        book.undo(entry)


def test_a_later_change_of_the_same_page_is_named() -> None:
    book = new_book()
    index = leaf(book)
    book.update_page(index, name="other")
    book.hide(index)
    with refused(book, InvalidOperation, repr(index), "entry 6", "hide"):
        book.undo(5)


def test_undone_changes_do_not_stand_in_the_way_of_earlier_ones() -> None:
    book = new_book()
    index = leaf(book, name="first")
    for name in ("second", "third", "fourth"):
        book.update_page(index, name=name)
    made = book.seq
    book.undo(made)
    book.undo(made - 1)
    assert book.get_page(index).name == "second"
    with refused(book, InvalidOperation, f"entry {made - 2}", "update_page"):
        book.undo(made - 3)
    book.undo(book.seq)  # redo
    assert book.get_page(index).name == "third"
    with refused(book, InvalidOperation, f"entry {made - 1}", "update_page"):
        book.undo(made - 2)
    book.undo(made - 1)
    book.undo(made - 2)
    assert book.get_page(index).name == "first"
    book.undo(made - 3)
    assert book.children("mem-0") == []


def test_a_later_change_of_the_same_segment_is_named() -> None:
    book = new_book()
    book.update_segment("mem", name="other")
    book.update_segment("mem", description="changed")
    book.set_segment_permission("mem", Permission.READ_ONLY)
    with refused(book, InvalidOperation, "'mem'", "entry 5", "update_segment"):
        book.undo(4)


def test_an_entry_is_not_undone_twice() -> None:
    book = new_book()
    index = leaf(book)
    book.undo(4)
    with refused(book, InvalidOperation, "entry 5"):
        book.undo(4)
    with pytest.raises(NoSuchPage):
        book.get_page(index)


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


def test_a_gathering_undone_puts_every_page_back_in_its_place() -> None:
    book = new_book()
    a, b, c, d = leaves(book, 4)
    book.create_contents_page("chapter", "", "mem-0", [c, a, d])
    gathered = book.seq
    assert listed(book, "mem-0")[0] == b
    late = leaf(book)
    book.undo(gathered)
    assert listed(book, "mem-0") == [a, b, c, d, late]


def test_undoing_a_document_brings_back_the_order_in_every_folder() -> None:
    book = new_book()
    one, two = folder(book, "one"), folder(book, "two")
    y, a, c, x = (leaf(book, name, parent) for name, parent in zip("yacx", (one, two, two, one), strict=True))
    crossed = book.marshal()
    for index, parent in ((y, two), (a, one), (x, two)):
        book.move_page(index, parent)
    book.move_page(c, one, before=a)
    book.unmarshal(book.marshal())
    before = (listed(book, one), listed(book, two))
    assert before == ([c, a], [y, x])
    book.unmarshal(crossed)
    assert (listed(book, one), listed(book, two)) == ([y, x], [a, c])
    book.undo(book.seq)
    assert (listed(book, one), listed(book, two)) == before


def test_a_cold_page_and_one_put_back_by_undo_do_not_claim_one_place() -> None:
    book = new_book()
    _a, b, c = leaves(book, 3)
    book.remove_page(b)
    removed = book.seq
    cold = leaf(book)
    book.move_page(cold, "mem-0", before=c)
    book.archive(cold, cold=True)
    book.undo(removed)
    copy = new_system()
    copy.unmarshal(book.marshal())
    for system in (book, copy):
        system.recall(cold)
    assert listed(book, "mem-0") == listed(copy, "mem-0")


def test_numbers_given_out_are_not_given_out_again_after_an_undo() -> None:
    book = new_book()
    index = leaf(book)
    book.undo(book.seq)
    assert leaf(book) == "mem-2"
    with refused(book, NoSuchPage, index):
        book.get_page(index)


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


def test_loading_a_document_and_undoing_it_keeps_forwarding_addresses() -> None:
    book = new_book()
    index = leaf(book)
    document = book.marshal()
    new = book.move_page(index, "usr-0")[index]
    book.unmarshal(document)
    book.undo(book.seq)
    assert listed(book, "usr-0") == [new]
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
    with refused(book, InvalidOperation, "subtree"):
        book.undo(out)


def test_undo_is_refused_where_the_folder_is_gone() -> None:
    book = new_book()
    shelf = folder(book)
    page = leaf(book, parent=shelf)
    book.move_page(page, "mem-0")
    moved = book.seq
    book.remove_page(shelf)
    with refused(book, InvalidOperation, repr(page), repr(shelf)):
        book.undo(moved)
    book.undo(book.seq)
    book.undo(moved)
    assert listed(book, shelf) == [page]


def test_a_page_is_not_brought_back_into_a_removed_segment() -> None:
    book = new_book()
    page = leaf(book)
    book.remove_page(page)
    removed = book.seq
    book.remove_segment("mem")
    with refused(book, InvalidOperation, repr(page)):
        book.undo(removed)


def test_undoing_the_creation_of_a_folder_in_use_is_refused() -> None:
    book = new_book()
    shelf = folder(book)
    created = book.seq
    page = leaf(book, parent=shelf)
    with refused(book, InvalidOperation, repr(shelf), repr(page)):
        book.undo(created)


def test_undoing_the_adding_of_a_segment_in_use_is_refused() -> None:
    book = new_book()
    book.add_segment(Segment(id="new"))
    added = book.seq
    page = leaf(book, parent="new-0")
    with refused(book, InvalidOperation, repr(page)):
        book.undo(added)
    book.archive(page, cold=True)
    with refused(book, InvalidOperation):
        book.undo(added)
    book.recall(page)
    assert listed(book, "new-0") == [page]


# Pins and permissions are security settings


def test_no_undo_brings_an_older_permission_back() -> None:
    book = new_book()
    book.set_segment_permission("mem", Permission.PRIVATE)
    with refused(book, InvalidOperation, "permission"):
        book.undo(book.seq)
    book.update_segment("mem", name="other")
    named = book.seq
    book.undo(named)
    assert book.get_segment("mem").permission is Permission.PRIVATE


def test_undoing_a_document_keeps_the_permissions_of_today() -> None:
    book = new_book()
    document = json.loads(book.marshal())
    document["segments"][1]["permission"] = Permission.PRIVATE
    book.unmarshal(json.dumps(document))
    book.undo(book.seq)
    assert book.get_segment("mem").permission is Permission.PRIVATE


def test_undoing_a_document_keeps_the_pins_of_today_and_brings_pages_back_with_theirs() -> None:
    book = new_book()
    free, held, removed = leaves(book, 3)
    book.pin(held)
    book.pin(removed)
    document = json.loads(book.marshal())
    document["pages"][free]["pinned"] = True
    document["pages"][held]["pinned"] = False
    del document["pages"][removed]
    document["pages"]["mem-0"]["children"].remove(removed)
    book.unmarshal(json.dumps(document))
    book.undo(book.seq)
    assert [book.get_page(index).pinned for index in (free, held, removed)] == [True, False, True]


def test_a_document_that_pinned_a_hidden_page_can_be_undone_and_its_pin_goes_with_it() -> None:
    book = new_book()
    page = leaf(book)
    book.hide(page)
    document = json.loads(book.marshal())
    document["pages"][page] |= {"pinned": True, "visibility": Visibility.EXPANDED}
    book.unmarshal(json.dumps(document))
    book.undo(book.seq)
    assert (book.get_page(page).visibility, book.get_page(page).pinned) == (Visibility.HIDDEN, False)
    assert book.check() == []


def test_no_undo_makes_a_private_segment_the_conversation() -> None:
    book = new_system()
    book.add_segment(Segment(id="talk", type=SegmentType.USER))
    document = json.loads(new_book().marshal())
    document["segments"].append({"id": "talk", "type": SegmentType.USER, "permission": Permission.PRIVATE})
    document["pages"]["talk-0"] = {"type": "ContentsPage", "name": "talk"}
    book.unmarshal(json.dumps(document))
    with refused(book, InvalidOperation, "PRIVATE"):
        book.undo(book.seq)


def test_no_undo_brings_an_older_pin_back_or_lifts_one() -> None:
    book = new_book()
    index = leaf(book)
    book.pin(index)
    with refused(book, InvalidOperation, "pins"):
        book.undo(book.seq)
    book.unpin(index)
    with refused(book, InvalidOperation, "pins"):
        book.undo(book.seq)
    assert book.get_page(index).pinned is False


def test_undo_does_not_hide_a_page_above_a_pinned_one() -> None:
    book = new_book()
    shelf = folder(book)
    page = leaf(book, parent=shelf)
    book.hide(shelf)
    book.expand(shelf)
    expanded = book.seq
    book.pin(page)
    with refused(book, InvalidOperation, repr(page)):
        book.undo(expanded)


def test_undo_does_not_remove_or_move_a_pinned_page() -> None:
    book = new_book()
    created = book.create_detail_page("a", "", "", "mem-0", pinned=True)
    with refused(book, InvalidOperation, f"unpin('{created}')"):
        book.undo(book.seq)
    shelf = folder(book)
    page = leaf(book, parent=shelf)
    target = folder(book)
    book.move_page(shelf, target)
    moved = book.seq
    book.pin(page)
    with refused(book, InvalidOperation, f"unpin('{page}')"):
        book.undo(moved)


def test_undo_does_not_archive_a_page_above_a_pinned_one_again() -> None:
    book = new_book()
    shelf = folder(book)
    page = leaf(book, parent=shelf)
    book.archive(shelf, cold=True)
    book.recall(shelf)
    recalled = book.seq
    book.pin(page)
    with refused(book, InvalidOperation, repr(page)):
        book.undo(recalled)


# Undo back to earlier states


def stored(storage: MemoryStorage) -> dict[tuple[str, int], tuple[bytes, int | None, bytes]]:
    """Return all current page and segment records."""
    return {
        (family, record.key): (record.value, record.group, record.order)
        for family in (PAGE, SEGMENT)
        for record in storage.scan("default", family)
    }


def test_stepping_back_from_the_head_reproduces_every_earlier_state() -> None:
    storage = MemoryStorage()
    book = new_book(storage=storage)
    states = {book.seq: stored(storage)}

    steps: list[Callable[[], object]] = [
        lambda: folder(book),
        lambda: leaf(book, "second", detail="text"),
        lambda: leaf(book, "third"),
        lambda: leaf(book, "fourth", "mem-1"),
        lambda: leaf(book, "fifth", "mem-1"),
        lambda: book.archive("mem-5"),
        lambda: leaf(book, "sixth"),
        lambda: book.archive("mem-6", cold=True),
    ]
    for change in changes_of(book):
        steps += [change, lambda: book.undo(book.seq)]
    for step in steps:
        step()
        states[book.seq] = stored(storage)
    assert len(states) == 1 + len(steps)
    rows = stored(storage)
    for seq in range(book.seq, 3, -1):
        assert rows == states[seq], f"the state after entry {seq}"
        record = storage.get("default", JOURNAL, seq)
        assert record is not None
        for touched in decode_entry(seq, record.value).touched:
            family = PAGE if touched.family == PAGE_CODE else SEGMENT
            if touched.before is None:
                del rows[family, touched.key]
            else:
                rows[family, touched.key] = (touched.before, touched.group, touched.order)
    assert rows == states[3]
