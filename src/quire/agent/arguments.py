"""Checking what a model sends as arguments: what is wrong is said in a way that it can put right."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from quire.agent.table import Parameter, Tool
from quire.errors import InvalidValue, shown

_Check = Callable[[Any], Any]
_IN_A_LINE = re.compile(r"\s*\[\s*([^\s\[\]]+)(?:\s[^\[\]]*)?\]")


def arguments_for(tool: Tool, given: object) -> dict[str, Any]:
    """The arguments by name, checked. Raises `InvalidValue`. Null stands for what was left out."""
    values = _as_mapping(tool, given)
    known = {parameter.name: parameter for parameter in tool.parameters}
    for name in values:
        if name not in known:
            raise InvalidValue(f"{tool.name} has no argument {shown(name)}; it takes {_listed(tool)}.")
    checked = {}
    for name, parameter in known.items():
        value = values.get(name)
        if value is not None:
            checked[name] = _checked(parameter, value)
        elif parameter.required:
            raise InvalidValue(f"{tool.name} needs {name}: {parameter.about}.")
    return checked


def _as_mapping(tool: Tool, given: object) -> Mapping[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, str | bytes):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"The arguments of {tool.name} are not JSON ({error}); send one object.") from None
    if not isinstance(given, Mapping):
        raise InvalidValue(f"The arguments of {tool.name} are {shown(given)}; send one JSON object: {_listed(tool)}.")
    return given


def _checked(parameter: Parameter, value: Any) -> Any:
    found = _CHECKS[parameter.kind](value)
    if found is None or (parameter.kind == "integer" and found < parameter.least):
        wanted = _WANTED[parameter.kind].format(parameter.least)
        raise InvalidValue(f"{parameter.name} is {shown(value)}; {wanted} is needed.")
    if parameter.choices and found not in parameter.choices:
        raise InvalidValue(f"{parameter.name} is {shown(value)}; use {', '.join(parameter.choices)}.")
    return found


def _listed(tool: Tool) -> str:
    names = [parameter.name if parameter.required else f"{parameter.name}?" for parameter in tool.parameters]
    return ", ".join(names) or "none"


def _integer(value: Any) -> int | None:
    """A whole number, also as models like to write it: 5.0 or "5"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer() and 0 <= value < 1 << 53:
        return int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    return value if isinstance(value, bool) else None


def _page(value: Any) -> str | None:
    """An index, also with what stands around it in a line: `[usr-1]`, `[usr-1 10] Name: summary`."""
    if not isinstance(value, str):
        return None
    found = _IN_A_LINE.match(value)
    return found[1] if found else value.strip()


def _pages(value: Any) -> list[str] | None:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return None
    found = [page for item in given if (page := _page(item)) is not None]
    return found if len(found) == len(given) else None


def _object(value: Any) -> dict[str, Any] | None:
    """An object, also as the JSON text of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            return None
    return dict(value) if isinstance(value, Mapping) else None


_CHECKS: dict[str, _Check] = {
    "string": lambda value: value if isinstance(value, str) else None,
    "integer": _integer,
    "boolean": _boolean,
    "page": _page,
    "pages": _pages,
    "object": _object,
}
_WANTED: dict[str, str] = {
    "string": "text",
    "integer": "a whole number from {}",
    "boolean": "true or false",
    "page": "a page's index, such as usr-12,",
    "pages": "a list of pages' indices",
    "object": "an object",
}
