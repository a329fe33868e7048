from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.gateway
from quire.gateway.gateway_server import RunningGateway
from tests.strict_provider import StrictProvider

Start = Callable[..., RunningGateway]


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    with StrictProvider() as strict:
        yield strict


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def start(provider: StrictProvider, store: str) -> Iterator[Start]:
    """Start a gateway in front of the strict provider, with a SQLite store."""
    with ExitStack() as stack:

        def start_one(**settings: Any) -> RunningGateway:
            defaults = {"anthropic": provider.url, "openai": provider.url, "port": 0}
            return stack.enter_context(quire.gateway.start(store, **{**defaults, **settings}))

        yield start_one


@pytest.fixture
def recorded(store: str) -> Callable[[RunningGateway], dict[str, list[str]]]:
    """Return the texts of the messages of every context, after everything was recorded."""

    def read(running: RunningGateway) -> dict[str, list[str]]:
        running.gateway.sessions.drain()
        with quire.Library(store) as library:
            return {
                name.removeprefix("gateway/"): [_text(message) for message in library.open(name).messages()]
                for name in library.list(prefix="gateway/")
            }

    return read


def _text(message: quire.Message) -> str:
    calls = "".join(f"<{call.name}>" for call in message.tool_calls)
    return f"{message.role[0]}:{message.text}{calls}"
