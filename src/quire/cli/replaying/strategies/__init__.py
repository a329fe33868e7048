"""How others keep a conversation within a budget, each in a few lines, and quire: all of them behind one protocol.

Nobody's code is run here but quire's. Each of the others does what the packages named with it do, as they are
documented and as their source was read, with what they leave to the user derived from the budget.
"""

from quire.cli.replaying.strategies.base import Aside, Setting, Strategy
from quire.cli.replaying.strategies.table import KINDS, Kind, chosen

__all__ = ["KINDS", "Aside", "Kind", "Setting", "Strategy", "chosen"]
