"""Fixed examples of what is known to be wrong today.

Each test states what is right. It is marked as a strict expected failure, with the step of the redesign that mends it:
the mark goes when the step is done. A test without a mark is the sound neighbour of a failure.
"""

from typing import Any

import pytest

FIRST_STEP, LAST_STEP = 2, 9


def until_step(
    step: int,
    why: str,
    raises: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
    *,
    example_of: str = "",
) -> pytest.MarkDecorator:
    """Return the mark of a test that fails until a step is done. `raises` is the only kind of failure that counts.

    `example_of` names the row of `tests/exclusions.py` that leaves this failure out of the random tests.
    """
    assert FIRST_STEP <= step <= LAST_STEP, step
    reason = f"step {step}: {why}" + f" ({example_of})" * bool(example_of)
    return pytest.mark.xfail(strict=True, raises=raises, reason=reason)


def fails(*values: Any, step: int, why: str, id: str | None = None) -> Any:  # noqa: A002
    """Return the values of a parametrized case that fails until a step is done."""
    return pytest.param(*values, id=id, marks=until_step(step, why))
