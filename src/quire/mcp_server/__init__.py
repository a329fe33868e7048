"""The MCP server: serves a context to any client of the Model Context Protocol, over stdio or streamable HTTP.

A thin layer over `ctx.tools` and `ctx.agent`; it adds no rules. It needs the extra `mcp`, which is imported
on use. The command is `quire mcp`.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from quire.context import Context
from quire.errors import InvalidValue, NotInstalled, short_repr

if TYPE_CHECKING:
    from typing import Unpack

    from quire.mcp_server.protocol import ContextServer

__all__ = ["ServerAddress", "Settings", "serve_http", "serve_stdio", "server"]

_UNLIMITED_CALLS = (1 << 53) - 1
"""The quota of calls per turn. The server does not know where a client's turn begins, so it does not count calls."""


class Settings(TypedDict, total=False):
    """The settings of a server.

    `actor` is the agent's name in the journal. `tools` are the names of the tools to serve (by default all),
    `read_only` omits tools that write, `prefix` is put before their names. `poll` is the interval in seconds between
    checks for changes by other processes while there are subscriptions.
    """

    actor: str
    tools: Sequence[str]
    prefix: str
    read_only: bool
    poll: float


class ServerAddress(NamedTuple):
    """The URL of a server, and its token if it is new."""

    url: str
    new_token: str | None


def serve_stdio(context: Context, **settings: "Unpack[Settings]") -> None:
    """Serve a context over standard input and output until the input is closed, or Ctrl-C."""
    created = server(context, **settings)
    from quire.mcp_server.stdio import run_stdio

    run_stdio(created)


def serve_http(
    context: Context,
    *,
    host: str = "127.0.0.1",
    port: int = 8378,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    hosts: Sequence[str] = (),
    ready: Callable[[ServerAddress], None] | None = None,
    **settings: "Unpack[Settings]",
) -> None:
    """Serve a context over streamable HTTP until SIGINT or SIGTERM. Calls `ready` with the address.

    Port 0 means any free port. Clients need the `token`, or the one in `token_file`, which is created at the first
    start. If neither is given, a loopback address needs no token, and any other address gets a new one. `hosts` are
    further accepted Host names.
    """
    created = server(context, **settings)
    from quire.mcp_server.http import PATH, run_http
    from quire.server.access import AccessCheck, bind, check_host, is_loopback, load_token, url_of

    is_open = token is None and token_file is None and is_loopback(check_host(host))
    key = None if is_open else load_token(token, token_file)
    listening = bind(host, port)
    url = url_of(*listening.getsockname()[:2]).rstrip("/") + PATH
    if ready is not None:
        ready(ServerAddress(url, key.text if key and key.is_new else None))
    run_http(created, listening, AccessCheck(host, hosts, key.text if key else None))


def server(
    context: Context,
    *,
    actor: str = "agent",
    tools: Sequence[str] = (),
    prefix: str = "",
    read_only: bool = False,
    poll: float = 0.5,
) -> "ContextServer":
    """Return a server for an open context. It is a server of the SDK, for any of its transports or to mount."""
    try:
        from quire.mcp_server.protocol import ContextServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "quire":
            raise
        package = (error.name or "mcp").partition(".")[0].removesuffix("_types")  # the SDK ships its types separately
        raise NotInstalled(f"The MCP server needs {package}", "mcp", name=package) from None
    from quire.agent import Quota
    from quire.mcp_server.resources import ServedContext

    if not isinstance(context, Context):
        raise InvalidValue(f"is {short_repr(context)}; an open context is needed.", argument="context")
    if isinstance(poll, bool) or not isinstance(poll, int | float) or not 0 < poll < float("inf"):
        raise InvalidValue(f"is {short_repr(poll)}; a number of seconds above 0 is needed.", argument="poll")
    agent = context.as_agent(actor, quota=Quota(calls=_UNLIMITED_CALLS))
    selected = context.tools_of(agent, beside=True)
    if read_only:
        selected = selected.reading()
    if tools:
        selected = selected.only(*tools)
    return ContextServer(ServedContext(context, agent, selected.prefixed(prefix), prefix), poll)
