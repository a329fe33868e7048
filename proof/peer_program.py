"""A program in the environment of a peer: it writes messages, kills itself, and reads what is stored, as JSON.

The program has no threads of its own and opens no store itself: each life of a writer and each reader is a child.
"""

import json
import os
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from bench.peers.peer import Peer, Setting
from proof.mortal import Tell, finished, killed

ACK = b"acknowledged "
SESSION = "session"
LIVES_PER_STORE = 10
LONGEST_LIFE = 0.05
BATCH, BAD = 6, 3


def make(where: str, folder: Path) -> Peer:
    """Open the peer. Its list has room for everything."""
    module, name = where.split(":")
    kind = getattr(import_module(f"bench.peers.adapters.{module}"), name)
    peer: Peer = kind(Setting(folder, SESSION, 10**9, "You are careful.", 10))
    return peer


def message(text: str, number: int) -> dict[str, Any]:
    """Return a message; the roles alternate."""
    return {"role": "assistant" if number % 2 else "user", "content": text}


def append(peer: Peer, text: str, number: int) -> None:
    peer.append(peer.native(message(text, number)))


def read(where: str, folder: Path) -> list[str]:
    """Return the texts that a new process finds, in their order."""

    def look() -> list[str]:
        peer = make(where, folder)
        return [str(one["content"]) for one in peer.chat(peer.render()) if one["role"] != "system"]

    texts: list[str] = finished(look)
    return texts


def kill(where: str, folder: Path, seed: int, count: int, seconds: float) -> dict[str, Any]:
    """Kill writers. Count the kills, the acknowledged messages that are lost, and the stores that cannot be read."""
    random, until = Random(seed), time.monotonic() + seconds
    result = {"kills": 0, "acknowledged": 0, "lost": 0, "doubled": 0, "unreadable": 0}
    stored: list[str] = []
    for life in range(count):
        if time.monotonic() > until:
            break
        place = folder / f"store-{life // LIVES_PER_STORE}"
        if life % LIVES_PER_STORE == 0:
            shutil.rmtree(folder, ignore_errors=True)
            place.mkdir(parents=True)
            stored = []

        def write(tell: Tell, place: Path = place, start: int = len(stored), life: int = life) -> None:
            peer = make(where, place)
            for number in range(10**6):
                append(peer, f"message {life}-{number}", start + number)
                tell(f"message {life}-{number}")

        acknowledged = killed(write, random.uniform(0, LONGEST_LIFE), None)
        result["kills"] += 1
        result["acknowledged"] += len(acknowledged)
        try:
            found = read(where, place)
        except AssertionError:
            result["unreadable"] += 1
            found = []
        expected = [*stored, *acknowledged]
        result["lost"] += sum(1 for text in expected if text not in found)
        result["doubled"] += len(found) - len(set(found))
        stored = found
    return result


def together(where: str, folder: Path, writers: int, each: int) -> dict[str, Any]:
    """Let several processes write one session at once. Count the refused and the lost messages."""
    folder.mkdir(parents=True)
    finished(lambda: append(make(where, folder), "first", 0))
    pipes = []
    for writer in range(writers):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            done, refused = [], 0
            try:
                peer = make(where, folder)
                for number in range(each):
                    try:
                        peer.append_shared(peer.native(message(f"{writer}-{number}", number + 1)))
                        done.append(f"{writer}-{number}")
                    except Exception:
                        refused += 1
            finally:
                os.write(writing, json.dumps([done, refused]).encode())
                os._exit(0)
        os.close(writing)
        pipes.append(reading)
    answers = []
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as lines:
            answers.append(json.loads(lines.read()))
    for _ in pipes:
        os.wait()
    done = [text for texts, _ in answers for text in texts]
    result = {"messages": writers * each, "refused": sum(one for _, one in answers), "lost": len(done), "unreadable": 0}
    try:
        found = read(where, folder)
    except AssertionError:
        return {**result, "unreadable": 1}
    return {**result, "lost": sum(1 for text in done if text not in found)}


def batch(where: str, folder: Path) -> dict[str, Any]:
    """Store a batch with one message that cannot be stored. Count what is there after the error."""
    folder.mkdir(parents=True)

    def write() -> bool:
        peer = make(where, folder)
        natives = [peer.native(message(f"batch {number}", number)) for number in range(BATCH)]
        _spoil(natives[BAD])
        try:
            peer.fill(natives)
        except Exception:
            return True
        return False

    failed = finished(write)
    try:
        found = read(where, folder)
    except AssertionError:
        return {"messages": BATCH, "refused": int(failed), "stored": 0, "unreadable": 1}
    return {"messages": BATCH, "refused": int(failed), "stored": len(found), "unreadable": 0}


def _spoil(native: Any) -> None:
    """Put a value into a message that no JSON can hold."""
    if isinstance(native, list):
        _spoil(native[0])
    elif isinstance(native, dict):
        native["content"] = object()
    else:
        native.content = object()


def write(where: str, folder: Path, count: int) -> None:
    """Write messages, each acknowledged on standard output; the system calls of this process are recorded."""
    peer = make(where, folder)
    for number in range(count):
        append(peer, f"message {number}", number)
        os.write(1, ACK + b"%d\n" % number)
    os._exit(0)


def inspect(where: str) -> None:
    """Read stores: each line of standard input is a folder, each line of the output the texts, or null."""
    import_module(f"bench.peers.adapters.{where.partition(':')[0]}")
    for line in sys.stdin:
        try:
            texts: list[str] | None = read(where, Path(line.strip()))
        except AssertionError:
            texts = None
        print(json.dumps(texts), flush=True)


def main(action: str, where: str, *arguments: str) -> None:
    if action == "inspect":
        inspect(where)
        return
    folder = Path(arguments[0])
    if action == "write":
        write(where, folder, int(arguments[1]))
    import_module(f"bench.peers.adapters.{where.partition(':')[0]}")
    if action == "kill":
        result = kill(where, folder, int(arguments[1]), int(arguments[2]), float(arguments[3]))
    elif action == "together":
        result = together(where, folder, int(arguments[1]), int(arguments[2]))
    else:
        result = batch(where, folder)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
