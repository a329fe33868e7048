"""What the tools work with: the agent, its windows if there are any, and how full its view is."""

from collections.abc import Callable
from typing import Any, Protocol

from quire.agent.facade import AgentContext


class Windowing(Protocol):
    """What the tools need of windows."""

    def create(self, app: str, arguments: dict[str, Any]) -> str: ...
    def act(self, window: str, action: str, arguments: dict[str, Any]) -> str: ...
    def close(self, window: str, summary: str | None) -> str: ...


class Desk:
    """Everything one agent's tools need. `windows` gives its windows, or None while no app is registered."""

    def __init__(self, agent: AgentContext, windows: Callable[[], Windowing | None] = lambda: None) -> None:
        self.agent = agent.telling()
        self.windows = windows
