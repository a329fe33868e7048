"""A gateway in front of a strict provider."""

from pathlib import Path
from typing import Any

import quire.gateway
from tests.strict_provider import StrictProvider


def start_gateway(upstream: StrictProvider, store: Path, budget: int, mode: str = "fold") -> Any:
    """Start a gateway on any free port, as a context manager."""
    places: Any = {"anthropic": upstream.url, "openai": upstream.url, "port": 0}
    return quire.gateway.start(store, mode=mode, budget=budget, **places)  # type: ignore[arg-type]
