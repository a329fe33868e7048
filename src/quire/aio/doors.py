"""The awaited faces, each filled from the plain one. It imports all of quire: `entrance` has a thread do that."""

from quire import context as one
from quire import library as many
from quire.agent import AgentContext as PlainAgentContext
from quire.agent.tools import Tools as PlainTools
from quire.aio.entrance import Closed, Library
from quire.aio.faces import Faced, awaited
from quire.conversation import Conversation as PlainConversation
from quire.system import ContextSystem as PlainContextSystem
from quire.windows.windows import Windows as PlainWindows


@awaited(PlainContextSystem)
class ContextSystem(Faced):
    """`quire.ContextSystem`, awaited."""


@awaited(PlainConversation)
class Conversation(Faced):
    """`quire.Conversation`, awaited."""


@awaited(PlainAgentContext)
class AgentContext(Faced):
    """`quire.AgentContext`, awaited."""


@awaited(PlainTools)
class Tools(Faced):
    """`quire.Tools`, awaited."""

    async def has(self, name: str) -> bool:
        """Whether there is a tool of this name; `name in tools`, awaited."""
        return await self._lane.run(lambda: name in self._inner())


@awaited(PlainWindows)
class Windows(Faced):
    """`quire.Windows`, awaited. Apps run in threads of their own, as ever."""


@awaited(
    one.Context,
    alone=True,
    beside={
        "pages": PlainContextSystem,
        "conversation": PlainConversation,
        "agent": PlainAgentContext,
        "tools": PlainTools,
        "windows": PlainWindows,
    },
)
class Context(Closed):
    """`quire.Context`, awaited. `name` and `budget` are at hand; other properties are awaited."""

    @property
    def budget(self) -> int:
        """The tokens that a view may take; it can be set."""
        found: int = self._inner().budget
        return found

    @budget.setter
    def budget(self, budget: int) -> None:
        self._inner().budget = budget


awaited(many.Library)(Library)
