"""Anthropic's memory tool with a context behind it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from quire.adapters.anthropic.memories import Memories, Refused
from quire.adapters.shared.opening import installed
from quire.agent.agent import AgentContext
from quire.aio import CallQueue
from quire.context import Context
from quire.model.pages import PageIndex

with installed("anthropic"):
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

Result = TypeVar("Result")


class QuireMemoryTool(BetaAbstractMemoryTool):
    """The memory tool with pages of a context for files.

    `/memories` is the folder `memories` of the agent's notes, or the one whose index is given. `agent` is who the
    model acts as there, with its rights and quota. Everything it does is in the journal, and `ctx.undo` undoes it.
    """

    def __init__(
        self,
        ctx: Context,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self.memories = Memories(ctx, folder, agent)

    def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Carry out a command. Raises `ToolError` with what the model is to be told."""
        return _told(lambda: super(QuireMemoryTool, self).execute(command))

    def view(self, command: "BetaMemoryTool20250818ViewCommand") -> str:
        """A directory two levels deep, or a file with its lines numbered."""
        return self.memories.view(command.path, command.view_range)

    def create(self, command: "BetaMemoryTool20250818CreateCommand") -> str:
        """A new file."""
        return self.memories.create(command.path, command.file_text)

    def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> str:
        """Another text in the place of one."""
        return self.memories.str_replace(command.path, command.old_str, command.new_str)

    def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> str:
        """A text after a line."""
        return self.memories.insert(command.path, command.insert_line, command.insert_text)

    def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> str:
        """A file or a directory away."""
        return self.memories.delete(command.path)

    def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> str:
        """A file or a directory by another name, or in another place."""
        return self.memories.rename(command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        """All files away."""
        return _told(self.memories.clear)


class QuireAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """`QuireMemoryTool` for async clients: the work is done in a thread, one command after the other."""

    def __init__(
        self,
        ctx: Context,
        folder: PageIndex | None = None,
        *,
        agent: AgentContext | None = None,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._tool = QuireMemoryTool(ctx, folder, agent=agent)
        self._lane = CallQueue()

    @property
    def memories(self) -> Memories:
        """The files."""
        return self._tool.memories

    async def execute(self, command: "BetaMemoryTool20250818Command") -> Any:
        """Carry out a command. Raises `ToolError` with what the model is to be told."""
        return await self._lane.run(self._tool.execute, command)

    async def view(self, command: "BetaMemoryTool20250818ViewCommand") -> Any:
        """A directory two levels deep, or a file with its lines numbered."""
        return await self.execute(command)

    async def create(self, command: "BetaMemoryTool20250818CreateCommand") -> Any:
        """A new file."""
        return await self.execute(command)

    async def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> Any:
        """Another text in the place of one."""
        return await self.execute(command)

    async def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> Any:
        """A text after a line."""
        return await self.execute(command)

    async def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> Any:
        """A file or a directory away."""
        return await self.execute(command)

    async def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> Any:
        """A file or a directory by another name, or in another place."""
        return await self.execute(command)

    async def clear_all_memory(self) -> str:
        """All files away."""
        return await self._lane.run(self._tool.clear_all_memory)


def _told(command: Callable[[], Result]) -> Result:
    """Carry out a command; what was wrong with it is told to the model."""
    try:
        return command()
    except Refused as error:
        raise ToolError(str(error)) from None
    except (AttributeError, NotImplementedError, TypeError) as error:  # a field is missing, or of another type
        raise ToolError(f"Invalid memory command: {error}") from error
