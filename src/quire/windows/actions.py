"""Actions: methods of an app that a model can call in a window, described by their signatures.

Parameters are `str`, `int`, `float`, `bool`, a `Literal` of texts or whole numbers, or a list of one of those; each
of them also with `None`. A parameter with a default may be left out. `Annotated[int, "its number"]` adds a description
to the window and to the schema.
"""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from msgspec import Struct
from msgspec.structs import replace

from quire.errors import InvalidValue, NoSuchAction, short_repr
from quire.model.text import collapse_whitespace

Kind = Literal["string", "int", "float", "bool"]
F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__quire_action__"
_KINDS: dict[Any, Kind] = {str: "string", int: "int", float: "float", bool: "bool"}
_NEEDED: dict[Kind, str] = {"string": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
_SCHEMA_TYPES: dict[Kind, str] = {"string": "string", "int": "integer", "float": "number", "bool": "boolean"}


class Parameter(Struct, frozen=True, kw_only=True):
    """One argument of an action: its kind, the values it may have, and whether it may be left out."""

    name: str
    kind: Kind
    choices: tuple[str | int, ...] = ()
    many: bool = False
    required: bool = True
    nullable: bool = False
    description: str = ""

    def __str__(self) -> str:
        kind = "|".join(map(str, self.choices)) if self.choices else self.kind
        return f"{self.name}:{kind}{'[]' if self.many else ''}{'' if self.required else '?'}"

    @property
    def usage(self) -> str:
        """The parameter with its description: `n:int? (how many)`."""
        return f"{self} ({self.description})" if self.description else str(self)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the argument."""
        inner: dict[str, Any] = {"type": _SCHEMA_TYPES[self.kind]}
        if self.choices:
            inner["enum"] = list(self.choices)
        found = {"type": "array", "items": inner} if self.many else inner
        if self.description:
            found["description"] = self.description
        return found

    def convert(self, value: object) -> Any:
        """Return the value for the method. Raise `ValueError` with what is needed."""
        if value is None and self.nullable:
            return None
        if not self.many:
            return self._convert_one(value)
        if not isinstance(value, list | tuple):
            raise ValueError(f"a list is needed, as in {self}")
        return [self._convert_one(item) for item in value]

    def _convert_one(self, value: object) -> Any:
        found = _as_kind(self.kind, value)
        if found is None:
            raise ValueError(f"{_NEEDED[self.kind]} is needed")
        if self.choices and found not in self.choices:
            raise ValueError(f"one of {', '.join(map(repr, self.choices))} is needed")
        return found


class Action(Struct, frozen=True, kw_only=True):
    """An action of a window: its name, its description and its parameters."""

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    method: str = ""

    @property
    def params(self) -> str:
        """The parameters in short: `text:string, n:int?`."""
        return ", ".join(map(str, self.parameters))

    @property
    def usage(self) -> str:
        """The parameters as a window shows them, with their descriptions."""
        return ", ".join(parameter.usage for parameter in self.parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": {parameter.name: parameter.schema() for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.required],
            "additionalProperties": False,
        }

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the method. Raise `InvalidValue` for the first that is wrong."""
        if not isinstance(arguments, Mapping):
            raise InvalidValue(
                f"is {short_repr(arguments)}; an object with {self._signature()} is needed.",
                argument="arguments",
            )
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in arguments:
            if name not in known:
                raise InvalidValue(f"{self.name!r} has no argument {short_repr(name)}; it takes {self._signature()}.")
        taken: dict[str, Any] = {}
        for name, parameter in known.items():
            if name in arguments:
                try:
                    taken[name] = parameter.convert(arguments[name])
                except ValueError as error:
                    raise InvalidValue(
                        f"Argument {name!r} of {self.name!r} is {short_repr(arguments[name])}; {error}."
                    ) from None
            elif parameter.required:
                raise InvalidValue(f"{self.name!r} needs the argument {name!r}; it takes {self._signature()}.")
        return taken

    def _signature(self) -> str:
        return f"({self.params})" if self.parameters else "no arguments"


@overload
def action(function: F, /) -> F: ...
@overload
def action(description: str = "", /, *, name: str = "") -> Callable[[F], F]: ...
def action(what: Any = "", /, *, name: str = "") -> Any:
    """Make a method of an `App` an action: `@action`, or `@action("Add an entry")`.

    The default description is the first line of the docstring. The method returns the answer for the caller: a text,
    None, `Refresh()` or `Close()`.
    """
    if callable(what):
        return _mark_action(what, "", "")
    if not isinstance(what, str):
        raise InvalidValue(f"@action takes a description, not {short_repr(what)}.")
    return lambda function: _mark_action(function, what, name)


def actions_of(kind: type) -> tuple[Action, ...]:
    """Return the actions of an app's class in the order of the source, those of its base classes first."""
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__):
        names.update(dict.fromkeys(vars(base)))
    methods = ((name, getattr(kind, name, None)) for name in names)
    return tuple(_action(kind, name, method) for name, method in methods if hasattr(method, _MARK))


