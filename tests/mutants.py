"""Change one operator, constant or branch of quire at a time, and see whether the tests from outside notice.

`python -m tests.mutants` runs these tests once and records which test runs which line. Then it makes mutants in equal
shares of five packages, chosen by the hash of the newest commit, and runs the tests of the changed line, the fast ones
first. It prints each mutant, and whether a test notices it. Left out are the backends that need a server, types, the
words of errors, subscripts, and limits and sizes: numbers of two digits and more, and the values of module constants.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

from coverage import CoverageData

from tests.outside import ROOT, TESTS, looks_inside

SOURCE = ROOT / "src"
QUIRE = SOURCE / "quire"
PACKAGES = ("core", "system", "conversation", "view", "storage")
NEEDS_SERVER = {"postgres", "s3"}
VERDICTS = {0: "SURVIVES", **dict.fromkeys((1, 2, 3, 124), "noticed")}
"""What a code of pytest tells. 1 to 3: a test, an import or pytest fails. 124: it is stuck. 4 and 5: no test ran."""
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not servers and not clients")
OPPOSITES = re.findall(r"\w+", "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult FloorDiv")
SWAPS = {getattr(ast, name): getattr(ast, OPPOSITES[number ^ 1]) for number, name in enumerate(OPPOSITES)}
TYPES = {"annotation", "returns", "decorator_list", "bases"}
WORDS = (ast.Raise, ast.JoinedStr, ast.Subscript, ast.Assert)

Mutant = tuple[str, int, str, str]  # the file, the line, what changes, and the text of the changed file


def nodes(parent: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without types and words."""
    left_out = TYPES | ({"keywords"} if isinstance(parent, ast.ClassDef) else set())
    kinds = (*WORDS, ast.Assign, ast.AnnAssign) if isinstance(parent, ast.Module) else WORDS
    for field, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, kinds) and field not in left_out:
                yield node
                yield from nodes(node)


def change(node: Any) -> bool:
    """Change a node in place. Return False if it is of a kind that stays as it is."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            node.ops = [SWAPS[type(operator)]()]
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in SWAPS:
            node.op = SWAPS[type(operator)]()
        case ast.UnaryOp(op=ast.Not()):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=int(value)) if value < 10:
            node.value = not value if isinstance(value, bool) else value + 1
        case ast.If() | ast.While() | ast.IfExp() if ast.unparse(node.test).replace(".", "").isidentifier():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case _:
            return False
    return True


def changeable(file: Path) -> tuple[ast.Module, list[Any]]:
    """Return the tree of a file, and the nodes in it that `change` changes."""
    tree = ast.parse(file.read_text("utf-8"))
    return tree, [node for node in nodes(tree) if change(copy(node))]


def make_mutant(file: Path, number: int) -> Mutant:
    """Make the change with this number in a file."""
    tree, found = changeable(file)
    node = found[number]
    before = ast.unparse(node).partition("\n")[0]
    change(node)
    after = ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]
    return file.relative_to(QUIRE).as_posix(), node.lineno, f"{before}  ->  {after}", ast.unparse(tree)


def choose(number: int, seed: str) -> Iterator[Mutant]:
    """Yield this many mutants, in equal shares of the packages. A line that no test runs can be chosen too."""
    for package in PACKAGES:
        files = [file for file in sorted((QUIRE / package).rglob("*.py")) if not NEEDS_SERVER & {*file.parts}]
        found = [(file, each) for file in files for each in range(len(changeable(file)[1]))]
        yield from (make_mutant(*one) for one in random.Random(seed).sample(found, number // len(PACKAGES)))


def record_lines(folder: Path) -> None:
    """Run the tests from outside. Store which test runs which line, and the seconds of each test."""
    files = [str(file) for file in sorted(TESTS.rglob("test_*.py")) if not looks_inside(file)]
    options = ["-n2", "-vv", "--durations=0", "-ppytest_cov", "--cov=quire", "--cov-context=test", "--cov-report="]
    environment = os.environ | {"COVERAGE_FILE": str(folder / "lines")}
    with (folder / "seconds").open("w") as output:
        subprocess.run([*PYTEST, *options, *files], cwd=ROOT, env=environment, stdout=output, check=True)


def read_lines(folder: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests of each line, the fast ones first. A line that runs at import has all tests of its file."""
    rows = (folder / "seconds").read_text()
    seconds = {test: float(time) for time, test in re.findall(r"^([\d.]+)s call +(.+)$", rows, re.MULTILINE)}
    tests: dict[tuple[str, int], set[str]] = {}
    (data := CoverageData(str(folder / "lines"))).read()
    for path in data.measured_files():
        name = path.rpartition("/quire/")[2]
        for line, contexts in data.contexts_by_lineno(path).items():
            found = {context.rpartition("|")[0] for context in contexts} & seconds.keys()
            tests.setdefault((name, line), set()).update(found)
            tests.setdefault((name, 0), set()).update(found)
    return {at: sorted(found or tests[at[0], 0], key=lambda test: (seconds[test], test)) for at, found in tests.items()}


def judge(mutant: Mutant, tests: list[str]) -> str:
    """Run the tests, if there are any, with the mutant in a copy of the source. Print and return the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(SOURCE, Path(folder) / "src"))
        (source / "quire" / mutant[0]).write_text(mutant[3], "utf-8")
        command = ["timeout", "900", *PYTEST, "-x", *(tests or ["--version"])]
        environment = os.environ | {"PYTHONPATH": str(source)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    verdict = VERDICTS.get(done.returncode, f"PYTEST RETURNED {done.returncode}")
    print(verdict, f"({len(tests)} tests)", *mutant[:3], flush=True)  # noqa: T201
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=120)
    parser.add_argument("--seed", default=subprocess.getoutput("git rev-parse HEAD"))
    parser.add_argument("--lines", type=Path, help="a folder for the record; delete it after a change")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as pool:
        (folder := options.lines or Path(temporary)).mkdir(parents=True, exist_ok=True)
        if not (folder / "lines").exists():
            print("Recording the lines of each test: 5 minutes. 120 mutants take 20.", flush=True)  # noqa: T201
            record_lines(folder)
        lines, mutants = read_lines(folder), list(choose(options.number, options.seed))
        verdicts = list(pool.map(judge, mutants, [lines.get(mutant[:2], []) for mutant in mutants]))
    print(f"seed {options.seed}: {verdicts.count('noticed')} of {len(mutants)} noticed")  # noqa: T201


if __name__ == "__main__":
    main()
