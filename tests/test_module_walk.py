"""The number of modules that one call crosses: the walk of a message in and out stays short enough to follow."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import quire

MAX_MESSAGE = 27
"""The most modules from `ctx.add` to `view.openai()`."""
KEY = "shore rice-485"
"""A key that does not resemble the texts: the search for a resemblance has two modules of its own."""


def crossed(call: Callable[[], object]) -> set[str]:
    """Return the modules of quire that run code during a call.

    The collector of cycles is off during the call: it would run finalizers of objects that earlier tests left.
    """
    modules: set[str] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and (name == "quire" or name.startswith("quire.")):
            modules.add(name)

    gc.collect()
    gc.disable()
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return modules


def test_a_message_in_and_out_crosses_few_modules() -> None:
    ctx = quire.open("memory:", budget=2_000, key=KEY)
    ctx.system("You are a careful travel agent.")
    for number in range(60):
        ctx.user(f"Question {number} about flight HAT{number}. " * 8)
        ctx.render()
        ctx.assistant(f"Answer {number}. " * 10)
    ctx.render().openai()
    modules = crossed(lambda: (ctx.add({"role": "user", "content": "Hello"}), ctx.render().openai()))
    assert {"core", "view"} <= {name.split(".")[1] for name in modules if "." in name}  # the call is recorded
    assert len(modules) <= MAX_MESSAGE, sorted(modules)
