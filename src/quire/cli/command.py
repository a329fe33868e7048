"""What a command is: how it is called, what it does, and how its help looks."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

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
    parser = _Parser(
        prog=f"quire {name}",
        description=about,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    command.add(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints repeat no password of an address."""

    _words: Sequence[str] = ()

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        self._words = args or ()
        return super().parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        from quire.storage.urls import masked

        for word in self._words:
            for part in (word, word.partition("=")[2]):
                if masked(part) != part:
                    message = message.replace(part, masked(part))
        super().error(message + _help_for(message))


_REQUIRED = "the following arguments are required: "
_TOLD_BY = {
    "ENTRY": "quire history lists the entries",
    "POINT": "quire history lists entries and checkpoints",
    "PAGE": "quire tree shows the pages",
}
"""What helps somebody who does not know what to give, by the argument that is missing."""


def _help_for(message: str) -> str:
    missing = message.removeprefix(_REQUIRED).split(", ") if message.startswith(_REQUIRED) else []
    told = next((_TOLD_BY[name] for name in missing if name in _TOLD_BY), "")
    return f"; {told}" if told else ""


class _Formatter(argparse.HelpFormatter):
    """Wraps a description as usual, and leaves the examples alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)
