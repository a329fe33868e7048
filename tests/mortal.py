"""Run work in a child process that is killed, and return the lines it sent. Only for programs without threads."""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

Tell = Callable[[str], None]
"""Sends one line to the parent; a sent line is done work."""


def killed(work: Callable[[Tell], object], moment: float, patience: float | None = 0) -> list[str]:
    """Return the lines that a child sent until it was killed, a moment after its first line.

    `patience` is how long to wait for the first line: with 0 the child can be killed before it, with None the wait has
    no limit. Raise `AssertionError` with the child's error if the child ends by itself.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    select.select([reading], [], [], patience)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        lines, _, error = pipe.read().decode().partition("!")
    if error:
        raise AssertionError(f"The child failed by itself:\n{error}")
    return lines.splitlines()


def _work(work: Callable[[Tell], object], pipe: int) -> NoReturn:
    def tell(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())

    try:
        work(tell)
    except BaseException:
        os.write(pipe, b"!" + traceback.format_exc().encode())
    os._exit(1)
