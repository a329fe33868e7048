"""Messages of the library in the words of the command line: its hints name calls, which are commands here."""

import argparse
import re
import shlex
from typing import Final

from quire.cli.commands import ROWS

_PHRASES: Final = tuple(
    (re.compile(call), words)
    for call, words in (
        (r"refresh\(\) and retry", "run the command again"),
        (r"refresh\(\) tells", "quire history tells"),
        (r"refresh\(\) first", "run the command again"),
        (r"Use find\(\) to look for it", "quire find looks for it"),
        (r"open\(\) opens it", "choose another name"),
        (r"pass overwrite=True", "say --overwrite"),
        (r"migrate\(replace=True\)", "quire migrate --replace"),
        (r"doctor\(repair=True\)", "quire doctor --repair"),
        (r"repair=True", "--repair"),
        (r"checkpoint\(name\)", "quire checkpoint"),
        (r"history\(\) lists them", "quire history lists them"),
        (r"import_\(\)", "quire import"),
        (r"messages\(all=True\) still has it", "its pages and its history still have it"),
        (r"its contexts\(\)|list\(\)", "quire ls"),
    )
)
_ON_A_PAGE: Final = re.compile(r"\b([a-z]+)\('([^']+)'\)")
_CALL: Final = re.compile(r"\b([a-z]+)\(\)")


def spoken(text: str, options: argparse.Namespace | None = None) -> str:
    """A message of the library's as the command line says it. What has no command stays as it is.

    With the options of a command, those it names are for the same store and context, to be copied as they are.
    """
    for phrase, words in _PHRASES:
        text = phrase.sub(words, text)
    where, context = _place(options)
    text = _ON_A_PAGE.sub(
        lambda call: f"quire {call[1]} {where} {call[2]}{context}" if call[1] in ROWS else call[0], text
    )
    return _CALL.sub(lambda call: f"quire {call[1]}" if call[1] in ROWS else call[0], text)


def _place(options: argparse.Namespace | None) -> tuple[str, str]:
    """The store as it was typed, without its password, and the option that names the context, if that was."""
    from quire.storage.urls import masked

    where, context = getattr(options, "where", None), getattr(options, "context", None)
    return shlex.quote(masked(where)) if where else "WHERE", f" --context {shlex.quote(context)}" if context else ""
