"""A library on each kind of store, for the tests of turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire import Library
from tests.conversation.turn_stores import SHARED
from tests.servers.stores import new_url


@pytest.fixture(params=["memory", *SHARED])
def library(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """An empty library."""
    with Library(new_url(request.param, tmp_path, monkeypatch)) as opened:
        yield opened
