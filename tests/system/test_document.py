"""The context as JSON in the form of document 000: writing, reading, older forms, and refusals with their position."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quire import ContextSystem, InvalidValue, Permission, Segment, SegmentType, StorageFailure, Visibility
from tests.books import folder, leaf, leaves, listed, new_book, new_system, refused

Document = dict[str, Any]


def full_book() -> ContextSystem:
    """Return a context with every kind of page."""
    book = new_book()
    book.add_segment(Segment(id="own", permission=Permission.PRIVATE, max_capacity=500, description="words"))
    book.create_detail_page("Prompt", "summary", "You are…", "sys-0")
    shelf = folder(book, "Shelf")
    book.create_detail_page("Go 语言", "one two", "User: a\nAssistant: b\0\u2028", shelf, meta={"a": [1, None, 2.5]})
    book.hide(leaf(book, "Hidden", shelf))
    book.archive(leaf(book, "Hot", shelf))
    book.archive(leaf(book, "Cold", shelf), cold=True)
    leaf(book, "Secret", "own-0")
    book.remove_page(leaf(book))
    return book


def parsed(book: ContextSystem) -> Document:
    document: Document = json.loads(book.marshal())
    return document


def timeless(document: Document) -> Document:
    """Return the document without the times of the context itself."""
    return {key: value for key, value in document.items() if key not in ("createdAt", "updatedAt")}


# Writing


def test_the_document_has_the_fields_of_document_000() -> None:
    document = parsed(full_book())
    assert list(document) == ["version", "segments", "pages", "nextIndex", "createdAt", "updatedAt"]
    assert document["version"] == 1
    assert document["nextIndex"] == 6
    segment = document["segments"][1]
    assert segment.pop("createdAt").startswith("2023-11-14T")
    assert segment.pop("updatedAt").endswith("Z")
    assert segment == {
        "id": "mem",
        "name": "Memory",
        "description": "",
        "type": 3,
        "permission": 1,
        "maxCapacity": 0,
        "rootIndex": "mem-0",
        "nextIndex": 7,
    }
    root, page = document["pages"]["mem-0"], document["pages"]["mem-2"]
    for form in (root, page):
        assert form.pop("createdAt").endswith("Z")
        assert form.pop("updatedAt").endswith("Z")
    assert root == {
        "type": "ContentsPage",
        "name": "Memory",
        "description": "",
        "lifecycle": 0,
        "visibility": 0,
        "parent": "",
        "pinned": False,
        "author": "developer",
        "children": ["mem-1"],
    }
    assert page == {
        "type": "DetailPage",
        "name": "Go 语言",
        "description": "one two",
        "lifecycle": 0,
        "visibility": 0,
        "parent": "mem-1",
        "pinned": False,
        "author": "developer",
        "meta": {"a": [1, None, 2.5]},
        "detail": "User: a\nAssistant: b\0\u2028",
        "messageCount": 0,
    }


def test_enums_are_written_as_the_documents_numbers() -> None:
    book = new_system()
    for number, kind in enumerate(SegmentType):
        book.add_segment(Segment(id=kind.name.lower(), type=kind, permission=Permission.SYSTEM_MANAGED))
        assert parsed(book)["segments"][number]["type"] == number
    for number, permission in enumerate(Permission):
        book.set_segment_permission("custom", permission)
        assert parsed(book)["segments"][3]["permission"] == number
    document = parsed(full_book())
    states = {form["name"]: (form["lifecycle"], form["visibility"]) for form in document["pages"].values()}
    assert [states[name] for name in ("Shelf", "Hidden", "Hot", "Cold")] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert (SegmentType.SYSTEM, SegmentType.USER, SegmentType.TOOL, SegmentType.CUSTOM) == (0, 1, 2, 3)
    assert (Permission.READ_ONLY, Permission.READ_WRITE, Permission.SYSTEM_MANAGED, Permission.PRIVATE) == (0, 1, 2, 3)


# Reading


def test_cold_pages_return_to_the_same_places_after_reading() -> None:
    def scattered() -> ContextSystem:
        book = new_book()
        pages = leaves(book, 6)
        shelf = folder(book)
        for index in (pages[0], pages[2], pages[3], pages[5], leaf(book, "inside", shelf), shelf):
            book.archive(index, cold=True)
        return book

    one, two = scattered(), new_system()
    two.unmarshal(one.marshal())
    for book in (one, two):
        for index in ("mem-4", "mem-1", "mem-6", "mem-3", "mem-7", "mem-8"):
            book.recall(index)
    assert listed(one, "mem-0") == listed(two, "mem-0") == [f"mem-{number}" for number in range(1, 8)]
    assert listed(one, "mem-7") == listed(two, "mem-7") == ["mem-8"]


def test_reading_replaces_the_context_in_one_undoable_commit() -> None:
    book = new_book()
    index = leaf(book, "mine", detail="text")
    before = timeless(parsed(book))
    seq = book.seq
    book.unmarshal(full_book().marshal())
    assert book.seq == seq + 1
    assert book.get_page("mem-1").name == "Shelf"
    book.undo(book.seq)
    after = timeless(parsed(book))
    assert (book.get_page(index).name, book.detail(index)) == ("mine", "text")
    assert [form["name"] for form in after["pages"].values()] == [form["name"] for form in before["pages"].values()]
    assert [segment.id for segment in book.list_segments()] == ["sys", "mem", "usr"]
    assert book.check() == []


def test_undoing_it_hides_what_the_document_showed_pinned() -> None:
    book = new_book()
    book.pin(index := leaf(book))
    document = book.marshal()
    book.unpin(index)
    book.hide(index)
    book.unmarshal(document)
    book.undo(book.seq)
    page = book.get_page(index)
    assert (page.visibility, page.pinned, book.check()) == (Visibility.HIDDEN, False, [])


def test_files_are_written_and_read(tmp_path: Path) -> None:
    book = full_book()
    book.save(tmp_path / "book.json")
    assert (tmp_path / "book.json").read_bytes() == book.marshal()
    copy = new_system()
    copy.load(str(tmp_path / "book.json"))
    assert timeless(parsed(copy)) == timeless(parsed(book))


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    book = new_book()
    with refused(book, StorageFailure):
        book.save(tmp_path / "nowhere" / "book.json")
    with refused(book, StorageFailure, "nothing.json"):
        book.load(tmp_path / "nothing.json")


# Refusals and their positions; what is no document at all: tests/test_hostile.py


def at(*path: str | int) -> Callable[[Document, Any], None]:
    """Return a function that sets one value in a document."""

    def put(document: Any, value: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        if value is ...:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return put


def page(index: str, field: str) -> Callable[[Document, Any], None]:
    return at("pages", index, field)


def segment(number: int, field: str) -> Callable[[Document, Any], None]:
    return at("segments", number, field)


WRONG: list[tuple[Callable[[Document, Any], None], Any, str]] = [
    (segment(1, "id"), "MEM", "'MEM'"),
    (segment(1, "id"), "usr", "segments[1]"),
    (segment(1, "name"), "x" * 201, "segments[1].name"),
    (segment(1, "type"), 9, "segments[1].type"),
    (segment(1, "permission"), -1, "segments[1].permission"),
    (segment(1, "maxCapacity"), 1.5, "segments[1].maxCapacity"),
    (segment(1, "rootIndex"), "usr-0", "segments[1].rootIndex"),
    (segment(1, "nextIndex"), 2**40, "segments[1].nextIndex"),
    (segment(1, "createdAt"), "yesterday", "segments[1].createdAt"),
    (page("mem-0", "parent"), "mem-1", "mem-0"),
    (page("mem-0", "lifecycle"), 1, "mem-0"),
    (page("sys-0", "visibility"), 1, "sys-0"),
    (page("mem-0", "children"), ["mem-1", "mem-1"], "mem-1"),
    (page("mem-0", "children"), ["mem-1", "mem-99"], "mem-99"),
    (page("mem-2", "type"), "Page", "mem-2"),
    (page("mem-2", "name"), "", "mem-2"),
    (page("mem-2", "name"), "\ud800", "mem-2"),
    (page("mem-2", "lifecycle"), 3, "mem-2"),
    (page("mem-2", "parent"), "usr-0", "mem-2"),
    (page("mem-2", "parent"), "mem-2", "mem-2"),
    (page("mem-2", "pinned"), 1, "mem-2"),
    (page("mem-4", "pinned"), True, "mem-4"),
    (page("mem-2", "meta"), {"a": "x" * 5_000}, "mem-2"),
    (page("mem-2", "detail"), 5, "mem-2"),
    (page("mem-2", "updatedAt"), "2025-02-06T10:00:00", "mem-2"),
    (page("mem-5", "home"), {"parent": "usr-0", "after": ""}, "mem-5"),
    (at("pages", "mem-0"), ..., "mem-0"),
    (at("pages", "mem-01"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-01"),
    (at("pages", "../../x"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "../../x"),
    (at("pages", "nope-1"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "nope-1"),
    (at("nextIndex"), "5", "nextIndex"),
]


@pytest.mark.parametrize(("put", "value", "names"), WRONG)
def test_a_document_that_breaks_a_rule_is_refused_with_the_place_named(
    put: Callable[[Document, Any], None], value: Any, names: str
) -> None:
    book = full_book()
    document = parsed(book)
    put(document, value)
    with refused(book, InvalidValue, names):
        book.unmarshal(json.dumps(document))


def test_a_circle_of_folders_is_refused() -> None:
    book = new_book()
    a, b = folder(book, "a"), folder(book, "b")
    document = parsed(book)
    document["pages"]["mem-0"]["children"] = []
    document["pages"][a] |= {"parent": b, "children": [b]}
    document["pages"][b] |= {"parent": a, "children": [a]}
    with refused(book, InvalidValue):
        book.unmarshal(json.dumps(document))


def test_children_claimed_by_two_folders_are_refused() -> None:
    book = new_book()
    a, b = folder(book, "a"), folder(book, "b")
    inside = leaf(book, parent=a)
    document = parsed(book)
    document["pages"][b]["children"] = [inside]
    with refused(book, InvalidValue, b, inside):
        book.unmarshal(json.dumps(document))
