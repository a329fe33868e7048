"""Tell the tests that look from outside from those that look inside.

A test looks inside if its file, its `conftest.py` or a helper that it imports uses a name of quire that is not public,
a private attribute, or replaces a function of quire. Such a test freezes the inside, and goes when its subject goes.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
REFERENCE = ROOT.parent / "docs/reference"
PUBLIC = ("quire", "quire.aio", "quire.embedders", "quire.errors", "quire.formats", "quire.windows.apps")
"""Modules of which a test may import every name; a name that a page of the reference documents may be imported too."""
PUBLIC_PACKAGES = ("quire.adapters", "quire.testing")
ENTRY_POINTS = {
    "quire.cli.main",
    *(f"quire.gateway.{name}" for name in ("create_app", "prepare", "serve", "start")),
    *(f"quire.mcp_server.{name}" for name in ("serve_http", "serve_stdio", "server")),
    *(f"quire.server.{name}" for name in ("serve", "start")),
}
CONTRACT = "quire.storage.base"
"""Only `quire.testing` uses the calls of a storage: a test that writes records itself freezes how quire stores them."""
OF_PYTHON = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
"""Names of Python that begin with an underscore and are public."""


@cache
def looks_inside(path: Path) -> bool:
    """Return whether the file, one of its helpers or its `conftest.py` looks inside quire."""
    return any(find_private_uses(each) for each in _with_helpers(path))


@cache
def find_private_uses(path: Path) -> tuple[str, ...]:
    """Return what the file itself uses of the inside of quire, as lines of text."""
    return tuple(f"line {line}: {use}" for line, use in _uses(_parsed(path)))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if not _is_public(name.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{name.name}" for name in node.names]
            yield from ((node.lineno, name) for name in names if not _is_public(name))
        elif isinstance(node, ast.Attribute) and _is_private(node):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and _replaces_something_of_quire(node):
            yield node.lineno, "setattr"


def _is_public(name: str) -> bool:
    """Return whether a module, or a name in one, is public or not of quire at all."""
    module, _, last = name.rpartition(".")
    if name.split(".")[0] != "quire" or name in PUBLIC or name in ENTRY_POINTS:
        return True
    if last.startswith("_") or name.startswith(CONTRACT):
        return False
    return module in PUBLIC or name.startswith(PUBLIC_PACKAGES) or name in _documented() or module in _documented()


@cache
def _documented() -> frozenset[str]:
    """Return the dotted names on the pages of the reference, modules among them."""
    pages = (page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    return frozenset(line[4:].strip() for page in pages for line in page.splitlines() if line.startswith("::: "))


def _is_private(node: ast.Attribute) -> bool:
    of_itself = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
    return node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in OF_PYTHON and not of_itself


def _replaces_something_of_quire(node: ast.Call) -> bool:
    """Return whether the call is `monkeypatch.setattr` of a name in quire."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "setattr" and node.args):
        return False
    return ast.unparse(node.args[0]).lstrip("'\"").startswith("quire")


@cache
def _with_helpers(path: Path) -> frozenset[Path]:
    """Return the file, the `conftest.py` files that apply to it, and the helpers that they import, all together."""
    found: set[Path] = set()
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT) and folder != ROOT]
    todo = [path, *(folder / "conftest.py" for folder in folders if (folder / "conftest.py").exists())]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += _helpers(file)
    return frozenset(found)


@cache
def _helpers(path: Path) -> tuple[Path, ...]:
    """Return the files of the tests that this file imports."""
    wanted: list[str] = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests":
            wanted += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        elif isinstance(node, ast.Import):
            wanted += [name.name for name in node.names if name.name.split(".")[0] == "tests"]
    return tuple(file for name in wanted if (file := _file_of(name)) is not None)


def _file_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file if file.exists() and file != ROOT / "__init__.py" else None
