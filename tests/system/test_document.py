"""The context as JSON in the form of document 000: writing, reading, older forms, and refusals with their position."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quire import ContextSystem, InvalidValue, Lifecycle, Permission, Segment, SegmentType, StorageFailure, Visibility
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


def test_a_cold_page_says_where_it_would_return_to() -> None:
    cold = parsed(full_book())["pages"]["mem-5"]
    assert (cold["lifecycle"], cold["parent"], cold["home"]) == (2, "", {"parent": "mem-1", "after": "mem-4"})


# Reading


def test_a_document_read_into_an_empty_context_gives_the_same_document() -> None:
    book = full_book()
    copy = new_system()
    copy.unmarshal(book.marshal())
    assert timeless(parsed(copy)) == timeless(parsed(book))
    assert copy.check() == []
    again = new_system()
    again.unmarshal(book.marshal().decode())
    assert timeless(parsed(again)) == timeless(parsed(book))


def test_a_document_read_back_into_its_own_context_changes_nothing_but_history() -> None:
    book = full_book()
    before, seq = parsed(book), book.seq
    book.unmarshal(book.marshal())
    assert timeless(parsed(book)) == timeless(before)
    assert book.seq == seq + 1
    assert book.check() == []
    assert [page.tokens for page in book.children("mem-1")] == [4, 0, 0]


def test_cold_pages_return_to_the_same_places_after_reading() -> None:
    def scattered() -> ContextSystem:
        book = new_book()
        pages = leaves(book, 6)
        for index in (pages[0], pages[2], pages[3], pages[5]):
            book.archive(index, cold=True)
        return book

    one, two = scattered(), new_system()
    two.unmarshal(one.marshal())
    for book in (one, two):
        for index in ("mem-4", "mem-1", "mem-6", "mem-3"):
            book.recall(index)
    assert listed(one, "mem-0") == listed(two, "mem-0") == [f"mem-{number}" for number in range(1, 7)]


def test_a_cold_page_whose_folder_is_gone_still_returns_to_the_end_of_the_root() -> None:
    book = new_book()
    shelf = folder(book)
    cold = leaf(book, parent=shelf)
    book.archive(cold, cold=True)
    book.remove_page(shelf)
    leaves(book, 2)
    copy = new_system()
    copy.unmarshal(book.marshal())
    assert copy.check() == []
    for system in (book, copy):
        system.recall(cold)
        assert listed(system, "mem-0") == ["mem-3", "mem-4", cold]


def test_a_cold_page_whose_folder_is_cold_too_keeps_its_place() -> None:
    book = new_book()
    outer = folder(book)
    inner = folder(book, parent=outer)
    page = leaf(book, parent=inner)
    book.archive(page, cold=True)
    book.archive(outer, cold=True)
    copy = new_system()
    copy.unmarshal(book.marshal())
    for system in (book, copy):
        system.recall(outer)
        system.recall(page)
        assert (listed(system, "mem-0"), listed(system, inner)) == ([outer], [page])


def test_a_whole_cold_subtree_survives() -> None:
    book = new_book()
    shelf = folder(book)
    inside = leaf(book, parent=shelf, detail="text")
    book.archive(shelf, cold=True)
    copy = new_system()
    copy.unmarshal(book.marshal())
    assert copy.get_page(inside).effective is Lifecycle.COLD_ARCHIVED
    copy.recall(inside)
    assert (listed(copy, "mem-0"), listed(copy, shelf), copy.detail(inside)) == ([shelf], [inside], "text")


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


def test_reading_into_an_empty_context_can_be_undone_though_the_document_has_pins() -> None:
    book = new_system()
    book.unmarshal(full_book().marshal())
    book.undo(1)
    assert list(book.list_pages()) == []
    assert book.list_segments() == []
    book.undo(2)
    assert book.get_page("sys-1").pinned
    assert timeless(parsed(book))["pages"].keys() == timeless(parsed(full_book()))["pages"].keys()
    assert book.check() == []


def test_numbers_go_on_above_those_of_the_document_and_of_the_context() -> None:
    book = new_book()
    leaves(book, 9)
    book.unmarshal(new_book().marshal())
    assert leaf(book) == "mem-10"
    book.unmarshal(full_book().marshal())
    copy = new_system()
    copy.unmarshal(full_book().marshal())
    assert leaf(copy) == "mem-7"


def test_files_are_written_and_read(tmp_path: Path) -> None:
    book = full_book()
    book.save(tmp_path / "book.json")
    assert (tmp_path / "book.json").read_bytes() == book.marshal()
    copy = new_system()
    copy.load(str(tmp_path / "book.json"))
    assert timeless(parsed(copy)) == timeless(parsed(book))


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    book = new_book()
    with refused(book, StorageFailure, "nowhere"):
        book.save(tmp_path / "nowhere" / "book.json")
    with refused(book, StorageFailure, "nothing.json"):
        book.load(tmp_path / "nothing.json")


# Older forms


def test_the_example_of_document_000_can_be_read() -> None:
    book = new_system()
    book.unmarshal(
        """{
        "segments": [
          {"id": "sys", "name": "System", "rootIndex": "sys-0", "permission": 0, "maxCapacity": 0},
          {"id": "usr", "name": "User", "rootIndex": "usr-0", "permission": 1, "maxCapacity": 4000}
        ],
        "pages": {
          "sys-0": {"type": "ContentsPage", "name": "System", "children": ["sys-1"]},
          "sys-1": {"type": "DetailPage", "name": "System Prompt", "parent": "sys-0", "detail": "You are…"},
          "usr-0": {"type": "ContentsPage", "name": "User", "parent": "", "children": ["usr-1"]},
          "usr-1": {"type": "DetailPage", "name": "Chat 1", "parent": "usr-0", "messageCount": 2,
                    "createdAt": "2025-02-06T10:00:00Z", "updatedAt": "2025-02-06T11:00:00+00:00"}
        },
        "nextIndex": 5,
        "createdAt": "2025-02-06T10:00:00Z",
        "updatedAt": "2025-02-06T10:00:00Z"
        }"""
    )
    assert [(s.id, s.type, s.permission, s.max_capacity) for s in book.list_segments()] == [
        ("sys", SegmentType.SYSTEM, Permission.READ_ONLY, 0),
        ("usr", SegmentType.USER, Permission.READ_WRITE, 4_000),
    ]
    assert book.detail("sys-1") == "You are…"
    page = book.get_page("usr-1")
    assert (page.created_at.isoformat(), page.updated_at.isoformat()) == (
        "2025-02-06T10:00:00+00:00",
        "2025-02-06T11:00:00+00:00",
    )
    assert [book.create_detail_page("a", "", "", f"{name}-0") for name in ("sys", "usr")] == ["sys-6", "usr-6"]
    assert book.check() == []


def test_without_counters_and_children_numbers_start_above_all_seen_and_order_is_that_of_the_document() -> None:
    book = new_system()
    book.unmarshal(
        json.dumps(
            {
                "segments": [{"id": "a"}],
                "pages": {
                    "a-7": {"type": "DetailPage", "name": "first", "parent": "a-0"},
                    "a-0": {"type": "ContentsPage", "name": "root"},
                    "a-3": {"type": "DetailPage", "name": "second", "parent": "a-0"},
                },
            }
        )
    )
    assert listed(book, "a-0") == ["a-7", "a-3"]
    assert (book.get_segment("a").name, book.get_segment("a").type) == ("a", SegmentType.CUSTOM)
    assert leaf(book, parent="a-0") == "a-8"


def test_an_empty_document_empties_the_context() -> None:
    book = full_book()
    book.unmarshal('{"segments": [], "pages": {}}')
    assert list(book.list_pages()) == []
    assert book.check() == []


# Refusals and their positions

ROOT = '{"type": "ContentsPage", "name": "root"}'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("nonsense", "JSON"),
        ("[]", "[]"),
        ("null", "None"),
        ("5", "5"),
        ('{"segments": [], "segments": [], "pages": {}}', "'segments' twice"),
        ('{"segments": [], "pages": {"a-0": {"name": "x", "name": "y"}}}', "'name' twice"),
        ('{"segments": [], "pages": {}, "nextIndex": NaN}', "NaN"),
        ('{"segments": [], "pages": {}, "nextIndex": -Infinity}', "-Infinity"),
        ('{"segments": [], "pages": {}, "nextIndex": 1e400}', "nextIndex"),
        ("[" * 100_000, "deeply"),
        ('{"a":' * 100_000, "deeply"),
        ('{"segments": [], "pages": {}, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "deeply"),
        ('{"pages": {}}', "segments"),
        ('{"segments": []}', "pages"),
        ('{"segments": {}, "pages": {}}', "segments"),
        ('{"segments": [], "pages": []}', "pages"),
        ('{"segments": [5], "pages": {}}', "segments[0]"),
        ('{"segments": [], "pages": {"a-0": []}}', "a-0"),
        ('{"segments": [], "pages": {"a-0": {}}}', "a-0"),
        (f'{{"segments": [{{"id": "a"}}], "pages": {{"a-0": {ROOT}}}, "nextIndex": {2**60}}}', "nextIndex"),
        (f'{{"segments": [{{"id": "a"}}, {{"id": "a"}}], "pages": {{"a-0": {ROOT}}}}}', "segments[1]"),
        ('{"version": 2, "segments": [], "pages": {}}', "newer quire"),
        ('{"version": "1", "segments": [], "pages": {}}', "version"),
        ('{"version": true, "segments": [], "pages": {}}', "version"),
        ('{"segments": [], "pages": {}, "nextIndex": 1' + "0" * 5_000 + "}", "JSON"),
    ],
)
def test_what_is_no_document_is_refused(text: str, names: str) -> None:
    book = full_book()
    with refused(book, InvalidValue, names):
        book.unmarshal(text)
    with refused(book, InvalidValue, names):
        book.unmarshal(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    book = full_book()
    for data in (b"\xff\xfe{}", b"\x80", b"{\xc3}"):
        with refused(book, InvalidValue, "JSON"):
            book.unmarshal(data)


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
    (segment(1, "id"), 5, "segments[1].id"),
    (segment(1, "id"), ..., "segments[1].id"),
    (segment(1, "id"), "MEM", "'MEM'"),
    (segment(1, "id"), "../x", "'../x'"),
    (segment(1, "id"), "usr", "segments[1]"),
    (segment(1, "id"), "", "segments[1]"),
    (segment(1, "id"), "other", "segments[1]"),
    (segment(1, "name"), 5, "segments[1].name"),
    (segment(1, "name"), "x" * 201, "segments[1].name"),
    (segment(1, "description"), None, "segments[1].description"),
    (segment(1, "type"), 9, "segments[1].type"),
    (segment(1, "type"), "CUSTOM", "segments[1].type"),
    (segment(1, "type"), True, "segments[1].type"),
    (segment(1, "permission"), -1, "segments[1].permission"),
    (segment(1, "permission"), None, "segments[1].permission"),
    (segment(1, "maxCapacity"), -1, "segments[1].maxCapacity"),
    (segment(1, "maxCapacity"), 1.5, "segments[1].maxCapacity"),
    (segment(1, "maxCapacity"), "many", "segments[1].maxCapacity"),
    (segment(1, "rootIndex"), "usr-0", "segments[1].rootIndex"),
    (segment(1, "rootIndex"), 0, "segments[1].rootIndex"),
    (segment(1, "nextIndex"), -1, "segments[1].nextIndex"),
    (segment(1, "nextIndex"), 2**40, "segments[1].nextIndex"),
    (segment(1, "nextIndex"), "7", "segments[1].nextIndex"),
    (segment(1, "createdAt"), "yesterday", "segments[1].createdAt"),
    (segment(2, "permission"), 3, "PRIVATE"),
    (page("mem-0", "parent"), "mem-1", "mem-0"),
    (page("mem-0", "type"), "DetailPage", "mem-0"),
    (page("mem-0", "lifecycle"), 1, "mem-0"),
    (page("mem-0", "lifecycle"), 2, "mem-0"),
    (page("sys-0", "visibility"), 1, "sys-0"),
    (page("usr-0", "visibility"), 1, "usr-0"),
    (page("mem-0", "children"), [], "mem-1"),
    (page("mem-0", "children"), ["mem-1", "mem-1"], "mem-1"),
    (page("mem-0", "children"), ["mem-1", "mem-2"], "mem-2"),
    (page("mem-0", "children"), ["mem-1", "mem-5"], "mem-5"),
    (page("mem-0", "children"), ["mem-1", "mem-99"], "mem-99"),
    (page("mem-0", "children"), ["mem-1", "mem-0"], "mem-0"),
    (page("mem-0", "children"), ["mem-1", 5], "mem-0"),
    (page("mem-0", "children"), ["mem-1", ["mem-2"]], "mem-0"),
    (page("mem-0", "children"), "mem-1", "children"),
    (page("mem-2", "type"), "Page", "mem-2"),
    (page("mem-2", "type"), 0, "mem-2"),
    (page("mem-2", "type"), ..., "mem-2"),
    (page("mem-2", "name"), "", "mem-2"),
    (page("mem-2", "name"), ..., "mem-2"),
    (page("mem-2", "name"), 5, "mem-2"),
    (page("mem-2", "name"), "a\0", "mem-2"),
    (page("mem-2", "name"), "\ud800", "mem-2"),
    (page("mem-2", "description"), "x" * 2_001, "mem-2"),
    (page("mem-2", "description"), [], "mem-2"),
    (page("mem-2", "lifecycle"), 3, "mem-2"),
    (page("mem-2", "lifecycle"), "ACTIVE", "mem-2"),
    (page("mem-2", "lifecycle"), True, "mem-2"),
    (page("mem-2", "lifecycle"), 2.0, "mem-2"),
    (page("mem-2", "visibility"), 2, "mem-2"),
    (page("mem-2", "visibility"), None, "mem-2"),
    (page("mem-2", "parent"), "mem-0", "mem-2"),
    (page("mem-2", "parent"), "usr-0", "mem-2"),
    (page("mem-2", "parent"), "mem-99", "mem-2"),
    (page("mem-2", "parent"), "mem-2", "mem-2"),
    (page("mem-2", "parent"), "", "mem-2"),
    (page("mem-2", "parent"), None, "mem-2"),
    (page("mem-2", "parent"), 1, "mem-2"),
    (page("mem-2", "pinned"), 1, "mem-2"),
    (page("mem-2", "pinned"), "yes", "mem-2"),
    (page("mem-3", "pinned"), True, "mem-3"),
    (page("mem-4", "pinned"), True, "mem-4"),
    (page("mem-5", "pinned"), True, "mem-5"),
    (page("mem-2", "author"), 5, "mem-2"),
    (page("mem-2", "meta"), [1], "mem-2"),
    (page("mem-2", "meta"), "text", "mem-2"),
    (page("mem-2", "meta"), {"a": "x" * 5_000}, "mem-2"),
    (page("mem-2", "detail"), 5, "mem-2"),
    (page("mem-2", "detail"), None, "mem-2"),
    (page("mem-2", "detail"), "a\udfffb", "mem-2"),
    (page("mem-2", "messageCount"), -1, "mem-2"),
    (page("mem-2", "messageCount"), "2", "mem-2"),
    (page("mem-2", "createdAt"), "yesterday", "mem-2"),
    (page("mem-2", "createdAt"), 5, "mem-2"),
    (page("mem-2", "updatedAt"), "2025-02-06T10:00:00", "mem-2"),
    (page("mem-5", "home"), "mem-1", "mem-5"),
    (page("mem-5", "home"), {"parent": "usr-0", "after": ""}, "mem-5"),
    (at("pages", "mem-0"), ..., "mem-0"),
    (at("pages", "mem-01"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-01"),
    (at("pages", "MEM-1"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "MEM-1"),
    (at("pages", "mem-１"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-１"),
    (at("pages", "../../x"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "../../x"),
    (at("pages", "nope-1"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "nope-1"),
    (at("pages", "mem-268435456"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-268435456"),
    (at("pages", "mem-20"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-20"),
    (at("pages", "mem-1\ud800"), {"type": "DetailPage", "name": "x", "parent": "mem-0"}, "mem-1"),
    (at("nextIndex"), "5", "nextIndex"),
    (at("createdAt"), "yesterday", "read: createdAt is 'yesterday'"),
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


def test_no_page_and_no_segment_is_updated_before_it_is_created() -> None:
    book = full_book()
    document = parsed(book)
    for form in (document["segments"][1], document["pages"]["mem-2"]):
        form |= {"createdAt": "2025-02-06T10:00:00Z", "updatedAt": "2025-02-06T09:00:00Z"}
    book.unmarshal(json.dumps(document))
    for found in (book.list_segments()[1], book.get_page("mem-2")):
        assert found.created_at == found.updated_at == datetime(2025, 2, 6, 10, tzinfo=UTC)
    document["pages"]["mem-2"] |= dict.fromkeys(("createdAt", "updatedAt"), "2099-01-01T00:00:00Z")
    book.unmarshal(json.dumps(document))
    page = book.get_page(book.move_page("mem-2", "usr-0")["mem-2"])
    assert page.updated_at == page.created_at


def test_a_circle_of_folders_is_refused() -> None:
    book = new_book()
    a, b = folder(book, "a"), folder(book, "b")
    document = parsed(book)
    document["pages"]["mem-0"]["children"] = []
    document["pages"][a] |= {"parent": b, "children": [b]}
    document["pages"][b] |= {"parent": a, "children": [a]}
    with refused(book, InvalidValue, "subtree"):
        book.unmarshal(json.dumps(document))


def test_a_page_pinned_below_a_hidden_folder_is_refused() -> None:
    book = full_book()
    document = parsed(book)
    document["pages"]["mem-1"]["visibility"] = Visibility.HIDDEN
    document["pages"]["mem-2"]["pinned"] = True
    with refused(book, InvalidValue, "mem-"):
        book.unmarshal(json.dumps(document))


def test_children_claimed_by_two_folders_are_refused() -> None:
    book = new_book()
    a, b = folder(book, "a"), folder(book, "b")
    inside = leaf(book, parent=a)
    document = parsed(book)
    document["pages"][b]["children"] = [inside]
    with refused(book, InvalidValue, b, inside):
        book.unmarshal(json.dumps(document))


def test_a_page_below_a_leaf_is_refused() -> None:
    book = full_book()
    document = parsed(book)
    document["pages"]["mem-1"]["children"] = ["mem-2", "mem-4"]
    document["pages"]["mem-2"]["children"] = ["mem-3"]
    document["pages"]["mem-3"]["parent"] = "mem-2"
    with refused(book, InvalidValue, "mem-3"):
        book.unmarshal(json.dumps(document))


def test_a_long_value_is_clipped_in_the_error() -> None:
    book = full_book()
    document = parsed(book)
    document["pages"]["x" * 1_000_000] = {"type": "DetailPage", "name": "x", "parent": "mem-0"}
    with refused(book, InvalidValue, "xxx"):
        book.unmarshal(json.dumps(document))
    document = parsed(book)
    document["pages"]["mem-2"]["type"] = ["y" * 1_000_000]
    with refused(book, InvalidValue, "yyy"):
        book.unmarshal(json.dumps(document))
