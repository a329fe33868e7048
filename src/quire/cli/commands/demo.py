"""The demo: in the terminal, and then in the inspector."""

import argparse
import sys

from quire.cli.command import Command
from quire.cli.demo import BUDGET, NAME, Played, run_demo
from quire.cli.out import Out
from quire.cli.serving import can_serve, serve_here
from quire.cli.values import Values


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="no pauses, also on a terminal")
    chosen = parser.add_mutually_exclusive_group()
    words = "afterwards serve the inspector on it until Ctrl-C (default: on a terminal, if it is installed)"
    chosen.add_argument("--serve", action="store_true", default=None, help=words)
    chosen.add_argument("--no-serve", action="store_false", dest="serve", help="end afterwards")


def _demo(options: argparse.Namespace, out: Out) -> None:
    serve = can_serve() and sys.stdout.isatty() and not out.json if options.serve is None else options.serve
    played = run_demo(out.paint, fast=options.fast, quiet=out.json)
    if out.json:
        out.value(_values(played))
    elif serve:
        out.line()
    if serve:
        serve_here(str(played.path), out, context=NAME, browse=sys.stdout.isatty(), port=0, budget=BUDGET)


def _values(played: Played) -> Values:
    done = played.replay
    sides = {"quire": done.ours, "sliding_window": done.theirs}
    return {
        "store": str(played.path),
        "context": NAME,
        "budget": BUDGET,
        **{
            name: {
                "calls": side.calls,
                "tokens": side.tokens,
                "cached": side.shared,
                "cost": side.cost,
                "answers": side.answers._asdict(),
            }
            for name, side in sides.items()
        },
    }


COMMANDS = {"demo": Command(_demo, _add, ("quire demo", "quire demo --fast --no-serve"))}
