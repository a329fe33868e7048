"""The `quire` command: parse, one library call, print. Errors become exit codes here and nowhere else.

0: done. 1: it could not be done, or what was checked is not in order. 2: bad input, and nothing was changed: arguments,
a name that names nothing, a refused operation. 130: stopped with Ctrl-C. 141: whoever read the output stopped reading.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.cli.commands import ROWS, Row, load
from quire.cli.usage import overview, refuse
from quire.errors import InvalidOperation, QuireError

if TYPE_CHECKING:
    import argparse

FAILED = 1
REFUSED = 2
INTERRUPTED = 130
UNREAD = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. What cannot be parsed ends in `SystemExit(2)`, as with `argparse`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _read_no_more()
        return UNREAD
    return code


def _run(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("", "-h", "--help", "help"):
        return _help(words)
    if first in ("-V", "--version"):
        from quire import __version__

        print(f"quire {__version__}")
        return 0
    return _command(ROWS[first], words[1:]) if first in ROWS else refuse(first)


def _help(words: list[str]) -> int:
    from quire.cli.paint import Paint

    if len(words) > 1 and words[1] in ROWS:  # quire help tree
        return _command(ROWS[words[1]], ["--help"])
    for line in overview(Paint.for_terminal()):
        print(line, file=sys.stdout if words else sys.stderr)
    return 0 if words else REFUSED


def _command(row: Row, words: list[str]) -> int:
    from quire.cli.command import parser_of
    from quire.cli.out import Out

    command = load(row)
    options = parser_of(row.name, row.summary, command).parse_intermixed_args(words)
    _speak_utf8()
    try:
        return command.run(options, Out(json=options.json)) or 0
    except QuireError as error:
        _tell(error, options)
        is_refused = isinstance(error, InvalidOperation | LookupError)
        return REFUSED if is_refused else FAILED


def _tell(error: QuireError, options: "argparse.Namespace") -> None:
    from quire.cli.speech import spoken

    message = spoken(str(error), options)
    if options.json:
        import msgspec

        told = {"error": {"code": error.code, "message": message}}
        print(msgspec.json.encode(told).decode(), file=sys.stderr)
    else:
        print(f"quire: {message}", file=sys.stderr)


def _speak_utf8() -> None:
    """Print any text, also where the locale knows none but its own letters."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _read_no_more() -> None:
    """Let what is left in the buffers go nowhere: Python would complain at its end that nobody reads it."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
