"""Detection: the messages in a whole response, and the provider of a message.

The shapes overlap: role and text look the same everywhere, and lists of text parts look the same for OpenAI and
Anthropic. So the provider is detected by the fields and parts that only one of them has.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from quire.model.messages import Provider
from quire.providers.plain_json import Values, drop_output_fields, invalid_value

_CHAT_FIELDS = frozenset({"tool_calls", "function_call", "tool_call_id", "refusal", "audio", "annotations", "name"})
_ANTHROPIC_FIELDS = frozenset({"cache_control", "citations"})
_PROVIDERS: Mapping[str, Provider] = {
    "image_url": "openai",
    "input_audio": "openai",
    "file": "openai",
    "input_text": "responses",
    "input_image": "responses",
    "input_file": "responses",
    "output_text": "responses",
    "container_upload": "anthropic",
    "document": "anthropic",
    "image": "anthropic",
    "redacted_thinking": "anthropic",
    "search_result": "anthropic",
    "server_tool_use": "anthropic",
    "thinking": "anthropic",
    "tool_result": "anthropic",
    "tool_use": "anthropic",
}
"""The types of parts that only one provider has."""
_PARTS = _PROVIDERS.keys() | {"text", "refusal", "function", "custom"}
_CALLS = ("apply_patch_call", "computer_call", "custom_tool_call", "function_call", "local_shell_call", "shell_call")
CALLS = frozenset({*_CALLS, "tool_search_call"})
OUTPUTS = frozenset({*(f"{call}_output" for call in _CALLS), "tool_search_output"})
ITEMS = frozenset(
    {
        *CALLS,
        *OUTPUTS,
        "additional_tools",
        "code_interpreter_call",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "configuration_update",
        "file_search_call",
        "image_generation_call",
        "item_reference",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "reasoning",
        "web_search_call",
    }
)
"""The types of items of the Responses API without a role."""
_ACCEPTED = (
    "a message has a role and content, an item of the Responses API a known type; messages of LangChain and pydantic-ai"
    " are accepted too; provider='responses' keeps an item of a new type as it is"
)


class Entry(NamedTuple):
    """A value that should be a message, its place in the input, and the `meta` and provider of its response."""

    place: str
    value: Any
    meta: Values
    provider: Provider | None = None


def unwrap_response(value: Values, place: str) -> list[Entry] | None:
    """Return the messages in a whole response of any provider; None if the value is not a response."""
    if "role" not in value and "type" not in value:
        if isinstance(value.get("choices"), list):
            choice = next(iter(value["choices"]), None)
            place = f"{place}.choices[0]"
            return [_choice(value, choice, place) if isinstance(choice, dict) else Entry(place, choice, {})]
        if "message" in value and "finish_reason" in value:
            return [_choice(value, value, place)]
        if isinstance(value.get("output"), list):
            return _response(value, place)
    if value.get("type") == "message" and not value.keys().isdisjoint({"stop_reason", "usage", "model"}):
        reply = {"role": value.get("role"), "content": drop_output_fields(value.get("content"))}
        return [Entry(place, reply, _meta(value, value.get("stop_reason")), "anthropic")]
    return None


def _choice(response: Values, choice: Values, place: str) -> Entry:
    """Return the message of a choice of an OpenAI chat response."""
    meta = _meta(response, choice.get("finish_reason"))
    return Entry(f"{place}.message", drop_output_fields(choice.get("message")), meta, "openai")


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


def detect_provider(value: Values, place: str) -> Provider | None:
    """Return the provider of a message; None if several fit. Raise `InvalidValue` if it is not a message."""
    kind = value.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid_value(f"{place}.type", kind, "a type is text")
    if "role" not in value:
        return _item(value, kind, place)
    if kind not in (None, "message"):
        raise invalid_value(f"{place}.type", kind, "a message with a role has the type 'message' or none")
    content = value.get("content", "")
    if value["role"] in ("tool", "function") or content is None or value.get("tool_calls"):
        return "openai"
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and (found := _provider_of_part(block)):
            return found
    if kind is not None or "phase" in value:
        return "responses"
    return None if _CHAT_FIELDS.isdisjoint(value) and value["role"] != "developer" else "openai"


def _item(value: Values, kind: str | None, place: str) -> Provider:
    if kind in _PARTS:
        raise invalid_value(place, value, 'that is a part of a message: give {"role": …, "content": [it]}')
    is_reference = kind is None and isinstance(value.get("id"), str) and value.keys() <= {"id", "type"}
    if kind not in ITEMS and not is_reference:
        raise invalid_value(place, value, _ACCEPTED)
    return "responses"


def detect_object(value: Values) -> Provider | None:
    """Return the provider of an SDK object that has no role: an item of the Responses API, also of a new type."""
    kind = value.get("type")
    return "responses" if "role" not in value and isinstance(kind, str) and kind and kind not in _PARTS else None


def _provider_of_part(block: Values) -> Provider | None:
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    if kind.endswith("_tool_result") or not _ANTHROPIC_FIELDS.isdisjoint(block):
        return "anthropic"
    return _PROVIDERS.get(kind)


Framework = Literal["langchain", "pydantic_ai"]
_FRAMEWORKS: Mapping[str, Framework] = {
    "langchain_core.messages": "langchain",
    "pydantic_ai.messages": "pydantic_ai",
}
_LANGCHAIN_TYPES = frozenset({"human", "ai", "system", "tool", "function", "chat", "remove"})


def detect_framework(value: object) -> Framework | None:
    """Return the framework of a message of LangChain or pydantic-ai, an object or a dict; None for other values."""
    if isinstance(value, Mapping):
        return _framework_of_dict(value)
    modules = (".".join(cls.__module__.split(".")[:2]) for cls in type(value).__mro__)
    return next((_FRAMEWORKS[module] for module in modules if module in _FRAMEWORKS), None)


def _framework_of_dict(value: Mapping[Any, Any]) -> Framework | None:
    kind = value.get("type")
    if isinstance(kind, str):
        is_dump = kind in _LANGCHAIN_TYPES or kind.endswith("MessageChunk")
        has_content = isinstance(value.get("data"), Mapping) or "additional_kwargs" in value
        if (is_dump and has_content) or (kind == "constructor" and "lc" in value and "kwargs" in value):
            return "langchain"
    is_model_message = value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list | tuple)
    return "pydantic_ai" if is_model_message else None
