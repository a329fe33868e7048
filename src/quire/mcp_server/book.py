"""What is served of a context: the tools of its agent, its pages, and the words on how to read it.

It knows nothing of the protocol and makes plain calls, one at a time. Each begins with what other processes wrote, and
looks with the agent's eyes: what is PRIVATE is not there.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from quire.agent.agent import AgentContext
from quire.agent.listing import entry
from quire.agent.tools import Answer, Tools
from quire.context import Context
from quire.errors import InvalidValue, NoSuchContext, QuireError, short_repr
from quire.mcp_server.addresses import CONTENTS, VIEW, Addresses, Place
from quire.model.pages import ContentsPage, Page, PageIndex
from quire.view.view import View

LISTED = 100
"""Resources in one answer; a cursor leads to the next."""
_LINES = 500
"""Lines of a folder or of the table of contents in one answer, which says how to go on."""

_INTRODUCTION = "A book of pages that outlasts your context window: notes, documents, and perhaps a conversation."
_USES = (
    ("find", "{} searches all of it"),
    ("read_page", "{} reads a page, or lists what is there"),
    ("write_page", "{} keeps a note of what matters later"),
)
_CLOSING = "Look here before you say that something earlier is unknown."


class Listed(NamedTuple):
    """A resource in a list."""

    uri: str
    name: str
    about: str
    modified: datetime | None = None


class Book:
    """A context as it is served."""

    def __init__(self, context: Context, agent: AgentContext, tools: Tools, *, prefix: str = "") -> None:
        self.context = context
        self.addresses = Addresses(context.name)
        self._agent = agent
        self._tools = tools
        self._prefix = prefix

    # Tools

    def tools(self) -> list[dict[str, Any]]:
        """The schemas of the tools there are now."""
        self._refresh()
        return self._tools.mcp()

    def tool_names(self) -> Sequence[str]:
        """The names of the tools there are now."""
        return self._tools.names()

    def call(self, name: str, arguments: Any) -> Answer | None:
        """What a tool answers, errors of the storage included; None if there is no such tool."""
        try:
            self._refresh()
        except QuireError as error:
            return Answer(f"{type(error).__name__}: {error}", failed=True)
        if name not in self._tools:
            return None
        return self._tools.answer(name, {} if arguments is None else arguments)

    def instructions(self) -> str:
        """What a client may tell its model of this server."""
        known = self._tools.names()
        uses = [text.format(self._prefix + name) for name, text in _USES if self._prefix + name in known]
        return " ".join([_INTRODUCTION, *([f"{', '.join(uses)}."] if uses else []), _CLOSING])

    # Resources

    def listed(self, cursor: str | None = None) -> tuple[list[Listed], str | None]:
        """So many resources after a cursor, and the next cursor: the view and the contents first, then all pages.

        Raises `NoSuchPage` for a cursor that is none.
        """
        self._refresh()
        pages = self._agent.list_pages(cursor, LISTED + 1)
        found = [self._listed(page) for page in pages[:LISTED]]
        if cursor is None:
            about = ((CONTENTS, "Table of contents", "What stands open"), (VIEW, "View", "What the model would see"))
            found = [Listed(self.addresses.of(place), name, text) for place, name, text in about] + found
        return found, pages[LISTED - 1].index if len(pages) > LISTED else None

    def read(self, uri: str) -> str:
        """What a resource says. Raises `NoSuchPage`, or `InvalidValue` for a range that is none."""
        self._refresh()
        return self._text(self.addresses.place(uri))

    def preamble(self) -> str:
        """What tells a model how to read the view; empty if the developer wants no word."""
        self._refresh()
        parts = [part for part in self._view().parts if part.kind == "preamble"]
        text = "\n".join(message.text for part in parts for message in part.messages)
        return _prefixed(text, self._prefix)

    def seq(self) -> int:
        """Where the context stands, for whoever wants to know whether anything changed."""
        self._refresh()
        return self.context.seq

    def segments(self) -> frozenset[str]:
        """The ids of the segments that the agent sees."""
        return frozenset(segment.id for segment in self._agent.list_segments())

    def listed_as(self, index: PageIndex) -> tuple[str, str] | None:
        """The name and the description that a page has in the list; None if it is not in it."""
        try:
            page = self._agent.get_page(index)
        except QuireError:
            return None
        return page.name, page.description

    def _listed(self, page: Page) -> Listed:
        return Listed(self.addresses.of(page.index), page.name, page.description, page.updated_at)

    def _text(self, place: Place) -> str:
        if place.name == VIEW:
            return _part(_shown(self._view()), place)
        if place.name == CONTENTS:
            return self._lines(place, self._agent.view(place.start, _most(place) + 1))
        if isinstance(self._agent.get_page(place.name), ContentsPage):
            children = self._agent.children(place.name, place.start, _most(place) + 1)
            return self._lines(place, [entry(child) for child in children])
        length = self._agent.length(place.name) if place.length is None else place.length
        return self._agent.read_page(place.name, place.start, length)

    def _lines(self, place: Place, lines: Sequence[str]) -> str:
        most = _most(place)
        if len(lines) <= most:
            return "\n".join(lines)
        rest = self.addresses.of(place.name, start=place.start + most)
        return "\n".join([*lines[:most], f"… more: {rest}"])

    def _view(self) -> View:
        return self.context.render(preview=True)

    def _refresh(self) -> None:
        """Take over what other processes wrote. Raises `NoSuchContext` if one of them deleted the context."""
        try:
            self.context.refresh()
        except NoSuchContext:
            raise NoSuchContext(f"Context {short_repr(self.context.name)} was deleted.") from None


def chosen(tools: Tools, names: Sequence[str], prefix: str, *, read_only: bool) -> Tools:
    """The tools that are served: these alone, or all. Raises `InvalidValue` for one that there is not."""
    found = tools.reading() if read_only else tools
    if names:
        found = found.only(*names)
    return found.prefixed(prefix)


def _most(place: Place) -> int:
    if place.length == 0:
        raise InvalidValue(f"length is {short_repr(place.length)}; at least 1 is needed to list something.")
    return min(place.length or _LINES, _LINES)


def _part(text: str, place: Place) -> str:
    return text[place.start :] if place.length is None else text[place.start : place.start + place.length]


def _shown(view: View) -> str:
    """A view as a person reads it."""
    lines: list[str] = []
    for message in view.messages:
        lines.append(f"── {message.role}" + (f" {message.tool_call_id}" if message.tool_call_id else ""))
        if message.text:
            lines.append(message.text)
        lines += [f"call {call.id}: {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(lines)


def _prefixed(text: str, prefix: str) -> str:
    """The words on how to read a view, with the tools named as they are here."""
    named = r"\b(find|read_page|expand_details|write_page)\b(?= (?:searches|reads|opens|keeps))"
    return re.sub(named, lambda match: prefix + match[1], text) if prefix else text
