"""Tools: the schemas that a model gets to work with its own context, and the calls that it makes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from quire.agent import tool_table
from quire.agent.handlers import ToolContext
from quire.agent.tool_table import TOOLS, Tool, check_arguments
from quire.errors import Hint, InvalidValue, QuireError, QuotaExceeded, Wording, names_options, short_repr
from quire.model.messages import Provider, ToolCall
from quire.providers.legal_form import legal_name
from quire.providers.tool_schemas import check_tools, has_shape, rename_tool

_PREFIX = re.compile(r"[A-Za-z0-9_-]{0,32}", re.ASCII)

_TOOL_OF = {
    "restore": "expand_details",
    "expand": "expand_details",
    "hide": "hide_details",
    "children": "read_page",
    "detail": "read_page",
    "get_page": "read_page",
    "agent.read_page": "read_page",
    "update_page": "write_page",
    "set_detail": "write_page",
    "create_detail_page": "write_page",
    "create_contents_page": "write_page",
    "add_segment": "segment",
    "remove_segment": "segment",
    "set_permission": "segment",
}
"""Operations of the Python API, and the tool that a model has for each. Others have the tool of their own name."""

_PARAMETER_OF = {
    "index": "page",
    "source": "page",
    "parent": "folder",
    "target": "folder",
    "description": "summary",
    "detail": "text",
    "children": "pages",
}
"""Arguments of the Python API, and the parameter of the tools for each. Others have the same name."""

_ADVICE = {
    "unpin": "Only the developer can unpin it.",
    "system": "Only the developer changes it.",
    "tool_result": "Try again when the results have arrived.",
    "refresh": "Call this again.",
    "replace": "Messages stay as they are: write a note.",
    "conversation.replace": "Messages stay as they are: write a note.",
}
"""Sentences for hints that no tool can follow. A hint that is neither here nor a tool is left out."""


class ToolWording(Wording):
    """The words of errors for a model: the names of its tools and of their parameters."""

    def __init__(self, tools: Iterable[str], prefix: str, *, is_app: bool) -> None:
        self._tools = frozenset(tools)
        self._prefix = prefix
        self._is_app = is_app

    def operation(self, name: str) -> str:
        tool = _TOOL_OF.get(name, name)
        return f"{self._prefix}{tool}" if tool in self._tools else name

    def argument(self, name: str) -> str:
        return name if self._is_app else _PARAMETER_OF.get(name, name)  # an app names its own arguments

    def hint(self, hint: Hint) -> str:
        tool = _TOOL_OF.get(hint.call, hint.call)
        if tool not in self._tools:
            return _ADVICE.get(hint.call, "")
        arguments = hint.arguments if tool == hint.call else ""
        call = Hint(f"{self._prefix}{tool}", hint.page, arguments=arguments, purpose=hint.purpose)
        return call.sentence(call.source if hint.page is not None or arguments else call.call)


class Answer(NamedTuple):
    """The text for the model, and whether it reports an error."""

    text: str
    failed: bool = False


@names_options
class Tools:
    """The tools of one agent. `only` selects some of them, `prefixed` renames them."""

    def __init__(self, context: ToolContext, *, names: Sequence[str] | None = None, prefix: str = "") -> None:
        self._context = context
        self._names = names
        self._prefix = prefix
        self._next_message: int | None = None
        self._calls = 0
        self._parent: Tools | None = None

    def __repr__(self) -> str:
        return f"<Tools {', '.join(self.names())}>"

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Return the names by which a model calls the tools."""
        return [self._prefix + tool.name for tool in self._tools()]

    def only(self, *names: str) -> "Tools":
        """Return these tools alone. Raise `InvalidValue` for a name that none of them has."""
        for name in names:
            if name not in self:
                raise self._no_such_tool(name)
        return self._select([name.removeprefix(self._prefix) for name in names], self._prefix)

    def reading(self) -> "Tools":
        """Return the tools that change neither pages nor what is shown."""
        return self._select([tool.name for tool in self._tools() if tool.read_only], self._prefix)

    def prefixed(self, prefix: str) -> "Tools":
        """Return the same tools with a prefix before their names, such as `quire_`."""
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            fact = f"is {short_repr(prefix)}; use up to 32 letters, digits, '_' and '-'."
            raise InvalidValue(fact, argument="prefix")
        return self._select(self._names, prefix)

    # Schemas

    def openai(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Return the schemas for OpenAI chat completions, followed by your own tools in `beside`.

        A name that the provider refuses is spelled differently, as in a view; the calls of a reply get the name back.
        Raise `InvalidValue` if two of them have the same name.
        """
        own = [tool_table.openai_schema(tool, self._prefix + tool.name) for tool in self._tools()]
        return self._join(own, beside, "openai")

    def responses(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Return the schemas for the OpenAI Responses API, followed by your own tools in `beside`."""
        own = [tool_table.responses_schema(tool, self._prefix + tool.name) for tool in self._tools()]
        return self._join(own, beside, "responses")

    def anthropic(self, beside: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Return the schemas for Anthropic messages, followed by your own tools in `beside`."""
        own = [tool_table.anthropic_schema(tool, self._prefix + tool.name) for tool in self._tools()]
        return self._join(own, beside, "anthropic")

    def mcp(self) -> list[dict[str, Any]]:
        """Return the schemas for the Model Context Protocol."""
        return [tool_table.mcp_schema(tool, self._prefix + tool.name) for tool in self._tools()]

    # Calls

    def call(self, call: Any, arguments: Any = None) -> str:
        """Run a tool and return the text for the model. It does not raise, whatever the model sent.

        `call` is a tool call in any provider's shape, or a tool's name with its `arguments` as JSON text or a mapping.
        """
        return self.answer(call, arguments).text

    def answer(self, call: Any, arguments: Any = None) -> Answer:
        """Run a tool like `call`, and report whether it failed, for protocols that separate errors from results."""
        answer = self._answer(call, arguments)
        try:
            return answer._replace(text=self._context.agent._escaping().escape_key(answer.text))
        except QuireError:  # the key cannot be read, so the answer is an error already
            return answer

    def _answer(self, call: Any, arguments: Any) -> Answer:
        tool: Tool | None = None
        try:
            name, given = _split_call(call, arguments)
            tool = self._find(name)
            if tool is None:
                raise self._no_such_tool(name)
            return Answer(self._run(tool, given))
        except QuireError as error:
            available = [available.name for available in self._tools()]
            wording = ToolWording(available, self._prefix, is_app=tool is not None and tool.needs == "windows")
            return Answer(f"{type(error).__name__}: {error.describe(wording)}", failed=True)
        except Exception as error:  # a model's input must not end the turn
            import logging  # slow to import and rarely needed

            logging.getLogger("quire.tools").exception("A tool failed")
            text = f"InternalError: the tool failed ({type(error).__name__}). Try something else."
            return Answer(text, failed=True)

    def _run(self, tool: Tool, given: Any) -> str:
        self._count_call()
        arguments = check_arguments(tool, given)
        return self._context.agent._engine.retry(lambda: tool.run(self._context, **arguments))

    def _count_call(self) -> None:
        """Count the calls of this turn. Raise `QuotaExceeded`."""
        if self._parent is not None:
            self._parent._count_call()
            return
        is_new_turn, self._next_message = self._context.agent._last_message(self._next_message)
        self._calls = 1 if is_new_turn else self._calls + 1
        limit = self._context.agent.quota.calls
        if self._calls > limit:
            raise QuotaExceeded(f"The limit is {limit} tool calls in one turn. Answer the user with what you have.")

    def _find(self, name: object) -> Tool | None:
        """Return the tool that a model calls by this name, if it is available."""
        for tool in TOOLS:
            if self._prefix + tool.name == name:
                return tool if self._is_available(tool) else None
        return None

    def _tools(self) -> list[Tool]:
        return [tool for tool in TOOLS if self._is_available(tool)]

    def _is_available(self, tool: Tool) -> bool:
        if self._names is not None and tool.name not in self._names:
            return False
        if tool.needs == "windows":
            return self._context.has_windows()
        return tool.needs != "manage" or self._context.agent.manages

    def _no_such_tool(self, name: object) -> InvalidValue:
        return InvalidValue(f"There is no tool {short_repr(name)}. Tools: {', '.join(self.names())}.")

    def _select(self, names: Sequence[str] | None, prefix: str) -> "Tools":
        tools = Tools(self._context, names=names, prefix=prefix)
        tools._parent = self._parent or self
        return tools

    def _join(self, own: list[dict[str, Any]], others: Iterable[Any], provider: Provider) -> list[dict[str, Any]]:
        listed = []
        for other in check_tools(others, "beside"):
            name = _field(_field(other, "function") or _field(other, "custom") or other, "name")
            is_legal = not isinstance(name, str) or (legal_name(name, provider) == name and has_shape(other, provider))
            listed.append(other if is_legal else rename_tool(other, provider))
            if name in self:
                raise InvalidValue(
                    f"Two tools have the name {short_repr(name)}. Rename yours, or quire's.",
                    Hint("tools.prefixed", arguments="'quire_'", purpose="to rename quire's"),
                )
        return [*own, *listed]


def _split_call(call: Any, arguments: Any) -> tuple[str, Any]:
    """Return the name and the arguments of a call in any provider's shape."""
    if isinstance(call, str):
        return call, arguments
    if isinstance(call, ToolCall):
        return call.name, call.arguments
    inner = _field(call, "function") or call
    name = _field(inner, "name")
    if not isinstance(name, str):
        raise InvalidValue(
            f"{short_repr(call)} is not a tool call; a name with arguments, or a provider's tool call, is needed."
        )
    given = _field(inner, "arguments")
    return name, _field(inner, "input") if given is None else given


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
