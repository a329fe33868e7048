"""Run the benchmarks, print tables, and write bench/results/*.json and docs/benchmarks.md.

.venv/bin/python -m bench                 everything (over an hour on two calm cores, fifteen minutes of it the peers)
.venv/bin/python -m bench book            one topic; the others keep their last results
.venv/bin/python -m bench peers           quire and its peers; installs them first, in separate environments
.venv/bin/python -m bench --quick         smaller sizes; stores no results
.venv/bin/python -m bench --page          writes the page from the stored results; measures nothing
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw

import quire
from bench import (
    adapters,
    asking,
    book,
    contexts,
    gateway,
    history_recall,
    leave_one_out,
    legal,
    lives,
    local,
    page,
    postgres,
    recall,
    server,
    service,
    thinking,
    view,
)
from bench.figures import Figure, as_table
from bench.measure import forget_jobs
from bench.peers import run as peers
from bench.peers.results import Measured

Topic = Callable[[Path, int], list[Figure]]
TOPICS: dict[str, Topic] = {
    "book": book.run,
    "view": view.run,
    "thinking": lambda folder, size: thinking.run(),
    "legal": legal.run,
    "recall": lambda folder, size: [*recall.run(), *asking.run(), *leave_one_out.run(), *history_recall.run(folder)],
    "server": server.run,
    "service": service.run,
    "gateway": gateway.run,
    "postgres": postgres.run,
    "contexts": contexts.run,
    "adapters": adapters.run,
    "local": local.run,
}
"""The topics in the order of the page. Each writes bench/results/<topic>.json."""

ALL = [*TOPICS, lives.TOPIC, page.SIDE_BY_SIDE]


def main() -> int:
    options = argparse.ArgumentParser(prog="bench", description="Measure quire against the raw floor and its peers.")
    options.add_argument(
        "topics", nargs="*", help="topics; default: all. `compare` compares two versions: see bench compare -h"
    )
    options.add_argument("--quick", action="store_true", help="smaller sizes; store no results")
    options.add_argument("--size", type=int, default=0, help="pages or messages of the large context; store no results")
    options.add_argument("--peers", default="", help="only peers with these words in their names: adk,langchain")
    options.add_argument("--page", action="store_true", help="measure nothing, write the page from the stored results")
    chosen = options.parse_args()
    if unknown := set(chosen.topics) - set(ALL):
        options.error(f"no topic {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    size = chosen.size or (20_000 if chosen.quick else 1_000_000)
    holds = True
    for name in [] if chosen.page else chosen.topics or ALL:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder:
            if name == page.SIDE_BY_SIDE:
                beside(Path(folder), chosen.peers, quick=size < 1_000_000)
            elif name == lives.TOPIC:
                replayed(quick=size < 1_000_000)
            else:
                holds = alone(name, Path(folder), size) and holds
        print(f"{name}: {(time.perf_counter() - start) / 60:.1f} minutes", file=sys.stderr)
    page.write(ALL)
    return 0 if holds else 1


def alone(name: str, folder: Path, size: int) -> bool:
    """Measure one topic, print and store it. Return True if every figure is within its limit."""
    figures = TOPICS[name](folder, size)
    if not figures:
        return True
    print(as_table(figures))
    forget_jobs()
    if size == 1_000_000:
        keep(name, {"figures": [figure.as_dict() for figure in figures]})
    return all(figure.holds for figure in figures)


def replayed(*, quick: bool) -> None:
    """Replay recorded sessions. Store the results of a full run."""
    results = lives.run(quick=quick)
    if results and not quick:
        keep(lives.TOPIC, results)


def beside(folder: Path, names: str, *, quick: bool) -> None:
    """Measure the peers. Store the results of a full run with all peers."""
    start = time.perf_counter()
    results = peers.run(folder, quick=quick, names=names)
    if not results:
        return
    print(page.side_by_side(Measured(results), page.kept(list(TOPICS)), ""))
    if not quick and not names:
        keep(page.SIDE_BY_SIDE, {"minutes": round((time.perf_counter() - start) / 60, 1), **results})


def keep(name: str, results: Mapping[str, object]) -> None:
    """Store the results with a description of the machine."""
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "quire": quire.__version__,
    }
    page.RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine, **results}, indent=1, ensure_ascii=False)
    (page.RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
