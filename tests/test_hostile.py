"""Hostile input everywhere: a short, typed error that quotes the value, and no change in memory or on disk."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import quire
from quire import (
    ContentsPage,
    ContextSystem,
    DetailPage,
    FileStorage,
    InvalidValue,
    Library,
    MemoryStorage,
    Permission,
    QuireError,
    Segment,
    SegmentType,
    SQLiteStorage,
    Storage,
)
from tests.books import LONGEST_ERROR, everything, folder, leaf, new_book, new_system

HUGE = "x" * 500_000
INDICES = (
    "../../x",
    "/etc/passwd",
    "mem-01",
    "MEM-1",
    "mem-１",
    "ｍem-1",
    "mem-1\0",
    "mem-1\n",
    "mem-1 ",
    "mem--1",
    "mem-1_0",
    "mem-",
    "memo",
    "1",
    "1e3",
    "",
    "\ud800",
    "mem-99999999999999999999",
    "mem-" + "9" * 5_000,
    "mem-1; DROP TABLE page",
    HUGE,
)
WRONG: dict[str, Any] = {
    "none": None,
    "int": 10**9,
    "negative": -1,
    "float": 1.5,
    "nan": float("nan"),
    "bool": True,
    "bytes": b"mem-1",
    "list": ["mem-9"],
    "dict": {"a": 1},
    "object": object(),
    "surrogate": "\ud800",
    "nul": "a\0b",
    "huge": HUGE,
}
TEXTS = {"surrogate", "nul", "huge"}
NUMBERS = {"int"}


def small_book() -> ContextSystem:
    """mem-1 is a folder with mem-2; mem-3 is its sibling; mem-4 is hot, mem-5 cold."""
    book = new_book()
    shelf = folder(book)
    leaf(book, parent=shelf, detail="text")
    leaf(book)
    book.archive(leaf(book))
    book.archive(leaf(book), cold=True)
    return book


def attempt(book: ContextSystem, what: str, call: Callable[[], object]) -> Iterator[str]:
    """Make a call that must be refused and change nothing. Yield errors of the refusal."""
    before = everything(book)
    yield from refusal(what, call)
    if everything(book) != before:
        yield f"{what}: something changed"


def refusal(what: str, call: Callable[[], object]) -> Iterator[str]:
    """Make a call that must be refused. Yield errors of the refusal."""
    try:
        found = call()
        if isinstance(found, Iterator):
            list(found)
    except QuireError as error:
        text = str(error)
        if error.code == "error":
            yield f"{what}: {type(error).__name__} has no code"
        if not 0 < len(text) < LONGEST_ERROR:
            yield f"{what}: an error of {len(text):,} characters"
    except Exception as error:
        yield f"{what}: {type(error).__name__}: {str(error)[:80]}"
    else:
        yield f"{what}: accepted"


# Every parameter of every method


class Call:
    """A method with correct arguments, and for each argument the hostile values that are correct here."""

    def __init__(self, *legal: tuple[str, set[str]], **right: Any) -> None:
        self.right = right
        self.legal = dict(legal)


OPTIONAL = {"none"}
SWITCH = {"none", "bool"}
CODE = set(WRONG)
"""A callable is the developer's code, not input: it is checked when it is called."""

