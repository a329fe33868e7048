"""Test quire's promises and print the results.

python -m proof                              the short form of all topics but peers: three minutes on two cores
python -m proof --only crash power           some topics
python -m proof --only crash --backend s3    one backend
python -m proof --only crash --seed 7        the same random choices as an earlier run
python -m proof --only load --minutes 60     more time
python -m proof --long --store               the counts of docs/reliability.md; writes proof/results and the page
python -m proof --page                       writes the page from the stored results; tests nothing

The exit code is 1 if a check found something, or if a control found nothing.
"""

import argparse
import importlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import cast

import msgspec

from proof.results import PAGE, ROOT, Origin, Section, load, load_defects, page, save
from proof.topic import BACKENDS, Check, Control, Options, Topic

ORDER = ("crash", "power", "faults", "load", "concurrency", "security", "peers")
"""The topics in the order of the page. Each writes proof/results/<topic>.json."""
SHORT_MINUTES = 3.0
"""The time of a run without `--minutes` and `--long`, for all topics."""


def topics() -> dict[str, Topic]:
    """Return the topics."""
    return {name: cast(Topic, importlib.import_module(f"proof.{name}")) for name in ORDER}


def run_topic(topic: Topic, options: Options) -> Iterator[Check | Control]:
    """Run the controls and the checks of a topic. Each part has an empty folder."""
    for part, generate in (("control", topic.control), ("run", topic.run)):
        folder = options.folder / part
        folder.mkdir(parents=True)
        yield from generate(msgspec.structs.replace(options, folder=folder))
        shutil.rmtree(folder, ignore_errors=True)


def without_path(result: Check | Control, folder: str) -> Check | Control:
    """Return a result without the path of its folder, which is another one in each run."""
    text = msgspec.json.encode(result).decode().replace(folder, "FOLDER")
    return msgspec.json.decode(text, type=type(result))


def is_bad(result: Check | Control) -> bool:
    """Return True if the command must fail because of this result."""
    return bool(result.findings) if isinstance(result, Check) else not result.found


def describe(result: Check | Control) -> str:
    """Return the result as a line."""
    where = f" [{result.backend}]" if result.backend else ""
    if isinstance(result, Control):
        verdict = "found, as it must be" if result.found else "NOT FOUND: the check cannot find this"
        return f"  control: {result.name}{where}: {verdict}: {result.evidence}"
    facts = "".join(f", {name} {value}" for name, value in result.facts.items())
    findings = "".join(f"\n    FOUND: {finding}" for finding in result.findings) or ": nothing found"
    return f"  {result.name}{where}: {result.count:,} {result.unit}{facts}{findings}"


def write_page(chosen: Mapping[str, Topic]) -> None:
    """Write docs/reliability.md."""
    PAGE.write_text(generated_page(chosen), encoding="utf-8")


def generated_page(chosen: Mapping[str, Topic]) -> str:
    """Return the page of the stored results."""
    return page({name: Section(topic, load(name)) for name, topic in chosen.items()}, load_defects())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ORDER, metavar="TOPIC", help=", ".join(ORDER))
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=[], metavar="B", help=", ".join(BACKENDS))
    parser.add_argument("--minutes", type=float, help="the time for all chosen topics together")
    parser.add_argument("--seed", type=int, help="repeat the random choices of an earlier run")
    parser.add_argument("--long", action="store_true", help="the long form; without --minutes it has no time limit")
    parser.add_argument("--store", action="store_true", help="write proof/results/*.json and docs/reliability.md")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md only")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    args = parse(arguments)
    every = topics()
    if args.page:
        write_page(every)
        return 0
    usual = [name for name, topic in every.items() if args.long or not getattr(topic, "INSTALLS", False)]
    chosen = {name: topic for name, topic in every.items() if name in (args.only or usual)}
    seed = SystemRandom().getrandbits(32) if args.seed is None else args.seed
    minutes = args.minutes if args.minutes is not None else None if args.long else SHORT_MINUTES
    command = " ".join(["python -m proof", *(word for word in arguments if word != "--store")])
    origin = Origin(commit=_commit(), seed=seed, command=command)
    print(f"seed {seed}: repeat this run with --seed {seed}", flush=True)
    bad = 0
    shares = {name: getattr(topic, "SHARE", 1.0) for name, topic in chosen.items()}
    for name, topic in chosen.items():
        seconds = None if minutes is None else minutes * 60 * shares[name] / sum(shares.values())
        try:
            bad += _run_one(name, topic, args, origin, seconds)
        except Exception:
            traceback.print_exc()
            bad += 1
    if args.store:
        write_page(every)
    return 1 if bad else 0


def _run_one(name: str, topic: Topic, args: argparse.Namespace, origin: Origin, seconds: float | None) -> int:
    """Run one topic, print and store its results, and return the number of bad ones."""
    started = time.monotonic()
    stored = load(name)
    bad = 0
    print(f"{name}: {topic.TITLE}", flush=True)
    with tempfile.TemporaryDirectory(prefix="quire-proof-", dir=_memory(), ignore_cleanup_errors=True) as folder:
        options = Options(
            folder=Path(folder), seed=origin.seed, seconds=seconds, long=args.long, backends=tuple(args.backend)
        )
        for result in (without_path(found, folder) for found in run_topic(topic, options)):
            print(describe(result), flush=True)
            bad += is_bad(result)
            stored.add(result, origin)
            if args.store:
                save(name, stored)
    print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return bad


def _memory() -> str | None:
    """Return a folder in memory: a killed process loses nothing that it wrote there."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2**31 else None


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    logging.getLogger("quire").setLevel(logging.CRITICAL)  # the checks say what is wrong; warnings are expected here
    sys.exit(main(sys.argv[1:]))
