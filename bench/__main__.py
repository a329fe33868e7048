"""Run the benchmarks, print a table, and write bench/results/*.json and docs/figures.md.

.venv/bin/python -m bench                 everything (about ten minutes)
.venv/bin/python -m bench conversation    one topic only; the others keep what was measured last
.venv/bin/python -m bench --quick         smaller sizes, nothing written
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import apsw

import quire
from bench import (
    adapters,
    agent,
    book,
    cli,
    contexts,
    conversation,
    inspector,
    postgres,
    s3,
    search,
    server,
    view,
    windows,
)
from bench.figures import Figure, as_markdown, as_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
Topic = Callable[[Path, int], list[Figure]]


TOPICS: dict[str, Topic] = {
    "book": book.run,
    "conversation": conversation.run,
    "view": view.run,
    "windows": windows.run,
    "agent": agent.run,
    "search": search.run,
    "cli": cli.run,
    "server": server.run,
    "inspector": inspector.run,
    "postgres": postgres.run,
    "s3": s3.run,
    "contexts": contexts.run,
    "adapters": adapters.run,
}
"""What is measured, in the order of the page; each writes bench/results/<topic>.json."""


def main() -> int:
    options = argparse.ArgumentParser(prog="bench", description="Measure quire against the raw floor.")
    options.add_argument("topics", nargs="*", help="what to measure; everything if not given")
    options.add_argument("--quick", action="store_true", help="smaller sizes, nothing written")
    options.add_argument("--size", type=int, default=0, help="pages or messages of the large context; nothing written")
    chosen = options.parse_args()
    size = chosen.size or (20_000 if chosen.quick else 1_000_000)
    holds = True
    for name in chosen.topics or TOPICS:
        with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
            figures = TOPICS[name](Path(folder), size)
        if not figures:
            continue
        print(as_table(figures))
        holds = holds and all(figure.holds for figure in figures)
        if size == 1_000_000:
            keep(name, figures)
    write_page()
    return 0 if holds else 1


def keep(name: str, figures: list[Figure]) -> None:
    """Keep what was measured, with the machine it was measured on."""
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "quire": quire.__version__,
    }
    RESULTS.mkdir(exist_ok=True)
    rows = [figure.as_dict() for figure in figures]
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "figures": rows}, indent=1) + "\n")


def write_page() -> None:
    """Write the page of the documentation from all that was kept."""
    kept = {name: json.loads(file.read_text()) for name in TOPICS if (file := RESULTS / f"{name}.json").exists()}
    (ROOT / "docs" / "figures.md").write_text(as_markdown(kept))


if __name__ == "__main__":
    sys.exit(main())
