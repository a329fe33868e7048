"""Marks for values of parameters."""

from typing import Any

import pytest


def servers(*values: Any) -> list[Any]:
    """Return the values as parameters of the tier `servers`."""
    return [pytest.param(value, marks=pytest.mark.servers) for value in values]


def long(*values: Any) -> list[Any]:
    """Return the values as parameters that only a run with `--long` uses."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
