"""The cost of an agent's calls: opening a page plans no fold, and a call crosses few modules."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import quire
from quire import Context

MESSAGES = 3_000


@pytest.fixture(scope="module")
def long_context() -> Context:
    """A context of several thousand messages that has folded most of them."""
    ctx = quire.open("memory:", budget=8_000)
    ctx.system("You are a careful assistant.")
    for number in range(MESSAGES // 2):
        ctx.conversation.add(
            [
                {"role": "user", "content": f"question {number} about flights to Lisbon"},
                {"role": "assistant", "content": f"answer {number}: there are {number % 7} flights"},
            ]
        )
    ctx.render()
    return ctx


def calls_in_quire(operation: Callable[[], Any]) -> list[str]:
    """Return the file of every function of quire that is called, once for each call.

    The collector of cycles is off during the call: it would run finalizers of objects that earlier tests left.
    """
    files: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/src/quire/" in frame.f_code.co_filename:
            files.append(frame.f_code.co_filename)

    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        operation()
    finally:
        sys.setprofile(None)
        gc.enable()
    return files


def test_opening_a_page_costs_about_what_hiding_it_costs(long_context: Context) -> None:
    agent = long_context.agent
    page = "usr-5"
    agent.expand_details(page)
    agent.hide_details(page)
    opening = calls_in_quire(lambda: agent.expand_details(page))
    hiding = calls_in_quire(lambda: agent.hide_details(page))
    assert len(opening) < 3 * len(hiding)


def test_opening_a_page_draws_and_folds_nothing(long_context: Context) -> None:
    files = calls_in_quire(lambda: long_context.agent.expand_details("usr-9"))
    drawing = ("/view/draw.py", "/view/view_cache.py")
    assert not [file for file in files if "/view/fold/" in file or file.endswith(drawing)]


@pytest.mark.parametrize(
    ("tool", "arguments"), [("expand_details", {"page": "usr-11"}), ("find", {"query": "flights question 12"})]
)
def test_a_tool_call_crosses_at_most_thirty_modules(
    long_context: Context, tool: str, arguments: dict[str, Any]
) -> None:
    tools = long_context.tools
    tools.call("find", {"query": "Lisbon"})
    files = set(calls_in_quire(lambda: tools.call(tool, arguments)))
    assert len(files) <= 30, sorted(file.partition("/src/quire/")[2] for file in files)
