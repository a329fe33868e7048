"""A command: its arguments, its parser with help, and the store and context that it works on."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import methodcaller
from typing import Any, NamedTuple, NoReturn

import quire
from quire.cli.terminal import Output, count_of
from quire.errors import InvalidValue, short_repr
from quire.storage.base import check_context_name, no_such_context
from quire.storage.urls import is_memory, mask_address

STORE_HELP = "a store: a path (SQLite), sqlite:FILE, file:DIR, postgresql://… or s3://BUCKET/PREFIX"
_DEFAULT_CONTEXT = "default"
_SHORTEST_ID = 4
_LASTING = "a path, sqlite:FILE, file:DIR, postgresql://… or s3://BUCKET/PREFIX"
_MAX_LISTED = 10
_FIGURES = "gateway"
"""The context with the figures of gateway sessions."""
_SHORT_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([km])", re.ASCII | re.IGNORECASE)
_SIZES = {"k": 1_000, "m": 1_000_000}
_LISTED_BY = {
    "ENTRY": "quire history lists the entries",
    "POINT": "quire history lists entries and checkpoints",
    "PAGE": "quire tree shows the pages",
}
"""The command that lists the values of an argument, for an error message that names the argument."""

Argument = Callable[[argparse.ArgumentParser], object]
"""A function that adds an argument to a parser."""


class Command(NamedTuple):
    """One command: `run` makes the library call, prints, and returns the exit code; `None` means 0.

    `examples` are part of the help and of docs/cli.md.
    """

    run: Callable[[argparse.Namespace, Output], int | None]
    arguments: Sequence[Argument]
    examples: Sequence[str]
    about: str


def command(
    *arguments: Argument, examples: Sequence[str], about: str = ""
) -> Callable[[Callable[[argparse.Namespace, Output], int | None]], Command]:
    """Return a decorator that makes a command of the function that runs it."""
    return lambda run: Command(run, arguments, examples, about)


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument of a command; the parameters are those of `ArgumentParser.add_argument`."""
    return methodcaller("add_argument", *names, **options)


def build_parser(name: str, summary: str, command: Command) -> argparse.ArgumentParser:
    """Return the parser of a command, with `--json`, which every command has."""
    about = f"{summary[:1].upper()}{summary[1:]}." + (f" {command.about}" if command.about else "")
    parser = _Parser(
        prog=f"quire {name}",
        description=about,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in command.examples),
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    for add in command.arguments:
        add(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of text for people")
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser that hides passwords of addresses in its messages. With `--json` it raises them as `InvalidValue`."""

    _words: Sequence[str] = ()

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        self._words = args or ()
        return super().parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        for word in self._words:
            for part in (word, word.partition("=")[2]):
                if mask_address(part) != part:
                    message = message.replace(part, mask_address(part))
        message += next((f"; {hint}" for name, hint in _LISTED_BY.items() if name in message), "")
        if "--json" in self._words:
            raise InvalidValue(f"{self.prog}: {message}.")
        super().error(message)


class _Formatter(argparse.HelpFormatter):
    """Wraps the description, and prints the examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


def token_count(text: str) -> int:
    """Return a number of tokens given as 8000, 8_000, 8k or 0.5M. Raises `ArgumentTypeError`."""
    short = _SHORT_NUMBER.fullmatch(text.strip())
    try:
        return round(float(short[1]) * _SIZES[short[2].lower()]) if short else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens, such as 8000 or 8k") from None


STORE = argument("where", metavar="WHERE", help=STORE_HELP)
CONTEXT = (
    STORE,
    argument(
        "-c", "--context", metavar="NAME", help="the context (default: 'default', or the only context of the store)"
    ),
)
"""The arguments for a store and a context in it."""
PAGE = (*CONTEXT, argument("index", metavar="PAGE", help="the index of a page, such as usr-7"))
"""The arguments for a store, a context and a page."""
REDACT = argument(
    "--redact", action="store_true", help="remove API keys, private keys, tokens and passwords in URLs before storing"
)
BUDGET = argument(
    "-b",
    "--budget",
    type=token_count,
    metavar="TOKENS",
    help="the token budget of the view (default: the budget of the context)",
)


@contextmanager
def open_context(options: argparse.Namespace) -> Iterator[quire.Context]:
    """Open the context that the options name. Raises `NoSuchContext`."""
    with (
        quire.Library(options.where, create=False) as library,
        library.open(existing_name(library, options), create=False) as context,
    ):
        yield context


def existing_name(library: quire.Library, options: argparse.Namespace) -> str:
    """Return the name of the context that the options mean. Raises `NoSuchContext` if it does not exist.

    Without `--context`, it is the only context of the store, or `default`; the context with the gateway's figures is
    ignored. At least four characters from the start of a gateway session's id mean the context of that session.
    """
    first = list(islice(library.list(), 3)) if options.context is None else [options.context]
    names = [name for name in first if name != _FIGURES] or first
    name: str = names[0] if len(names) == 1 else _DEFAULT_CONTEXT
    if not library.exists(name):
        sessions = [] if options.context is None else _sessions_of(library, name)
        if len(sessions) == 1 and len(name) >= _SHORTEST_ID:
            return sessions[0]
        if not sessions:
            raise no_such_context(library.storage, name, repr(mask_address(options.where)))
        raise _unclear_session(name, sessions)
    return name


def _sessions_of(library: quire.Library, start: str) -> list[str]:
    """Return the contexts of the gateway sessions whose ids have this start."""
    return [name for name in library.list(prefix=f"{_FIGURES}/") if name.split("/")[-1].startswith(start)]


def _unclear_session(start: str, sessions: Sequence[str]) -> quire.NoSuchContext:
    """Return the error for the start of an id that does not name one gateway session."""
    ids = [name.split("/")[-1] for name in sessions]
    more = f" and {len(ids) - _MAX_LISTED} more" if len(ids) > _MAX_LISTED else ""
    need = f"{_SHORTEST_ID} characters are needed" if len(start) < _SHORTEST_ID else "one is needed"
    return quire.NoSuchContext(
        f"{short_repr(start)} is the start of {count_of(len(ids), 'gateway session')}; {need}."
        f" Sessions: {', '.join(ids[:_MAX_LISTED])}{more}.",
        context=start,
    )


def check_lasting(where: str, argument: str = "where") -> str:
    """Return the address of a store that keeps what a command writes. Raises `InvalidValue` for one in memory."""
    if is_memory(where):
        raise InvalidValue(
            f"is {where!r}, which is lost when the command ends; {_LASTING} is needed.", argument=argument
        )
    return where


def new_name(options: argparse.Namespace) -> str:
    """Return the name of a context that may not exist yet. Raises `InvalidValue` if no context can have it."""
    return check_context_name(_DEFAULT_CONTEXT if options.context is None else options.context)
