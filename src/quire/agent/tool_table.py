"""The table of tools: schemas for every provider, checks of arguments, dispatch and documentation come from it."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from quire.agent import handlers
from quire.errors import InvalidValue, short_repr

Kind = Literal["string", "page", "integer", "boolean", "pages", "object"]
"""A page is an index; the form of a line in a list, `[usr-1 10]`, is accepted too."""


class Parameter(Struct, frozen=True, kw_only=True):
    """One argument of a tool."""

    name: str
    kind: Kind
    about: str
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: int = 0


class Tool(Struct, frozen=True, kw_only=True):
    """One tool: its description for a model, and the function that runs a call."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str]
    needs: Literal["", "windows", "manage"] = ""
    read_only: bool = False
    """True if it changes neither pages nor what is shown."""
    destructive: bool = False
    """True if it may remove or overwrite something."""


_PAGE = Parameter(name="page", kind="page", about="Index, such as usr-12", required=True)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="find",
        about="Search all pages, folded and archived too. Use it before you say that something is lost.",
        parameters=(
            Parameter(name="query", kind="string", about='Words, "exact phrases", prefix*', required=True),
            Parameter(name="limit", kind="integer", about="Most hits, default 5", minimum=1),
        ),
        run=handlers.find,
        read_only=True,
    ),
    Tool(
        name="read_page",
        about="Read a page's text without opening it, or list a folder. Without page: the table of contents.",
        parameters=(
            Parameter(name="page", kind="page", about="Index or mem-1…mem-9"),
            Parameter(name="start", kind="integer", about="First character (in a folder: first entry), default 0"),
            Parameter(name="length", kind="integer", about="Most characters, as far as there is room", minimum=1),
        ),
        run=handlers.read_page,
        read_only=True,
    ),
    Tool(
        name="expand_details",
        about="Open a folded or hidden page in your window, to work with it over several steps.",
        parameters=(_PAGE,),
        run=handlers.expand_details,
    ),
    Tool(
        name="hide_details",
        about="Show a page as one line from the next fold on, to free room. Nothing is lost.",
        parameters=(_PAGE,),
        run=handlers.hide_details,
    ),
    Tool(
        name="write_page",
        about="Write a note of what must outlast folding. With page: change one. With pages: make a folder of them.",
        parameters=(
            Parameter(name="name", kind="string", about="Title in one line"),
            Parameter(name="summary", kind="string", about="What it says, in one line"),
            Parameter(name="text", kind="string", about="The text"),
            Parameter(name="folder", kind="page", about="Folder to put it in, default your notes"),
            Parameter(name="page", kind="page", about="Page to change"),
            Parameter(name="pages", kind="pages", about="Pages to gather under the new folder"),
        ),
        run=handlers.write_page,
        destructive=True,
    ),
    Tool(
        name="move_page",
        about="Move a page into a folder.",
        parameters=(
            _PAGE,
            Parameter(name="folder", kind="page", about="Folder's index", required=True),
            Parameter(name="before", kind="page", about="Page in the folder to put it before"),
        ),
        run=handlers.move_page,
    ),
    Tool(
        name="remove_page",
        about="Remove a page with all in it. Prefer hide_details or archive.",
        parameters=(_PAGE,),
        run=handlers.remove_page,
        destructive=True,
    ),
    Tool(
        name="archive",
        about="Archive a page that you no longer need. find still finds it.",
        parameters=(_PAGE, Parameter(name="cold", kind="boolean", about="Out of the tree, until recall")),
        run=handlers.archive,
    ),
    Tool(
        name="recall",
        about="Bring a page back from the cold archive to its place.",
        parameters=(_PAGE,),
        run=handlers.recall,
    ),
    Tool(
        name="budget",
        about="How full your window is, what fills it, and what folds next.",
        parameters=(),
        run=handlers.budget,
        read_only=True,
    ),
    Tool(
        name="window",
        about="Open an app's window, act in one, or close it. Windows are shown at the end, always up to date.",
        parameters=(
            Parameter(name="do", kind="string", about="What", required=True, choices=("create", "action", "close")),
            Parameter(name="id", kind="string", about="App to create, or window's id", required=True),
            Parameter(name="action", kind="string", about="Action's id"),
            Parameter(name="arguments", kind="object", about="Its parameters; for close: summary, what stays"),
        ),
        run=handlers.window,
        needs="windows",
        destructive=True,
    ),
    Tool(
        name="segment",
        about="Add a segment, remove one, or set what agents may do in it.",
        parameters=(
            Parameter(name="do", kind="string", about="What", required=True, choices=("add", "remove", "permit")),
            Parameter(name="segment", kind="string", about="Its id, or the name of a new one", required=True),
            Parameter(name="permission", kind="string", about="READ_ONLY, READ_WRITE or SYSTEM_MANAGED"),
        ),
        run=handlers.segment,
        needs="manage",
        destructive=True,
    ),
)
"""At most twelve tools, because every schema costs tokens in every request. The reading operations are merged."""