CALLS: dict[str, Call] = {
    "acting_as": Call(actor="someone"),
    "add_segment": Call(segment=Segment(id="new")),
    "remove_segment": Call(segment_id="mem"),
    "get_segment": Call(segment_id="mem"),
    "segment_of": Call(index="mem-1"),
    "update_segment": Call(
        ("name", OPTIONAL),
        ("description", OPTIONAL),
        ("max_capacity", OPTIONAL | NUMBERS),
        ("type", OPTIONAL),
        segment_id="mem",
        name="new",
        description="words",
        max_capacity=5,
        type=SegmentType.CUSTOM,
    ),
    "set_segment_permission": Call(segment_id="mem", permission=Permission.PRIVATE),
    "create_detail_page": Call(
        ("detail", {"nul", "huge"}),
        ("pinned", SWITCH),
        ("meta", {"none", "dict"}),
        name="new",
        description="words",
        detail="text",
        parent="mem-1",
        pinned=True,
        meta={"a": 1},
    ),
    "create_contents_page": Call(
        ("pinned", SWITCH),
        ("meta", {"none", "dict"}),
        name="new",
        description="words",
        parent="mem-0",
        children=["mem-3"],
        pinned=False,
        meta={"a": 1},
    ),
    "add_page": Call(
        ("detail", {"none", "nul", "huge"}),
        page=DetailPage(name="new", index="mem-70", parent="mem-0"),
        detail="text",
    ),
    "update_page": Call(
        ("name", OPTIONAL),
        ("description", OPTIONAL),
        ("meta", {"none", "dict"}),
        ("detail", {"none", "nul", "huge"}),
        index="mem-3",
        name="new",
        description="words",
        meta={"a": 1},
        detail="text",
    ),
    "set_detail": Call(("detail", {"nul", "huge"}), index="mem-3", detail="new"),
    "move_page": Call(("before", OPTIONAL), source="mem-3", target="mem-1", before="mem-2"),
    "remove_page": Call(index="mem-3"),
    "generate_index": Call(segment_id="mem"),
    "expand": Call(index="mem-4"),
    "hide": Call(index="mem-3"),
    "archive": Call(("cold", {"bool"}), index="mem-3", cold=True),
    "restore": Call(index="mem-4"),
    "recall": Call(index="mem-5"),
    "pin": Call(index="mem-3"),
    "unpin": Call(index="mem-3"),
    "get_page": Call(index="mem-3"),
    "load_page": Call(index="mem-3"),
    "detail": Call(("quoted", {"bool"}), index="mem-3", quoted=True),
    "children": Call(
        ("after", OPTIONAL),
        ("limit", OPTIONAL | NUMBERS),
        ("cold", {"bool"}),
        index="mem-0",
        after="mem-1",
        limit=1,
        cold=False,
    ),
    "has_child": Call(index="mem-1", child="mem-2"),
    "child_count": Call(index="mem-1"),
    "parent": Call(index="mem-3"),
    "ancestors": Call(index="mem-3"),
    "list_pages": Call(("segment_id", OPTIONAL), segment_id="mem"),
    "walk": Call(index="mem-0"),
    "find": Call(
        ("query", TEXTS),
        ("limit", NUMBERS),
        ("segment", OPTIONAL),
        ("kind", OPTIONAL),
        ("lifecycle", OPTIONAL | NUMBERS),
        ("role", OPTIONAL),
        ("since", OPTIONAL),
        ("until", OPTIONAL),
        ("actor", OPTIONAL | TEXTS),
        query="leaf",
        limit=5,
        segment=None,
        kind=None,
        lifecycle=None,
        role=None,
        since=None,
        until=None,
        actor=None,
    ),
    "history": Call(
        ("after", NUMBERS),
        ("actor", OPTIONAL | TEXTS),
        ("operation", OPTIONAL | TEXTS),
        ("page", OPTIONAL),
        ("since", OPTIONAL),
        ("until", OPTIONAL),
        ("before", OPTIONAL | NUMBERS),
        ("reverse", {"bool"}),
        after=2,
        actor=None,
        operation=None,
        page=None,
        since=None,
        until=None,
        before=None,
        reverse=False,
    ),
    "names": Call(("indices", {"list", "dict"}), indices=["mem-3"]),
    "as_of": Call(to=6),
    "undo": Call(entry=6),
    "checkpoint": Call(name="here"),
    "rollback": Call(to=6),
    "fork": Call(("at", OPTIONAL), ("check", {"bool"}), new_name="branch", at=6, check=False),
    "evict_lru": Call(("max_pages", NUMBERS), max_pages=3),
    "set_storage": Call(("migrate", {"bool"}), ("progress", CODE), target=..., migrate=True, progress=None),
    "migrate": Call(("progress", CODE), target=..., progress=None),
    "unmarshal": Call(data=b'{"segments": [], "pages": {}}'),
    "save": Call(path="..."),
    "load": Call(path="..."),
}


def right(name: str, folder: Path) -> dict[str, Any]:
    """Return the correct arguments of a method."""
    arguments = dict(CALLS[name].right)
    if "target" in arguments and arguments["target"] is ...:
        arguments["target"] = MemoryStorage()
    if "path" in arguments:
        arguments["path"] = folder / "book.json"
        arguments["path"].write_bytes(small_book().marshal())
    return arguments


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_refused_for_every_parameter(name: str, tmp_path: Path) -> None:
    book = small_book()
    complaints: list[str] = []
    for parameter in CALLS[name].right:
        for label, value in WRONG.items():
            if label not in CALLS[name].legal.get(parameter, set()):
                arguments = right(name, tmp_path) | {parameter: value}
                call = lambda arguments=arguments: getattr(book, name)(**arguments)  # noqa: E731
                complaints += attempt(book, f"{name}({parameter}: {label})", call)
    assert complaints == []


@pytest.mark.parametrize("name", CALLS)
def test_the_right_arguments_are_accepted(name: str, tmp_path: Path) -> None:
    book = small_book()
    getattr(book, name)(**right(name, tmp_path))
    assert book.check() == []


