"""A turn: one message appended, durably where there is a store, and the list for the model made."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers import corpora
from bench.peers.adapters.floor import Floor
from bench.peers.peer import Peer, Setting
from bench.traces import conversation, count, system

LAST = 200
"""Turns that count, at the end of the conversation."""


def measure(kind: type[Peer], folder: Path, *, messages: int, budget: int, seconds: float) -> dict[str, Any]:
    """Medians of the last turns, of the peer and of the raw floor in the same process.

    The peer goes through the whole conversation if that takes less than `seconds`; if it takes longer, the rest is
    filled in bulk, and as many of the last turns are measured as that time allows.
    """
    history = conversation(messages)
    last = min(LAST, messages // 2)
    floor, _ = _turns(_opened(Floor, folder / "reference", budget), history, last, seconds)
    peer = _opened(kind, folder / "measured", budget)
    turns, whole = _turns(peer, history, last, seconds)
    turns.sort()
    median = statistics.median(turns)
    return {
        "ratio": median / statistics.median(floor),
        "milliseconds": median * 1e3,
        "slowest": turns[int(0.99 * len(turns))] * 1e3,
        "sampled": not whole,
        "turns": len(turns),
    }


def _opened(kind: type[Peer], folder: Path, budget: int) -> Peer:
    folder.mkdir()
    return kind(Setting(folder, "turns", budget, system(), corpora.mean("airline")))


def _turns(peer: Peer, history: Sequence[Any], last: int, seconds: float) -> tuple[list[float], bool]:
    """Seconds of the last turns, and whether all turns before them were gone through one by one."""
    messages = [peer.native(message) for message in history]
    count.cache_clear()
    until = time.perf_counter() + seconds
    reached = 0
    while reached < len(messages) - last and time.perf_counter() < until:
        _turn(peer, messages[reached])
        reached += 1
    whole = reached == len(messages) - last
    if not whole:
        peer.fill(messages[reached:-last])
        peer.render()
    found: list[float] = []
    until = time.perf_counter() + seconds
    for message in messages[-last:]:
        found.append(_turn(peer, message))
        if time.perf_counter() > until and len(found) >= 3:
            break
    peer.close()
    return found, whole and len(found) == last


def _turn(peer: Peer, message: Any) -> float:
    start = time.perf_counter()
    peer.append(message)
    peer.render()
    return time.perf_counter() - start
