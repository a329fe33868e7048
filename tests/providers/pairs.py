"""Reading calls and results from a provider's own form."""

from collections.abc import Iterator
from typing import Any

from tests.providers.histories import Provider

Event = tuple[str, str]


def events(values: list[dict[str, Any]], provider: Provider) -> Iterator[Event]:
    """Yield ("call" or "result", id) in order."""
    read = {"openai": _chat, "responses": _item, "anthropic": _blocks}[provider]
    for value in values:
        yield from read(value)


def check_pairs(values: list[dict[str, Any]], provider: Provider) -> None:
    """Check that every result follows its call, and that every call is answered once."""
    waiting: list[str] = []
    for kind, call_id in events(values, provider):
        if kind == "call":
            waiting.append(call_id)
        else:
            assert call_id in waiting
            waiting.remove(call_id)
    assert waiting == []


def _chat(value: dict[str, Any]) -> Iterator[Event]:
    yield from (("call", call["id"]) for call in value.get("tool_calls", ()))
    if "tool_call_id" in value:
        yield "result", value["tool_call_id"]


def _item(value: dict[str, Any]) -> Iterator[Event]:
    if value.get("type", "").endswith("call_output"):
        yield "result", value["call_id"] if "call_id" in value else value["id"]
    elif isinstance(value.get("call_id"), str):
        yield "call", value["call_id"]


def _blocks(value: dict[str, Any]) -> Iterator[Event]:
    for block in value["content"] if isinstance(value["content"], list) else ():
        if block["type"] == "tool_use":
            yield "call", block["id"]
        elif block["type"] == "tool_result":
            yield "result", block["tool_use_id"]
