"""Addresses of resources: `quire://CONTEXT/PAGE`, the view and the table of contents beside the pages."""

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from quire.errors import InvalidValue, NoSuchPage, short_repr
from quire.model.pages import PageIndex

SCHEME = "quire"
CONTENTS = "contents"
VIEW = "view"
"""Names beside the pages: no page can have them, an index ends in a number."""
_LONGEST = 10
"""Digits of a number in an address."""


class Place(NamedTuple):
    """What an address names: a page, the view or the table of contents, and which range of it."""

    name: PageIndex
    start: int = 0
    length: int | None = None


class Addresses:
    """The addresses of one context."""

    def __init__(self, context: str) -> None:
        self._context = context
        self._base = f"{SCHEME}://{quote(context, safe='')}/"

    def of(self, name: str, **query: int) -> str:
        """The address of a page, or of the view or the table of contents."""
        return f"{self._base}{quote(name, safe='')}" + (f"?{urlencode(query)}" if query else "")

    @property
    def page_template(self) -> str:
        """The template of all pages."""
        return f"{self._base}{{page}}"

    @property
    def range_template(self) -> str:
        """The template of a part of a page."""
        return f"{self._base}{{page}}{{?start,length}}"

    def place(self, uri: str) -> Place:
        """What an address names. Raises `NoSuchPage`, or `InvalidValue` for a range that is none."""
        try:
            parts = urlsplit(uri)
            context = unquote(parts.netloc)
        except ValueError:  # brackets that do not close
            raise self._unknown(uri) from None
        if parts.scheme != SCHEME or context.casefold() != self._context.casefold():  # some clients lower the case
            raise self._unknown(uri)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        start, length = (_number(asked.pop(name, None), name) for name in ("start", "length"))
        if asked:
            raise InvalidValue(f"{short_repr(min(asked))} means nothing in an address; start and length do.")
        return Place(unquote(parts.path.removeprefix("/")), start or 0, length)

    def _unknown(self, uri: str) -> NoSuchPage:
        return NoSuchPage(uri, f"Addresses begin with {self._base} here.")


def _number(value: str | None, name: str) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= _LONGEST:
        return int(value)
    raise InvalidValue(f"{name} is {short_repr(value)}; a whole number from 0 is needed.")
