"""Marks for values of parameters."""

from typing import Any

import pytest


def servers(*values: Any) -> list[Any]:
    """Return the values as parameters of the tier `servers`."""
    return [pytest.param(value, marks=pytest.mark.servers) for value in values]


def long(*values: Any) -> list[Any]:
    """Return the values as parameters that only a run with `--long` uses."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def broad(*values: Any) -> list[Any]:
    """Return the values as parameters of another tier. It goes with the tests that use it."""
    return [servers(value)[0] if value in {"postgres", "s3"} else long(value)[0] for value in values]
