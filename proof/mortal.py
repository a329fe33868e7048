"""Run work in a child process that is killed, and return the lines it sent. Only for programs without threads."""

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

_send = os.write  # a child can replace `os.write` to count its writes
Tell = Callable[[str], None]
"""Sends one line to the parent; a sent line is done work."""


def killed(work: Callable[[Tell], object], moment: float | None, patience: float | None = 0) -> list[str]:
    """Return the lines that a child sent until it was killed, a moment after its first line.

    `patience` is how long to wait for the first line: with 0 the child can be killed before it, with None the wait has
    no limit. With `moment` None the child kills itself. Raise `AssertionError` with the child's error if the child ends
    in another way.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    if moment is not None:
        select.select([reading], [], [], patience)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        lines, _, error = pipe.read().decode().partition("!")
    _, status = os.waitpid(child, 0)
    if error or not os.WIFSIGNALED(status):
        raise AssertionError(f"The child failed by itself:\n{error}")
    return lines.splitlines()


def finished(work: Callable[[], Any]) -> Any:
    """Return the result of work in a child process, or raise `AssertionError` with its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            data = pickle.dumps((True, work()))
        except BaseException:
            data = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    done, result = pickle.loads(data)
    if not done:
        raise AssertionError(f"The child failed:\n{result}")
    return result


def _work(work: Callable[[Tell], object], pipe: int) -> NoReturn:
    def tell(line: str) -> None:
        _send(pipe, f"{line}\n".encode())

    try:
        work(tell)
    except BaseException:
        _send(pipe, b"!" + traceback.format_exc().encode())
    os._exit(1)
