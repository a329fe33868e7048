"""Usage reports of the three providers, and names of models.

A request names a model (`gpt-5`), the response its version (`gpt-5-2025-08-07`).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from quire.errors import InvalidValue, short_repr

_VERSION = re.compile(r"[-@](?:(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})|latest)(?:-v\d+(?::\d+)?)?$")


def strip_version(model: str) -> str:
    """Return the name in lower case without vendor and date, so that requests and responses have the same name."""
    return _VERSION.sub("", model.rpartition("/")[2].lower())


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names can mean the same model: they differ at most in a date that only one of them has."""
    if one == other:
        return True
    dates = {found[1] for name in (one, other) if (found := _VERSION.search(name.lower())) and found[1]}
    return strip_version(one) == strip_version(other) and len(dates) < 2


_ACCEPTED = (
    "give the usage of a response, as a dict or an SDK object (OpenAI chat has prompt_tokens, Responses and Anthropic"
    " have input_tokens), or the whole response"
)


class BilledTokens(NamedTuple):
    """The input tokens of a request, those of them that were read from the cache, and the model if it is named."""

    billed: int
    cached: int
    model: str | None


def read_usage(value: object) -> BilledTokens:
    """Read the input tokens from a usage report or a whole response. Raise `InvalidValue` if there are none."""
    usage, model = _field(value, "usage"), _field(value, "model")
    if usage is None:
        usage = value
    billed, cached = _read_tokens(usage)
    if billed is None:
        raise InvalidValue(f"is {short_repr(value)}; {_ACCEPTED}.", argument="usage")
    if billed == 0 or cached > billed:
        raise InvalidValue(f"has {billed:,} input tokens, {cached:,} of them cached; {_ACCEPTED}.", argument="usage")
    return BilledTokens(billed, cached, model if isinstance(model, str) and model else None)


def _read_tokens(usage: object) -> tuple[int | None, int]:
    billed = _number(usage, "prompt_tokens")
    if billed is not None:  # OpenAI chat and compatible servers: the cached tokens are included
        return billed, _number(_field(usage, "prompt_tokens_details"), "cached_tokens") or 0
    billed = _number(usage, "input_tokens")
    if billed is None:
        return None, 0
    read = _number(usage, "cache_read_input_tokens") or 0  # Anthropic: the cached tokens are not included
    written = _number(usage, "cache_creation_input_tokens") or 0
    included = _number(_field(usage, "input_tokens_details"), "cached_tokens") or 0  # Responses
    return billed + read + written, read or included


def _field(value: object, name: str) -> object:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # foreign code: a field that cannot be read counts as missing
        return None


def _number(value: object, name: str) -> int | None:
    found = _field(value, name)
    if found is None or callable(found):
        return None
    if type(found) is not int or found < 0:
        raise InvalidValue(f"{name} is {short_repr(found)}; a whole number from 0 is needed: {_ACCEPTED}.")
    return found
