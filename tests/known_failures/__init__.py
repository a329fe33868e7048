"""Fixed examples of what is known to be wrong today.

Each test states what is right. It is marked as a strict expected failure, with the step of the redesign that mends it:
the mark goes when the step is done. A test without a mark is the sound neighbour of a failure. What a test needs before
it can tell anything stands in `given`: if that fails, the test fails for another reason than the one of its mark.

The steps are the parts of quire that are built again, in this order: 2 what is stored, 3 folding and views, 4 search,
windows and agents, 5 providers, adapters and the gateway, 6 the command line and the servers, 7 secrets and erasure,
8 the figures, 9 what is left.
"""

from typing import Any

import pytest

from quire import Context
from tests.exclusions import excluded

FIRST_STEP, LAST_STEP = 2, 9


def until_step(
    step: int,
    why: str,
    raises: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
    *,
    example_of: str = "",
) -> pytest.MarkDecorator:
    """Return the mark of a test that fails until a step is done. `raises` is the only kind of failure that counts.

    `example_of` is the name in `tests/exclusions.py` that leaves this failure out of the random tests.
    """
    assert FIRST_STEP <= step <= LAST_STEP, step
    assert not example_of or excluded(example_of)
    reason = f"step {step}: {why}" + f" ({example_of})" * bool(example_of)
    return pytest.mark.xfail(strict=True, raises=raises, reason=reason)


def given(condition: object) -> None:
    """Check what a test needs. The error is no AssertionError, so no mark takes it for the known failure."""
    if not condition:
        raise RuntimeError("what this test needs is not so")


def fails(*values: Any, step: int, why: str, id: str | None = None) -> Any:
    """Return the values of a parametrized case that fails until a step is done."""
    return pytest.param(*values, id=id, marks=until_step(step, why))


def prompts_of(ctx: Context) -> list[str]:
    """Return the texts that speak as `system`, without the preamble."""
    shown = [str(message["content"]) for message in ctx.render(preview=True).openai() if message["role"] == "system"]
    return [text for text in shown if not text.startswith("Context key")]
