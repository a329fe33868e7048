"""The command line: the time to print the list of commands, and the tree of a large context."""

import os
import subprocess
import sys
import time
from pathlib import Path

import quire
from bench.figures import Figure
from bench.measure import NoTokens
from quire.core.plan import Plan
from quire.system import tree

PAGES = 100_000
FOLDERS = 18
"""Folders of a folder, and pages of the lowest folder: four levels give a little over 100,000 pages."""
ROUNDS = 9


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of the command line."""
    pages = min(size, PAGES)
    store = folder / "cli.db"
    _flat(store, pages)
    _deep(store, pages)
    empty, *_ = _spent("-c", "pass")
    flat, shown = _spent("-m", "quire", "tree", str(store), "--context", "flat")
    deep, more = _spent("-m", "quire", "tree", str(store), "--context", "deep")
    note = f"the quickest of {ROUNDS} processes; an empty one takes {empty:.0f} ms"
    return [
        Figure("quire --help", _spent("-m", "quire", "--help")[0], "ms", 150, note),
        Figure(f"quire tree, {pages:,} pages in one folder", flat, "ms", 500, f"{shown} lines"),
        Figure(f"quire tree, {pages:,} pages in a tree", deep, "ms", 500, f"{more} lines"),
    ]


def _spent(*words: str) -> tuple[float, int]:
    """Return the milliseconds of a Python process, the fastest of several, and the number of printed lines."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds, lines = [], 0
    for number in range(ROUNDS + 1):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *words], capture_output=True, check=True, env=environment)
        if number:  # the first one compiles the modules
            seconds.append(time.perf_counter() - start)
        lines = done.stdout.count(b"\n")
    return min(seconds) * 1e3, lines


def _flat(store: Path, pages: int) -> None:
    """Create a context with all its notes in one folder."""

    def fill(plan: Plan, first: int, last: int) -> None:
        for number in range(first, last):
            tree.create_detail_page(plan, f"Note {number}", "", f"What note {number} says.", "mem-0")

    with quire.open(store, "flat", counter=NoTokens()) as context:
        for first in range(0, pages, 5_000):
            context.pages._engine.run("developer", "fill", fill, first, min(pages, first + 5_000))


def _deep(store: Path, pages: int) -> None:
    """Create a context with its notes in nested folders."""
    left = pages

    def fill(plan: Plan, parent: str, level: int) -> None:
        nonlocal left
        for number in range(FOLDERS):
            if left <= 0:
                return
            left -= 1
            if level:
                fill(plan, tree.create_contents_page(plan, f"Part {number}", "", parent), level - 1)
            else:
                tree.create_detail_page(plan, f"Note {number}", "", f"What note {number} says.", parent)

    with quire.open(store, "deep", counter=NoTokens()) as context:
        while left > 0:
            part = context.pages.create_contents_page("Part", "", "mem-0")
            context.pages._engine.run("developer", "fill", fill, part, 2)
