"""The command `python -m bench compare OLD [NEW]`."""

import argparse
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.compare.figures import Row, baseline, table
from bench.compare.groups import GROUPS, LONG, Run
from bench.compare.sides import ROOT, WORKING_TREE, install

_ABOUT = """Install two versions of quire side by side, measure them alternately, print a table of ratios (new / old).
Times of a row are comparable with each other, not with those of another run. The noise is half of the interval that
holds 90 of 100 resampled ratios: a difference within it means nothing."""


def main(arguments: Sequence[str]) -> int:
    """Compare two versions and print the table."""
    chosen = _parser().parse_args(arguments)
    groups = [name for name in chosen.only.split(",") if name] or [name for name in GROUPS if name != LONG]
    if unknown := set(groups) - set(GROUPS):
        _parser().error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if chosen.long and LONG not in groups:
        groups.append(LONG)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quire-compare-") as name:
        folder = Path(name)
        sides = install(chosen.old, folder / "old"), install(chosen.new, folder / "new")
        (folder / "stores").mkdir()
        run = Run(sides, folder / "stores", chosen.quick, {}, [])
        rows = [row for group in groups for row in GROUPS[group](run)]
    print(_heading(run))
    print(table(rows))
    print(_remarks(run, (time.monotonic() - start) / 60))
    if chosen.json:
        found = {**_about(run), "rows": [row._asdict() for row in rows]}
        _write(Path(chosen.json), found)
    if chosen.store:
        _store(run, rows)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench compare", description=_ABOUT)
    parser.add_argument("old", metavar="OLD", help="a git reference")
    parser.add_argument("new", metavar="NEW", nargs="?", default=WORKING_TREE, help="default: the working tree")
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"of {','.join(GROUPS)}, separated by commas")
    parser.add_argument("--quick", action="store_true", help="minutes instead of tens of minutes; samples of the data")
    parser.add_argument("--long", action="store_true", help=f"also the group {LONG}: a million pages")
    parser.add_argument("--json", default="", metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--store", action="store_true", help="keep the figures of OLD in bench/results/compare-OLD.json"
    )
    return parser


def _heading(run: Run) -> str:
    old, new = run.sides
    return f"old: {old.name} ({old.commit[:10]}), new: {new.name} ({new.commit[:10]})"


def _remarks(run: Run, minutes: float) -> str:
    lines = [f"\n{minutes:.1f} minutes", *run.samples]
    return "\n".join([*lines, *(f"left out: {name}: {reason}" for name, reason in run.left_out.items())])


def _about(run: Run) -> dict[str, Any]:
    old, new = run.sides
    return {
        "old": {"name": old.name, "commit": old.commit},
        "new": {"name": new.name, "commit": new.commit},
        "machine": {
            "cores": os.cpu_count(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "quick": run.quick,
        "samples": run.samples,
        "left_out": run.left_out,
    }


def _store(run: Run, rows: Sequence[Row]) -> None:
    """Keep the figures of the old side. Groups that were not measured now stay as they are."""
    about = _about(run)
    file = ROOT / "bench" / "results" / f"compare-{run.sides[0].name.replace('/', '-')}.json"
    known = json.loads(file.read_text())["groups"] if file.exists() else {}
    found = baseline(rows)
    kept = {"of": about["old"], "machine": about["machine"], "samples": run.samples, "groups": {**known, **found}}
    _write(file, kept)


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
