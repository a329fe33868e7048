"""Compare quire with models in plain Python, and many writers with the list of what they reported."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from hypothesis.stateful import RuleBasedStateMachine

import quire
from proof.results import ROOT
from proof.topic import Check, Control, Options
from quire.conversation import arrivals
from quire.storage.s3 import chunks, commit
from quire.system import lifecycle
from tests.conversation.test_machine import Machine as TalkMachine
from tests.machines import run_machine
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, server
from tests.storage import s3_writers
from tests.test_machine import Machine as PageMachine
from tests.view_laws.laws import check_walk

TITLE = "Model"
ABOUT = """
Hypothesis makes random sequences of operations. Each operation runs on quire and on a model in plain Python, which was
written from the contract and shares no code with quire. After each step, the return value or the error, all pages,
messages, marks, batches and journal entries must be equal. `check()` must be empty, and the documents of all backends
must be the same bytes. There are two machines. The one of pages has segments, the tree, archive, pins, undo,
documents, eviction, reopening and changes of the storage. The one of conversations has messages, ids, edits, batches,
temporary blocks, undo, rollback, `as_of`, forks, cleanup, reopening, and turns that end, raise, repeat a key, or lose
their lease to another worker. Not in the models: purge, folds, windows, search and the agent's tools, which have other
tests.

The laws of views (within the budget, legal for each provider, complete, stable, nothing private, the same bytes on
every handle) are checked on random walks. Writers in separate processes add pages to one context, on S3 also up to 16
messages in one commit, and are killed: no page or message that was reported is lost, none exists twice, and no commit
is stored only in part.

