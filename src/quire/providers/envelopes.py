"""Whole responses: the messages inside them, and what of the envelope is worth keeping.

A response says more than its provider takes back as input: ids, usage, stop reasons, fields that are null because they
were not used, what an SDK parsed for its caller. The messages go on without them; `meta` keeps a few.
"""

from typing import Any, NamedTuple

from quire.messages import Provider

Values = dict[str, Any]

_ADDED_BY_SDKS = frozenset({"parsed", "parsed_arguments", "parsed_output"})
_NULL_HAS_MEANING = frozenset({"code", "outputs", "result"})  # required by the types of the items that have them
_INSIDE = frozenset({"choices", "content", "function", "message", "output", "tool_calls"})


class Entry(NamedTuple):
    """A value that should be a message: where it stands, and what its envelope told about it."""

    place: str
    value: Any
    meta: Values
    provider: Provider | None = None


def tidy(value: Any) -> Any:
    """A dumped response or message without the fields that cannot be sent back."""
    if isinstance(value, list):
        return [tidy(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    chat = "role" in value and "type" not in value
    return {
        key: tidy(inner) if key in _INSIDE else inner
        for key, inner in value.items()
        if key not in _ADDED_BY_SDKS
        and (inner is not None or key in _NULL_HAS_MEANING or (chat and key == "content"))
        and not (chat and key == "annotations" and inner == [])
    }


def opened(value: Values, place: str) -> list[Entry] | None:
    """The messages in a whole response of any provider; None if the value is no response."""
    if "role" not in value and "type" not in value:
        if isinstance(value.get("choices"), list):
            return _completion(value, place)
        if "message" in value and "finish_reason" in value:
            meta = _meta(value, value["finish_reason"])
            return [Entry(f"{place}.message", tidy(value["message"]), meta, "openai")]
        if isinstance(value.get("output"), list):
            return _response(value, place)
    if value.get("type") == "message" and not value.keys().isdisjoint({"stop_reason", "usage", "model"}):
        reply = {"role": value.get("role"), "content": tidy(value.get("content"))}
        return [Entry(place, reply, _meta(value, value.get("stop_reason")), "anthropic")]
    return None


def _completion(value: Values, place: str) -> list[Entry]:
    """OpenAI chat: the message of the first choice."""
    place = f"{place}.choices[0]"
    choice = next(iter(value["choices"]), None)
    if not isinstance(choice, dict):
        return [Entry(place, choice, {})]
    meta = _meta(value, choice.get("finish_reason"))
    return [Entry(f"{place}.message", tidy(choice.get("message")), meta, "openai")]


def _response(value: Values, place: str) -> list[Entry]:
    """OpenAI Responses: the output items. What is counted once goes with the last."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else value.get("status")
    meta = _meta(value, reason)
    part = {key: meta[key] for key in meta if key in ("id", "model")}
    items = [Entry(f"{place}.output[{n}]", tidy(item), part, "responses") for n, item in enumerate(value["output"])]
    return [*items[:-1], *(item._replace(meta=meta) for item in items[-1:])]


def _meta(value: Values, reason: object) -> Values:
    named = {"id": value.get("id"), "model": value.get("model"), "stop_reason": reason}
    meta: Values = {key: text for key, text in named.items() if isinstance(text, str)}
    usage = value.get("usage")
    if isinstance(usage, dict) and (numbers := _numbers(usage)):
        meta["usage"] = numbers
    return meta


def _numbers(usage: Values) -> dict[str, int]:
    """The counts of a usage report; those of a breakdown under a dotted name."""
    found: dict[str, int] = {}
    for key, value in usage.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": count for inner, count in _numbers(value).items()}
        elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            found[key] = value
    return found
