"""Agents: the operations of a context behind permissions, and the tools made of them."""

from quire.agent.agent import AgentContext
from quire.system.rules import Quota

__all__ = ["AgentContext", "Quota"]
