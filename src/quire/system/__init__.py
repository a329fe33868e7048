"""The API of a context for developers: pages and segments with all their rules."""

from quire.system.check import Problem
from quire.system.context_system import ContextSystem
from quire.system.journal import Change, Entry

__all__ = ["Change", "ContextSystem", "Entry", "Problem"]
