"""In CI no test of an adapter is skipped in silence because a package is missing."""

import os

import pytest

from tests.frameworks import MISSING, SDKS_MISSING


@pytest.mark.clients
@pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason="pip install -e '.[test-clients]' brings them")
def test_the_frameworks_are_here() -> None:
    assert MISSING == []


def test_the_sdks_are_here() -> None:
    assert SDKS_MISSING == []
