"""A strict provider that keeps its exchanges as bytes, a gateway in front of it, and clients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_clients.gateways import start_gateway
from tests.gateway_clients.runs import Client
from tests.gateway_clients.script import ToolScript
from tests.strict_provider import State, StrictProvider

Open = Callable[..., Any]


@pytest.fixture
def upstream() -> Iterator[StrictProvider]:
    with StrictProvider(State(), ToolScript()) as made:
        made.wire = []
        yield made


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    """Return a function that makes a client in a folder of its own."""
    return lambda name, **options: Client(name, tmp_path / name, **options)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def start(upstream: StrictProvider, store: Path) -> Iterator[Open]:
    """Start a gateway in front of the strict provider; it records in `store` and stops at the end."""
    with ExitStack() as stack:

        def start_one(mode: str = "observe", budget: int = 120_000) -> Any:
            return stack.enter_context(start_gateway(upstream, store, budget, mode))

        yield start_one
