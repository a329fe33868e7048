"""Facts of errors name no call of the Python API: a call that would help is a hint, which each surface words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import quire
from quire import errors

SOURCE = Path(quire.__file__).parent
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.QuireError)}
_CALL = re.compile(r"(?<![\w.`])[a-z][a-z_.]*[a-z]\((?!s\))")
EDGES = ("adapters", "mcp_server", "server", "testing")
"""Packages whose errors only a Python program or an operator meets."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the literal text of every fact that a module gives to an error, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
            pieces = (one.value for one in ast.walk(node.args[0]) if isinstance(one, ast.Constant))
            yield node.lineno, "".join(piece for piece in pieces if isinstance(piece, str))


def calls_in(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in texts(ast.parse(source)) if _CALL.search(text)]


def test_no_fact_names_a_call() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in EDGES
        for line, text in calls_in(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_a_call_in_a_fact_is_found() -> None:
    assert calls_in('raise InvalidOperation(f"{index!r} is hidden; expand({index!r}) opens it.")')
    assert not calls_in('raise InvalidOperation(f"{index!r} is hidden.", Hint("expand", index))')
    assert not calls_in('raise Corrupt("2 page(s) are missing (see the log).")')
