"""A library on each kind of store, for the tests of turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire import Library
from tests.conversation.turn_stores import SHARED, url_of


@pytest.fixture(params=["memory", *SHARED])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Library]:
    """An empty library."""
    with Library(url_of(request.param, tmp_path)) as opened:
        yield opened
