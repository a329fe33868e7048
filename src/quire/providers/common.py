"""Whole responses: the messages inside them, and what of the envelope is worth keeping.

A response says more than its provider takes back as input: ids, usage, stop reasons, fields that are null because they
were not used, what an SDK parsed for its caller. The messages go on without them; `meta` keeps a few.

Call ids that differ throughout a list: some models count their calls anew in every answer, some providers mind.

Within one exchange a result finds its call by the id, whoever else used it before. Anthropic wants every id once in a
request, and servers of the Responses API pair calls and outputs across the whole list.

What comes in, as plain JSON values of our own.

A caller's dicts, an SDK's objects and any mix of the two (a dict whose `content` holds SDK blocks is the everyday case)
become a deep copy made of dict, list, str, int, float, bool and None: later changes outside change nothing here.

Whose shape a message has: told by its parts, as the providers' shapes overlap.

Role and text alone look the same everywhere, and so do lists of bare text parts with OpenAI and Anthropic.
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
    """A value that should be a message: where it stands, and what its envelope told about it."""

    place: str
    value: Any
    meta: Values
    provider: Provider | None = None


def drop_output_fields(value: Any) -> Any:
    """A dumped response or message without the fields that cannot be sent back."""
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
    """The messages in a whole response of any provider; None if the value is no response."""
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
    """OpenAI chat: the message of the first choice."""
    place = f"{place}.choices[0]"
    choice = next(iter(value["choices"]), None)
    if not isinstance(choice, dict):
        return [Entry(place, choice, {})]
    meta = _meta(value, choice.get("finish_reason"))
    return [Entry(f"{place}.message", drop_output_fields(choice.get("message")), meta, "openai")]


def _response(value: Values, place: str) -> list[Entry]:
    """OpenAI Responses: the output items. What is counted once goes with the last."""
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
    """The counts of a usage report; those of a breakdown under a dotted name."""
    found: dict[str, int] = {}
    for key, value in usage.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": count for inner, count in _numbers(value).items()}
        elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
            found[key] = value
    return found


def make_call_ids_distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with another id for every call whose id was used before, and for its result.

    What an id becomes depends on what stands before it only, so that a list that grows at its end stays as it was.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_renamed(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _renamed(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """The call with an id that none before it has; `times` says how often each was used."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)


Path = tuple[Any, ...]
"""Where a value stands: the place of the whole, then keys and positions."""

_MAX_DEPTH = 200
_LONGEST_PLACE = 200
_MAX_BITS = 4_096  # Python refuses to write out integers not much larger


def invalid_value(place: str, value: object, wanted: str) -> InvalidValue:
    """The error that names the place, quotes the value and says what would be accepted."""
    return InvalidValue(f"{place} is {short_repr(value)}; {wanted}.")


def to_plain_json(value: object, place: str) -> Any:
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
        return value if everyday else check_text(str.__str__(value), _place(path))
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
        raise InvalidValue(f"{_place(path)} has the key {short_repr(key)}; keys are text.")
    return check_text(str.__str__(key), f"{_place(path)}: the key")


def _scalar(value: float | None, path: Path) -> float | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            size = f"{value.bit_length():,} bits; at most {_MAX_BITS:,} are kept"
            raise InvalidValue(f"{_place(path)} is an integer of {size}.")
        return int.__index__(value)
    if not isfinite(value):
        raise invalid_value(_place(path), value, "JSON has finite numbers only")
    return float.__float__(value)


def _dumped(value: object, path: Path) -> object:
    """The fields of an SDK object, dataclass or Struct: those that can be sent back."""
    try:
        if isinstance(value, Struct):
            return drop_output_fields(structs.asdict(value))
        if is_dataclass(value) and not isinstance(value, type):
            return drop_output_fields({field.name: getattr(value, field.name) for field in fields(value)})
        dump = getattr(value, "model_dump", None)
        if callable(dump):
            return drop_output_fields(dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))
    except Exception as error:  # code of others: whatever it raises, the value cannot be read
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
    """The provider whose shape this is; None if it could be any. Raises `InvalidValue` if it is no message at all."""
    kind = value.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid_value(f"{place}.type", kind, "a type is text")
    if "role" not in value:
        return _item(value, kind, place)
    content = value.get("content", "")
    if value["role"] in ("tool", "function") or content is None or value.get("tool_calls"):
        return "openai"
    found = _told_by(block for block in content if isinstance(block, dict)) if isinstance(content, list) else None
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


def _told_by(blocks: Iterable[Values]) -> Provider | None:
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
