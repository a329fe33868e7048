"""An MCP server for the client of a running gateway: its model searches and reads what was folded in its session.

At every call the gateway names the session: the one with the newest request, except the sessions of sub-agents.
"""

import urllib.request
from importlib.metadata import version
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server

import quire
from quire.agent import Quota
from quire.aio.calls import CallQueue
from quire.errors import InvalidOperation, QuireError
from quire.gateway.sessions import SessionInfo
from quire.library import Library

TOOLS = ("find", "read_page")
_UNLIMITED_CALLS = (1 << 53) - 1
_TIMEOUT = 10.0


class RecallServer(Server[None]):
    """Serves the tools find and read_page over the sessions of the gateway at `url`."""

    def __init__(self, library: Library, url: str) -> None:
        self._library, self._url = library, url
        self._calls = CallQueue()
        self._open: dict[str, quire.Context] = {}
        super().__init__(
            "quire",
            version=version("quire"),
            instructions="Search and read the parts of this conversation that were folded.",
            get_tool_input_schema=lambda _: None,  # no tool takes arguments from headers
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(self, ctx: Any, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        with quire.open("memory:") as context:
            tools = context.tools.only(*TOOLS).mcp()
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])

    async def _call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, failed = await self._calls.run(self._answer, params.name, params.arguments)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    def _answer(self, name: str, arguments: Any) -> tuple[str, bool]:
        try:
            context = self._find_context()
        except QuireError as error:
            return str(error), True
        except OSError as error:
            return f"The gateway of this session does not answer: {error}. The tools work only while it runs.", True
        agent = context.as_agent("agent", quota=Quota(calls=_UNLIMITED_CALLS))
        answer = context.tools_of(agent, beside=True).only(*TOOLS).answer(name, arguments or {})
        return answer.text, answer.failed

    def _find_context(self) -> quire.Context:
        """Return the context of the session. Raise `InvalidOperation` if there is none yet."""
        with urllib.request.urlopen(f"{self._url}/quire/sessions", timeout=_TIMEOUT) as response:
            sessions = msgspec.json.decode(response.read(), type=list[SessionInfo])
        main = [session for session in sessions if "." not in session.name.rpartition("/")[2]] or sessions
        if not main:
            raise InvalidOperation("Nothing of this conversation is recorded yet.")
        name = max(main, key=lambda session: session.updated).name
        context = self._open.get(name)
        if context is None:
            context = self._open[name] = self._library.open(name, create=False)
        context.refresh()
        return context
