"""Items of the Agents SDK for tests, and short calls of its sessions."""

import asyncio
from typing import Any, cast

from agents import (
    set_tracing_disabled,
)

from quire.adapters.openai_agents import QuireSession

set_tracing_disabled(True)
Item = dict[str, Any]
BUDGET = 3_000
FACT = "我的会员号是 QX-4471-Z"


def run(work: Any) -> Any:
    return asyncio.run(work)


async def items_of(session: QuireSession, limit: int | None = None) -> list[Any]:
    return list(await session.get_items(limit))


async def add(session: QuireSession, *items: Item) -> None:
    await session.add_items(cast(Any, list(items)))


def said(text: str, role: str = "user") -> Item:
    return {"role": role, "content": text}


def answer(text: str, number: int = 0) -> Item:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def called(call: str, **arguments: Any) -> Item:
    return {"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": "look", "arguments": str(arguments)}


def result(call: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call, "output": text}


def thought(number: int) -> Item:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA" * 30}


HISTORY: list[Item] = [
    {"role": "developer", "content": "Speak plainly."},
    said("你好"),
    thought(1),
    called("c1", to="SEA"),
    called("c2", to="上海"),
    result("c2", "雨"),
    result("c1", "HAT136"),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    answer("It rains.", 1),
    {"role": "user", "content": [{"type": "input_text", "text": "And"}, {"type": "input_image", "image_url": "u"}]},
    {"type": "custom_tool_call", "call_id": "c3", "name": "sh", "input": "ls -l"},
    {"type": "custom_tool_call_output", "call_id": "c3", "output": "a\nb"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "zzz"},
    answer("Two files.", 2),
]
