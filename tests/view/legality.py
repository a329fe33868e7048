"""A second check of legal requests: the providers' rules, written again in the simplest way.

`quire.check_legal` says which rule is broken and where. This only says whether one is broken, in another way, so that a
mistake in either is found.
"""

import re
from typing import Any

Values = dict[str, Any]
_ID = re.compile("[a-zA-Z0-9_-]+")


def openai_is_legal(messages: list[Values]) -> bool:
    """Return whether every call is answered directly after it, with no other result and no empty message."""
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        answers = []
        while place < len(messages) and messages[place]["role"] == "tool":
            answers.append(messages[place]["tool_call_id"])
            place += 1
        if message["role"] not in ("system", "developer", "user", "assistant"):
            return False
        if sorted(calls) != sorted(answers) or len(set(calls)) < len(calls) or "" in calls:
            return False
        if (calls and message["role"] != "assistant") or not (calls or _says(message["content"])):
            return False
    spoken = [str(message["role"]) for message in messages if message["role"] not in ("system", "developer")]
    return spoken[0] == "user"


def responses_is_legal(items: list[Values]) -> bool:
    """Return whether calls and outputs are pairs, the call first, with no user message between them."""
    waiting: list[str] = []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        following = items[place + 1] if place + 1 < len(items) else {}
        if kind.endswith("_call"):
            waiting.append(item["call_id"])
        elif kind.endswith("_call_output"):
            if item["call_id"] not in waiting:
                return False
            waiting.remove(item["call_id"])
        elif kind == "reasoning":
            if following.get("role", "assistant") != "assistant" or not following:
                return False
        elif item["role"] not in ("system", "developer", "user", "assistant") or not _says(item["content"]):
            return False
        if waiting and item.get("role") == "user":
            return False
        if len(set(waiting)) < len(waiting) or "" in waiting:
            return False
    roles = [item.get("role", "assistant") for item in items if item.get("role") not in ("system", "developer")]
    return not waiting and roles[0] == "user"


def anthropic_is_legal(messages: list[Values]) -> bool:
    """Return whether roles alternate from the user on, and the results of calls start the next turn."""
    turns: list[tuple[str, list[Values]]] = []
    for message in messages:
        content = message["content"]
        if not _says(content):
            return False
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], list(blocks)))
    if turns[0][0] != "user" or any(role not in ("user", "assistant") for role, _ in turns):
        return False
    seen: list[str] = []
    calls: list[str] = []
    for role, blocks in turns:
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = [block["tool_use_id"] for block in blocks[: len(results)] if block["type"] == "tool_result"]
        if results != first or sorted(results) != sorted(calls) or (results and role != "user"):
            return False
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        seen += calls
        if calls and role != "assistant":
            return False
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return False
        if role != "assistant" and any("thinking" in block["type"] for block in blocks):
            return False
    return not calls and len(set(seen)) == len(seen) and all(map(_ID.fullmatch, seen))


def _says(content: object) -> bool:
    return bool(content.strip()) if isinstance(content, str) else bool(content)
