"""What a command is: how it is called, what it does, and how its help looks."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from quire.cli.out import Out


class Command(NamedTuple):
    """One command. `add` declares its arguments; `run` makes the library call and prints.

    `run` returns the exit code where that is not 0. `examples` stand in the help and in the documentation.
    """

    run: Callable[[argparse.Namespace, Out], int | None]
    add: Callable[[argparse.ArgumentParser], None]
    examples: tuple[str, ...]
    about: str = ""


def parser_of(name: str, summary: str, command: Command) -> argparse.ArgumentParser:
    """The parser of one command, with `--json` as every command has it."""
    about = f"{summary[:1].upper()}{summary[1:]}." + (f" {command.about}" if command.about else "")
    parser = argparse.ArgumentParser(
        prog=f"quire {name}",
        description=about,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.add(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    return parser


class _Formatter(argparse.HelpFormatter):
    """Wraps a description as usual, and leaves the examples alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)
