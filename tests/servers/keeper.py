"""A program that runs a server until no process holds a lock on the file `users` in its folder.

A lock ends with its process, even if the process is killed, so no server outlives its test run.
"""

import fcntl
import shutil
import subprocess
import sys
import time
from pathlib import Path


def main(folder: str, data: str, *command: str) -> None:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        with (Path(folder) / "users").open("w") as users:
            while server.poll() is None and not _is_free(users.fileno()):
                time.sleep(0.5)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _is_free(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
