"""Tell the tests that look from outside from those that look inside.

A test looks inside if its file, its `conftest.py` or a helper that it imports uses a name of quire that is not public,
a private attribute, or replaces a function of quire. Modules of `proof` and `bench` count as helpers too. Such a test
freezes the inside, and goes when its subject goes.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import quire

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
FOLLOWED = ("tests", "proof", "bench")
"""The packages whose modules count as helpers of a test that imports them."""
PUBLIC = ("quire.aio", "quire.errors", "quire.formats", "quire.windows.apps")
"""Modules of which a test may import every name; a name that a page of the reference documents may be imported too."""
PUBLIC_PACKAGES = ("quire.adapters", "quire.testing")
ENTRY_POINTS = {"quire.cli.main", "quire.gateway", "quire.gateway.create_app", "quire.gateway.start"}
CONTRACT = "quire.storage.base"
"""No test imports the parts of records: one that writes them itself freezes how quire stores them. A test may wrap the
calls of a storage, so that one fails or waits, and pass on what it is given.
"""
OF_PYTHON = {"_exit", "_fields", "_getframe", "_replace"}
"""Names of Python that begin with an underscore and are public."""


@cache
def looks_inside(path: Path) -> bool:
    """Return whether the file, one of its helpers or its `conftest.py` looks inside quire."""
    return bool(find_private_uses(path))


@cache
def find_private_uses(path: Path) -> tuple[str, ...]:
    """Return what the file, its helpers and its `conftest.py` use of the inside of quire, as `file:line: use`."""
    files = sorted(_with_helpers(path))
    return tuple(f"{file.relative_to(ROOT)}:{line}: {use}" for file in files for line, use in _uses(_parsed(file)))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    of_quire = frozenset(_names_of_quire(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if not _is_public(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{name.name}" for name in node.names]
            yield from ((node.lineno, name) for name in names if not _is_public(name))
        elif isinstance(node, ast.Attribute) and (_is_private(node) or _is_inside(node)):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and _replaces_something_of(of_quire, node):
            yield node.lineno, "setattr"


def _is_inside(node: ast.Attribute) -> bool:
    """Return whether a dotted name such as `quire.core.plan` is inside quire."""
    name = ast.unparse(node)
    return re.fullmatch(r"quire(\.\w+)+", name) is not None and not node.attr.startswith("__") and not _is_public(name)


def _is_public(name: str) -> bool:
    """Return whether a module, or a name in one, is public or not of quire at all."""
    module, _, last = name.rpartition(".")
    if name.split(".")[0] != "quire" or name in {"quire", *PUBLIC, *ENTRY_POINTS}:
        return True
    if last.startswith("_") or name.startswith(CONTRACT):
        return False
    if module == "quire":
        return last in quire.__all__ or name in _documented()
    return module in PUBLIC or name.startswith(PUBLIC_PACKAGES) or name in _documented() or module in _documented()


@cache
def _documented() -> frozenset[str]:
    """Return the dotted names on the pages of the reference, modules among them."""
    pages = (page.read_text("utf-8") for page in (ROOT / "docs/reference").glob("*.md"))
    return frozenset(line[4:].strip() for page in pages for line in page.splitlines() if line.startswith("::: "))


def _is_private(node: ast.Attribute) -> bool:
    of_itself = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
    return node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in OF_PYTHON and not of_itself


def _names_of_quire(tree: ast.Module) -> Iterator[str]:
    """Yield the names by which a file knows quire, its modules and what it imports from them."""
    yield "quire"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "quire":
            yield from (name.asname or name.name for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.asname for name in node.names if name.asname and name.name.split(".")[0] == "quire")


def _replaces_something_of(names: frozenset[str], node: ast.Call) -> bool:
    """Return whether the call is a `setattr` of one of these names or of a part of it."""
    if not (ast.unparse(node.func).split(".")[-1] in {"setattr", "delattr"} and node.args):
        return False
    return ast.unparse(node.args[0]).strip("'\"").split(".")[0] in names


@cache
def _with_helpers(path: Path) -> frozenset[Path]:
    """Return the file, the `conftest.py` files that apply to it, and the helpers that they import, all together."""
    found: set[Path] = set()
    folders = [folder for folder in path.parents if folder.is_relative_to(TESTS) and folder != TESTS]
    todo = [path, *(folder / "conftest.py" for folder in folders if (folder / "conftest.py").exists())]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += _helpers(file)
    return frozenset(found)


@cache
def _helpers(path: Path) -> tuple[Path, ...]:
    """Return the files of the tests, of `proof` and of `bench` that this file imports."""
    wanted: list[str] = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FOLLOWED:
            wanted += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        elif isinstance(node, ast.Import):
            wanted += [name.name for name in node.names if name.name.split(".")[0] in FOLLOWED]
    return tuple(file for name in wanted if (file := _file_of(name)) is not None)


def _file_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file if file.exists() and file != TESTS / "__init__.py" else None
