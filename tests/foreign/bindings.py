"""A pytest plugin that puts quire's adapters in the place of the frameworks' own classes, and records the outcomes.

It is loaded in the suite of a framework: `pytest -p tests.foreign.bindings`. QUIRE_SUITE names the suite, and
QUIRE_OUTCOMES the file for the outcomes.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import quire

_outcomes: dict[str, str] = {}


def bind_agents() -> None:
    """`SQLiteSession` of the Agents SDK is a `QuireSession` in a file, or in memory."""
    import agents
    from agents import memory

    from quire.adapters.openai_agents import QuireSession

    class SQLiteSession(QuireSession):
        def __init__(self, session_id: str, db_path: str | Path = ":memory:", *_: Any, **options: Any) -> None:
            where: Any = quire.MemoryStorage() if str(db_path) == ":memory:" else f"sqlite:{db_path}"
            settings = options.pop("session_settings", None)
            super().__init__(session_id, where, session_settings=settings)

    vars(agents)["SQLiteSession"] = SQLiteSession
    vars(memory)["SQLiteSession"] = SQLiteSession


def make_file_tool() -> Any:
    """Return a memory tool whose files are copied to a folder after each command."""
    from quire.adapters.anthropic import QuireMemoryTool

    class FileTool(QuireMemoryTool):
        def __init__(self, base_path: str = "./memory") -> None:
            self.memories = quire.open(quire.MemoryStorage())
            self.folder = self.memories.pages.create_contents_page("Memories", "", "mem-0")
            super().__init__(self.memories, self.folder)
            self.base_path = Path(base_path)
            self.memory_root = self.base_path / "memories"
            self.copy()

        def copy(self) -> None:
            shutil.rmtree(self.memory_root, ignore_errors=True)
            self.memory_root.mkdir(parents=True)
            self.copy_folder(self.folder, self.memory_root)

        def copy_folder(self, folder: str, target: Path) -> None:
            for page in self.memories.pages.children(folder):
                if isinstance(page, quire.ContentsPage):
                    (target / page.name).mkdir()
                    self.copy_folder(page.index, target / page.name)
                else:
                    (target / page.name).write_bytes(self.memories.pages.detail(page.index).encode())

    def copying(name: str) -> Callable[..., Any]:
        def run(tool: FileTool, *args: Any) -> Any:
            try:
                return getattr(super(FileTool, tool), name)(*args)
            finally:
                tool.copy()

        return run

    commands = ("view", "create", "str_replace", "insert", "delete", "rename", "execute", "clear_all_memory")
    for name in commands:
        setattr(FileTool, name, copying(name))
    return FileTool


def bind_anthropic() -> None:
    """The memory tools of the SDK for files are quire's. The files are copied to the folder, where the tests look."""
    from anthropic.lib.tools import _beta_builtin_memory_tool as of_sdk

    file_tool = make_file_tool()

    class AsyncFileTool(of_sdk.BetaAsyncAbstractMemoryTool):
        def __init__(self, base_path: str = "./memory") -> None:
            super().__init__()
            self._tool = file_tool(base_path)
            self.base_path, self.memory_root = self._tool.base_path, self._tool.memory_root

        async def execute(self, command: Any) -> Any:
            return self._tool.execute(command)

        view = create = str_replace = insert = delete = rename = execute

        async def clear_all_memory(self) -> Any:
            return self._tool.clear_all_memory()

    vars(of_sdk)["BetaLocalFilesystemMemoryTool"] = file_tool
    vars(of_sdk)["BetaAsyncLocalFilesystemMemoryTool"] = AsyncFileTool


def bind_langgraph() -> None:
    """`InMemoryStore` of LangGraph is a `QuireStore` in memory."""
    from langgraph.store import memory

    from quire.adapters.langgraph import QuireStore

    class InMemoryStore(QuireStore):
        def __init__(self, **options: Any) -> None:
            super().__init__(quire.MemoryStorage(), **options)

    vars(memory)["InMemoryStore"] = InMemoryStore


def bind_langchain() -> None:
    """`InMemoryChatMessageHistory` of LangChain is a `QuireChatMessageHistory` in memory."""
    from langchain_core import chat_history

    from quire.adapters.langchain import QuireChatMessageHistory

    class InMemoryChatMessageHistory(QuireChatMessageHistory):
        __doc__ = chat_history.InMemoryChatMessageHistory.__doc__

        def __init__(self, messages: Sequence[Any] = ()) -> None:
            super().__init__("session", quire.MemoryStorage())
            self.add_messages(messages)

    vars(chat_history)["InMemoryChatMessageHistory"] = InMemoryChatMessageHistory


BINDINGS: dict[str, Callable[[], None]] = {
    "openai-agents": bind_agents,
    "anthropic": bind_anthropic,
    "langgraph-checkpoint": bind_langgraph,
    "langchain-core": bind_langchain,
}


def pytest_configure(config: Any) -> None:
    """Bind the adapter before the tests are imported."""
    BINDINGS[os.environ["QUIRE_SUITE"]]()


def pytest_runtest_logreport(report: Any) -> None:
    """Record the outcome of a test; a failure of its setup or its teardown is a failure."""
    if (report.when == "call" or report.outcome != "passed") and _outcomes.get(report.nodeid) != "failed":
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    """Write the outcomes."""
    Path(os.environ["QUIRE_OUTCOMES"]).write_text(json.dumps(_outcomes))
