"""Whose shape a message has: told by its parts, as the providers' shapes overlap.

Role and text alone look the same everywhere, and so do lists of bare text parts with OpenAI and Anthropic.
"""

from collections.abc import Iterable
from typing import Any

from quire.messages import Provider
from quire.providers.plain import refused

Values = dict[str, Any]

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


def provider_of(value: Values, place: str) -> Provider | None:
    """The provider whose shape this is; None if it could be any. Raises `InvalidValue` if it is no message at all."""
    kind = value.get("type")
    if kind is not None and not isinstance(kind, str):
        raise refused(f"{place}.type", kind, "a type is text")
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
        raise refused(place, value, 'that is a part of a message: give {"role": …, "content": [it]}')
    if not kind and (kind is not None or not isinstance(value.get("id"), str)):
        raise refused(place, value, _ACCEPTED)
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
