"""Writes the stub of `quire.aio` from the sources of the plain faces: `python -m tests.aio_stub`."""

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import quire
from quire import aio
from quire.aio.faces import AT_HAND, FACES, Faced, kind_of

PATH = Path(aio.__file__).with_suffix(".pyi")
BESIDE = {"pages": "ContextSystem", "conversation": "Conversation", "agent": "AgentContext"}
BESIDE |= {"tools": "Tools", "windows": "Windows"}
aio.Context  # noqa: B018 - whatever asks for a face has them all filled
LOCAL = [kind.__name__ for kind in FACES.values()]
CLOSED = ("Context", "Library")
HEAD = """# Made by `python -m tests.aio_stub` from the plain faces. Do not edit.
# ruff: noqa: A001, A002
"""
VARIABLES = """
P = ParamSpec("P")
T = TypeVar("T")
"""
OPTIONS = """
def open(
    where: str | os.PathLike[str] | Storage,
    context: str = ...,
    *,
    durability: Durability = ...,
    create: bool = ...,
    **options: Unpack[Options],
) -> Opening[Context]: ...
"""
OWN = {
    "Context": """
    @property
    def budget(self) -> int: ...
    @budget.setter
    def budget(self, budget: int) -> None: ...
""",
    "Library": """
    def __init__(
        self, where: str | os.PathLike[str] | Storage, *, durability: Durability = ..., create: bool = ...
    ) -> None: ...
    def open(self, name: str = ..., *, create: bool = ..., **options: Unpack[Options]) -> Opening[Context]: ...
    def create(self, name: str, **options: Unpack[Options]) -> Opening[Context]: ...
""",
    "Tools": """
    async def has(self, name: str) -> bool: ...
""",
}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Where each name that a module imports comes from."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


class Spelled(ast.NodeTransformer):
    """Annotations without quotes; notes which names they need."""

    def __init__(self, module: str, needed: dict[str, str], hides_list: bool) -> None:
        self.module = module
        self.needed = needed
        self.hides_list = hides_list

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)  # type: ignore[no-any-return]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            self.need("Literal")
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "list" and self.hides_list:
            return ast.parse("builtins.list", mode="eval").body
        self.need(node.id)
        return node

    def need(self, name: str) -> None:
        if name in LOCAL or hasattr(builtins, name):
            return
        if isinstance(getattr(sys.modules[self.module], name, None), TypeVar | ParamSpec):
            return  # declared in the stub itself
        place, original = imported(self.module).get(name, (self.module, name))
        line = f"from {place} import {original}" + (f" as {name}" if name != original else "")
        if name == "os":
            line = "import os"
        known = self.needed.setdefault(name, line)
        if known != line and meaning(known) is not meaning(line):
            raise ValueError(f"{name} means both {known!r} and {line!r}")


def meaning(line: str) -> object:
    """What an import brings in."""
    _, place, _, name, *_ = line.split()
    return getattr(import_module(place), name)


def source_of(of: type, name: str) -> tuple[str, ast.FunctionDef]:
    """The function behind a member, and the module it stands in."""
    home = next(cls for cls in of.__mro__ if name in vars(cls))
    member = inspect.getattr_static(of, name)
    function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "func", None) or member)
    for node in ast.walk(tree_of(home.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == home.__name__:
            found = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == function.__name__]
            return home.__module__, found[0]
    raise LookupError(name)


def member(of: type, name: str, needed: dict[str, str], hides_list: bool) -> str:
    theirs = inspect.getattr_static(of, name)
    module, node = source_of(of, name)
    spelled = Spelled(module, needed, hides_list)
    given = spelled.visit(node.returns) if node.returns else None
    if isinstance(theirs, property | cached_property):
        answer = ast.unparse(given) if given else "Any"
        if name not in AT_HAND:
            needed["Awaitable"] = "from collections.abc import Awaitable"
            answer = f"Awaitable[{answer}]"
        return f"    @property\n    def {name}(self) -> {answer}: ...\n"
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = spelled.visit(argument.annotation)
    node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
    node.args.kw_defaults = [None if value is None else ast.Constant(...) for value in node.args.kw_defaults]
    arguments = ast.unparse(node.args)
    match kind_of(theirs):
        case "block":
            return f"    def {name}({arguments}) -> Block: ...\n"
        case "stream":
            item = ast.unparse(given.slice) if isinstance(given, ast.Subscript) else "Message"
            if item == "Message":
                needed["Message"] = "from quire.model.messages import Message"
            return f"    def {name}({arguments}) -> Stream[{item}]: ...\n"
        case _:
            return f"    async def {name}({arguments}) -> {ast.unparse(given) if given else 'Any'}: ...\n"


def classes(needed: dict[str, str]) -> Iterator[str]:
    for of, kind in FACES.items():
        name = kind.__name__
        yield f"\nclass {name}({'Closed' if name in CLOSED else 'Faced'}):\n"
        lines = [OWN[name].lstrip("\n")] if name in OWN else []
        if name == "Context":
            lines += [f"    @property\n    def {face}(self) -> {kind}: ...\n" for face, kind in BESIDE.items()]
        skip = {"close"} if name in CLOSED else set()
        for found in sorted(vars(kind)):
            plain: Any = inspect.getattr_static(of, found, None)
            if found.startswith("_") or plain is None or found in skip or f" def {found}(" in "".join(lines):
                continue
            if hasattr(Faced, found) or isinstance(plain, classmethod | staticmethod):
                continue
            lines.append(member(of, found, needed, "list" in vars(kind)))
        yield "".join(lines)


def formatted(text: str) -> str:
    """The text as the project's formatter leaves it."""
    for command in (["check", "--fix", "--exit-zero", "--quiet"], ["format", "--quiet"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(PATH), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ran.stdout
    return text


def stub() -> str:
    """The whole stub, but for its form."""
    needed = {
        "os": "import os",
        "builtins": "import builtins",
        "Unpack": "from typing import Unpack",
        "TypeVar": "from typing import ParamSpec, TypeVar",
        "Options": "from quire.context import Options",
        "Storage": "from quire.storage.base import Storage",
        "Durability": "from quire.storage.base import Durability",
    }
    body = "".join(classes(needed)) + OPTIONS
    needed |= {
        "Block": "from quire.aio.faces import Block as Block",
        "Stream": "from quire.aio.faces import Stream as Stream",
        "Faced": "from quire.aio.faces import Faced",
        "Closed": "from quire.aio.entrance import Closed",
        "Opening": "from quire.aio.entrance import Opening as Opening",
    }
    names = "".join(f'    "{name}",\n' for name in aio.__all__)
    return f"{HEAD}\n" + "\n".join(sorted(set(needed.values()))) + f"\n\n__all__ = [\n{names}]\n{VARIABLES}" + body


if __name__ == "__main__":
    assert quire
    PATH.write_text(formatted(stub()))
