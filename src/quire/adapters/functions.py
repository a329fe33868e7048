"""Plain functions as tools: the schema comes from the type hints and the docstring of a function."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, cleandoc, getdoc, signature
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from quire.errors import InvalidValue, short_repr

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):?\s*$|^:(\w+)\b", re.MULTILINE
)
_GOOGLE = re.compile(r"^[ \t]+\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?:[ \t]*(.+(?:\n[ \t]{6,}\S.*)*)", re.MULTILINE)
_SPHINX = re.compile(r"^:param[ \t]+(?:[^:\n]*[ \t])?(\w+):[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_TYPES = "use JSON types, Literal, an Enum, a dataclass, a TypedDict or a msgspec.Struct"


class FunctionTool(Struct, frozen=True):
    """A function that a model can call: its name, its schema, and the type that checks its arguments."""

    name: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    arguments: type[Struct]

    def bind(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call with these arguments, converted to the annotated types. Raises `ValueError`."""
        values = msgspec.convert(given, self.arguments, strict=False)
        named = {name: getattr(values, name) for name in self.arguments.__struct_fields__}
        return partial(self.function, **{name: value for name, value in named.items() if value is not UNSET})


def is_function(tool: object) -> bool:
    """Return whether a tool is a function to call, and not a schema."""
    return callable(tool) and not isinstance(tool, Mapping | type)


def function_tool(function: Callable[..., Any]) -> FunctionTool:
    """Return a function as a tool. Raise `InvalidValue` if it has no name, or a parameter that JSON cannot fill.

    The description is the docstring without its sections. The text of a parameter is a string in `Annotated`, or its
    line in a section `Args:` or `:param`.
    """
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", "")
    if not name.isidentifier():
        raise InvalidValue(f"cannot contain {short_repr(function)}: it has no name; use `def`.", argument="tools")
    hints = _hints(inner, name)
    description, texts = _read_docstring(getdoc(inner) if hasattr(inner, "__name__") else None)
    fields = []
    for parameter in signature(function).parameters.values():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY):
            raise InvalidValue(f"cannot contain {name}: {str(parameter)!r} cannot be given by name.", argument="tools")
        kind = _described(hints.get(parameter.name, Any), texts.get(parameter.name, ""))
        _check_type(name, parameter.name, hints.get(parameter.name, Any), kind)
        is_needed = parameter.default is Parameter.empty
        fields.append((parameter.name, kind) if is_needed else (parameter.name, kind | UnsetType, UNSET))
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = {"name": name, "parameters": _object_schema(arguments)}
    if description:
        schema["description"] = description
    return FunctionTool(name, {"type": "function", "function": schema}, function, arguments)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # an annotation in quotes can raise anything
        written = getattr(function, "__annotations__", {})
        known = getattr(function, "__globals__", {})
        bad = next(
            (key for key, value in written.items() if isinstance(value, str) and not _evaluates(value, known)), ""
        )
        place = f"parameter {bad!r} has the annotation {written[bad]!r}" if bad else "its type hints cannot be read"
        raise InvalidValue(f"cannot contain {name}: {place} ({error}).", argument="tools") from error


def _evaluates(annotation: str, names: dict[str, Any]) -> bool:
    try:
        get_type_hints(type("_", (), {"__annotations__": {"value": annotation}}), names)
    except Exception:
        return False
    return True


def _described(kind: Any, text: str) -> Any:
    """Return a type with the text for the model: a string in `Annotated`, or `text`."""
    noted = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, str)]
    text = noted[0] if noted else text
    return Annotated[kind, Meta(description=text)] if text else kind


def _check_type(function: str, parameter: str, written: Any, kind: Any) -> None:
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError, RecursionError, NameError) as error:
        reason = str(error).strip().splitlines()[-1].rstrip(".")
        place = f"parameter {parameter!r} has the annotation {short_repr(written)}"
        raise InvalidValue(f"cannot contain {function}: {place}: {reason}; {_TYPES}.", argument="tools") from error


def _object_schema(arguments: type[Struct]) -> dict[str, Any]:
    (top,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = parts.pop(top["$ref"].removeprefix("#/$defs/"))
    for part in (schema, *parts.values()):
        part.pop("title", None)
    return {**schema, "$defs": parts} if parts else schema


def _read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and the text of each parameter."""
    text = cleandoc(text or "")
    found = {name: " ".join(about.split()) for name, about in (*_GOOGLE.findall(text), *_SPHINX.findall(text))}
    section = _SECTION.search(text)
    return text[: section.start() if section else None].strip(), found
