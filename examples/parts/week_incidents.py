"""The incidents of the week: a killed worker, an erased customer, and a damaged file that is restored from a backup."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import quire


def crash(store: Path, incidents: list[str]) -> int:
    """Kill a writing process. Return the messages that it reported and that the store does not have."""
    command = [sys.executable, "-B", __file__, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline().strip() for _ in range(25)]
        writer.send_signal(signal.SIGKILL)
        reported += writer.stdout.read().split("\n")[:-1]
    incidents.append(f"a worker was killed after {len(reported)} messages")
    with quire.open(store, "crash", create=False) as ctx:
        assert ctx.check() == []
        stored = {message.text for message in ctx.messages()}
    return len(set(reported) - stored)


def write_until_killed(store: Path) -> None:
    """Add messages, and print each one after it is stored."""
    with quire.open(store, "crash") as ctx:
        for number in range(100_000):
            ctx.user(f"message-{number}")
            print(f"message-{number}", flush=True)


def erase(store: Path, user: str, secret: str, incidents: list[str]) -> None:
    """Remove a customer, and check that no byte is left."""
    with quire.Library(store) as library:
        assert library.erase(user).scrubbed
    files = [path for path in store.parent.iterdir() if path.name.startswith(store.name)]
    assert not any(secret.encode() in path.read_bytes() for path in files)
    incidents.append(f"{user} was erased, no byte is left")


def damage_and_restore(store: Path, incidents: list[str]) -> int:
    """Back up, damage the file, notice it, and restore it. Return the messages that are lost."""
    before, copy = count_messages(store), store.with_suffix(".backup")
    assert quire.backup(store, copy).problems == ()
    data = bytearray(store.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 20_000] = os.urandom(20_000)
    store.write_bytes(data)
    found = quire.doctor(store).symptoms
    assert found
    for path in [path for path in store.parent.iterdir() if path.name.startswith(store.name)]:
        path.unlink()
    shutil.move(copy, store)
    incidents.append(f"the file was damaged, doctor found {len(found)} symptoms, the backup was restored")
    return before - count_messages(store)


def count_messages(store: Path) -> int:
    """Return the number of messages in all contexts, each checked."""
    with quire.Library(store) as library:
        contexts = [library.open(name) for name in library.list()]
        assert [problem for ctx in contexts for problem in ctx.check()] == []
        return sum(len(ctx.messages()) for ctx in contexts)


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]))
