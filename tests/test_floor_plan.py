"""The floor plan: each package imports only from the packages below it, and no module imports in a cycle."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import quire

FLOORS = (
    "errors",
    "model",
    "providers",
    "formats",
    "storage",
    "core",
    "search",
    "system",
    "conversation",
    "view",
    "windows",
    "agent",
    "testing",
    "maintenance",
    "context",
    "open_context",
    "library",
    "aio",
    "",
    "adapters",
    "probes",
    "metrics",
    "otel",
    "server",
    "mcp_server",
    "gateway",
    "cli",
    "__main__",
)
"""The packages, lowest first; "" is the package itself. A module imports from its own package or a lower one."""

ONLY: dict[str, frozenset[str]] = {
    "model": frozenset({"errors"}),
    "providers": frozenset({"errors", "model"}),
    "formats": frozenset({"errors", "model", "providers"}),
    "storage": frozenset({"errors", "model"}),
}
"""The packages that may import less than everything below them."""


def real_sources() -> dict[str, str]:
    """Return the source of every module of quire by its dotted name."""
    root = Path(quire.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        parts = ("quire", *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path.read_text("utf-8")
    return found


def imports(source: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Yield every module of `modules` that the source imports, in functions and type checks too."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.append(full if full in modules else str(node.module))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names = [str(node.args[0].value)] if called in {"import_module", "__import__"} else []
        yield from (name for name in names if name == "quire" or name.startswith("quire."))


def package(module: str) -> str:
    """Return the package below `quire` that a module is in."""
    return module.removeprefix("quire").lstrip(".").split(".")[0]


def problems(sources: Mapping[str, str], floors: Sequence[str], only: Mapping[str, frozenset[str]]) -> list[str]:
    """Return what is wrong with the imports of these modules; an empty list if nothing is."""
    found = [f"{module} is in no listed package" for module in sources if package(module) not in floors]
    found += [f"{name!r} is listed and does not exist" for name in floors if name not in set(map(package, sources))]
    if found:
        return found
    graph: dict[str, set[str]] = {}
    for module, source in sorted(sources.items()):
        graph[module] = set(imports(source, sources)) - {module}
        here = package(module)
        for target in sorted(graph[module]):
            there = package(target)
            if floors.index(there) > floors.index(here):
                found.append(f"{module} imports {target}, which is higher")
            elif there != here and there not in only.get(here, floors):
                found.append(f"{module} imports {target}, which {here!r} may not import")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"a cycle: {' -> '.join(error.args[1])}")
    return found


def test_imports_point_down_only() -> None:
    assert problems(real_sources(), FLOORS, ONLY) == []


# The test itself can fail


SMALL = {
    "quire": "from quire.top import x",
    "quire.errors": "",
    "quire.low": "import os",
    "quire.low.part": "from quire.low import x",
    "quire.store": "import quire.errors",
    "quire.top": "from quire.low import x\nfrom quire import errors",
}
SMALL_FLOORS = ("errors", "low", "store", "top", "")
SMALL_ONLY = {"store": frozenset({"errors"})}


def problems_with(**changed: str) -> list[str]:
    sources = SMALL | {f"quire.{name}": source for name, source in changed.items()}
    return problems(sources, SMALL_FLOORS, SMALL_ONLY)


def test_a_sound_plan_has_no_problems() -> None:
    assert problems_with() == []


def test_an_upward_import_is_found_in_every_form() -> None:
    upward = ["quire.low imports quire.top, which is higher"]
    for source in (
        "import quire.top",
        "from quire.top import x",
        "from quire import top",
        "def f():\n    from quire.top import x",
        "if TYPE_CHECKING:\n    from quire.top import X",
        "from importlib import import_module\nimport_module('quire.top')",
        "import importlib\nimportlib.import_module('quire.top', None)",
        "__import__('quire.top')",
    ):
        assert problems_with(low=source)[:1] == upward, source


def test_the_package_itself_is_above_its_parts() -> None:
    assert "quire.low imports quire, which is higher" in problems_with(low="import quire")


def test_a_cycle_in_one_package_is_found() -> None:
    found = problems_with(low="import quire.low.part")
    assert len(found) == 1
    assert found[0].startswith("a cycle")


def test_an_unlisted_package_and_a_listed_one_that_is_missing_are_found() -> None:
    assert problems_with(new="") == ["quire.new is in no listed package"]
    assert problems(SMALL, (*SMALL_FLOORS, "gone"), SMALL_ONLY) == ["'gone' is listed and does not exist"]


def test_a_package_with_a_list_imports_nothing_else() -> None:
    assert problems_with(store="import quire.low") == ["quire.store imports quire.low, which 'store' may not import"]
