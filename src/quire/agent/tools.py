"""Errors in the words of a model's tools: what they say of the developer's operations, it could not act on.

Tools: what a model is given to work with its own context, and what runs when it calls one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from quire.agent import schema as schemas
from quire.agent.agent import Desk
from quire.agent.schema import TOOLS, Tool, arguments_for
from quire.errors import Conflict, InvalidValue, QuireError, QuotaExceeded, short_repr
from quire.model.messages import ToolCall

_TOOL_OF = {
    "restore": "expand_details",
    "expand": "expand_details",
    "hide": "hide_details",
    "children": "read_page",
    "detail": "read_page",
    "get_page": "read_page",
    "update_page": "write_page",
    "set_detail": "write_page",
    "create_detail_page": "write_page",
    "create_contents_page": "write_page",
    "add_segment": "segment",
    "remove_segment": "segment",
    "set_permission": "segment",
}
"""What errors call an operation, and the tool that a model has for it."""

_PHRASES = (
    (r"it holds messages; conversation\.replace\(\) does", "it holds messages, which stay as they are: write a note"),
    (r"set the detail of", "change the text of"),
    (r"it is a DetailPage; a ContentsPage is needed", "it is no folder; name a folder"),
    (r"it is a ContentsPage; give it to a DetailPage", "it is a folder; give it to a page in it"),
    (r"is a DetailPage and has no children", "is no folder"),
    (r"\ba ContentsPage\b", "a folder"),
    (r"\ba DetailPage\b", "a page with a text"),
    (r"is pinned\. unpin\([^()]*\) first", "is pinned, and only the developer unpins it"),
    (r" Give them with tool_result\(\), or give them up with close_calls\(\)\.", " Try again when they are there."),
    (r" undo\(\d+\) brings them back\.", ""),
    (r"system\(text\) changes it", "only the developer changes it"),
    (r": refresh\(\) and retry", ": call this again"),
    (r"none yet: windows\.register\(\) adds one", "none"),
    (r"none yet: add one with add_segment\(\)", "none"),
    (r": add_segment\(Segment\([^()]*\)\)", ""),
    (r"^children (?=is |names )", "pages "),
    (r"^description (?=is |has |')", "summary "),
    (r"^detail (?=is |has |')", "text "),
)
_COMPILED = tuple((re.compile(found), said) for found, said in _PHRASES)
_OPERATION = re.compile(r"operation '(\w+)'")
_CALL = re.compile(r"\b(?<!\.)([a-z_]+)\(")


def worded(text: str, tools: Iterable[str], prefix: str) -> str:
    """An error's text with the names of the tools that a model has, each with its prefix."""
    known = {name: name for name in tools} | _TOOL_OF
    for found, said in _COMPILED:
        text = found.sub(said, text)
    text = _OPERATION.sub(lambda match: f"operation '{_named(match[1], known, prefix)}'", text)
    return _CALL.sub(lambda match: f"{_named(match[1], known, prefix)}(", text)


def _named(name: str, known: dict[str, str], prefix: str) -> str:
    return prefix + known[name] if name in known else name


_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)
_TRIES = 8
"""How often a call is made if others write in between: each of them got on, so it is soon its turn."""


class Answer(NamedTuple):
    """What a model is answered, and whether that is a refusal."""

    text: str
    failed: bool = False


