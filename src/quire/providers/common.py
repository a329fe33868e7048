"""Shared steps of reading messages: plain JSON values, whole responses, the provider of a message, call ids.

1. `to_plain_json` copies dicts and SDK objects, in any mix, into plain JSON values, so that later changes of the
   caller's objects have no effect.
2. `unwrap_response` returns the messages inside a whole response. Fields that a provider does not accept as input are
   dropped; `meta` keeps the id, the model, the stop reason and the usage.
3. `detect_provider` returns the provider of a message by its fields and parts, because the shapes overlap: role and
   text look the same everywhere, and lists of text parts look the same for OpenAI and Anthropic.

`make_call_ids_distinct` is for writing: some models number their calls from the start in every response. Anthropic
requires every id once per request, and servers of the Responses API pair calls and outputs across the whole list.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, NamedTuple

from msgspec import Struct, structs
from msgspec.structs import replace

from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message, Provider, ToolCall
from quire.model.text import check_text

Values = dict[str, Any]

_ADDED_BY_SDKS = frozenset({"parsed", "parsed_arguments", "parsed_output"})
_NULL_HAS_MEANING = frozenset({"code", "outputs", "result"})  # required by the types of the items that have them
_INSIDE = frozenset({"choices", "content", "function", "message", "output", "tool_calls"})


class Entry(NamedTuple):
    """A value that should be a message, its place in the input, and the `meta` and provider of its response."""

    place: str
    value: Any
    meta: Values
    provider: Provider | None = None


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


def unwrap_response(value: Values, place: str) -> list[Entry] | None:
    """Return the messages in a whole response of any provider; None if the value is not a response."""
    if "role" not in value and "type" not in value:
        if isinstance(value.get("choices"), list):
            return _completion(value, place)
        if "message" in value and "finish_reason" in value:
            meta = _meta(value, value["finish_reason"])
            return [Entry(f"{place}.message", drop_output_fields(value["message"]), meta, "openai")]
        if isinstance(value.get("output"), list):
            return _response(value, place)
    if value.get("type") == "message" and not value.keys().isdisjoint({"stop_reason", "usage", "model"}):
        reply = {"role": value.get("role"), "content": drop_output_fields(value.get("content"))}
        return [Entry(place, reply, _meta(value, value.get("stop_reason")), "anthropic")]
    return None


def _completion(value: Values, place: str) -> list[Entry]:
    """Return the message of the first choice of an OpenAI chat response."""
    place = f"{place}.choices[0]"
    choice = next(iter(value["choices"]), None)
    if not isinstance(choice, dict):
        return [Entry(place, choice, {})]
    meta = _meta(value, choice.get("finish_reason"))
    return [Entry(f"{place}.message", drop_output_fields(choice.get("message")), meta, "openai")]


def _response(value: Values, place: str) -> list[Entry]:
    """Return the output items of an OpenAI Responses response. The last one gets the usage and the stop reason."""
    details = value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else value.get("status")
    meta = _meta(value, reason)
    part = {key: meta[key] for key in meta if key in ("id", "model")}
    items = [
        Entry(f"{place}.output[{n}]", drop_output_fields(item), part, "responses")
        for n, item in enumerate(value["output"])
    ]
    return [*items[:-1], *(item._replace(meta=meta) for item in items[-1:])]


def _meta(value: Values, reason: object) -> Values:
    named = {"id": value.get("id"), "model": value.get("model"), "stop_reason": reason}
    meta: Values = {key: text for key, text in named.items() if isinstance(text, str)}
    usage = value.get("usage")
    if isinstance(usage, dict) and (numbers := _numbers(usage)):
        meta["usage"] = numbers
    return meta


def _numbers(usage: Values) -> dict[str, int]:
    """Return the numbers of a usage report; those of a nested breakdown get a dotted name."""
    found: dict[str, int] = {}
    for key, value in usage.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": count for inner, count in _numbers(value).items()}
        elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            found[key] = value
    return found


def make_call_ids_distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Give a new id to every call with an id that was used before, and to its result.

    The new id depends only on the messages before it, so a list that grows at its end keeps its ids.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_with_new_id(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _with_new_id(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """Return the call with an id that no call before it has. `times` counts the uses of each id."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)


Path = tuple[Any, ...]
"""The place of a value: the place of the whole, then keys and positions."""

_MAX_DEPTH = 200
_LONGEST_PLACE = 200
_MAX_BITS = 4_096  # Python refuses to print much larger integers


def invalid_value(place: str, value: object, wanted: str) -> InvalidValue:
    """Return the error that names the place, quotes the value and says what is accepted."""
    return InvalidValue(f"{place} is {short_repr(value)}; {wanted}.")


def to_plain_json(value: object, place: str) -> Any:
    """Return a copy of the value as plain JSON. Raise `InvalidValue`, which names the place that is not JSON."""
    try:
        return _copy(value, (place,), _MAX_DEPTH)
    except RecursionError:
        raise InvalidValue(f"{place} is nested too deeply; at most {_MAX_DEPTH} levels are allowed.") from None


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


_CHAT_FIELDS = frozenset({"tool_calls", "function_call", "tool_call_id", "refusal", "audio", "annotations", "name"})
_CHAT_PARTS = frozenset({"image_url", "input_audio", "file"})
_RESPONSES_PARTS = frozenset({"input_text", "input_image", "input_file", "output_text"})
_ANTHROPIC_PARTS = frozenset(
    {
        "container_upload",
        "document",
        "image",
        "redacted_thinking",
        "search_result",
        "server_tool_use",
        "thinking",
        "tool_result",
        "tool_use",
    }
)
_PARTS = _CHAT_PARTS | _RESPONSES_PARTS | _ANTHROPIC_PARTS | {"text", "refusal", "function", "custom"}
_ACCEPTED = "a message has a role and content, an item of the Responses API a type"


def detect_provider(value: Values, place: str) -> Provider | None:
    """Return the provider of a message; None if several fit. Raise `InvalidValue` if it is not a message."""
    kind = value.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid_value(f"{place}.type", kind, "a type is text")
    if "role" not in value:
        return _item(value, kind, place)
    content = value.get("content", "")
    if value["role"] in ("tool", "function") or content is None or value.get("tool_calls"):
        return "openai"
    found = (
        _provider_of_parts(block for block in content if isinstance(block, dict)) if isinstance(content, list) else None
    )
    if found:
        return found
    if kind is not None or "phase" in value:
        return "responses"
    return None if _CHAT_FIELDS.isdisjoint(value) and value["role"] != "developer" else "openai"


def _item(value: Values, kind: str | None, place: str) -> Provider:
    if kind in _PARTS:
        raise invalid_value(place, value, 'that is a part of a message: give {"role": …, "content": [it]}')
    if not kind and (kind is not None or not isinstance(value.get("id"), str)):
        raise invalid_value(place, value, _ACCEPTED)
    return "responses"


def _provider_of_parts(blocks: Iterable[Values]) -> Provider | None:
    for block in blocks:
        kind = block.get("type")
        if not isinstance(kind, str):
            continue
        if kind in _ANTHROPIC_PARTS or kind.endswith("_tool_result") or not block.keys().isdisjoint(_ANTHROPIC_MARKS):
            return "anthropic"
        if kind in _RESPONSES_PARTS:
            return "responses"
        if kind in _CHAT_PARTS:
            return "openai"
    return None


_ANTHROPIC_MARKS = frozenset({"cache_control", "citations"})
