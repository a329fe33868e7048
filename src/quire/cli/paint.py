"""Colour for terminals, and nothing but text elsewhere."""

import os
import sys


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

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def blue(self, text: str) -> str:
        return self._wrap("34", text)

    def cyan(self, text: str) -> str:
        return self._wrap("36", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and text else text
