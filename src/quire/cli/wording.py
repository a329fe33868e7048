"""Errors in the words of the command line: a hint names a command, an argument its option."""

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping

from quire.cli.commands import ROWS
from quire.errors import Hint, Wording
from quire.storage.urls import mask_address

_PHRASES = {("refresh", "and retry"): "Run the command again.", ("open", ""): "Choose another name."}
"""Sentences for calls, with their purpose, that the command line words differently."""
_COMMANDS = {
    "children": "tree",
    "contexts": "ls",
    "detail": "show",
    "import_": "import",
    "list": "ls",
    "move_page": "move",
    "read_page": "show",
    "refresh": "history",
}
"""Commands with another name than the call."""
_OPTIONS = {"max_tokens": "budget", "target": "file"}
"""Arguments of the library that have another name on the command line."""
_VARIABLES = {"token": "QUIRE_TOKEN"}
"""Arguments of the library that a command takes from the environment."""
_PLACEHOLDERS = {
    "backup": "TARGET",
    "checkpoint": "CHECKPOINT",
    "export": "FILE",
    "find": "QUERY",
    "migrate": "TARGET",
    "move": "FOLDER",
}
"""Arguments that a command needs and a hint may leave open."""
_STORE_COMMANDS = frozenset({"backup", "delete", "erase", "expire", "ls", "scrub"})
"""Commands for a whole store: they have no --context."""
_FLAG = re.compile(r"(\w+)=True|(before)=(\d+)")
_CALL = re.compile(r"(\w+)\((?:'?([\w-]+)'?)?\)")
"""A Python call with one argument at most: a page or a number."""


class CommandWording(Wording):
    """Words errors for a command that was called with `options`.

    The commands in hints are for the same store and context, so that a user can copy them. A call that has no command
    stays a Python call.
    """

    def __init__(self, options: argparse.Namespace, names: Mapping[str, str] | None = None) -> None:
        where, context = getattr(options, "where", None), getattr(options, "context", None)
        self._where = shlex.quote(mask_address(where)) if where else "WHERE"
        self._context = _context_option(context) if context else ""
        self._names = names or {}

    def argument(self, name: str) -> str:
        """Return the option, the placeholder or the environment variable of an argument."""
        return self._names.get(name) or self._names.get(_OPTIONS.get(name, ""), _VARIABLES.get(name, name))

    def hint(self, hint: Hint) -> str:
        """Return the sentence with the command of a hint."""
        if hint.call == "Library":  # to open a store that does not exist with create=True
            return "Add --create to create it." if "create" in self._names else ""
        flags = _FLAG.findall(hint.arguments)
        if hint.page is None and flags and all(flag in self._names for flag, *_ in flags):  # the same command again
            return f"Add {_options(flags)} {hint.purpose}".rstrip() + "."
        phrase = _PHRASES.get((hint.call, hint.purpose))
        if phrase is not None:
            return phrase
        command = self.command(hint)
        return super().hint(hint) if command is None else f"Run {command} {hint.purpose}".rstrip() + "."

    def command(self, hint: Hint) -> str | None:
        """Return the command of a hint, ready to copy; None if there is none."""
        name = _COMMANDS.get(hint.call, hint.call)
        if name not in ROWS:
            return None
        flags = _options(_FLAG.findall(hint.arguments))
        number = hint.arguments if hint.arguments.isdecimal() else None  # such as the entry of undo
        given = "".join(
            f" {word}" for word in (hint.page and shlex.quote(hint.page), number, _PLACEHOLDERS.get(name)) if word
        )
        context = _context_option(hint.context) if hint.context else self._context
        context = "" if name in _STORE_COMMANDS else context
        return f"quire {name} {self._where}{given}{context} {flags}".rstrip()

    def command_of_call(self, source: str) -> str:
        """Return the command for a call given as Python source, such as `hide('usr-1')`; the source if there is none.

        `Why.call` is such a call.
        """
        call = _CALL.fullmatch(source)
        return (call and self.command(Hint(call[1], call[2]))) or source


def _options(flags: Iterable[tuple[str, str, str]]) -> str:
    """Return the options for the keywords that `_FLAG` finds."""
    return " ".join(f"--{flag.replace('_', '-')}" if flag else f"--{option} {value}" for flag, option, value in flags)


def _context_option(name: str) -> str:
    return f" --context {shlex.quote(name)}"


def argument_names(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return what a user types for each argument of a command: its long option, or its placeholder."""
    return {
        action.dest: action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        for action in parser._actions
    }
