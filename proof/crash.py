"""Crash: kill -9 of writers and of gateways, at random moments and at every kind of storage call."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from proof import gateway_kills, servers
from proof.killing import Breakage, Task
from proof.results import ROOT
from proof.topic import Check, Control, Options

TITLE = "Crashes"
ABOUT = """
A process runs random operations: messages, turns, folds, imports, undo, rollback, fork, migrate, purge, erase, backup,
edits. It acknowledges each one. It is killed with `kill -9` at a random moment, at its k-th call of the storage, or at
its k-th write to a file (before, after, or in the middle of the write). After each kill another process reads the
stores. Documents, messages, journals, leases and views must be equal to those of a twin. The twin is a context in
memory that made the acknowledged operations. If the interrupted operation made a commit, the twin makes it too.
Messages and pages must also be equal to those of a plain model of lists and dicts, which shares no code with quire. The
next process continues from there.

Gateways are killed while three agents talk through them. The agents repeat their requests. The recorded conversations
must be equal to the conversations of the agents.
"""
SHARE = 3.0
LOCAL = ("sqlite", "file")
REMOTE = ("postgres", "s3")
KILLS = {
    "short": {"sqlite": 200, "file": 200, "postgres": 25, "s3": 15},
    "long": dict.fromkeys((*LOCAL, *REMOTE), 1_000),
}
GATEWAY_KILLS = {"short": 3, "long": 250}


def run(options: Options) -> Iterator[Check]:
    """Kill writers on each backend, and gateways."""
    form = "long" if options.long else "short"
    for group, share in ((LOCAL, 0.6), (REMOTE, 0.25)):
        wanted = options.chosen(*group)
        seconds = None if options.seconds is None else share * options.seconds
        for task, program in [_start(options, name, KILLS[form][name], seconds) for name in wanted]:
            yield _check(task, _finish(program))
    for backend in options.chosen("sqlite", *(["postgres"] if options.long else [])):
        store = str(options.folder / "gateway.db") if backend == "sqlite" else servers.postgres()
        seconds = None if options.seconds is None else max(2, 0.15 * options.seconds)
        yield _kill_gateways(backend, store, GATEWAY_KILLS[form], options.seed, seconds)


def _kill_gateways(backend: str, store: str, kills: int, seed: int, seconds: float | None) -> Check:
    """Kill gateways; after some kills the agents begin new conversations."""
    done, findings = 0, list[str]()
    while done < kills and not findings and (not done or seconds is None):
        number, findings = gateway_kills.kill_gateways(store, min(kills - done, 25), seed + done, seconds)
        done += number
    return Check(name="gateways", backend=backend, count=done, unit="kills", findings=findings)


def control(options: Options) -> Iterator[Control]:
    """Kill writers on storages that acknowledge a commit before it is made, or tear it."""
    broken: tuple[tuple[Breakage, str], ...] = (
        ("late", "a commit is acknowledged before it is made"),
        ("torn", "half of the writes of a commit are made"),
    )
    for breakage, name in broken:
        for backend in options.chosen(*LOCAL)[: None if options.long else 1]:
            task, program = _start(options, backend, 60, None, breakage)
            report = _finish(program)
            findings = report["findings"]
            evidence = _short(findings[0]) if findings else f"nothing after {report['kills']} kills"
            yield Control(name=name, backend=task.backend, found=bool(findings), evidence=evidence)


def _short(finding: str) -> str:
    """Return the first and the last line of a finding."""
    lines = finding.strip().splitlines()
    return lines[0][:150] + (f" … {lines[-1][:150]}" if len(lines) > 1 else "")


def _place(backend: str) -> dict[str, Any]:
    return {"url": servers.postgres()} if backend == "postgres" else servers.s3() if backend == "s3" else {}


def _start(
    options: Options, backend: str, kills: int, seconds: float | None, breakage: Breakage = ""
) -> tuple[Task, "subprocess.Popen[str]"]:
    task = Task(
        backend=backend,
        kills=kills,
        seed=options.seed,
        folder=str(options.folder),
        seconds=seconds,
        place=_place(backend),
        breakage=breakage,
    )
    command = [sys.executable, "-W", "error", "-m", "proof.killing", msgspec.json.encode(task).decode()]
    return task, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(program: "subprocess.Popen[str]") -> dict[str, Any]:
    output, errors = program.communicate()
    if program.returncode:
        return {"kills": 0, "findings": [f"the program failed: {errors[-2_000:]}"]}
    report: dict[str, Any] = json.loads(output)
    return report


def _check(task: Task, report: dict[str, Any]) -> Check:
    facts: dict[str, int | float | str] = {}
    if report["kills"]:
        during = ", ".join(f"{name} {count}" for name, count in report["during"].items())
        facts = {
            "acknowledged operations": report["acknowledged"],
            "interrupted operations with a commit": report["unfinished"],
            "killed during": during,
        }
    return Check(
        name="writers",
        backend=task.backend,
        count=report["kills"],
        unit="kills",
        facts=facts,
        findings=report["findings"],
    )
