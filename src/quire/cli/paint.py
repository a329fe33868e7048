"""Colour for terminals, and nothing but text elsewhere."""

import os
import sys

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Paint:
    """Wraps text in colours, or leaves it alone."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    @classmethod
    def for_terminal(cls) -> "Paint":
        """Colour if standard output is a terminal that wants it (`NO_COLOR` and `FORCE_COLOR` are heard)."""
        if os.environ.get("NO_COLOR"):
            return cls(colour=False)
        return cls(colour=bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty())

    def colour(self, name: str, text: str) -> str:
        """The text in a colour by its name."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self._colour and text else text

    def bold(self, text: str) -> str:
        return self.colour("bold", text)

    def dim(self, text: str) -> str:
        return self.colour("dim", text)

    def red(self, text: str) -> str:
        return self.colour("red", text)

    def green(self, text: str) -> str:
        return self.colour("green", text)

    def yellow(self, text: str) -> str:
        return self.colour("yellow", text)

    def blue(self, text: str) -> str:
        return self.colour("blue", text)

    def cyan(self, text: str) -> str:
        return self.colour("cyan", text)
