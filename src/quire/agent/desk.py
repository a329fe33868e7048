"""What the tools work with: the agent, its windows if there are any, and how full its view is."""

from collections.abc import Callable
from typing import Any, Protocol

from quire.agent.facade import AgentContext
from quire.pages import PageIndex


class Windowing(Protocol):
    """What the tools need of windows."""

    def create(self, app: str, arguments: dict[str, Any]) -> str: ...
    def act(self, window: str, action: str, arguments: dict[str, Any]) -> str: ...
    def close(self, window: str, summary: str | None) -> str: ...


class Desk:
    """Everything one agent's tools need. `windows` gives its windows, or None while no app is registered.

    `beside` is for a model whose own talk is not the one of this context: what it calls does not stand in it.
    """

    def __init__(
        self,
        agent: AgentContext,
        windows: Callable[[], Windowing | None] = lambda: None,
        *,
        beside: bool = False,
    ) -> None:
        self.agent = agent if beside else agent.telling()
        self.windows = windows
        self._beside = beside

    def at_hand(self) -> set[PageIndex]:
        """What the model is answering just now and need not look for."""
        return set() if self._beside else self.agent.at_hand()
