"""The agent's face: the same operations behind one gate, and tools made of them."""

from quire.agent.agent import AgentContext
from quire.agent.gate import Quota

__all__ = ["AgentContext", "Quota"]
