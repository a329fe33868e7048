"""The agent's face: the same operations behind one gate, and tools made of them."""

from quire.agent.facade import AgentContext
from quire.agent.quota import Quota

__all__ = ["AgentContext", "Quota"]
