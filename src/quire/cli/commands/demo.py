"""The demo."""

import argparse

from quire.cli.command import Command
from quire.cli.demo import run_demo
from quire.cli.out import Out


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="no pauses, also on a terminal")


def _demo(options: argparse.Namespace, out: Out) -> None:
    run_demo(out.paint, fast=options.fast)


COMMANDS = {"demo": Command(_demo, _add, ("quire demo", "quire demo --fast"))}