@pytest.mark.parametrize("index", INDICES, ids=lambda index: repr(index[:24]))
def test_a_hostile_index_names_no_page_and_the_error_quotes_it_clipped(index: str) -> None:
    book = small_book()
    with pytest.raises(QuireError) as caught:
        book.get_page(index)
    assert repr(index[:20])[1:-1] in str(caught.value)
    complaints: list[str] = []
    for name, call in CALLS.items():
        for parameter in ("index", "source", "target", "before", "parent", "child", "after"):
            if isinstance(call.right.get(parameter), str):
                arguments = call.right | {parameter: index}
                use = lambda name=name, arguments=arguments: getattr(book, name)(**arguments)  # noqa: E731
                complaints += attempt(book, f"{name}({parameter})", use)
    complaints += attempt(book, "gather", lambda: book.create_contents_page("x", "", "mem-0", [index]))
    complaints += attempt(book, "below", lambda: book.add_page(DetailPage(name="x", index="mem-70", parent=index)))
    if index:
        complaints += attempt(book, "add", lambda: book.add_page(DetailPage(name="x", index=index, parent="mem-0")))
    assert complaints == []


@pytest.mark.parametrize("kind", [DetailPage, ContentsPage])
@pytest.mark.parametrize(
    ("field", "legal"),
    [
        ("name", set()),
        ("index", set()),
        ("description", set()),
        ("parent", set()),
        ("lifecycle", set()),
        ("visibility", set()),
        ("pinned", SWITCH),
        ("meta", {"none", "dict"}),
    ],
)
def test_a_page_with_a_wrong_field_is_not_added(kind: type[Any], field: str, legal: set[str]) -> None:
    book = small_book()
    complaints: list[str] = []
    for label, value in WRONG.items():
        if label not in legal:
            page = replace(kind(name="new", index="mem-70", parent="mem-0"), **{field: value})
            complaints += attempt(book, f"add_page({field}: {label})", lambda page=page: book.add_page(page))  # type: ignore[misc]
    assert complaints == []


@pytest.mark.parametrize(
    ("field", "legal"),
    [
        ("id", set()),
        ("name", OPTIONAL),
        ("description", set()),
        ("type", set()),
        ("permission", set()),
        ("max_capacity", NUMBERS),
        ("root_index", set()),
    ],
)
def test_a_segment_with_a_wrong_field_is_not_added(field: str, legal: set[str]) -> None:
    book = small_book()
    complaints: list[str] = []
    for label, value in WRONG.items():
        if label not in legal:
            segment = replace(Segment(id="new", name="new"), **{field: value})
            complaints += attempt(book, f"{field}: {label}", lambda segment=segment: book.add_segment(segment))  # type: ignore[misc]
    assert complaints == []


def test_many_long_segment_ids_do_not_make_a_long_error() -> None:
    book = new_system()
    for number in range(20):
        book.add_segment(Segment(id=f"{number:02}" + "x" * 30))
    assert list(attempt(book, "get_segment", lambda: book.get_segment(HUGE))) == []
    assert list(attempt(book, "add_page", lambda: leaf(book, parent="nope-1"))) == []


# Documents


