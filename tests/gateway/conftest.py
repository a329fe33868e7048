from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.gateway
from tests.strict_provider import StrictProvider

Start = Callable[..., Any]
"""Starts a gateway and returns it: it has a `url`, a `host` and a `port`, and can be stopped."""
Recorded = Callable[[], dict[str, list[str]]]


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    with StrictProvider() as strict:
        yield strict


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def gateways() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(provider: StrictProvider, store: str, gateways: ExitStack) -> Start:
    """Start a gateway in front of the strict provider, with a SQLite store."""

    def start_one(where: object = store, **settings: Any) -> Any:
        defaults = {"anthropic": provider.url, "openai": provider.url, "port": 0}
        return gateways.enter_context(quire.gateway.start(where, **{**defaults, **settings}))  # type: ignore[arg-type]

    return start_one


@pytest.fixture
def recorded(store: str, gateways: ExitStack) -> Recorded:
    """Stop the gateways, and return the texts of the messages of every context."""

    def read() -> dict[str, list[str]]:
        gateways.close()
        with quire.Library(store) as library:
            return {
                name.removeprefix("gateway/"): [_text(message) for message in library.open(name).messages()]
                for name in library.list(prefix="gateway/")
            }

    return read


def _text(message: quire.Message) -> str:
    calls = "".join(f"<{call.name}>" for call in message.tool_calls)
    return f"{message.role[0]}:{message.text}{calls}"
