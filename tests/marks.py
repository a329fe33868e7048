"""Marks for values of parameters."""

from typing import Any

import pytest


def broad(*values: Any) -> list[Any]:
    """Return the values as parameters that only a run with `--broad` uses."""
    return [pytest.param(value, marks=pytest.mark.broad) for value in values]
