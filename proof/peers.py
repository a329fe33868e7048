"""Peers in the same tests: kills, power loss, several writers of one session, and a batch that fails."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from bench.peers.environments import Environment, made
from bench.peers.registry import OURS, PEERS, Entry
from proof.disk import CALLS, Call, Disk, read_trace
from proof.peer_program import ACK
from proof.results import ROOT
from proof.topic import Check, Control, Options

TITLE = "Peers"
ABOUT = """
The stores of other libraries run in the same tests, each with its default settings and through its own classes.
Writers are killed at random moments. Power failures are simulated from recorded system calls, as above. Processes
write one session at the same time (with quire, each message is a `turn`). A batch contains one message that cannot be
stored. A loss of a peer is a figure, not a finding; a loss of quire is a finding. With its default durability quire
may lose the last commits in a power failure; with `full` ("quire, synced") it may not. The batch of quire is an
import: it stores the other messages, keeps the bad one as marked text, and reports it.
"""
INSTALLS = True
SYNCED = "quire, synced"
NAMES = (OURS, SYNCED, "openai-agents SQLiteSession, limit", "langgraph SqliteSaver", "strands FileSessionManager")
KILLS = {"short": 10, "long": 1_000}
FAILURES = {"short": 10, "long": 400}
WRITERS = {"short": (2, 20), "long": (4, 250)}
WRITTEN = 30
"""Messages of a recorded writer."""


def run(options: Options) -> Iterator[Check]:
    """Run all tests on each peer that can be installed."""
    form = "long" if options.long else "short"
    entries = [entry for name in NAMES for entry in PEERS if entry.name == name]
    environments = made(entries)
    seconds = 10**6 if options.seconds is None else 0.5 * options.seconds / len(entries)
    for entry in entries:
        environment = environments[entry.environment]
        if entry.requirements in environment.missing:
            continue
        subject = Subject(entry, environment, options.folder)
        if entry.name != SYNCED:
            seed = options.random("peers", entry.name).getrandbits(32)
            yield subject.kills(seed, KILLS[form], seconds)
            yield subject.together(*WRITERS[form])
            yield subject.batch()
        if shutil.which("strace"):
            yield subject.power(FAILURES[form], options.random("power", entry.name))


def control(options: Options) -> Iterator[Control]:
    """Let the disk ignore every sync: quire must lose messages, also with `full`."""
    entry = next(entry for entry in PEERS if entry.name == SYNCED)
    subject = Subject(entry, made([entry])[entry.environment], options.folder)
    check = subject.power(20, options.random("control"), syncs=False)
    evidence = check.findings[0] if check.findings else f"nothing after {check.count} failures"
    yield Control(name="fsync removed", backend=SYNCED, found=bool(check.findings), evidence=evidence[:250])


class Subject:
    """A peer in its environment."""

    def __init__(self, entry: Entry, environment: Environment, folder: Path) -> None:
        self.entry = entry
        self._environment = environment
        self._folder = folder / entry.where.replace(":", "-")

    def kills(self, seed: int, count: int, seconds: float) -> Check:
        """Kill writers of the peer."""
        found = self._ask("kill", self._folder / "kills", seed, count, seconds)
        return self._check("kills", found.pop("kills"), "kills", found, "lost", "doubled", "unreadable")

    def together(self, writers: int, each: int) -> Check:
        """Let several processes write one session."""
        found = self._ask("together", self._folder / "together", writers, each)
        name = f"{writers} processes write one session"
        return self._check(name, found.pop("messages"), "messages", found, "lost", "unreadable")

    def batch(self) -> Check:
        """Store a batch that fails in the middle."""
        found = self._ask("batch", self._folder / "batch")
        return self._check("a batch that fails", found.pop("messages"), "messages", found, "unreadable")

    def power(self, count: int, random: Random, *, syncs: bool = True) -> Check:
        """Fail at random system calls of a recorded writer."""
        calls = self._record()
        disk, acknowledged = Disk(self._folder / "store", syncs=syncs), 0
        relevant = [number for number, call in enumerate(calls, 1) if disk.concerns(call) or _acknowledged(call, 0)]
        moments = sorted(random.choice(relevant) for _ in range(count))
        found = {"disks that lost messages": 0, "lost": 0, "unreadable": 0}
        with subprocess.Popen(
            self._command("inspect"), **self._process, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader:
            for number, call in enumerate(calls, 1):
                disk.apply(call)
                acknowledged = _acknowledged(call, acknowledged)
                while moments and moments[0] == number:
                    moments.pop(0)
                    lost = self._lost(reader, disk, acknowledged, random)
                    found["unreadable"] += lost is None
                    found["lost"] += lost or 0
                    found["disks that lost messages"] += bool(lost)
            reader.communicate()
        bad = ("lost", "unreadable") if self.entry.name == SYNCED else ("unreadable",)
        return self._check("power failures", count, "failures", found, *bad)

    def _record(self) -> list[Call]:
        """Run a writer under strace; return its system calls."""
        store, trace = self._folder / "store", self._folder / "trace"
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        tracer = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-o", str(trace), "-e", f"trace={CALLS}"]
        command = [*tracer, *self._command("write", store, WRITTEN)]
        done = subprocess.run(command, **self._process, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the writer of {self.entry.name} failed: {done.stderr[-2_000:]}")
        calls = list(read_trace(trace))
        trace.unlink()
        return calls

    def _lost(self, reader: Any, disk: Disk, acknowledged: int, random: Random) -> int | None:
        """Return how many acknowledged messages a failed disk does not have; None if it cannot be read."""
        target = self._folder / "failed"
        disk.fail(target, random)
        reader.stdin.write(f"{target}\n")
        reader.stdin.flush()
        texts = json.loads(reader.stdout.readline())
        shutil.rmtree(target)
        return None if texts is None else sum(f"message {number}" not in texts for number in range(acknowledged))

    def _check(self, name: str, count: int, unit: str, facts: dict[str, Any], *bad: str) -> Check:
        """Return the check. For quire, what is in `bad` must be zero."""
        own = self.entry.name in (OURS, SYNCED)
        findings = [f"{name}: {word} {facts[word]}" for word in bad if own and facts[word]]
        return Check(name=name, backend=self.entry.name, count=count, unit=unit, facts=facts, findings=findings)

    def _ask(self, *arguments: object) -> dict[str, Any]:
        done = subprocess.run(self._command(*arguments), **self._process, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.entry.name}: {done.stderr[-2_000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    def _command(self, action: object, *arguments: object) -> list[str]:
        python = str(self._environment.python)
        return [python, "-m", "proof.peer_program", str(action), self.entry.where, *map(str, arguments)]

    @property
    def _process(self) -> dict[str, Any]:
        return {"cwd": ROOT, "env": dict(self._environment.variables())}


def _acknowledged(call: Call, before: int) -> int:
    """Return how many messages are acknowledged after a call."""
    if call.name == "write" and call.arguments[0].startswith("1<"):
        data = call.data(1)
        if data.startswith(ACK):
            return int(data.removeprefix(ACK)) + 1
    return before
