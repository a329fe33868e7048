"""The command `python -m bench compare OLD [NEW]`."""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from bench.compare.figures import baseline, table
from bench.compare.groups import GROUPS, LONG, Run
from bench.compare.sides import ROOT, WORKING_TREE, install
from bench.traces import TRACES

_ABOUT = "Install two versions of quire side by side, measure them alternately, print a table of ratios (new / old)."
_LEGEND = """ratio: the median of the ratios of paired rounds, so it can differ from new / old.
noise: half of the interval that holds 90 of 100 resampled ratios; a difference within it means nothing.
× floor: a time as a multiple of the raw floor's in the same run, which inserts messages without quire.
Do not compare the times of two runs."""


def main(arguments: Sequence[str]) -> int:
    """Compare two versions and print the table."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    groups = [name for name in chosen.only.split(",") if name] or [name for name in GROUPS if name != LONG]
    if unknown := set(groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    groups += [LONG] if chosen.long and LONG not in groups else []
    if chosen.store and chosen.quick:
        parser.error("--store keeps the figures of a full run, without --quick")
    if not TRACES.exists() and groups != ["size"]:
        parser.error(f"set QUIRE_DATA to the folder with {TRACES.name}; only the group size can do without")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quire-compare-") as name:
        try:
            old, new = install(chosen.old, Path(name) / "old"), install(chosen.new, Path(name) / "new")
        except CalledProcessError as error:
            parser.error(str(error.stderr or error).strip())
        run = Run((old, new), Path(name), chosen.quick, {}, [])
        rows = [row for group in groups for row in GROUPS[group](run)]
    print(f"old: {old.name} ({old.commit})", f"new: {new.name} ({new.commit})", table(rows), "", _LEGEND, sep="\n")
    print(f"\n{(time.monotonic() - start) / 60:.1f} minutes", *run.samples, sep="\n")
    for what, reason in run.left_out.items():
        print(f"left out: {what}: {reason}")
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[2]}
    about = {"machine": machine, "quick": run.quick, "samples": run.samples, "left_out": run.left_out}
    names = {"old": {"name": old.name, "commit": old.commit}, "new": {"name": new.name, "commit": new.commit}}
    if chosen.json:
        _write(Path(chosen.json), {**names, **about, "rows": [row._asdict() for row in rows]})
    if chosen.store:
        file = ROOT / "bench" / "results" / f"compare-{old.name.replace('/', '-')}.json"
        known = json.loads(file.read_text()) if file.exists() else {"groups": {}, "runs": {}}
        runs = {**known["runs"], **dict.fromkeys(groups, about)}
        _write(file, {"of": names["old"], "groups": {**known["groups"], **baseline(rows)}, "runs": runs})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench compare", description=f"{_ABOUT} {_LEGEND}")
    parser.add_argument("old", metavar="OLD", help="a git reference")
    parser.add_argument("new", metavar="NEW", nargs="?", default=WORKING_TREE, help="default: the working tree")
    parser.add_argument("--only", default="", metavar="GROUPS", help=f"of {','.join(GROUPS)}, separated by commas")
    parser.add_argument("--quick", action="store_true", help="minutes instead of tens of minutes; samples of the data")
    parser.add_argument("--long", action="store_true", help=f"also the group {LONG}: a million pages")
    parser.add_argument("--json", default="", metavar="FILE", help="write all figures there")
    parser.add_argument("--store", action="store_true", help="keep OLD's figures in bench/results/compare-OLD.json")
    return parser


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