_IN_A_LINE = re.compile(r"\s*\[\s*([^\s\[\]]+)(?:\s[^\[\]]*)?\]")


def check_arguments(tool: Tool, given: object) -> dict[str, Any]:
    """Return the arguments by name. Raise `InvalidValue` if one is wrong. Null means that an argument is left out."""
    values = _as_mapping(tool, given)
    known = {parameter.name: parameter for parameter in tool.parameters}
    for name in values:
        if name not in known:
            raise InvalidValue(f"There is no argument {short_repr(name)}. Arguments: {_list_parameters(tool)}.")
    checked = {}
    for name, parameter in known.items():
        value = values.get(name)
        if value is not None:
            checked[name] = _check_value(parameter, value)
        elif parameter.required:
            raise InvalidValue(f"is missing: {parameter.about}.", argument=name)
    return checked


def _as_mapping(tool: Tool, given: object) -> Mapping[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, str | bytes):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"The arguments are not JSON ({error}); send one object.") from None
    if not isinstance(given, Mapping):
        raise InvalidValue(f"The arguments are {short_repr(given)}; send one JSON object: {_list_parameters(tool)}.")
    return given


def _check_value(parameter: Parameter, value: Any) -> Any:
    converted = _CONVERTERS[parameter.kind](value)
    if converted is None or (parameter.kind == "integer" and converted < parameter.minimum):
        needed = _NEEDED[parameter.kind].format(parameter.minimum)
        raise InvalidValue(f"is {short_repr(value)}; {needed} is needed.", argument=parameter.name)
    if parameter.choices and converted not in parameter.choices:
        raise InvalidValue(f"is {short_repr(value)}; use {', '.join(parameter.choices)}.", argument=parameter.name)
    return converted


def _list_parameters(tool: Tool) -> str:
    names = [parameter.name if parameter.required else f"{parameter.name}?" for parameter in tool.parameters]
    return ", ".join(names) or "none"


def _to_integer(value: Any) -> int | None:
    """Return a whole number; models also write 5.0 or "5"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 16:
        return int(value)
    if isinstance(value, float) and value.is_integer() and 0 <= value < 1 << 53:
        return int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None


def _to_boolean(value: Any) -> bool | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    return value if isinstance(value, bool) else None


def _to_page(value: Any) -> str | None:
    """Return an index, also from a line of a list: `[usr-1]`, `[usr-1 10] Name: summary`."""
    if not isinstance(value, str):
        return None
    match = _IN_A_LINE.match(value)
    return match[1] if match else value.strip()


def _to_pages(value: Any) -> list[str] | None:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return None
    pages = [page for item in given if (page := _to_page(item)) is not None]
    return pages if len(pages) == len(given) else None


def _to_object(value: Any) -> dict[str, Any] | None:
    """Return an object, also from its JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            return None
    return dict(value) if isinstance(value, Mapping) else None


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: value if isinstance(value, str) else None,
    "integer": _to_integer,
    "boolean": _to_boolean,
    "page": _to_page,
    "pages": _to_pages,
    "object": _to_object,
}
_NEEDED: dict[str, str] = {
    "string": "text",
    "integer": "a whole number from {}",
    "boolean": "true or false",
    "page": "a page's index, such as usr-12,",
    "pages": "a list of pages' indices",
    "object": "an object",
}


_TYPES: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "page": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "pages": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object"},
}


def openai_schema(tool: Tool, name: str) -> dict[str, Any]:
    """Return a function tool of OpenAI's chat completions."""
    function = {"name": name, "description": tool.about, "parameters": parameter_schema(tool)}
    return {"type": "function", "function": function}


def responses_schema(tool: Tool, name: str) -> dict[str, Any]:
    """Return a function tool of OpenAI's Responses API."""
    return {"type": "function", "name": name, "description": tool.about, "parameters": parameter_schema(tool)}


def anthropic_schema(tool: Tool, name: str) -> dict[str, Any]:
    """Return a tool of Anthropic's messages."""
    return {"name": name, "description": tool.about, "input_schema": parameter_schema(tool)}


def mcp_schema(tool: Tool, name: str) -> dict[str, Any]:
    """Return a tool of the Model Context Protocol, with annotations for the client."""
    hints = {"readOnlyHint": tool.read_only, "destructiveHint": tool.destructive, "openWorldHint": False}
    return {"name": name, "description": tool.about, "inputSchema": parameter_schema(tool), "annotations": hints}


def parameter_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: _property(parameter) for parameter in tool.parameters},
    }
    required = [parameter.name for parameter in tool.parameters if parameter.required]
    return {**schema, "required": required} if required else schema


def _property(parameter: Parameter) -> dict[str, Any]:
    choices = {"enum": list(parameter.choices)} if parameter.choices else {}
    return {**_TYPES[parameter.kind], **choices, "description": parameter.about}
