"""In CI no test is left out in silence because a package of its tier is missing."""

import os

import pytest

from tests.frameworks import MISSING


@pytest.mark.clients
@pytest.mark.skipif(not os.environ.get("CI"), reason="pip install -e '.[test-clients]' brings the packages")
def test_the_packages_of_every_tier_are_here() -> None:
    assert MISSING == []
