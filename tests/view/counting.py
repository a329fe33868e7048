"""A second count of the forms of views, by the rules of the contract and without the library's own counter.

A form costs the o200k tokens of its texts, names and arguments, and four for every message and every tool call. Images
and files are not counted here: a form that has some is only bounded from below.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from quire import VocabularyCounter

Values = dict[str, Any]
_SEPARATORS = ((", ", ": "), (",", ":"))
"""An object has no fixed spelling: it costs at most the cheaper one of these."""
_VOCABULARY = VocabularyCounter()


class CachedCounter:
    """The real counter with a cache: the walks repeat the same texts."""

    name = "o200k_base/cached"
    exact = True

    def __init__(self) -> None:
        self.count = lru_cache(maxsize=200_000)(_VOCABULARY.count)


COUNTER = CachedCounter()
count = COUNTER.count


def openai_tokens(messages: list[Values]) -> int:
    """Return the tokens of a list for OpenAI chat."""
    total = 0
    for message in messages:
        calls = message.get("tool_calls") or []
        named = [call.get("function") or call["custom"] for call in calls]
        texts = [*_texts(message.get("content")), message.get("name") or "", message.get("refusal") or ""]
        for called in named:
            texts += [called["name"], called.get("arguments") or called.get("input") or ""]
        total += sum(map(count, texts)) + 4 * (1 + len(calls))
    return total


def responses_tokens(items: list[Values]) -> int:
    """Return the tokens of items for the Responses API."""
    total = 0
    for item in items:
        match item.get("type", "message"):
            case "message":
                texts = list(_texts(item["content"]))
            case "function_call" | "custom_tool_call":
                texts = [item["name"], item.get("arguments") or item.get("input") or ""]
            case "function_call_output" | "custom_tool_call_output":
                texts = list(_texts(item["output"]))
            case "reasoning":
                texts = [entry["text"] for entry in item.get("summary", [])]
                total -= 4  # neither a message nor a call
            case kind:
                raise AssertionError(f"an item of type {kind!r}")
        total += sum(map(count, texts)) + 4
    return total


def anthropic_tokens(messages: list[Values], system: str | list[Values]) -> int:
    """Return the tokens of a request to Anthropic."""
    total = sum(map(count, _texts(system))) + (4 if system else 0)
    for message in messages:
        content = message["content"]
        total += 4 + sum(map(count, _texts(content)))
        if isinstance(content, list):
            total += 4 * sum(block["type"] == "tool_use" for block in content)
    return total


def _texts(content: object) -> Iterator[str]:
    """Yield every text of a content: its own, and those of parts, results, calls and thinking."""
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        match block["type"]:
            case "text" | "input_text" | "output_text":
                yield block["text"]
            case "refusal":
                yield block["refusal"]
            case "thinking":
                yield block["thinking"]
            case "tool_result":
                yield from _texts(block.get("content"))
            case "tool_use":
                yield block["name"]
                spaced, compact = (json.dumps(block["input"], ensure_ascii=False, separators=s) for s in _SEPARATORS)
                yield min(spaced, compact, key=count)