def build_action(
    function: Callable[..., Any], name: str, description: str = "", *, owner: type | None = None
) -> Action:
    """Return a method as an action, from its signature without its first parameter, the app.

    `owner` is the class, in which the method may be static. Raise `InvalidValue` if the method is not suitable.
    """
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise InvalidValue(f"The types of {name!r} cannot be read: {error}.") from error
    listed = list(inspect.signature(function).parameters.values())
    found = function if owner is None else inspect.getattr_static(owner, function.__name__, function)
    if not inspect.ismethod(function) and not isinstance(found, staticmethod):
        if not listed:
            raise InvalidValue(f"The method {name!r} has no parameter for the app, such as `self`.")
        del listed[0]
    parameters = tuple(_parameter(name, parameter, hints.get(parameter.name)) for parameter in listed)
    line = description or (inspect.getdoc(function) or "").partition("\n")[0]
    return Action(name=name, description=collapse_whitespace(line), parameters=parameters, method=function.__name__)


def find_action(actions: tuple[Action, ...], name: object) -> Action:
    """Return the action of this name. Raise `NoSuchAction`, which lists the actions."""
    for found in actions:
        if found.name == name:
            return found
    raise NoSuchAction(name, [f"{found.name}({found.params})" for found in actions])


def _mark_action(function: Any, description: str, name: str) -> Any:
    build_action(function, name or function.__name__)  # an unsuitable method is an error in the class body
    setattr(function, _MARK, (name, description))
    return function


def _action(kind: type, method_name: str, method: Any) -> Action:
    name, description = getattr(method, _MARK)
    return replace(build_action(method, name or method_name, description, owner=kind), method=method_name)


def _parameter(action_name: str, parameter: inspect.Parameter, hint: Any) -> Parameter:
    place = f"Parameter {parameter.name!r} of {action_name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise InvalidValue(f"{place} cannot be passed by name; use plain parameters.")
    described = ""
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        described = next((note for note in notes if isinstance(note, str)), "")
    hint, nullable = _without_none(hint)
    many = get_origin(hint) is list
    inner = get_args(hint)[0] if many else hint
    choices = get_args(inner) if get_origin(inner) is Literal else ()
    kinds = {_KINDS.get(type(choice)) for choice in choices} or {_KINDS.get(inner) if _is_hashable(inner) else None}
    kind = kinds.pop()
    if kinds or kind is None or (choices and kind in ("bool", "float")):
        raise InvalidValue(
            f"{place} has the type {short_repr(hint)}; use str, int, float, bool, a Literal, a list of one of those, or"
            " one of them or None."
        )
    return Parameter(
        name=parameter.name,
        kind=kind,
        choices=choices,
        many=many,
        required=parameter.default is parameter.empty,
        nullable=nullable,
        description=collapse_whitespace(described),
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without `None`, and whether it had `None`."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return (kinds[0], True) if len(kinds) == 1 else (hint, False)


def _is_hashable(value: object) -> bool:
    return getattr(value, "__hash__", None) is not None


def _as_kind(kind: Kind, value: object) -> Any:
    """Return the value as this kind, or None. Models write 3.0 for 3, and 3 for 3.0."""
    match kind:
        case "string":
            return value if isinstance(value, str) else None
        case "bool":
            return value if isinstance(value, bool) else None
        case "int":
            whole = isinstance(value, float) and value.is_integer()
            return int(value) if (whole or isinstance(value, int)) and not isinstance(value, bool) else None  # type: ignore[call-overload]
        case "float":
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
