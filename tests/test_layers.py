"""The packages have an order: a module imports only from its own package and from earlier ones, also in functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import quire

SOURCE = Path(quire.__file__).parent
ORDER = (
    *("errors", "model", "providers", "formats", "storage", "core", "search", "system", "conversation", "view"),
    *("windows", "agent", "testing", "maintenance", "context", "library", "aio", "__init__"),
    *("adapters", "probes", "metrics", "otel", "server", "mcp_server", "gateway", "cli", "__main__"),
)
"""The packages and single modules, lowest first; `__init__` is quire itself."""


def imported(source: str) -> Iterator[str]:
    """Yield the packages of quire that a module imports, also in functions and for types."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            below = [f"quire.{name.name}" for name in node.names]
            names = below if node.module == "quire" else [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "quire":
                yield parts[1] if len(parts) > 1 and parts[1] in ORDER else "__init__"


def test_a_module_imports_only_from_its_own_package_and_from_earlier_ones() -> None:
    wrong = []
    for file in SOURCE.rglob("*.py"):
        package = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert package in ORDER, f"{package} has no place in the order"
        higher = [name for name in imported(file.read_text("utf-8")) if ORDER.index(name) > ORDER.index(package)]
        wrong += [f"{file.relative_to(SOURCE)} imports {name}" for name in higher]
    assert wrong == []


def test_every_form_of_an_import_is_seen() -> None:
    forms = ("import quire.view", "from quire import view", "from quire.view import x", "import_module('quire.view')")
    assert {target for form in forms for target in imported(f"def f():\n    {form}")} == {"view"}
