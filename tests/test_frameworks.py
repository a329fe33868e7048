"""In CI no test of an adapter is skipped in silence because a package is missing."""

import os
from importlib.util import find_spec

import pytest

from tests.frameworks import MISSING, SDKS_MISSING


@pytest.mark.clients
@pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason="pip install -e '.[test-clients]' brings them")
def test_the_frameworks_are_here() -> None:
    assert MISSING == []


def test_the_sdks_are_here() -> None:
    assert SDKS_MISSING == []


@pytest.mark.servers
@pytest.mark.skipif(not os.environ.get("CI"), reason="pip install -e '.[test-servers]' brings playwright")
def test_the_browser_can_be_driven() -> None:
    assert find_spec("playwright") is not None
