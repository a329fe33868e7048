"""A child that works until it is killed, and what it told before. Only for programs without threads: it forks."""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

Tell = Callable[[str], None]
"""Tells the parent one line; what was told was done."""


def killed(work: Callable[[Tell], object], moment: float, patience: float | None = 0) -> list[str]:
    """The lines that a child told until it was killed, a moment after its first one.

    That is waited for with so much patience: not at all, so that it may be killed before, or, with None, for ever.
    Raises `AssertionError` with what was raised if the child ended by itself.
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
