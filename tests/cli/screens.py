"""Reading what the command line prints."""

import re

from quire.cli.width import width

_COLOUR = re.compile(r"\x1b\[\d+m")


def plain(text: str) -> str:
    """A text without its colours."""
    return _COLOUR.sub("", text)


def widest(text: str) -> int:
    """The columns of the widest line, colours not counted."""
    return max(width(line) for line in plain(text).splitlines())
