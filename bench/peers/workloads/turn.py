"""Measure one turn: a message is appended, durably where there is a store, and the list for the model is built."""

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
"""The number of measured turns at the end of the conversation."""

_LEAST = 3


def measure(kind: type[Peer], folder: Path, *, messages: int, budget: int, seconds: float) -> dict[str, Any]:
    """Return the medians of the last turns of the peer and, directly before and after, of the raw floor.

    The peer runs through the whole conversation if that takes less than `seconds`. Otherwise the rest is filled in
    bulk, and as many of the last turns are measured as the time allows.
    """
    history = conversation(messages)
    last = min(LAST, messages // 2)
    floor = _opened(Floor, folder / "reference", budget)
    floor.fill(history[:-last])
    peer = _opened(kind, folder / "measured", budget)
    given = [peer.native(message) for message in history]
    whole = _arrived(peer, given[:-last], seconds)
    half = len(history) - last // 2
    least = _timed(floor, history[-last:half], seconds)
    turns = sorted(_timed(peer, given[-last:], seconds))
    least += _timed(floor, history[half:], seconds)  # before and after: the speed of the machine varies
    peer.close()
    floor.close()
    median = statistics.median(turns)
    return {
        "ratio": median / statistics.median(least),
        "milliseconds": median * 1e3,
        "slowest": turns[int(0.99 * len(turns))] * 1e3,
        "sampled": not whole or len(turns) < last,
        "turns": len(turns),
    }


def _opened(kind: type[Peer], folder: Path, budget: int) -> Peer:
    folder.mkdir()
    return kind(Setting(folder, "turns", budget, system(), corpora.mean("airline")))


def _arrived(peer: Peer, messages: Sequence[Any], seconds: float) -> bool:
    """Fill the peer's session, turn by turn while there is time; return True if there was time for all turns."""
    count.cache_clear()
    until = time.perf_counter() + seconds
    for reached, message in enumerate(messages):
        if time.perf_counter() > until:
            peer.fill(messages[reached:])
            peer.render()
            return False
        _turn(peer, message)
    return True


def _timed(peer: Peer, messages: Sequence[Any], seconds: float) -> list[float]:
    """Return the seconds of as many turns as there is time for."""
    until = time.perf_counter() + seconds
    found: list[float] = []
    for message in messages:
        if len(found) >= _LEAST and time.perf_counter() > until:
            break
        found.append(_turn(peer, message))
    return found


def _turn(peer: Peer, message: Any) -> float:
    start = time.perf_counter()
    peer.append(message)
    peer.render()
    return time.perf_counter() - start
