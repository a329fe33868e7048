"""A strict provider that keeps its exchanges as bytes, a gateway in front of it, and clients."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import State, StrictProvider


@pytest.fixture
def upstream() -> Iterator[StrictProvider]:
    with StrictProvider(State(), ToolScript()) as made:
        made.wire = []
        yield made


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    """Return a function that makes a client in a folder of its own."""
    return lambda name, **options: Client(name, tmp_path / name, **options)
