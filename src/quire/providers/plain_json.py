"""Plain JSON values: copies of dicts and SDK objects, in any mix, and compact JSON text.

Later changes of the caller's objects have no effect on a copy.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from msgspec import Struct, structs

from quire.errors import InvalidValue, short_repr
from quire.model.text import check_text

Values = dict[str, Any]
Path = tuple[Any, ...]
"""The place of a value: the place of the whole, then keys and positions."""

_MAX_DEPTH = 200
_LONGEST_PLACE = 200
_MAX_BITS = 4_096  # Python refuses to print much larger integers
_ADDED_BY_SDKS = frozenset({"parsed", "parsed_arguments", "parsed_output"})
_NULL_HAS_MEANING = frozenset({"code", "outputs", "result"})  # required by the types of the items that have them
_INSIDE = frozenset({"choices", "content", "function", "message", "output", "tool_calls"})


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumps(value: object) -> str:
    """Return the value as compact JSON text."""
    return _encoder.encode(value)


def invalid_value(place: str, value: object, wanted: str) -> InvalidValue:
    """Return the error that names the place, quotes the value and says what is accepted."""
    return InvalidValue(f"{place} is {short_repr(value)}; {wanted}.")


def to_plain_json(value: object, place: str) -> Any:
    """Return a copy of the value as plain JSON. Raise `InvalidValue`, which names the place that is not JSON."""
    if type(value) is dict and all(
        type(key) is str and type(inner) is str and key.isascii() and inner.isascii() for key, inner in value.items()
    ):
        return value.copy()  # the usual message
    try:
        return _copy(value, (place,), _MAX_DEPTH)
    except RecursionError:
        raise InvalidValue(f"{place} is nested too deeply; at most {_MAX_DEPTH} levels are allowed.") from None


def drop_output_fields(value: Any) -> Any:
    """Return a dumped response or message without the fields that a provider does not accept as input."""
    if isinstance(value, list):
        return [drop_output_fields(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    chat = "role" in value and "type" not in value
    return {
        key: drop_output_fields(inner) if key in _INSIDE else inner
        for key, inner in value.items()
        if key not in _ADDED_BY_SDKS
        and (inner is not None or key in _NULL_HAS_MEANING or (chat and key == "content"))
        and not (chat and key == "annotations" and inner == [])
    }


def _copy(value: object, path: Path, depth: int) -> Any:
    if depth == 0:
        raise RecursionError
    if isinstance(value, str):
        is_plain = type(value) is str and value.isascii()
        return value if is_plain else check_text(str.__str__(value), _place(path))
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - the check for dict is much faster
        return {_key(key, path): _copy(inner, (*path, key), depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(inner, (*path, n), depth - 1) for n, inner in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return _scalar(value, path)
    return _copy(_dump(value, path), path, depth - 1)


def _place(path: Path) -> str:
    """Return a path as text for an error, clipped."""
    place = str(path[0])
    for step in path[1:]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
        if len(place) > _LONGEST_PLACE:
            return place[:_LONGEST_PLACE] + "…"
    return place


def _key(key: object, path: Path) -> str:
    if type(key) is str and key.isascii():
        return key
    if not isinstance(key, str):
        raise InvalidValue(f"{_place(path)} has the key {short_repr(key)}; keys are text.")
    return check_text(str.__str__(key), f"{_place(path)}: the key")


def _scalar(value: float | None, path: Path) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            size = f"{value.bit_length():,} bits; at most {_MAX_BITS:,} are allowed"
            raise InvalidValue(f"{_place(path)} is an integer of {size}.")
        return int.__index__(value)
    if not isfinite(value):
        raise invalid_value(_place(path), value, "JSON has finite numbers only")
    return float.__float__(value)


def _dump(value: object, path: Path) -> object:
    """Return the fields of an SDK object, dataclass or Struct that a provider accepts as input."""
    try:
        if isinstance(value, Struct):
            return drop_output_fields(structs.asdict(value))
        if is_dataclass(value) and not isinstance(value, type):
            return drop_output_fields({field.name: getattr(value, field.name) for field in fields(value)})
        dump = getattr(value, "model_dump", None)
        if callable(dump):
            return drop_output_fields(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))
    except Exception as error:  # foreign code can raise anything
        what = f"{short_repr(value)} and cannot be read ({error!r})"
        raise InvalidValue(f"{_place(path)} is {what}; give it as a dict.") from error
    raise invalid_value(_place(path), value, "plain JSON values and SDK objects are accepted")