A run is repeated with its seed. `--long` makes 500,000 steps of each machine in memory and 1,000,000 states of
views. With `--minutes` it stops earlier and stores what it made; another `--seed` continues with other sequences.
"""
STEPS = 50
EXAMPLES = 20
"""The examples of one run of Hypothesis: 1,000 steps at most."""
MACHINES: dict[str, type[PageMachine] | type[TalkMachine]] = {"pages": PageMachine, "conversations": TalkMachine}
SETS = {
    "memory": ("memory",),
    "memory, sqlite, file": ("memory", "sqlite", "file"),
    "postgres": ("memory", "postgres"),
    "s3": ("memory", "s3"),
    "all five": ("memory", "sqlite", "file", "postgres", "s3"),
}
COUNTS = {"memory": (2_000, 500_000), "memory, sqlite, file": (1_000, 20_000), "postgres": (200, 10_000)}
COUNTS |= {"s3": (200, 5_000), "all five": (100, 5_000)}
"""The steps of each machine, in the short and in the long form."""
STATES = (2_000, 1_000_000)
WRITERS = ((8, 400, 8), (32, 160_000, 60))
"""Writers, operations of all writers together, kills: in the short and in the long form."""
SHARES = 14
"""The checks between which the time of the topic is divided."""


def run(options: Options) -> Iterator[Check]:
    for name, machine in MACHINES.items():
        for label, kinds in SETS.items():
            if not options.backends or set(options.backends) & set(kinds[-1:] if len(kinds) < 3 else kinds):
                yield machine_check(name, machine, label, options)
    if not options.backends or "memory" in options.backends:
        yield law_check(options)
    for backend in options.chosen("postgres", "s3"):
        yield writers_check(backend, options)


def machine_check(
    name: str, machine: type[PageMachine] | type[TalkMachine], label: str, options: Options, *, most: int = 0
) -> Check:
    """Run one machine on a set of backends until it made its steps, or its time is over."""
    wanted = most or COUNTS[label][options.long]
    counted = counting(machine, SETS[label])
    deadline = time.monotonic() + (options.seconds or float("inf")) / SHARES
    findings: list[str] = []
    number = options.random(name, label).getrandbits(32)
    first = number
    with ExitStack() as stack:
        if "s3" in SETS[label]:
            stack.enter_context(patch.multiple(commit, LOG_BYTES=600, MERGE_BYTES=4_000))
            stack.enter_context(patch.multiple(chunks, BLOCK_BYTES=300, CHUNK_BYTES=2_000))
        while counted.steps < wanted and time.monotonic() < deadline and not findings:
            examples = max(1, min(EXAMPLES, (wanted - counted.steps) // STEPS))
            try:
                run_machine(counted, examples=examples, steps=STEPS, number=number, shrink=False)
            except Exception as error:
                findings.append(f"run_machine(…, examples={examples}, steps={STEPS}, number={number}): {error!r}"[:300])
            number += 1
    facts: dict[str, int | float | str] = {"sequences": counted.sequences, "first number": str(first)}
    return Check(
        name=f"machine of {name}", backend=label, count=counted.steps, unit="steps", facts=facts, findings=findings
    )


def counting(machine: type[RuleBasedStateMachine], chosen: tuple[str, ...]) -> Any:
    """Return the machine for these backends. It counts the operations that it compares."""

    class Counting(machine):  # type: ignore[misc, valid-type]
        kinds = chosen
        steps = 0
        sequences = 0

        def __init__(self) -> None:
            super().__init__()
            Counting.sequences += 1

        def compare(self, *arguments: Any, **named: Any) -> None:
            Counting.steps += 1
            super().compare(*arguments, **named)

    return Counting


def law_check(options: Options, *, most: int = 0) -> Check:
    """Check the laws of views on random walks."""
    wanted = most or STATES[options.long]
    deadline = time.monotonic() + (options.seconds or float("inf")) / SHARES
    number = first = options.random("laws").getrandbits(40)
    states = 0
    findings: list[str] = []
    while states < wanted and time.monotonic() < deadline and not findings:
        try:
            states += check_walk(number, 30 if options.long else 15)
        except Exception as error:
            findings.append(f"check_walk({number}, …): {error!r}"[:300])
        number += 1
    facts: dict[str, int | float | str] = {"walks": number - first, "first number": str(first)}
    return Check(name="laws of views", backend="memory", count=states, unit="states", facts=facts, findings=findings)


def writers_check(backend: str, options: Options) -> Check:
    """Let processes write one context, kill some, and check every page that they reported."""
    writers, operations, kills = WRITERS[options.long]
    if options.seconds is not None:  # about 40 operations each second
        operations = max(100, min(operations, int(options.seconds / SHARES * 40)))
        kills = min(kills, operations // 20)
    seed = options.random("writers", backend).getrandbits(32)
    if backend == "postgres":
        script, arguments = "postgres_writers.py", ["write", postgres_url(), writers, operations, kills, seed]
    else:
        there = server()
        place = json.dumps({"bucket": there.bucket, "prefix": fresh_prefix(), **there.options()})
        script, arguments = "s3_writers.py", [place, writers, max(1, operations // writers), kills, seed]
    program = ROOT / "tests" / "storage" / script
    command = [sys.executable, str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    findings = [done.stderr.strip()[-300:] or "no report"] if done.returncode else []
    report = json.loads(done.stdout) if not findings else {}
    if report and backend == "s3":
        findings = s3_writers.findings(report)
        report["acknowledged"] = sum(map(len, report["promised"].values()))
        report["killed"] = len(report["killed"])
    facts: dict[str, int | float | str] = {
        "writers at once": writers,
        "kills": report.get("killed", 0),
        "seed": str(seed),
    }
    count = int(report.get("acknowledged", 0))
    return Check(
        name="killed writers", backend=backend, count=count, unit="acknowledged writes", facts=facts, findings=findings
    )


def control(options: Options) -> Iterator[Control]:
    """Break one rule of quire at a time. The machines must see it."""

    def hide_pinned(*_: object) -> None:
        return None

    def lose_results(plan: Any, message: quire.Message) -> int:
        return int(plan.state.next_message) - 1

    broken = [
        ("a pinned page can be hidden", "pages", lifecycle, "check_unpinned", hide_pinned),
        ("a tool result is dropped", "conversations", arrivals, "add_result", lose_results),
    ]
    for name, machine, module, attribute, replacement in broken:
        with patch.object(module, attribute, replacement):
            check = machine_check(machine, MACHINES[machine], "memory", options, most=3_000)
        evidence = check.findings[0] if check.findings else f"{check.count} steps"
        yield Control(name=name, found=bool(check.findings), evidence=" ".join(evidence.split())[:200])
