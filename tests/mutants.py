"""Change one operator, constant or branch of quire at a time, and see whether the tests from outside notice.

`python -m tests.mutants` runs these tests once and records which test runs which line. Then it makes mutants in equal
shares of five packages, chosen by the hash of the newest commit, and runs the tests of the changed line, the fast ones
first. It prints the mutants that no test notices. Left out are the backends that need a server, types, the words of
errors, and numbers of two digits and more, which are limits and sizes.
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

from tests.outside import ROOT, looks_inside

SOURCE = ROOT.parent / "src"
PACKAGES = ("core", "system", "conversation", "view", "storage")
NEED_SERVERS = ("storage/postgres", "storage/s3")
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not servers and not clients")
OPPOSITES = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult FloorDiv"
PAIRS = [[getattr(ast, name) for name in pair.split()] for pair in OPPOSITES.split(", ")]
SWAPS = {one: two for pair in PAIRS for one, two in (pair, pair[::-1])}
TYPES = {"annotation", "returns", "decorator_list", "bases"}
WORDS = (ast.Raise, ast.JoinedStr, ast.Subscript, ast.Assert)


Mutant = tuple[str, int, str, str]
"""The file, the line, what changes, and the text of the changed file."""


def nodes(parent: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without types and words."""
    left_out = TYPES | ({"keywords"} if isinstance(parent, ast.ClassDef) else set())
    for field, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, WORDS) and field not in left_out:
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
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)) if value < 10:
            node.value = value + 1
        case ast.If() | ast.While() | ast.IfExp() if ast.unparse(node.test).replace(".", "").isidentifier():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case _:
            return False
    return True


def make_mutant(file: str, text: str, number: int) -> Mutant:
    """Make the change with this number in a file."""
    tree = ast.parse(text)
    node: Any = [node for node in nodes(tree) if change(copy(node))][number]
    before = ast.unparse(node).partition("\n")[0]
    change(node)
    after = ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]
    return file, node.lineno, f"{before}  ->  {after}", ast.unparse(tree)


def choose(number: int, seed: str) -> Iterator[Mutant]:
    """Yield this many mutants, in equal shares of the packages. A line that no test runs can be chosen too."""
    chance = random.Random(seed)
    for package in PACKAGES:
        paths = sorted((SOURCE / "quire" / package).rglob("*.py"))
        files = [(path.relative_to(SOURCE / "quire").as_posix(), path.read_text("utf-8")) for path in paths]
        own = [(file, text) for file, text in files if not file.startswith(NEED_SERVERS)]
        counts = [sum(change(copy(node)) for node in nodes(ast.parse(text))) for _, text in own]
        found = [(*one, each) for one, count in zip(own, counts, strict=True) for each in range(count)]
        yield from (make_mutant(*one) for one in chance.sample(found, number // len(PACKAGES)))


def record_lines(folder: Path) -> None:
    """Run the tests from outside. Store which test runs which line, and the seconds of each test."""
    files = [str(file) for file in sorted(ROOT.rglob("test_*.py")) if not looks_inside(file)]
    options = ["-n2", "-vv", "--durations=0", "-ppytest_cov", "--cov=quire", "--cov-context=test", "--cov-report="]
    environment = os.environ | {"COVERAGE_FILE": str(folder / "lines")}
    with (folder / "seconds").open("w") as output:
        done = subprocess.run([*PYTEST, *options, *files], cwd=ROOT.parent, env=environment, stdout=output, check=False)
    assert done.returncode == 0, f"the tests do not pass: {output.name}"


def read_lines(folder: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests of each line, the fast ones first. A line that runs at import has all tests of its file."""
    rows = re.findall(r"^([\d.]+)s call +(.+)$", (folder / "seconds").read_text(), re.MULTILINE)
    seconds = {test: float(time) for time, test in rows}
    tests: dict[tuple[str, int], set[str]] = {}
    data = CoverageData(str(folder / "lines"))
    data.read()
    for path in data.measured_files():
        name = path.rpartition("/quire/")[2]
        for line, contexts in data.contexts_by_lineno(path).items():
            found = {context.rpartition("|")[0] for context in contexts} & seconds.keys()
            tests.setdefault((name, line), set()).update(found)
            tests.setdefault((name, 0), set()).update(found)
    known = {at: found or tests[at[0], 0] for at, found in tests.items()}
    return {at: sorted(found, key=lambda test: (seconds[test], test)) for at, found in known.items()}


def is_noticed(mutant: Mutant, tests: list[str], source: Path) -> bool:
    """Return whether a test fails with the mutant in this copy of the source. A mutant that is stuck is noticed too."""
    file, arguments = source / "quire" / mutant[0], source / "tests"
    original = file.read_text("utf-8")
    file.write_text(mutant[3], "utf-8")
    arguments.write_text("\n".join(tests))
    command, environment = ["timeout", "900", *PYTEST, "-x", f"@{arguments}"], os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=ROOT.parent, env=environment, capture_output=True, check=False)
    file.write_text(original, "utf-8")
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=120)
    parser.add_argument("--seed", default=subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip())
    parser.add_argument("--lines", type=Path, help="a folder that keeps the record of lines for the next run")
    options = parser.parse_args()
    mutants = list(choose(options.number, options.seed))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.lines or Path(temporary)
        if not (folder / "lines").exists():
            record_lines(folder)
        tests = read_lines(folder)

        def judge(worker: int) -> int:
            """Run every second mutant, and return the number of those that a test notices."""
            source, count = Path(shutil.copytree(SOURCE, Path(temporary) / str(worker))), 0
            for mutant in mutants[worker::2]:
                mine = tests.get(mutant[:2], [])
                noticed = bool(mine) and is_noticed(mutant, mine, source)
                count += noticed
                words = "noticed" if noticed else "SURVIVES", f"({len(mine)} tests)", *mutant[:3]
                print(*words, flush=True)  # noqa: T201
            return count

        with ThreadPoolExecutor(2) as pool:
            print(f"seed {options.seed}: {sum(pool.map(judge, (0, 1)))} of {len(mutants)} noticed")  # noqa: T201


if __name__ == "__main__":
    main()