class Tools:
    """The tools of one agent. They can be narrowed with `only` and renamed with `prefixed`."""

    def __init__(self, desk: Desk, *, names: Sequence[str] | None = None, prefix: str = "") -> None:
        self._desk = desk
        self._names = names
        self._prefix = prefix
        self._heard: int | None = None
        self._calls = 0
        self._parent: Tools | None = None

    def __repr__(self) -> str:
        return f"<Tools {', '.join(self.names())}>"

    def __contains__(self, name: object) -> bool:
        return any(name == own for own in self.names())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """The names that a model calls them by."""
        return [self._prefix + tool.name for tool in self._tools()]

    def only(self, *names: str) -> "Tools":
        """These tools alone. Raises `InvalidValue` for a name that none of them has."""
        for name in names:
            if name not in self:
                raise InvalidValue(f"There is no tool {short_repr(name)}; tools are {', '.join(self.names())}.")
        return self._narrowed([name.removeprefix(self._prefix) for name in names], self._prefix)

    def reading(self) -> "Tools":
        """Those alone that change nothing, neither pages nor what is shown."""
        return self._narrowed([tool.name for tool in self._tools() if tool.reads], self._prefix)

    def prefixed(self, prefix: str) -> "Tools":
        """The same tools with something before their names, such as `quire_`."""
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise InvalidValue(f"prefix is {short_repr(prefix)}; use up to 32 letters, digits, '_' and '-'.")
        return self._narrowed(self._names, prefix)

    # What a model is given

    def openai(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The schemas for OpenAI chat completions, with your own tools beside them.

        Raises `InvalidValue` if two of them have the same name.
        """
        return self._beside([schemas.openai(tool, self._prefix + tool.name) for tool in self._tools()], beside)

    def responses(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The schemas for the OpenAI Responses API."""
        return self._beside([schemas.responses(tool, self._prefix + tool.name) for tool in self._tools()], beside)

    def anthropic(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """The schemas for Anthropic messages."""
        return self._beside([schemas.anthropic(tool, self._prefix + tool.name) for tool in self._tools()], beside)

    def mcp(self) -> list[dict[str, Any]]:
        """The schemas for the Model Context Protocol."""
        return [schemas.mcp(tool, self._prefix + tool.name) for tool in self._tools()]

    # What a model does

    def call(self, call: Any, arguments: Any = None) -> str:
        """Run a tool and give the text to answer the model with; whatever it sent, this does not raise.

        `call` is a tool call in any provider's shape, or a tool's name with its `arguments` as JSON text or a mapping.
        """
        return self.answer(call, arguments).text

    def answer(self, call: Any, arguments: Any = None) -> Answer:
        """The same, and whether the text is a refusal: for protocols that tell errors from results."""
        try:
            name, given = _taken_apart(call, arguments)
            return Answer(self._run(name, given))
        except QuireError as error:
            return Answer(self._refusal(error), failed=True)
        except Exception as error:  # whatever a model sends, the turn goes on
            import logging  # dear to load, and hardly ever needed

            logging.getLogger("quire.tools").exception("A tool failed")
            text = f"InternalError: the tool failed ({type(error).__name__}). Try something else."
            return Answer(text, failed=True)

    def _run(self, name: str, given: Any) -> str:
        tool = next((tool for tool in self._tools() if self._prefix + tool.name == name), None)
        if tool is None:
            raise InvalidValue(f"There is no tool {short_repr(name)}; tools are {', '.join(self.names())}.")
        self._count()
        arguments = arguments_for(tool, given)
        for _ in range(_TRIES - 1):
            try:
                return tool.call(self._desk, arguments)
            except Conflict:  # someone else wrote: look again, and try once more
                self._desk.agent.refresh()
        return tool.call(self._desk, arguments)

    def _refusal(self, error: QuireError) -> str:
        said = worded(str(error), (tool.name for tool in TOOLS), self._prefix)
        return f"{type(error).__name__}: {said}"

    def _count(self) -> None:
        """Count the calls of this turn. Raises `QuotaExceeded`."""
        if self._parent is not None:
            self._parent._count()
            return
        new_turn, self._heard = self._desk.agent.heard(self._heard)
        self._calls = 1 if new_turn else self._calls + 1
        most = self._desk.agent.quota.calls
        if self._calls > most:
            raise QuotaExceeded(f"{most} tool calls in this turn are the limit; answer the user with what you have")

    def _tools(self) -> list[Tool]:
        desk = self._desk
        there = {"": True, "windows": desk.windows() is not None, "manage": desk.agent.manages}
        return [tool for tool in TOOLS if there[tool.needs] and (self._names is None or tool.name in self._names)]

    def _narrowed(self, names: Sequence[str] | None, prefix: str) -> "Tools":
        tools = Tools(self._desk, names=names, prefix=prefix)
        tools._parent = self._parent or self
        return tools

    def _beside(self, own: list[dict[str, Any]], others: Iterable[Any]) -> list[dict[str, Any]]:
        listed = list(others)
        for other in listed:
            name = _schema_name(other)
            if name in self:
                raise InvalidValue(
                    f"Two tools are called {short_repr(name)}; rename yours, or ours with tools.prefixed('quire_')."
                )
        return [*own, *listed]


def _taken_apart(call: Any, arguments: Any) -> tuple[str, Any]:
    """The name and the arguments of a call in any provider's shape."""
    if isinstance(call, str):
        return call, arguments
    if isinstance(call, ToolCall):
        return call.name, call.arguments
    inner = _field(call, "function") or call
    name = _field(inner, "name")
    if not isinstance(name, str):
        raise InvalidValue(f"{short_repr(call)} is no tool call; give a name and arguments, or a provider's tool call.")
    given = _field(inner, "arguments")
    return name, _field(inner, "input") if given is None else given


def _schema_name(schema: Any) -> object:
    return _field(_field(schema, "function") or schema, "name")


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
