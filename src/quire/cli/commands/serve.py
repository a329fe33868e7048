"""The commands serve and mcp, and serving for other commands."""

import argparse
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import quire
from quire.cli.command import BUDGET, CONTEXT, REDACT, STORE, argument, command, existing_name, new_name, token_count
from quire.cli.terminal import Output, pick
from quire.errors import NotInstalled

if TYPE_CHECKING:
    from quire.mcp_server import ServerAddress
    from quire.server.http_server import RunningServer

_TOKEN = "QUIRE_TOKEN"


def can_serve() -> bool:
    """Return whether the packages of the server are installed (`quire[server]`)."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


def serve_inspector(
    where: str, out: Output, *, context: str | None = None, browse: bool = False, **options: Any
) -> None:
    """Serve a store until Ctrl-C, print the link, and open it in a browser if `browse` is set.

    With `context` the inspector opens that context. The options are those of `quire.server.start`.
    """
    from quire import metrics
    from quire.server import serve

    def ready(running: "RunningServer") -> None:
        target = f"&context={quote(context, safe='')}" if context is not None else ""
        link = f"{running.url}{target}" if running.token_is_new else running.address
        if out.json:
            token = {"token": running.token} if running.token_is_new else {}
            out.value({"url": link, "address": running.address, **token})
        else:
            out.line(f"the inspector is at {out.paint.cyan(link)}")
            if not running.token_is_new:
                file = f"the content of {options.get('token_file')}"
                source = f"the value of {_TOKEN}" if options.get("token") is not None else file
                out.line(out.paint.dim(f"it asks for the token: {source}"))
            out.line(out.paint.dim("Ctrl-C stops it"))
        sys.stdout.flush()
        if browse and _has_browser():
            import webbrowser

            webbrowser.open(running.url + target)

    metrics.start()
    try:
        serve(where, ready=ready, **options)
    finally:
        metrics.stop()


def _has_browser() -> bool:
    """Return whether a graphical browser can open; a text browser would take over this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@command(
    STORE,
    argument("-c", "--context", metavar="NAME", help="the context that the link opens"),
    argument("--host", default="127.0.0.1", metavar="HOST", help="address to bind (default: %(default)s)"),
    argument("--port", type=int, default=8377, metavar="N", help="0 is any free port (default: %(default)s)"),
    argument("--token-file", metavar="FILE", help="the file of the token; created at the first start"),
    argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another host name that requests may use"
    ),
    argument("-b", "--budget", type=token_count, metavar="TOKENS", help="the token budget of new contexts"),
    argument("--create", action="store_true", help="create the store if it does not exist"),
    REDACT,
    argument("--open", action="store_true", help="open the link in a browser"),
    examples=(
        "quire serve agent.db --open",
        "quire serve postgresql://localhost/agents --host 0.0.0.0 --allow-host quire.example --token-file token",
    ),
    about=f"Every request needs a token: the value of {_TOKEN}, the content of the token file, or a new one that is"
    " part of the printed link. Requires the extra server.",
)
def run_serve(options: argparse.Namespace, out: Output) -> None:
    if options.context is not None and not options.create:
        with quire.Library(options.where, create=False) as library:
            options.context = existing_name(library, options)
    serve_inspector(
        options.where,
        out,
        browse=options.open,
        token=os.environ.get(_TOKEN) or None,
        hosts=options.allow_host,
        redact=quire.redact_secrets if options.redact else None,
        **pick(options, "context", "host", "port", "token_file", "budget", "create"),
    )


_HOST = "127.0.0.1"
_PORT = 8378


