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

_MAX_DEPTH = 200
_LONGEST_PLACE = 200
_MAX_BITS = 4_096  # Python refuses to write out integers not much larger


def refused(place: str, value: object, wanted: str) -> InvalidValue:
    """The error that names the place, quotes the value and says what would be accepted."""
    return InvalidValue(f"{place} is {shown(value)}; {wanted}.")


def plain(value: object, place: str) -> Any:
    """The value as plain JSON, copied. Raises `InvalidValue` naming the place of what JSON cannot carry."""
    try:
        return _copy(value, place, _MAX_DEPTH)
    except RecursionError:
        raise InvalidValue(f"{place} is nested too deeply; at most {_MAX_DEPTH} levels are kept.") from None


def _copy(value: object, place: str, depth: int) -> Any:
    if depth == 0:
        raise RecursionError
    if isinstance(value, str):
        return body_text(str.__str__(value), place)
    if isinstance(value, Mapping):
        return {_key(key, place): _copy(inner, _below(place, f".{key}"), depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(inner, _below(place, f"[{n}]"), depth - 1) for n, inner in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return _scalar(value, place)
    return _copy(_dumped(value, place), place, depth - 1)


def _below(place: str, step: str) -> str:
    """The place of an inner value; it is only ever read in an error, and a long one would tell nobody more."""
    if len(place) + len(step) <= _LONGEST_PLACE:
        return place + step
    return place if place.endswith("…") else place + "…"


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise InvalidValue(f"{place} has the key {shown(key)}; keys are text.")
    return body_text(str.__str__(key), f"{place}: the key")


def _scalar(value: float | None, place: str) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise InvalidValue(f"{place} is an integer of {value.bit_length():,} bits; at most {_MAX_BITS:,} are kept.")
        return int.__index__(value)
    if not isfinite(value):
        raise refused(place, value, "JSON has finite numbers only")
    return float.__float__(value)


def _dumped(value: object, place: str) -> object:
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
        raise InvalidValue(f"{place} is {shown(value)} and cannot be read ({error!r}); give it as a dict.") from error
    raise refused(place, value, "plain JSON values and SDK objects are accepted")
