"""The `quire` command: parse, one library call, print. Errors become exit codes here and nowhere else."""

import argparse
import sys
from collections.abc import Sequence

import quire
from quire.cli.demo import run_demo
from quire.cli.grid import draw_grid
from quire.cli.paint import Paint
from quire.cli.tree import draw_tree
from quire.cli.width import terminal_width
from quire.errors import InvalidOperation, NoSuchContext, QuireError
from quire.view.options import DEFAULT_BUDGET

_EXIT_REFUSED = 2
_EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 1 for a failure, 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except (InvalidOperation, LookupError) as error:
        if not isinstance(error, QuireError):
            raise
        print(f"quire: {error}", file=sys.stderr)
        return _EXIT_REFUSED
    except QuireError as error:
        print(f"quire: {error}", file=sys.stderr)
        return _EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quire", description="An agent's memory as a book of pages.")
    parser.add_argument("--version", action="version", version=f"quire {quire.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="replay a short agent conversation and show how its view is kept")
    demo.add_argument("--fast", action="store_true", help="no pauses, also on a terminal")
    demo.set_defaults(run=lambda options: run_demo(Paint.for_terminal(), fast=options.fast))
    tree = commands.add_parser(
        "tree",
        help="show a context's pages with their tokens",
        epilog="example: quire tree agent.db --context support-42",
    )
    tree.set_defaults(run=_tree)
    view = commands.add_parser(
        "view",
        help="show what fills the model's window, as a map; nothing is written",
        epilog="example: quire view agent.db --context support-42 --budget 8000",
    )
    view.add_argument("--budget", type=int, default=DEFAULT_BUDGET, help="tokens (default: %(default)s)")
    view.set_defaults(run=_view)
    for command in (tree, view):
        command.add_argument("where", help="a path (SQLite), sqlite:FILE or file:DIR")
        command.add_argument("--context", default="default", help="the context's name (default: %(default)s)")
    return parser


def _tree(options: argparse.Namespace) -> None:
    with quire.Library(options.where, create=False) as library:
        pages = _opened(library, options).pages
        for line in draw_tree(pages, Paint.for_terminal(), terminal_width()):
            print(line)


def _view(options: argparse.Namespace) -> None:
    with quire.Library(options.where, create=False) as library:
        view = _opened(library, options).render(max_tokens=options.budget, preview=True)
        print(f"{view.tokens:,} of {view.budget:,} tokens, {len(view.messages):,} messages")
        for line in draw_grid(view, Paint.for_terminal(), terminal_width()):
            print(line)


def _opened(library: quire.Library, options: argparse.Namespace) -> quire.Context:
    if not library.exists(options.context):
        known = ", ".join(repr(name) for name in list(library.list())[:12]) or "none"
        raise NoSuchContext(f"No context {options.context!r} in {options.where!r}. Contexts there: {known}.")
    return library.open(options.context)
