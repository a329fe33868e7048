"""The `quire` command: parse, one library call, print. Errors become exit codes here and nowhere else.

0: success. 1: failure, or a check found a problem. 2: bad input (arguments, an unknown name, a refused operation);
nothing was changed. 130: stopped with Ctrl-C. 141: the reader of the output closed the pipe.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from quire.cli.commands import GROUPS, ROWS, CommandRow, load
from quire.cli.terminal import Output, Paint
from quire.errors import InvalidOperation, InvalidValue, QuireError, StorageFailure

FAILED = 1
REFUSED = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

_TITLE = "quire: an agent's memory as a book of pages under a token budget."
_USAGE = "usage: quire COMMAND [ARGUMENTS]"
_END = (
    "Most commands take a store and --context NAME. Every command has --json, and --help with examples.",
    "Start with: quire demo",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Arguments that cannot be parsed raise `SystemExit(2)`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _replace_closed_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:  # the library turns errors of the store into its own
        _discard_output()
        print_error(StorageFailure.code, f"Cannot write the output: {error.strerror}.", json="--json" in words)
        return FAILED
    return code


def _run(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("", "-h", "--help", "help"):
        return _print_help(words)
    if first in ("-V", "--version"):
        from quire import __version__

        print(f"quire {__version__}")
        return 0
    row, rest = find_command(words)
    return _run_command(row, rest) if row is not None else _refuse(first, json="--json" in rest)


def find_command(words: list[str]) -> tuple[CommandRow | None, list[str]]:
    """Return the command that the first two words name, or the first one, and the words after its name."""
    longer = ROWS.get(" ".join(words[:2]))
    return (longer, words[2:]) if longer else (ROWS.get(words[0]), words[1:])


def _print_help(words: list[str]) -> int:
    row, _ = find_command(words[1:]) if len(words) > 1 else (None, [])  # quire help tree
    if row is not None:
        return _run_command(row, ["--help"])
    for line in _overview(Paint.for_terminal()):
        print(line, file=sys.stdout if words else sys.stderr)
    return 0 if words else REFUSED


def _overview(paint: Paint) -> Iterator[str]:
    """Yield the lines of the help: every command with its summary."""
    yield _TITLE
    yield ""
    yield f"{_USAGE}   (or --version)"
    widest = max(map(len, ROWS))
    for title, rows in GROUPS.items():
        yield ""
        yield paint.bold(f"{title}:")
        for row in rows:
            yield f"  {paint.cyan(row.name)}{' ' * (widest - len(row.name))}  {row.summary}"
    yield ""
    yield from _END


def _refuse(word: str, *, json: bool) -> NoReturn:
    """Print that `word` is not a command, with similar commands, and exit."""
    from difflib import get_close_matches

    from quire.storage.urls import mask_address

    near = get_close_matches(word, ROWS, n=3, cutoff=0.5)
    word = mask_address(word)  # it may be a store's address with a password, if the command is missing
    if word.startswith("-"):
        text = f"{word!r} is not an option here; options follow the command."
    elif near:
        *others, last = near
        listed = f"{', '.join(others)} or {last}" if others else last
        text = f"no command {word!r}. Did you mean {listed}?"
    else:
        text = f"no command {word!r}. Commands: {', '.join(ROWS)}."
    if not json:
        print(_USAGE, file=sys.stderr)
    print_error(InvalidValue.code, text, json=json)
    raise SystemExit(REFUSED)


def _run_command(row: CommandRow, words: list[str]) -> int:
    from quire.cli.command import build_parser

    command = load(row)
    parser = build_parser(row.name, row.summary, command)
    _use_utf8()
    try:
        options = parser.parse_intermixed_args(words)
    except InvalidValue as error:
        print_error(error.code, str(error), json=True)
        return REFUSED
    try:
        return command.run(options, Output(json=options.json)) or 0
    except QuireError as error:
        from quire.cli.wording import CommandWording, argument_names

        message = error.describe(CommandWording(options, argument_names(parser)))
        print_error(error.code, message, json=options.json)
        return REFUSED if isinstance(error, InvalidOperation | LookupError) else FAILED


def print_error(code: str, message: str, *, json: bool) -> None:
    """Print an error on standard error, as JSON for programs."""
    if json:
        import msgspec

        error = {"error": {"code": code, "message": message}}
        print(msgspec.json.encode(error).decode(), file=sys.stderr)
    else:
        print(f"quire: {message}", file=sys.stderr)


def _replace_closed_streams() -> None:
    """Give a process that was started without standard streams (`>&-`) the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the process ends


def _use_utf8() -> None:
    """Make the output accept any text, whatever the locale's encoding is."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Send buffered output to the null device: Python would report the closed pipe at exit otherwise."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
