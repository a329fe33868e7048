"""Every row of docs/from-the-documents.md names things that exist in quire, and tests that exist."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Any, NamedTuple, get_args

import pytest

import quire

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "from-the-documents.md"
NONE = "–"
_CODE = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"([a-zA-Z_][\w.]*)(?:\(([\w, ]*)\))?")

NAMED = {"000": 132, "001": 79, "002": 73, "003": 67, "004": 50}
"""The number of names of each document on the page, so that a lost row is noticed."""


class Row(NamedTuple):
    """A row of one of the tables."""

    document: str
    names: list[str]
    places: str
    tests: list[str]
    remark: str

    @property
    def paths(self) -> list[str]:
        """The names in quire."""
        return _CODE.findall(self.places)


def rows(page: str) -> Iterator[Row]:
    """Yield the rows of all tables."""
    for section in page.split("\n## ")[1:]:
        for line in section.splitlines():
            if line.startswith("| `"):
                names, paths, tests, remark = (cell.strip() for cell in line[1:-1].split(" | "))
                yield Row(section[:3], _CODE.findall(names), paths, _CODE.findall(tests), remark)


ROWS = list(rows(PAGE.read_text(encoding="utf-8")))


# Names of quire


def resolve(path: str) -> None:
    """Resolve a path of the second column with its parameters. Raise `LookupError` if it does not exist."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise LookupError(f"{path!r} is no path")
    value = _value(found[1])
    for parameter in found[2].split(", ") if found[2] else ():
        if parameter not in inspect.signature(value).parameters:
            raise LookupError(f"{found[1]} has no parameter {parameter!r}")


def _value(path: str) -> Any:
    if path == "quire":
        return quire
    above, _, last = path.rpartition(".")
    try:
        return import_module(path) if path.startswith("quire.") else _member(_value(above or "quire"), last)
    except ModuleNotFoundError:
        return _member(_value(above), last)


def _member(owner: Any, name: str) -> Any:
    """Return a member of a module or a class; each part of a union must have it. An instance field is its name."""
    if isinstance(owner, UnionType):
        return [_member(one, name) for one in get_args(owner)]
    if hasattr(owner, name):
        return getattr(owner, name)
    if isinstance(owner, type) and any(name in _set_by(one) for one in owner.__mro__):
        return name
    raise LookupError(f"{owner!r} has no {name!r}")


@cache
def _set_by(owner: type) -> frozenset[str]:
    """Return the public attributes that one of quire's classes sets on its objects."""
    if not owner.__module__.startswith("quire"):
        return frozenset()
    tree = ast.parse(dedent(inspect.getsource(owner)))
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_")
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def test_every_name_of_quire_is_there() -> None:
    for path in {path for row in ROWS for path in row.paths}:
        resolve(path)


@pytest.mark.parametrize(
    "path",
    [
        "Nothing",
        "ContextSystem.nothing",
        "ContextSystem.add_page(nothing)",
        "Page.child_count",
        "Context.nothing",
        "quire.storage.nothing",
        "quire.agent.gate.Right.NOTHING",
        "Context render",
    ],
)
def test_a_name_that_is_not_there_is_noticed(path: str) -> None:
    with pytest.raises(LookupError):
        resolve(path)


# Tests


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file: functions, classes, and `Class::method`."""
    file = ROOT / path
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            names.add(node.name)
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            methods = (one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update({node.name, *(f"{node.name}::{one}" for one in methods if one.startswith("test_"))})
    return frozenset(names)


def is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return name in names_in(path)


def test_every_test_is_there() -> None:
    assert [test for row in ROWS for test in row.tests if not is_there(test)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    here = "tests/test_from_the_documents.py"
    assert is_there(f"{here}::test_every_test_is_there")
    assert is_there("tests/storage/test_s3.py::TestS3::test_threads_with_a_handle_each_lose_nothing")
    for nowhere in (f"{here}::test_nothing", f"{here}::rows", here, "tests/test_nothing.py::test_a", "::test_a"):
        assert not is_there(nowhere)


# The page


def test_every_row_names_something_and_shows_it_by_a_test() -> None:
    for row in ROWS:
        assert row.names, row
        assert row.tests, row
        assert row.paths or (row.places == NONE and row.remark), f"{row.names}: nothing says why there is no such thing"


def test_no_row_is_written_so_that_it_is_not_read() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(lines) == len(ROWS) + 2 * len(NAMED)
    assert {line.count(" | ") for line in lines if not line.startswith("|-")} == {3}


def test_no_name_of_a_document_is_missing_or_stands_twice() -> None:
    named: dict[str, list[str]] = {document: [] for document in NAMED}
    for row in ROWS:
        named[row.document] += [name.partition("(")[0] for name in row.names]
    for names in named.values():
        assert sorted(names) == sorted(set(names))
    assert {document: len(names) for document, names in named.items()} == NAMED
