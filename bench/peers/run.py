"""Run all workloads over all peers and collect the cells."""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import corpora
from bench.peers.environments import Environment, made
from bench.peers.processes import ERROR, Answer, Cells, finished, without_paths
from bench.peers.registry import Entry, chosen

Results = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """The size of a run."""

    turns: tuple[tuple[int, int], ...] = ((100, 8_000), (1_000, 8_000), (10_000, 8_000), (10_000, 128_000))
    seconds: float = 2.5
    """Seconds for the turns before the measured ones, and for the measured ones."""

    resume: int = 10_000
    repeats: int = 3
    sessions: int = 200
    texts: int = 100_000
    budgets: dict[str, list[int]] = field(
        default_factory=lambda: {"airline": [4_000], "long": [4_000, 8_000, 16_000, 32_000], "coding": [4_000, 8_000]}
    )
    talks: int = 0
    """Number of conversations of a corpus to replay; 0 for all."""


FULL = Sizes()
QUICK = Sizes(((100, 8_000),), 1, 500, 1, 10, 2_000, {"long": [8_000], "coding": [8_000]}, 1)
_LIMIT, _TURNS = 150, 45
"""Seconds for one process; some peers need an hour for a few turns of a long conversation."""

_MEMORY = Path("/dev/shm")
"""The folder for the stores of replays, if it exists: replays do not measure the disk."""


def run(folder: Path, *, quick: bool = False, names: str = "") -> Results:
    """Return all measurements; a peer that cannot be installed or fails is listed with the reason."""
    if not corpora.are_here():
        print("The recorded conversations are not here: the peers are not measured.", file=sys.stderr)
        return {}
    entries = chosen(names)
    environments = made(entries)
    bench = Bench(QUICK if quick else FULL, folder, environments)
    for work in (bench.turn, bench.resume, bench.writers, bench.search):
        for entry in entries:
            if work.__name__ in entry.works:
                bench.each(work, entry)
    with ThreadPoolExecutor(2) as lanes:  # a replay mostly counts; it is not timed
        list(lanes.map(lambda entry: bench.each(bench.life, entry), [e for e in entries if "life" in e.works]))
    packages = [entry.package for entry in entries if entry.package]
    versions: dict[str, str] = {}
    for environment in environments.values():
        versions.update(environment.versions(packages))
    return {"versions": dict(sorted(versions.items())), "cells": bench.sorted(entries)}


class Bench:
    """The cells measured so far."""

    def __init__(self, sizes: Sizes, folder: Path, environments: dict[str, Environment]) -> None:
        self.sizes = sizes
        self._folder = folder
        self._environments = environments
        self._cells: list[Answer] = []

    def each(self, work: Callable[[Cells], Iterator[tuple[str, Answer]]], entry: Entry) -> None:
        """Measure all cases of one workload for one peer."""
        environment = self._environments[entry.environment]
        missing = environment.missing.get(entry.requirements)
        found = iter([("", {ERROR: without_paths(missing)})]) if missing else work(Cells(entry, environment))
        for case, answer in found:
            self._cells.append({"work": work.__name__, "peer": entry.name, "case": case, **_rounded(answer)})
            print(f"{work.__name__:8} {entry.name:38} {case:18} {_brief(answer)}", file=sys.stderr, flush=True)

    def sorted(self, entries: Sequence[Entry]) -> list[Answer]:
        """Return the cells in table order."""
        names = [entry.name for entry in entries]
        works = ["turn", "resume", "writers", "search", "life"]
        return sorted(self._cells, key=lambda cell: (works.index(cell["work"]), names.index(cell["peer"])))

    @contextmanager
    def _place(self, above: Path | None = None) -> Iterator[Path]:
        where = above or self._folder
        with tempfile.TemporaryDirectory(prefix="quire-bench-", dir=where, ignore_cleanup_errors=True) as place:
            yield Path(place)

    def turn(self, cells: Cells) -> Iterator[tuple[str, Answer]]:
        """Measure conversations of several lengths at several budgets."""
        for messages, budget in self.sizes.turns:
            with self._place() as place:
                asked = {"messages": messages, "budget": budget, "seconds": self.sizes.seconds}
                yield f"{messages}/{budget}", cells.ask("turn", place, _TURNS, **asked)

    def resume(self, cells: Cells) -> Iterator[tuple[str, Answer]]:
        """Open one store in several processes, one after the other; the fastest counts."""
        with self._place() as place:
            built = cells.ask("build", place, _LIMIT, messages=self.sizes.resume)
            tries = [built] if ERROR in built else []
            while not any(ERROR in answer for answer in tries) and len(tries) < self.sizes.repeats:
                tries.append(cells.ask("resume", place, _LIMIT))
            failed = [answer for answer in tries if ERROR in answer]
            yield str(self.sizes.resume), (failed or [_least(tries)])[0]

    def writers(self, cells: Cells) -> Iterator[tuple[str, Answer]]:
        """Start two processes at the same moment; then a third looks for every acknowledged message."""
        with self._place() as place:
            store = place / "store"
            store.mkdir()
            asked = {"sessions": self.sizes.sessions, "seconds": self.sizes.seconds}
            both = [cells.start("write", store, writer=writer, **asked) for writer in range(2)]
            for process in both:
                assert process.stdout is not None
                process.stdout.readline()
            with ThreadPoolExecutor(2) as lanes:
                answers = list(lanes.map(lambda process: finished(process, _LIMIT, "begin\n"), both))
            failed = [answer for answer in answers if ERROR in answer]
            yield f"2×{self.sizes.sessions}", failed[0] if failed else self._written(cells, store, answers)

    def _written(self, cells: Cells, store: Path, answers: list[Answer]) -> Answer:
        acknowledged = {**answers[0]["acknowledged"], **answers[1]["acknowledged"]}
        file = store.parent / "acknowledged.json"
        file.write_text(json.dumps(acknowledged))
        sent = sum(answer["sent"] for answer in answers)
        kinds = sum((Counter(answer["errors"]) for answer in answers), Counter[str]())
        found = {"rate": sent / max(answer["seconds"] for answer in answers), "sent": sent, "errors": kinds.total()}
        return {
            **found,
            "kinds": {without_paths(kind): count for kind, count in kinds.items()},
            **cells.ask("check", store, _LIMIT, acknowledged=str(file)),
        }

    def search(self, cells: Cells) -> Iterator[tuple[str, Answer]]:
        """Measure many short texts and six queries."""
        with self._place() as place:
            yield str(self.sizes.texts), cells.ask("search", place, _LIMIT, texts=self.sizes.texts)

    def life(self, cells: Cells) -> Iterator[tuple[str, Answer]]:
        """Measure every corpus at every budget."""
        for corpus, budgets in self.sizes.budgets.items():
            with self._place(_MEMORY if _MEMORY.is_dir() else None) as place:
                asked = {"corpus": corpus, "budgets": budgets, "most": self.sizes.talks}
                answer = cells.ask("life", place, 2 * _LIMIT, **asked)
            if ERROR in answer:
                yield corpus, answer
            for budget, told in answer.get("budgets", {}).items():
                yield f"{corpus}/{budget}", told


def _least(tries: list[Answer]) -> Answer:
    return {name: min(answer[name] for answer in tries) for name in tries[0]}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return {name: _rounded(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _brief(answer: Answer) -> str:
    told = {name: _rounded(value) for name, value in answer.items() if not isinstance(value, dict)}
    return ", ".join(f"{name} {value}" for name, value in told.items())