DOCUMENTS = {
    "a key twice": '{"segments": [], "pages": {}, "pages": {}}',
    "a key twice in a page": '{"segments": [], "pages": {"mem-0": {"name": "a", "name": "b"}}}',
    "not a number": '{"segments": [], "pages": {}, "nextIndex": NaN}',
    "infinity": '{"segments": [], "pages": {}, "nextIndex": Infinity}',
    "deep lists": "[" * 100_000,
    "deep objects": '{"pages":' * 100_000,
    "deep and closed": '{"segments": [], "pages": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
    "a huge number": '{"segments": [], "pages": {}, "nextIndex": ' + "9" * 100_000 + "}",
    "a huge text": f'"{HUGE}"',
    "nothing": "",
    "half": "{",
    "a list": "[]",
    "null": "null",
    "no segments": '{"pages": {}}',
    "pages of another type": '{"segments": [], "pages": []}',
    "a segment of another type": '{"segments": [5], "pages": {}}',
    "a page without a segment": '{"segments": [], "pages": {"a-0": {}}}',
    "an id twice": '{"segments": [{"id": "a"}, {"id": "a"}], "pages": {"a-0": {"type": "ContentsPage", "name": "a"}}}',
    "a newer version": '{"version": 99, "segments": [], "pages": {}}',
    "a version of another type": '{"version": true, "segments": [], "pages": {}}',
    "a surrogate": '{"segments": [{"id": "\\ud800"}], "pages": {}}',
    "a raw surrogate": '{"segments": [{"id": "\ud800"}], "pages": {}}',
    "nul": '{"segments": [{"id": "a\\u0000"}], "pages": {}}',
    "a path": '{"segments": [{"id": "../../x"}], "pages": {}}',
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_hostile_document_is_refused(name: str, tmp_path: Path) -> None:
    book, path = small_book(), tmp_path / "hostile.json"
    assert list(attempt(book, name, lambda: book.unmarshal(DOCUMENTS[name]))) == []
    for start in (b"", b"\xff"):
        path.write_bytes(start + DOCUMENTS[name].encode(errors="surrogatepass"))
        assert list(attempt(book, name, lambda: book.load(path))) == []


# Contexts, libraries and stores


STORES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _: MemoryStorage(),
    "file": lambda path: FileStorage(path / "store"),
    "sqlite": lambda path: SQLiteStorage(path / "book.db"),
}
CONTEXT_NAMES = (
    None,
    5,
    True,
    b"book",
    ["book"],
    "",
    " book",
    "book ",
    "a\0b",
    "a\nb",
    "\ud800",
    "x" * 201,
    HUGE,
)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", CONTEXT_NAMES, ids=lambda name: repr(name)[:16])
def test_a_hostile_context_name_is_refused_on_every_backend(kind: str, name: Any, tmp_path: Path) -> None:
    storage = STORES[kind](tmp_path)
    book = new_book(storage=storage, context="mine")
    library = Library(storage)
    complaints: list[str] = []
    complaints += attempt(book, "system", lambda: ContextSystem(storage, name))
    complaints += attempt(book, "open", lambda: quire.open(storage, name))
    complaints += attempt(book, "library", lambda: library.open(name))
    complaints += attempt(book, "delete", lambda: library.delete(name))
    complaints += [what for what in attempt(book, "exists", lambda: not library.exists(name)) if "accepted" not in what]
    assert complaints == []
    assert list(library.list()) == ["mine"]
    storage.close()


@pytest.mark.parametrize("kind", STORES)
def test_a_history_asked_for_from_anywhere_is_this_contexts_own(kind: str, tmp_path: Path) -> None:
    storage = STORES[kind](tmp_path)
    for name in ("a", "b", "c"):
        new_book(storage=storage, context=name)
    book = new_system(storage=storage, context="b")
    for after in (-1, -5, -(10**9), -(2**70), 2**38, 2**63, 10**30):
        with suppress(InvalidValue):
            assert [entry.seq for entry in book.history(after)] == ([1, 2, 3] if after < 0 else [])
    storage.close()


PLACES = (
    *(None, 5, True, b"book.db", ["book.db"], object(), "", "  ", "a\0b", "\ud800", "ftp:y", "s3:", HUGE),
    *("memory:x", "memory://", "file:", "file://", "sqlite:", "http://x/y", "nosuch:x", "file:a\0b"),
)


@pytest.mark.parametrize("where", PLACES, ids=lambda where: repr(where)[:16])
def test_a_store_that_cannot_be_opened_is_a_named_error(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    book = small_book()
    complaints: list[str] = []
    for what, call in {
        "open": lambda: quire.open(where),
        "open_storage": lambda: quire.open_storage(where),
        "library": lambda: Library(where),
    }.items():
        complaints += attempt(book, what, call)
    assert complaints == []
    with pytest.raises(InvalidValue):
        quire.open(where)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parameter", "legal"),
    [
        ("storage", OPTIONAL),
        ("context", set()),
        ("actor", set()),
        ("max_pages", NUMBERS),
        ("max_bytes", NUMBERS),
    ],
)
def test_a_system_is_not_made_with_a_wrong_argument(parameter: str, legal: set[str]) -> None:
    book = small_book()
    complaints: list[str] = []
    for label, value in WRONG.items():
        if label not in legal:
            complaints += attempt(book, label, lambda value=value: ContextSystem(**{parameter: value}))  # type: ignore[misc]
    assert complaints == []


@pytest.mark.parametrize(
    "segments",
    [
        [Segment(id="a"), Segment(id="a")],
        [Segment(id=""), Segment(id="a")],
        [Segment(id="../x")],
        [Segment(id="a", max_capacity=-1)],
        [Segment(id="a"), 5],
        [None],
    ],
)
def test_a_context_is_created_with_all_its_segments_or_not_at_all(segments: Any) -> None:
    storage = MemoryStorage()
    with pytest.raises(QuireError):
        quire.open(storage, "book", segments=segments)
    assert list(Library(storage).list()) == []
