"""Serving a context to clients of the Model Context Protocol."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import quire
from quire.cli.command import Command
from quire.cli.opening import add_budget, add_context, known, named
from quire.cli.out import Out

if TYPE_CHECKING:
    from quire.mcp_server import ServerAddress, Settings

_TOKEN = "QUIRE_TOKEN"
_HOST = "127.0.0.1"
_PORT = 8378


def _add(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    add_budget(parser)
    parser.add_argument("--create", action="store_true", help="make the store and the context if there are none")
    parser.add_argument(
        "--actor", default="agent", metavar="NAME", help="who it is in the journal (default: %(default)s)"
    )
    parser.add_argument("--tools", metavar="NAMES", help="serve these alone, such as find,read_page")
    parser.add_argument("--read-only", action="store_true", help="leave out the tools that change anything")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="put this before the tools' names, such as quire_")
    parser.add_argument("--http", action="store_true", help="serve over streamable HTTP instead of stdio")
    parser.add_argument("--host", metavar="HOST", help=f"with --http: where to listen (default: {_HOST})")
    parser.add_argument("--port", type=int, metavar="N", help=f"with --http: 0 is any that is free (default: {_PORT})")
    parser.add_argument(
        "--token-file", metavar="FILE", help="with --http: where the token is kept; made at the first start"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="with --http: a further name it is asked by"
    )


def _serve(options: argparse.Namespace, out: Out) -> None:
    from quire.mcp_server import serve_http, serve_stdio

    _check(options)
    settings: Settings = {
        "actor": options.actor,
        "tools": [name.strip() for name in options.tools.split(",")] if options.tools is not None else [],
        "prefix": options.prefix,
        "read_only": options.read_only,
    }
    with _context(options) as context:
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
            ready=lambda address: _tell(address, out),
            **settings,
        )


def _check(options: argparse.Namespace) -> None:
    """Raises `InvalidValue` for what would be left aside over stdio, and for a budget that nothing fits."""
    given = {"--host": options.host, "--port": options.port, "--token-file": options.token_file}
    unused = [name for name, value in given.items() if value is not None]
    unused += ["--allow-host"] if options.allow_host else []
    if unused and not options.http:
        raise quire.InvalidValue(f"{', '.join(unused)} would do nothing over stdio; add --http to serve over HTTP.")
    if options.budget < 1:
        raise quire.InvalidValue(f"--budget is {options.budget}; a number of tokens above 0 is needed.")


@contextmanager
def _context(options: argparse.Namespace) -> Iterator[quire.Context]:
    """The context that is served, made first if it may be."""
    with _library(options) as library, _opened(library, options) as context:
        yield context


def _library(options: argparse.Namespace) -> quire.Library:
    """The store. Raises `StorageFailure`, which says how one is made if there is none."""
    try:
        return quire.Library(options.where, create=options.create)
    except quire.StorageFailure as error:
        if options.create or not str(error).startswith("There is no store"):
            raise
        raise quire.StorageFailure(f"{error} --create makes one.") from None


def _opened(library: quire.Library, options: argparse.Namespace) -> quire.Context:
    """The context of the name that was given, the usual one, or the only one there is."""
    return library.open(_name(library, options), create=options.create, budget=options.budget)


def _name(library: quire.Library, options: argparse.Namespace) -> str:
    is_new = options.create and not library.exists(named(options)) and (options.context or not any(library.list()))
    if is_new:
        return named(options)
    try:
        return known(library, options)
    except quire.NoSuchContext as error:
        if options.context or not any(library.list()):
            raise quire.NoSuchContext(f"{error} --create makes it.") from None
        raise quire.NoSuchContext(f"{error} Say with -c NAME which one is served.") from None


def _tell(address: "ServerAddress", out: Out) -> None:
    """Say where it is; the token only if it was made just now."""
    if out.json:
        out.value({"url": address.url, **({"token": address.new_token} if address.new_token else {})})
    else:
        out.line(f"serving MCP at {out.paint.cyan(address.url)}")
        if address.new_token:
            out.line(f"clients have to send: Authorization: Bearer {address.new_token}")
        out.line(out.paint.dim("Ctrl-C ends it"))
    sys.stdout.flush()


COMMANDS = {
    "mcp": Command(
        _serve,
        _add,
        (
            "quire mcp agent.db --create",
            "quire mcp agent.db --context support-42 --read-only --prefix quire_",
            "quire mcp agent.db --http --port 8378",
            "quire mcp agent.db --http --host 0.0.0.0 --token-file token",
        ),
        "Over stdio, as clients start it: all that is printed is the protocol, and it ends with its input."
        f" Over HTTP clients need a token if {_TOKEN} is set in the environment, a file is given, or others than this"
        " machine can reach it. It needs pip install 'quire[mcp]'.",
    ),
}
