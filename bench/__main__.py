"""Run the benchmarks, print a table, and write bench/results/*.json and docs/figures.md.

.venv/bin/python -m bench            everything (about five minutes)
.venv/bin/python -m bench --quick    smaller sizes, nothing written
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import apsw

import quire
from bench import book
from bench.figures import Figure, as_markdown, as_table

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    options = argparse.ArgumentParser(prog="bench", description="Measure quire against the raw floor.")
    options.add_argument("--quick", action="store_true", help="smaller sizes, nothing written")
    options.add_argument("--pages", type=int, default=0, help="pages of the large context")
    chosen = options.parse_args()
    pages = chosen.pages or (20_000 if chosen.quick else 1_000_000)
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
        figures = book.run(Path(folder), pages)
    print(as_table(figures))
    if not chosen.quick and not chosen.pages:
        write_down(figures)
    return 0 if all(figure.holds for figure in figures) else 1


def write_down(figures: list[Figure]) -> None:
    """Keep what was measured, with the machine it was measured on."""
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "quire": quire.__version__,
    }
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    rows = [figure.as_dict() for figure in figures]
    (results / "book.json").write_text(json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n")
    (ROOT / "docs" / "figures.md").write_text(as_markdown(figures, machine))


if __name__ == "__main__":
    sys.exit(main())
