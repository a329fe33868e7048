"""Measure a resume: a new process opens a long conversation and builds the list for the model."""

import resource
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.peers import corpora
from bench.peers.peer import Peer, Setting
from bench.traces import conversation, system

BUDGET = 8_000


def build(kind: type[Peer], folder: Path, *, messages: int) -> dict[str, Any]:
    """Store the conversation, as an earlier process left it."""
    peer = kind(_setting(folder))
    history = [peer.native(message) for message in conversation(messages)]
    peer.fill(history[:-1])
    peer.append(history[-1])
    peer.render()
    peer.close()
    return {}


def measure(kind: type[Peer], folder: Path) -> dict[str, Any]:
    """Return the milliseconds from opening to the list, and the peak memory."""
    warm_up(kind)
    setting = _setting(folder)
    before = _forget_peak()
    start = time.perf_counter()
    rendered = kind(setting).render()
    seconds = time.perf_counter() - start
    return {"milliseconds": seconds * 1e3, "megabytes": _peak() - before, "messages": len(rendered)}


def warm_up(kind: type[Peer]) -> None:
    """Resume a short conversation first, so that late imports are done when the clock starts."""
    with TemporaryDirectory() as elsewhere:
        build(kind, Path(elsewhere), messages=20)


def _setting(folder: Path) -> Setting:
    return Setting(folder, "resume", BUDGET, system(), corpora.mean("airline"))


def _forget_peak() -> float:
    """Return the memory of this process and reset its peak, where the system supports that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """Return the peak memory of this process in megabytes."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
