"""The ratchet: no part of the project grows. A change that makes a part smaller lowers its number here.

Lines are counted as `wc -l` counts them, with docstrings and comments, which are not what is too much. So that nothing
is won by packing, functions and files have limits (ruff limits lines), and the share of words stays.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import quire
from tests.outside import find_private_uses, looks_inside

SOURCE = Path(quire.__file__).parent
TESTS = Path(__file__).parent
ROOT = TESTS.parent

PACKAGES = {
    "adapters": 3_732,
    "agent": 2_006,
    "aio": 679,
    "cli": 5_917,
    "conversation": 2_196,
    "core": 4_900,
    "formats": 843,
    "gateway": 3_657,
    "maintenance": 1_128,
    "mcp_server": 956,
    "model": 1_585,
    "providers": 3_107,
    "search": 3_568,
    "server": 9_104,
    "storage": 4_459,
    "system": 3_478,
    "testing": 1_199,
    "view": 7_656,
    "windows": 2_118,
    "": 2_188,
}
"""The most lines of each package, with every file of text that goes into the wheel; "" is the files beside them."""
PYTHON = 58_983
FILES = 255
"""All modules."""
TEST_LINES, MEASURING = 43_913, 13_465
"""The most lines of `tests`, and of `bench` and `proof` together."""
LOOK_INSIDE = 0
"""The most files of tests that look inside (see tests/outside.py)."""
LONGEST_FILE, LONGEST_FUNCTION = 500, 40
LONG_FILES = {
    *("adapters/turns", "agent/agent", "core/plan", "core/reader", "core/records"),
    *("core/state", "server/responses", "storage/s3/chunks"),
    *("testing/forks", "view/fold/fit_budget", "view/fold/folding", "view/renderer", "view/sheets"),
    *("windows/window_manager", "windows/windows"),
}
"""The files that are longer today. Each goes when its part is built again."""
LONG_FUNCTIONS = {
    *("adapters/turns:__init__", "cli/commands/gateway_demo:play_gateway_demo", "cli/commands/pages:run_stats"),
    *("conversation/turn:run_turn", "core/engine:_write_and_verify", "core/lease:acquire", "core/state:apply"),
    *("context:open", "server/handlers/history:list_entries"),
    *("view/fold/fit_budget:fit", "view/renderer:_fold", "view/renderer:_render", "windows/windows:open"),
}
WORDS = 0.114
"""The share of lines with docstrings and comments."""


@cache
def sources() -> dict[str, str]:
    """Return the text of every file of the package, by its path."""
    files = sorted(path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in files}


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def python() -> dict[str, str]:
    return {name: text for name, text in sources().items() if name.endswith(".py")}


def lines_below(*folders: str) -> int:
    """Return the lines of Python below these folders of the project."""
    files = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    shown = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    return sum((ROOT / file).read_text("utf-8").count("\n") for file in shown)


def functions(file: str, text: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a module as `file:name`, with their lengths."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file.removesuffix('.py')}:{node.name}", (node.end_lineno or 0) - node.lineno + 1


def count_words(text: str) -> int:
    """Return how many lines of a module are comments or docstrings."""
    comments = sum(line.lstrip().startswith("#") for line in text.splitlines())
    values = [node.value for node in ast.walk(parsed(text)) if isinstance(node, ast.Expr)]
    texts = [each for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return comments + sum((each.end_lineno or 0) - each.lineno + 1 for each in texts)


def check_size(part: str, lines: int, most: int, unit: str = "lines") -> None:
    assert lines <= most, f"{part}: {lines:,} {unit}, at most {most:,}"


def test_no_package_grows() -> None:
    sizes: Counter[str] = Counter()
    for name, text in sources().items():
        sizes[name.partition("/")[0] if "/" in name else ""] += text.count("\n")
    assert sizes.keys() <= PACKAGES.keys(), "a new package needs a row in PACKAGES, and others fall by as much"
    grown = [(name, size, PACKAGES[name]) for name, size in sizes.items() if size > PACKAGES[name]]
    assert not grown, "\n".join(f"{name or 'files'}: {size:,} lines, at most {most:,}" for name, size, most in grown)
    check_size("Python", sum(text.count("\n") for text in python().values()), PYTHON)
    check_size("Python", len(python()), FILES, "files")


def test_the_tests_and_the_measuring_do_not_grow() -> None:
    check_size("tests", lines_below("tests"), TEST_LINES)
    check_size("bench and proof", lines_below("bench", "proof"), MEASURING)


def test_no_more_tests_look_inside() -> None:
    inside = [path for path in TESTS.rglob("test_*.py") if looks_inside(path)]
    uses = {use for path in inside for use in find_private_uses(path)}
    assert len(inside) <= LOOK_INSIDE, "\n".join([f"{len(inside)} files look inside:", *sorted(uses)])


def test_functions_and_files_are_short() -> None:
    long_files = {name.removesuffix(".py") for name, text in python().items() if text.count("\n") > LONGEST_FILE}
    assert long_files <= LONG_FILES
    lengths = [found for file, text in python().items() for found in functions(file, text)]
    assert {name for name, length in lengths if length > LONGEST_FUNCTION} <= LONG_FUNCTIONS


def test_the_share_of_docstrings_and_comments_does_not_fall() -> None:
    words = sum(map(count_words, python().values()))
    assert words / sum(text.count("\n") for text in python().values()) >= WORDS
