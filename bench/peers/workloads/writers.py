"""Two processes write many sessions into one store at once: measure the rate, the refused and the lost messages."""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.peers import corpora
from bench.peers.peer import Peer, Setting
from bench.peers.workloads.resume import warm_up
from bench.traces import conversation, system

MESSAGES = 20
BUDGET = 8_000


def write(kind: type[Peer], folder: Path, *, writer: int, sessions: int, seconds: float) -> dict[str, Any]:
    """Write session after session after the start signal, and report the acknowledged messages."""
    warm_up(kind)
    history = conversation(MESSAGES)
    peer: Peer | None = None
    acknowledged: dict[str, int] = {}
    errors: Counter[str] = Counter()
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    sent = 0
    for number in range(sessions):
        if time.perf_counter() - start > seconds:
            break
        session = f"writer-{writer}-{number}"
        acknowledged[session] = 0
        try:
            peer = kind(_setting(folder, session)) if peer is None else peer.switch(session)
        except Exception as error:
            errors[f"{type(error).__name__}: {error}"[:100]] += MESSAGES
            peer, sent = None, sent + MESSAGES
            continue
        for message in [peer.native(message) for message in history]:
            sent += 1
            try:
                peer.append(message)
                acknowledged[session] += peer.records(message)
            except Exception as error:
                errors[f"{type(error).__name__}: {error}"[:100]] += 1
    took = time.perf_counter() - start
    return {"seconds": took, "sent": sent, "errors": dict(errors), "acknowledged": acknowledged}


def check(kind: type[Peer], folder: Path, *, acknowledged: str) -> dict[str, Any]:
    """Return the number of acknowledged messages that a new process does not find."""
    lost = 0
    peer: Peer | None = None
    for session, count in json.loads(Path(acknowledged).read_text()).items():
        peer = kind(_setting(folder, session)) if peer is None else peer.switch(session)
        lost += max(0, count - (peer.stored() if count else 0))
    return {"lost": lost}


def _setting(folder: Path, session: str) -> Setting:
    return Setting(folder, session, BUDGET, system(), corpora.mean("airline"))
