"""The MCP server: a context for any client of the Model Context Protocol, over stdio or streamable HTTP.

Thin over `ctx.tools` and `ctx.agent`: no rule lives here. It needs `pip install 'quire[mcp]'`, which is loaded when it
is used. `quire mcp` is its command.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from quire.context import Context
from quire.errors import InvalidValue, short_repr

if TYPE_CHECKING:
    from typing import Unpack

    from quire.mcp_server.protocol import BookServer

__all__ = ["Place", "Settings", "serve_http", "serve_stdio", "server"]

_CALLS = 1 << 62
"""No server knows where a turn of its client's begins, so calls are not counted by turns here."""


class Settings(TypedDict, total=False):
    """What can be said of a server.

    `actor` is the name of the agent in the journal. `tools` are the names of those that are served, `read_only` leaves
    out those that change anything, `prefix` stands before their names. `poll` is how often, in seconds, the store is
    asked for changes of others while anybody subscribes.
    """

    actor: str
    tools: Sequence[str]
    prefix: str
    read_only: bool
    poll: float


class Place(NamedTuple):
    """Where a server listens, and its token if that was made just now."""

    url: str
    new_token: str | None


def server(context: Context, **settings: "Unpack[Settings]") -> "BookServer":
    """A server for a context that is open: the SDK's own kind, for any transport of its, or to mount somewhere."""
    made: BookServer = _made(context, **settings)
    return made


def serve_stdio(context: Context, **settings: "Unpack[Settings]") -> None:
    """Serve a context over standard input and output until the input is closed, or Ctrl-C."""
    made = _made(context, **settings)
    from quire.mcp_server.stdio import run_stdio

    run_stdio(made)


def serve_http(
    context: Context,
    *,
    host: str = "127.0.0.1",
    port: int = 8378,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    hosts: Sequence[str] = (),
    ready: Callable[[Place], None] | None = None,
    **settings: "Unpack[Settings]",
) -> None:
    """Serve a context over streamable HTTP until SIGINT or SIGTERM; `ready` is told where (port 0: any that is free).

    Clients have to bring the `token`, or that of `token_file`, which is made at the first start. Without either none is
    needed on this machine, and one is made where others can reach it. `hosts` are further names it may be asked by.
    """
    made = _made(context, **settings)
    from quire.mcp_server.http import PATH, Doors, run_http
    from quire.web.keys import key_for
    from quire.web.listening import address_of, check_host, listening_at
    from quire.web.visitors import Names, Token, is_loopback

    is_open = token is None and token_file is None and is_loopback(check_host(host))
    key = None if is_open else key_for(token, token_file)
    listening = listening_at(host, port)
    url = address_of(*listening.getsockname()[:2]).rstrip("/") + PATH
    (ready or (lambda _: None))(Place(url, key.token if key and key.is_new else None))
    run_http(made, listening, Doors(Names(host, hosts), Token(key.token) if key else None))


def _made(
    context: Context,
    *,
    actor: str = "agent",
    tools: Sequence[str] = (),
    prefix: str = "",
    read_only: bool = False,
    poll: float = 0.5,
) -> Any:
    try:
        from quire.mcp_server.protocol import BookServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "quire":
            raise
        from quire.errors import NotInstalled

        package = (error.name or "mcp").partition(".")[0].removesuffix("_types")  # the SDK has its types apart
        raise NotInstalled(f"The MCP server needs {package}: pip install 'quire[mcp]'.", name=package) from None
    from quire.agent.gate import Quota
    from quire.mcp_server.book import Book, chosen

    if not isinstance(context, Context):
        raise InvalidValue(
            f"context is {short_repr(context)}; a context that is open is needed, such as quire.open(…)."
        )
    if isinstance(poll, bool) or not isinstance(poll, int | float) or not 0 < poll < float("inf"):
        raise InvalidValue(f"poll is {short_repr(poll)}; a number of seconds above 0 is needed.")
    agent = context.acting(actor, quota=Quota(calls=_CALLS))
    served = chosen(context.tools_of(agent, beside=True), tools, prefix, read_only=read_only)
    return BookServer(Book(context, agent, served, prefix=prefix), poll)
