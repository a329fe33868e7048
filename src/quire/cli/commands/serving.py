"""Serving a store over HTTP."""

import argparse
import os

from quire.cli.command import Command
from quire.cli.opening import add_where, tokens
from quire.cli.out import Out
from quire.cli.serving import serve_here

_TOKEN = "QUIRE_TOKEN"


def _add(parser: argparse.ArgumentParser) -> None:
    add_where(parser)
    parser.add_argument("-c", "--context", metavar="NAME", help="the context that the link opens")
    parser.add_argument("--host", default="127.0.0.1", metavar="HOST", help="where to listen (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8377, metavar="N", help="0: any that is free (default: %(default)s)"
    )
    parser.add_argument("--token-file", metavar="FILE", help="where the token is kept; made at the first start")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a further name it is asked by"
    )
    parser.add_argument("-b", "--budget", type=tokens, metavar="TOKENS", help="what a view may take")
    parser.add_argument("--create", action="store_true", help="make the store if there is none")
    parser.add_argument("--open", action="store_true", help="open the link in a browser")


def _serve(options: argparse.Namespace, out: Out) -> None:
    serve_here(
        options.where,
        out,
        context=options.context,
        browse=options.open,
        host=options.host,
        port=options.port,
        token=os.environ.get(_TOKEN) or None,
        token_file=options.token_file,
        hosts=options.allow_host,
        budget=options.budget,
        create=options.create,
    )


COMMANDS = {
    "serve": Command(
        _serve,
        _add,
        (
            "quire serve agent.db --open",
            "quire serve postgresql://localhost/agents --host 0.0.0.0 --allow-host quire.example --token-file token",
        ),
        f"Every request needs the token: that of {_TOKEN} in the environment, that of the file, or one that is made"
        " now and shown in the link. It needs pip install 'quire[server]'.",
    ),
}
