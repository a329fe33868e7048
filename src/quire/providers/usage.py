"""Names of models: a request names an alias (`gpt-5`), the answer the very version (`gpt-5-2025-08-07`).

What a provider says it billed, in the three shapes they say it in.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from quire.errors import InvalidValue, short_repr

_VERSION = re.compile(r"[-@](?:(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})|latest)(?:-v\d+(?::\d+)?)?$")


def strip_version(model: str) -> str:
    """The name without vendor, date and case: what one model is called in requests and in answers."""
    return _VERSION.sub("", model.rpartition("/")[2].lower())


def is_same_model(one: str, other: str) -> bool:
    """Whether two names can be the same model: they are alike but for a date that only one of them has."""
    if one == other:
        return True
    dates = {found[1] for name in (one, other) if (found := _VERSION.search(name.lower())) and found[1]}
    return strip_version(one) == strip_version(other) and len(dates) < 2


_ACCEPTED = (
    "give the usage of an answer, as a dict or an SDK object (OpenAI chat has prompt_tokens, Responses and Anthropic"
    " have input_tokens), or the whole answer that has it"
)


class BilledTokens(NamedTuple):
    """What went in: all tokens, those of them that were read from the cache, and the model if it is named."""

    billed: int
    cached: int
    model: str | None


def read_usage(value: object) -> BilledTokens:
    """What a usage report, or a whole answer with one, says of the tokens that went in. Raises `InvalidValue`."""
    usage, model = _field(value, "usage"), _field(value, "model")
    if usage is None:
        usage = value
    billed, cached = _openai(usage) or _input(usage) or (None, 0)
    if billed is None:
        raise InvalidValue(f"usage is {short_repr(value)}; {_ACCEPTED}.")
    if billed == 0 or cached > billed:
        raise InvalidValue(f"usage says that {billed:,} tokens went in, {cached:,} of them cached; {_ACCEPTED}.")
    return BilledTokens(billed, cached, model if isinstance(model, str) and model else None)


def _openai(usage: object) -> tuple[int, int] | None:
    """OpenAI chat, and servers that speak like it: cached tokens are among the prompt's."""
    billed = _number(usage, "prompt_tokens")
    if billed is None:
        return None
    return billed, _number(_field(usage, "prompt_tokens_details"), "cached_tokens") or 0


def _input(usage: object) -> tuple[int, int] | None:
    """Responses, where cached tokens are among the input's; Anthropic, where they are told beside it."""
    billed = _number(usage, "input_tokens")
    if billed is None:
        return None
    read = _number(usage, "cache_read_input_tokens") or 0
    written = _number(usage, "cache_creation_input_tokens") or 0
    among = _number(_field(usage, "input_tokens_details"), "cached_tokens") or 0
    return billed + read + written, read or among


def _field(value: object, name: str) -> object:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # code of others: a field that cannot be read is not there
        return None


def _number(value: object, name: str) -> int | None:
    found = _field(value, name)
    if found is None or callable(found):
        return None
    if type(found) is not int or found < 0:
        raise InvalidValue(f"{name} is {short_repr(found)}; a whole number from 0 is needed: {_ACCEPTED}.")
    return found
