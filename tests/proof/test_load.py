"""The load topic: its controls are found, and a short load finds nothing."""

import time
from pathlib import Path

from proof.load import Load


def run(folder: Path, broken: str, operations: int) -> list[str]:
    load = Load(f"sqlite:{folder / 'store.db'}", folder / "logs", 1, broken=broken)
    load.start(2)
    end = time.monotonic() + 60
    while load.operations() < operations and time.monotonic() < end:
        time.sleep(0.02)
    load._next = 0
    load.disturb()
    problems = load.stop()
    assert load.kills == 1
    return [*problems, *load.check(waits=False)[1]]


def test_a_killed_worker_loses_nothing_and_a_false_acknowledgement_is_found(tmp_path: Path) -> None:
    for broken in ("", "loss"):
        folder = tmp_path / f"load{broken}"
        folder.mkdir()
        findings = run(folder, broken, 30)
        assert any("lost" in finding for finding in findings) == bool(broken), findings
