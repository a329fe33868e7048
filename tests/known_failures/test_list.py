"""The list of exclusions: each name has a fixed example, and no other name is excluded."""

import re
from pathlib import Path

import pytest

from tests.exclusions import EXCLUSIONS, excluded


def test_each_exclusion_is_the_name_of_a_fixed_example() -> None:
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    assert set(re.findall(r'example_of="(\w+)"', "".join(texts))) == EXCLUSIONS


def test_a_name_that_is_not_listed_fails() -> None:
    with pytest.raises(AssertionError):
        excluded("misspelt")
