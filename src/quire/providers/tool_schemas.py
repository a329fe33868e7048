"""Tool schemas: their tokens and their names. They are sent with every request in addition to the view."""

from collections.abc import Iterable, Mapping
from typing import Any

from quire.errors import InvalidValue, short_repr
from quire.model.messages import Provider
from quire.model.tokens import TokenCounter, VocabularyCounter
from quire.providers.legal_form import legal_name
from quire.providers.plain_json import dumps, invalid_value, to_plain_json

_PER_TOOL = 8
_PER_LIST = 12
_COUNTER = VocabularyCounter()
_ACCEPTED = "a tool is a dict with a name, in OpenAI's or Anthropic's shape"


def count_tools(tools: Iterable[object], counter: TokenCounter | None = None) -> int:
    """Count the tokens of a list of tool schemas in any provider's shape, for `render(reserve=…)`.

    It counts the name, the description, the rest as compact JSON, 8 per tool and 12 for the list. The text that
    a provider adds itself (a prompt on how to call tools) is unknown here; `report_usage` learns it. Raise
    `InvalidValue` if a value is not a tool schema.
    """
    sizes = [tokens for _, tokens in tool_sizes(list_tools(tools), counter)]
    return sum(sizes) + _PER_LIST if sizes else 0


def list_tools(tools: object, argument: str = "tools") -> list[Any]:
    """Return the tools as a list, unchecked. Raise `InvalidValue` if they are not in a list."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise InvalidValue(f"is {short_repr(tools)}; a list of tool schemas is needed.", argument=argument)
    return list(tools)


def check_tools(tools: object, argument: str = "tools") -> list[Any]:
    """Return the tools as a list. Raise `InvalidValue` if one of them is not a tool schema."""
    listed = list_tools(tools, argument)
    for number, tool in enumerate(listed):
        _texts(tool, f"{argument}[{number}]")
    return listed


def tool_sizes(tools: Iterable[object], counter: TokenCounter | None = None) -> tuple[tuple[str, int], ...]:
    """Return the name and the tokens of each tool schema."""
    count = (_COUNTER if counter is None else counter).count
    found = (_texts(tool, f"tools[{n}]") for n, tool in enumerate(tools))
    return tuple((name, sum(map(count, texts)) + _PER_TOOL) for name, texts in found)


def rename_tool(tool: object, provider: Provider) -> dict[str, Any]:
    """Return a copy of a tool schema in the provider's shape, with a name that the provider accepts.

    A function in another provider's shape is converted. Raise `InvalidValue` if that is not possible.
    """
    schema = to_plain_json(tool, "tool")
    inner = _inner(schema)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        raise invalid_value("tool", tool, _ACCEPTED)
    inner["name"] = legal_name(inner["name"], provider)
    if has_shape(schema, provider):
        return dict(schema)
    if "custom" in schema:
        raise invalid_value("tool", tool, f"a custom tool of OpenAI has no form for {provider!r}")
    return _convert(inner, provider)


def has_shape(tool: object, provider: Provider) -> bool:
    """Return whether a tool can be sent to a provider as it is: it has its shape, or the provider runs it."""
    if not isinstance(tool, Mapping):
        return True
    shape: Provider | None = "responses" if tool.get("type") == "function" else None
    shape = "anthropic" if "input_schema" in tool else shape
    shape = "openai" if "function" in tool or "custom" in tool else shape
    return shape in (None, provider)


def _convert(function: Mapping[str, Any], provider: Provider) -> dict[str, Any]:
    """Return a function as a tool in the shape of a provider."""
    common = {key: function[key] for key in ("name", "description", "strict") if key in function}
    parameters = function.get("parameters", function.get("input_schema")) or {"type": "object", "properties": {}}
    if provider == "anthropic":
        return {**common, "input_schema": parameters}
    common["parameters"] = parameters
    return {"type": "function", "function": common} if provider == "openai" else {"type": "function", **common}


def _inner(schema: Any) -> Any:
    return schema.get("function", schema.get("custom", schema)) if isinstance(schema, dict) else None


def _texts(tool: object, place: str) -> tuple[str, list[str]]:
    """Return the name of a tool, or its type if it has none, and the texts that are counted."""
    schema = to_plain_json(tool, place)
    inner = _inner(schema)
    if not isinstance(inner, dict) or not (inner.get("name") or inner.get("type")):
        raise invalid_value(place, tool, _ACCEPTED)
    named = [text for key in ("name", "description") if isinstance(text := inner.get(key), str)]
    rest = {key: value for key, value in inner.items() if key not in ("name", "description")}
    return str(inner.get("name") or inner["type"]), [*named, dumps(rest)] if rest else named
