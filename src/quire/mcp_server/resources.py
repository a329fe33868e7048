"""The served context: its tools, its pages as resources, and their URIs.

URIs are `quire://CONTEXT/PAGE`, `quire://CONTEXT/view` and `quire://CONTEXT/contents`. All methods are synchronous and
called one at a time. Each call first reads the commits of other processes. Everything is read as the agent, which
cannot see PRIVATE segments.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from mcp_types import Annotations, Resource

from quire.agent.agent import AgentContext
from quire.agent.listing import format_entry, is_exchange, quote_range
from quire.agent.tools import Answer, Tools
from quire.context import Context
from quire.errors import InvalidValue, NoSuchContext, NoSuchPage, QuireError, short_repr
from quire.model.pages import ContentsPage, PageIndex
from quire.model.text import clean_line, indent_lines
from quire.view.view import View

SCHEME = "quire"
TEXT = "text/plain"
CONTENTS = "contents"
VIEW = "view"
"""The names of the resources that are not pages. No page has such a name: an index ends in a number."""
_MAX_DIGITS = 10
_PAGE_SIZE = 100
"""The number of resources in one response."""
_MAX_LINES = 500
"""The number of lines of a folder or of the table of contents in one response. The URI of the next part follows."""

_INTRODUCTION = "A book of pages that outlasts your context window: notes, documents, and perhaps a conversation."
_USES = (
    ("find", "{} searches all of it"),
    ("read_page", "{} reads a page, or lists what is there"),
    ("write_page", "{} keeps a note of what matters later"),
)
_CLOSING = "Look here before you say that something earlier is unknown."

# URIs


class ResourceRange(NamedTuple):
    """The resource that a URI names (a page, the view or the table of contents), and the range of it."""

    name: PageIndex
    start: int = 0
    length: int | None = None


class ResourceUris:
    """The URIs of one context."""

    def __init__(self, context: str) -> None:
        self._context = context
        self.base = f"{SCHEME}://{quote(context, safe='')}/"

    def uri(self, name: str, **query: int) -> str:
        """Return the URI of a page, the view or the table of contents."""
        return f"{self.base}{quote(name, safe='')}" + (f"?{urlencode(query)}" if query else "")

    def parse(self, uri: str) -> ResourceRange:
        """Return what a URI names. Raise `NoSuchPage`, or `InvalidValue` for an invalid range."""
        try:
            parts = urlsplit(uri)
            context = unquote(parts.netloc)
        except ValueError:  # unbalanced brackets
            raise self._no_such_uri(uri) from None
        if parts.scheme != SCHEME or context.casefold() != self._context.casefold():  # some clients lower the case
            raise self._no_such_uri(uri)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        start, length = (_parse_number(query.pop(name, None), name) for name in ("start", "length"))
        if query:
            raise InvalidValue(f"The URI has the parameter {short_repr(min(query))}; start and length are accepted.")
        return ResourceRange(unquote(parts.path.removeprefix("/")), start or 0, length)

    def _no_such_uri(self, uri: str) -> NoSuchPage:
        return NoSuchPage(uri, f"URIs begin with {self.base} here.")


def _parse_number(value: str | None, name: str) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    raise InvalidValue(f"is {short_repr(value)}; a whole number from 0 is needed.", argument=name)


# The context


class ServedContext:
    """A context with the tools and resources that the server offers."""

    def __init__(self, context: Context, agent: AgentContext, tools: Tools, prefix: str) -> None:
        self.context = context
        self.uris = ResourceUris(context.name)
        self._agent = agent
        self._tools = tools
        self._prefix = prefix

    # Tools

    def tools(self) -> list[dict[str, Any]]:
        """Return the schemas of the current tools."""
        self._refresh()
        return self._tools.mcp()

    def call(self, name: str, arguments: Any) -> Answer | None:
        """Return the answer of a tool, which may be a storage error; None if there is no such tool."""
        try:
            self._refresh()
        except QuireError as error:
            return Answer(f"{type(error).__name__}: {error}", failed=True)
        if name not in self._tools:
            return None
        return self._tools.answer(name, {} if arguments is None else arguments)

    def instructions(self) -> str:
        """Return the instructions that a client may give its model about this server."""
        known = self._tools.names()
        uses = [text.format(self._prefix + name) for name, text in _USES if self._prefix + name in known]
        return " ".join([_INTRODUCTION, *([f"{', '.join(uses)}."] if uses else []), _CLOSING])

    # Resources

    def list_resources(self, cursor: str | None = None) -> tuple[list[Resource], str | None]:
        """Return the resources after a cursor, and the next cursor. The first are the table of contents and the view.

        Raise `NoSuchPage` for an unknown cursor.
        """
        self._refresh()
        pages = self._agent.list_pages(cursor, _PAGE_SIZE + 1)
        found = [
            self._resource(page.index, page.name, page.description, page.updated_at) for page in pages[:_PAGE_SIZE]
        ]
        if cursor is None:
            found[:0] = [
                self._resource(CONTENTS, "Table of contents", "The open folders and pages"),
                self._resource(VIEW, "View", "What the model would see"),
            ]
        return found, pages[_PAGE_SIZE - 1].index if len(pages) > _PAGE_SIZE else None

    def _resource(self, page: str, name: str, description: str, modified: datetime | None = None) -> Resource:
        annotations = Annotations(last_modified=modified.isoformat()) if modified else None
        name, description = map(self._agent._escaping().escape_line, (name, description))
        uri = self.uris.uri(page)
        return Resource(uri=uri, name=name, description=description or None, mime_type=TEXT, annotations=annotations)

    def read(self, uri: str) -> str:
        """Return the text of a resource. Raise `NoSuchPage`, or `InvalidValue` for an invalid range."""
        self._refresh()
        wanted = self.uris.parse(uri)
        if wanted.name == VIEW:
            end = None if wanted.length is None else wanted.start + wanted.length
            return _format_view(self.context.render(preview=True))[wanted.start : end]
        return self._agent._escaping().escape_key(self._read_pages(wanted))

    def _read_pages(self, wanted: ResourceRange) -> str:
        """Return the lines of the table of contents or of a folder, or the text of a page."""
        name, start, length = wanted
        if name == CONTENTS:
            return self._join_lines(wanted, self._agent.view(start, _line_limit(length) + 1))
        page = self._agent.get_page(name)
        if isinstance(page, ContentsPage):
            children = self._agent.children(name, start, _line_limit(length) + 1)
            return self._join_lines(wanted, [format_entry(child) for child in children])
        text = self._agent.read_page(name, start, self._agent.length(name) if length is None else length)
        return quote_range(text, page, start) if is_exchange(page) else text

    def preamble(self) -> str:
        """Return the text that explains the view to a model; empty if the developer turned it off."""
        self._refresh()
        parts = [part for part in self.context.render(preview=True).parts if part.kind == "preamble"]
        text = "\n".join(message.text for part in parts for message in part.messages)
        return _prefix_tools(text, self._prefix)

    def state(self) -> tuple[int, tuple[str, ...], frozenset[str]]:
        """Return the newest seq, the names of the tools, and the ids of the segments that the agent sees."""
        self._refresh()
        segments = frozenset(segment.id for segment in self._agent.list_segments())
        return self.context.seq, tuple(self._tools.names()), segments

    def page_title(self, index: PageIndex) -> tuple[str, str] | None:
        """Return a page's name and description; None if it is not listed."""
        try:
            page = self._agent.get_page(index)
        except QuireError:
            return None
        return page.name, page.description

    def _join_lines(self, wanted: ResourceRange, lines: Sequence[str]) -> str:
        limit = _line_limit(wanted.length)
        if len(lines) <= limit:
            return "\n".join(lines)
        rest = self.uris.uri(wanted.name, start=wanted.start + limit)
        return "\n".join([*lines[:limit], f"… more: {rest}"])

    def _refresh(self) -> None:
        """Read what other processes wrote. Raise `NoSuchContext` if one of them deleted the context."""
        try:
            self.context.refresh()
        except NoSuchContext:
            raise NoSuchContext(f"Context {short_repr(self.context.name)} was deleted.") from None


def _line_limit(length: int | None) -> int:
    if length == 0:
        raise InvalidValue("is 0; at least 1 is needed to list something.", argument="length")
    return min(length or _MAX_LINES, _MAX_LINES)


def _format_view(view: View) -> str:
    """Return a view as text. The texts of messages are indented: only heads and calls begin at the margin."""
    lines: list[str] = []
    for message in view.messages:
        lines.append(clean_line(f"── {message.role} {message.tool_call_id or ''}".rstrip()))
        if message.text:
            lines.append(indent_lines(message.text))
        lines += [indent_lines(f"call {call.id}: {call.name}({call.arguments})")[1:] for call in message.tool_calls]
    return "\n".join(lines)


def _prefix_tools(text: str, prefix: str) -> str:
    """Return the preamble with the prefix before the names of tools."""
    named = r"\b(find|read_page|expand_details|write_page)\b(?= (?:searches|reads|opens|keeps))"
    return re.sub(named, lambda match: prefix + match[1], text) if prefix else text
