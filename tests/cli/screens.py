"""Helpers to read the output of commands."""

import re

from quire.cli.terminal import width

_COLOUR = re.compile(r"\x1b\[\d+m")


def plain(text: str) -> str:
    """Return a text without its colour codes."""
    return _COLOUR.sub("", text)


def widest(text: str) -> int:
    """Return the columns of the widest line, without colour codes."""
    return max(width(line) for line in plain(text).splitlines())
