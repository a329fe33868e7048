"""A resume: a fresh process opens a long conversation and makes the list for the model."""

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
    """Store the conversation, as a process before had it."""
    peer = kind(_setting(folder))
    history = [peer.native(message) for message in conversation(messages)]
    peer.fill(history[:-1])
    peer.append(history[-1])
    peer.render()
    peer.close()
    return {}


def measure(kind: type[Peer], folder: Path) -> dict[str, Any]:
    """Milliseconds from opening to the list, and the most memory it took."""
    warm_up(kind)
    setting = _setting(folder)
    before = _forget_peak()
    start = time.perf_counter()
    rendered = kind(setting).render()
    seconds = time.perf_counter() - start
    return {"milliseconds": seconds * 1e3, "megabytes": _peak() - before, "messages": len(rendered)}


def warm_up(kind: type[Peer]) -> None:
    """A short conversation elsewhere: what is imported or loaded late is there when the clock starts."""
    with TemporaryDirectory() as elsewhere:
        build(kind, Path(elsewhere), messages=20)


def _setting(folder: Path) -> Setting:
    return Setting(folder, "resume", BUDGET, system(), corpora.mean("airline"))


def _forget_peak() -> float:
    """The memory this process has; its peak is counted anew from here on, where the system can do that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """The most memory this process had, in megabytes."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
