"""What comes in, as plain JSON values of our own.

A caller's dicts, an SDK's objects and any mix of the two (a dict whose `content` holds SDK blocks is the everyday case)
become a deep copy made of dict, list, str, int, float, bool and None: later changes outside change nothing here.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from msgspec import Struct, structs

from quire.errors import InvalidValue, shown
from quire.providers.envelopes import tidy
from quire.text import body_text

Path = tuple[Any, ...]
"""Where a value stands: the place of the whole, then keys and positions."""

_MAX_DEPTH = 200
_LONGEST_PLACE = 200
_MAX_BITS = 4_096  # Python refuses to write out integers not much larger


def refused(place: str, value: object, wanted: str) -> InvalidValue:
    """The error that names the place, quotes the value and says what would be accepted."""
    return InvalidValue(f"{place} is {shown(value)}; {wanted}.")


def plain(value: object, place: str) -> Any:
    """The value as plain JSON, copied. Raises `InvalidValue` naming the place of what JSON cannot carry."""
    try:
        return _copy(value, (place,), _MAX_DEPTH)
    except RecursionError:
        raise InvalidValue(f"{place} is nested too deeply; at most {_MAX_DEPTH} levels are kept.") from None


def _copy(value: object, path: Path, depth: int) -> Any:
    if depth == 0:
        raise RecursionError
    if isinstance(value, str):
        everyday = type(value) is str and value.isascii()
        return value if everyday else body_text(str.__str__(value), _place(path))
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - asking a dict is much the faster
        return {_key(key, path): _copy(inner, (*path, key), depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(inner, (*path, n), depth - 1) for n, inner in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return _scalar(value, path)
    return _copy(_dumped(value, path), path, depth - 1)


def _place(path: Path) -> str:
    """A path in words. It is only ever read in an error, and a long one would tell nobody more."""
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
        raise InvalidValue(f"{_place(path)} has the key {shown(key)}; keys are text.")
    return body_text(str.__str__(key), f"{_place(path)}: the key")


def _scalar(value: float | None, path: Path) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            size = f"{value.bit_length():,} bits; at most {_MAX_BITS:,} are kept"
            raise InvalidValue(f"{_place(path)} is an integer of {size}.")
        return int.__index__(value)
    if not isfinite(value):
        raise refused(_place(path), value, "JSON has finite numbers only")
    return float.__float__(value)


def _dumped(value: object, path: Path) -> object:
    """The fields of an SDK object, dataclass or Struct: those that can be sent back."""
    try:
        if isinstance(value, Struct):
            return tidy(structs.asdict(value))
        if is_dataclass(value) and not isinstance(value, type):
            return tidy({field.name: getattr(value, field.name) for field in fields(value)})
        dump = getattr(value, "model_dump", None)
        if callable(dump):
            return tidy(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))
    except Exception as error:  # code of others: whatever it raises, the value cannot be read
        what = f"{shown(value)} and cannot be read ({error!r})"
        raise InvalidValue(f"{_place(path)} is {what}; give it as a dict.") from error
    raise refused(_place(path), value, "plain JSON values and SDK objects are accepted")