@command(
    *CONTEXT,
    BUDGET,
    argument("--create", action="store_true", help="create the store and the context if they do not exist"),
    REDACT,
    argument(
        "--actor", default="agent", metavar="NAME", help="the actor of its journal entries (default: %(default)s)"
    ),
    argument("--tools", metavar="NAMES", help="serve only these tools, such as find,read_page"),
    argument("--read-only", action="store_true", help="serve no tool that changes the context"),
    argument("--prefix", default="", metavar="TEXT", help="a prefix for the tools' names, such as quire_"),
    argument("--gateway", metavar="URL", help="serve find and read_page for the client of a running gateway"),
    argument("--http", action="store_true", help="serve over streamable HTTP instead of stdio"),
    argument("--host", metavar="HOST", help=f"with --http: the address to bind (default: {_HOST})"),
    argument("--port", type=int, metavar="N", help=f"with --http: 0 is any free port (default: {_PORT})"),
    argument("--token-file", metavar="FILE", help="with --http: the file of the token; created at the first start"),
    argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --http: another host name that requests may use",
    ),
    examples=(
        "quire mcp agent.db --create",
        "quire mcp agent.db --context support-42 --read-only --prefix quire_",
        "quire mcp agent.db --http --port 8378",
        "quire mcp agent.db --http --host 0.0.0.0 --token-file token",
    ),
    about="Clients start it over stdio: it prints only the protocol, and ends when its input ends."
    f" Over HTTP, clients need a token if {_TOKEN} is set, a token file is given, or other machines can reach the"
    " address. Requires the extra mcp.",
)
def run_mcp(options: argparse.Namespace, out: Output) -> None:
    from quire.mcp_server import serve_http, serve_stdio

    _check_options(options)
    if options.gateway is not None:
        _serve_gateway(options)
        return
    settings = pick(options, "actor", "prefix", "read_only")
    settings["tools"] = [] if options.tools is None else [name.strip() for name in options.tools.split(",")]
    with (
        quire.Library(
            options.where, create=options.create, redact=quire.redact_secrets if options.redact else None
        ) as library,
        _open_context(library, options) as context,
    ):
        if not options.http:
            serve_stdio(context, **settings)
            return
        serve_http(
            context,
            host=_HOST if options.host is None else options.host,
            port=_PORT if options.port is None else options.port,
            token=os.environ.get(_TOKEN) or None,
            token_file=options.token_file,
            hosts=options.allow_host,
            ready=lambda address: _print_address(address, out),
            **settings,
        )


def _serve_gateway(options: argparse.Namespace) -> None:
    try:
        from quire.gateway.recall_server import RecallServer
        from quire.mcp_server.stdio import run_stdio
    except ModuleNotFoundError as error:
        raise NotInstalled(f"The MCP server needs {error.name}", "mcp", name=error.name) from None
    with quire.Library(options.where, create=True) as library:
        run_stdio(RecallServer(library, options.gateway))


def _check_options(options: argparse.Namespace) -> None:
    """Raise `InvalidValue` for options that have no effect over stdio."""
    given = {"--host": options.host, "--port": options.port, "--token-file": options.token_file}
    unused = [name for name, value in given.items() if value is not None]
    unused += ["--allow-host"] if options.allow_host else []
    if unused and not options.http:
        raise quire.InvalidValue(f"{', '.join(unused)}: no effect over stdio; add --http to serve over HTTP.")


def _open_context(library: quire.Library, options: argparse.Namespace) -> quire.Context:
    """Open the context that the options mean. Raises `NoSuchContext` with the option that helps."""
    is_empty = not any(library.list())
    name = new_name(options)
    if not (options.create and (options.context or is_empty) and not library.exists(name)):
        try:
            name = existing_name(library, options)
        except quire.NoSuchContext as error:
            help_text = "--create creates it." if options.context or is_empty else "Choose one with --context NAME."
            raise quire.NoSuchContext(f"{error.fact} {help_text}", *error.hints) from None
    return library.open(name, create=options.create, budget=options.budget)


def _print_address(address: "ServerAddress", out: Output) -> None:
    """Print the address; the token only if it is new."""
    if out.json:
        out.value({"url": address.url, **({"token": address.new_token} if address.new_token else {})})
    else:
        out.line(f"serving MCP at {out.paint.cyan(address.url)}")
        if address.new_token:
            out.line(f"clients must send: Authorization: Bearer {address.new_token}")
        out.line(out.paint.dim("Ctrl-C stops it"))
    sys.stdout.flush()
