"""Rules of each provider for a list of messages, checked before a request is sent.

A rule is checked if the provider refuses a request that breaks it, or if the model would be misled: a call without its
result, a result without its call, an empty message, a wrong first role. A rule with a URL is missing in the provider's
reference, or incomplete there; the page at the URL quotes the provider's error message.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.providers import anthropic, openai, responses
from quire.providers.detection import CALLS, OUTPUTS
from quire.providers.parts import Reader, is_incomplete
from quire.providers.responses import result_key

Values = Mapping[str, Any]
BrokenRule = tuple[int, str, str]
"""The fields of an `IllegalMessage`."""


LEGAL_NAMES: Mapping[str, re.Pattern[str]] = {
    # "a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64" (OpenAI API reference, functions)
    "openai": re.compile("[a-zA-Z0-9_-]{1,64}"),
    "responses": re.compile("[a-zA-Z0-9_-]{1,64}"),
    # https://github.com/bug-ops/zeph/pull/1311, https://github.com/anthropics/claude-code/issues/96152
    "anthropic": re.compile("[a-zA-Z0-9_-]{1,128}"),
}
"""The names of tools that a provider accepts."""
LEGAL_IDS: Mapping[str, re.Pattern[str]] = {
    # "messages[3].tool_calls[0].id: maximum length 40": https://github.com/vercel/ai/issues/5171
    "openai": re.compile(".{1,40}", re.DOTALL),
    # "input[95].call_id: maximum length 64": https://github.com/AnswerDotAI/fastllm/issues/45
    "responses": re.compile(".{1,64}", re.DOTALL),
    # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    "anthropic": re.compile("[a-zA-Z0-9_-]+"),
}
"""The ids of calls that a provider accepts."""
_LEGAL_SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")
_TEXTS = ("text", "input_text", "output_text")
_THINKING = ("thinking", "redacted_thinking")
NEVER_NULL = ("function_call_output", "custom_tool_call_output")  # other outputs may be null
_MAX_MARKS = 4  # "A maximum of 4 blocks with cache_control may be provided" (Anthropic, prompt caching)


class IllegalMessage(Struct, frozen=True):
    """One broken rule: the position of the message (-1 for Anthropic's `system`), the rule, and a description."""

    position: int
    rule: str
    text: str


def check_legal(messages: Sequence[Values] | Values, provider: str) -> list[IllegalMessage]:
    """Return every rule that the list breaks for `openai` (chat), `responses` or `anthropic`; empty if it is legal.

    For Anthropic it may also be a request: a dict with `messages` and `system`. Some models of Anthropic also refuse a
    request that ends with a message of the assistant; this depends on the model, so it is not checked.
    """
    check = _CHECKS.get(provider) if isinstance(provider, str) else None
    if check is None:
        raise InvalidValue(f"is {short_repr(provider)}; known are {', '.join(_CHECKS)}.", argument="provider")
    around: list[BrokenRule] = []
    if isinstance(messages, Mapping) and provider == "anthropic" and "messages" in messages:
        around = list(_check_request(messages))
        messages = messages["messages"]
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidValue(f"is {short_repr(messages)}; a list of dicts is needed.", argument="messages")
    if not messages:
        return [IllegalMessage(0, "empty list", "The list has no messages.")]
    broken = [
        IllegalMessage(position, "not a message", f"It is {short_repr(message)}; a dict is needed.")
        for position, message in enumerate(messages)
        if not isinstance(message, Mapping)
    ]
    return broken or [IllegalMessage(*found) for found in [*around, *check(messages)]]


# OpenAI chat


def _check_openai(messages: Sequence[Values]) -> Iterator[BrokenRule]:
    waiting: dict[str, int] = {}
    for position, message in enumerate(messages):
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool", "function"):
            yield position, "unknown role", f"Its role is {short_repr(role)}."
            continue
        yield from _check_parts(position, message.get("content"), openai.READERS)
        if role == "tool":
            yield from _take_result(position, message.get("tool_call_id"), waiting)
            yield from _check_not_null(position, message.get("content"))
            continue
        if role != "function":
            yield from _report_unanswered(position, waiting)
        speaker = message.get("name")
        if speaker is not None and not _LEGAL_SPEAKER.fullmatch(str(speaker)):
            yield position, "illegal name", f"The name of a speaker is {short_repr(speaker)}."
        calls = message.get("tool_calls") or []
        if role == "assistant":
            yield from _openai_calls(position, calls, waiting)
        says_more = calls or any(message.get(field) for field in ("function_call", "refusal", "audio"))
        if is_empty(message.get("content")) and not says_more and role != "function":
            yield position, "empty content", f"A {role} message without content."
    yield from _report_unanswered(len(messages) - 1, waiting)
    if all(message.get("role") in ("system", "developer") for message in messages):
        yield len(messages) - 1, "only system messages", "All messages are system messages."


def _openai_calls(position: int, calls: object, waiting: dict[str, int]) -> Iterator[BrokenRule]:
    for call in calls if isinstance(calls, Sequence) and not isinstance(calls, str) else ():
        called = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if not isinstance(called, Mapping) or not called.get("name") or not call.get("id"):
            yield position, "malformed call", f"A call without id or name: {short_repr(call)}."
            continue
        yield from _check_spelling(position, call["id"], called["name"], "openai")
        call_id = str(call["id"])
        if call_id in waiting:
            yield position, "duplicate call id", f"Two calls have the id {call_id!r}."
        else:
            waiting[call_id] = position


def _check_spelling(position: int, call_id: object, name: object, provider: str) -> Iterator[BrokenRule]:
    """Yield the rules that the id and the name of a call break. A call without a name has a type instead."""
    if not isinstance(call_id, str) or not LEGAL_IDS[provider].fullmatch(call_id):
        yield position, "illegal call id", f"A call has the id {short_repr(call_id)}."
    if name is not None and not LEGAL_NAMES[provider].fullmatch(str(name)):
        yield position, "illegal name", f"A call names the tool {short_repr(name)}."


def _take_result(position: int, call_id: object, waiting: dict[str, int]) -> Iterator[BrokenRule]:
    if isinstance(call_id, str) and call_id in waiting:
        del waiting[call_id]
    else:
        yield position, "orphaned result", f"No open call has the id {short_repr(call_id)}."


def _check_not_null(position: int, content: object) -> Iterator[BrokenRule]:
    """Check that a result is not null: https://github.com/run-llama/llama_index/issues/17555. It may be empty."""
    if content is None:
        yield position, "empty content", "A result without content."


def _report_unanswered(position: int, waiting: dict[str, int]) -> Iterator[BrokenRule]:
    """Yield the calls that wait for a result, and clear the list of them."""
    for call_id in waiting:
        yield position, "unanswered call", f"The call {call_id!r} has no result before this point."
    waiting.clear()


def _check_parts(position: int, content: object, readers: Mapping[str, Reader]) -> Iterator[BrokenRule]:
    """Check that the parts of a known type have their required fields."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and is_incomplete(part, readers):
            yield position, "malformed part", f"A part without its required fields: {short_repr(part)}."


def _check_message(position: int, message: Values, roles: Container[object]) -> Iterator[BrokenRule]:
    role = message.get("role")
    if role not in roles:
        yield position, "unknown role", f"Its role is {short_repr(role)}."
    elif is_empty(message.get("content")):
        yield position, "empty content", f"A {role} message without content."


# OpenAI Responses


def _check_responses(items: Sequence[Values]) -> Iterator[BrokenRule]:
    waiting: dict[str, int] = {}
    answered: set[str] = set()
    shells: dict[str, str] = {}  # the call ids of local shells, by the ids of their items
    for position, item in enumerate(items):
        yield from _check_parts(position, item.get("content"), responses.READERS)
        yield from _check_parts(position, item.get("output"), responses.READERS)
        match item.get("type") or ("message" if "role" in item else "item_reference"):
            case kind if not isinstance(kind, str):
                yield position, "malformed item", f"Its type is {short_repr(kind)}; a text is needed."
            case kind if kind in CALLS and item.get("call_id") is not None:
                call_id = str(item["call_id"])
                shells |= {str(item.get("id")): call_id} if kind == "local_shell_call" else {}
                name = item.get("name") if kind in ("function_call", "custom_tool_call") else kind
                yield from _check_spelling(position, item["call_id"], name, "responses")
                if call_id in waiting:
                    yield position, "duplicate call id", f"Two calls have the id {call_id!r}."
                waiting[call_id] = position
            case kind if kind in OUTPUTS and item.get(result_key(item)) is not None:
                call_id = str(item[result_key(item)])
                call_id = shells.get(call_id, call_id) if kind == "local_shell_call_output" else call_id
                yield from _take_output(position, call_id, waiting, answered)
                if kind in NEVER_NULL:
                    yield from _check_not_null(position, item.get("output", ""))
            case "function_call" | "custom_tool_call" | "function_call_output" | "custom_tool_call_output" as kind:
                yield position, "malformed item", f"A {kind} without a call_id."
            case "reasoning":
                yield from _reasoning(position, items)
            case "message":
                yield from _check_message(position, item, ("system", "developer", "user", "assistant"))
    yield from _report_unanswered(len(items) - 1, waiting)


def _take_output(position: int, call_id: str, waiting: dict[str, int], answered: set[str]) -> Iterator[BrokenRule]:
    if call_id in answered and call_id not in waiting:
        yield position, "duplicate result", f"The call {call_id!r} has a result already."
        return
    yield from _take_result(position, call_id, waiting)
    answered.add(call_id)


def _reasoning(position: int, items: Sequence[Values]) -> Iterator[BrokenRule]:
    """Check that the item of a reasoning item follows it: https://github.com/openai/openai-node/issues/1567."""
    following = items[position + 1] if position + 1 < len(items) else {"role": "user"}
    kind = following.get("type") or ("message" if "role" in following else "item_reference")
    if str(kind).endswith("_output") or (kind == "message" and following.get("role") != "assistant"):
        yield position, "lonely reasoning", "A reasoning item without the item it belongs to."


# Anthropic


def _check_anthropic(messages: Sequence[Values]) -> Iterator[BrokenRule]:
    first_role = messages[0].get("role")
    if first_role != "user":
        yield 0, "first role", f"The first message has the role {short_repr(first_role)}; 'user' is needed."
    waiting: dict[str, int] = {}
    called: set[str] = set()
    for role, group in groupby(enumerate(messages), key=lambda pair: pair[1].get("role")):
        turn = list(group)  # consecutive messages of one role are one turn
        blocks: list[Any] = []
        for position, message in turn:
            yield from _check_message(position, message, ("user", "assistant", "system"))
            content = message.get("content")
            if isinstance(content, list):
                yield from () if is_empty(content) else _check_blocks(position, content)
                blocks += content
            elif content:
                blocks.append({"type": "text", "text": content})
        first = turn[0][0]
        yield from _take_results(first, blocks, waiting)
        yield from _report_unanswered(first, waiting)
        yield from _make_calls(first, blocks, waiting, called)
        yield from _check_roles(first, str(role), blocks)
    yield from _report_unanswered(len(messages) - 1, waiting)
    # "final assistant content cannot end with trailing whitespace": https://github.com/vercel/ai/pull/2124
    if messages[-1].get("role") == "assistant" and ends_with_blank(messages[-1].get("content")):
        yield len(messages) - 1, "trailing blanks", "The last message is the assistant's and ends with blanks."


def _check_request(request: Values) -> Iterator[BrokenRule]:
    """Check what does not belong to one message: the prompt, and the number of cache marks."""
    prompt = request.get("system", [])
    if "system" in request and is_empty(prompt):
        yield -1, "empty content", "The system prompt is empty: leave it out."
    yield from _check_blocks(-1, prompt if isinstance(prompt, list) else ())
    messages = request["messages"] if isinstance(request["messages"], list) else []
    marks = _count_marks(prompt) + sum(_count_marks(m.get("content")) for m in messages if isinstance(m, Mapping))
    if marks > _MAX_MARKS:
        yield -1, "cache marks", f"There are {marks} cache marks; {_MAX_MARKS} are accepted."


def _count_marks(content: object) -> int:
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    return sum(bool(block.get("cache_control")) + _count_marks(block.get("content")) for block in blocks)


def _check_roles(position: int, role: str, blocks: Sequence[Any]) -> Iterator[BrokenRule]:
    """Check which blocks a turn has, and that an assistant's turn does not end with thinking."""
    kinds = [_kind(block) for block in blocks]
    if role == "assistant" and "tool_result" in kinds:
        yield position, "wrong block", "An assistant's message with the result of a tool."
    if role != "assistant" and not {"tool_use", *_THINKING}.isdisjoint(kinds):
        yield position, "wrong block", f"A message of the {role} with a call or with thinking."
    # "The final block in an assistant message cannot be `thinking`": https://github.com/tailcallhq/forgecode/issues/2107
    if role == "assistant" and kinds and kinds[-1] in _THINKING:
        yield position, "lonely thinking", "An assistant's message that ends with thinking."


def _take_results(position: int, blocks: Sequence[Any], waiting: dict[str, int]) -> Iterator[BrokenRule]:
    results = [block for block in blocks if _kind(block) == "tool_result"]
    if any(_kind(block) != "tool_result" for block in blocks[: len(results)]):
        yield position, "results first", "Results of tools come before everything else in a message."
    for block in results:
        yield from _take_result(position, block.get("tool_use_id"), waiting)


def _make_calls(
    position: int, blocks: Sequence[Any], waiting: dict[str, int], called: set[str]
) -> Iterator[BrokenRule]:
    for block in blocks:
        if _kind(block) == "tool_use":
            call_id = str(block.get("id"))
            yield from _check_spelling(position, block.get("id"), block.get("name"), "anthropic")
            if call_id in called:  # ids must be unique in the whole request
                yield position, "duplicate call id", f"Two calls have the id {call_id!r}."
            called.add(call_id)
            waiting[call_id] = position
            if not isinstance(block.get("input"), Mapping):
                yield position, "malformed block", f"The input of the call {call_id!r} is not an object."
        elif _kind(block) == "thinking" and not block.get("signature"):
            yield position, "unsigned thinking", "A thinking block without its signature."


def _check_blocks(position: int, blocks: Sequence[Any]) -> Iterator[BrokenRule]:
    for block in blocks:
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            yield position, "malformed block", f"A block without a type: {short_repr(block)}."
        elif is_incomplete(block, anthropic.READERS):
            yield position, "malformed block", f"A block without its required fields: {short_repr(block)}."
        elif block["type"] == "text" and not str(block.get("text") or "").strip():
            yield position, "empty content", "A text block without text."


def _kind(block: object) -> str:
    return str(block.get("type")) if isinstance(block, Mapping) else ""


def ends_with_blank(content: object) -> bool:
    """Return whether content of Anthropic's form ends with a text that has blanks at its end."""
    last = content[-1] if isinstance(content, list) and content else content
    text = last.get("text") if _kind(last) == "text" and isinstance(last, Mapping) else last
    return isinstance(text, str) and text != text.rstrip()


def is_empty(content: object) -> bool:
    """Return whether content says nothing: no text but blanks, and no other part."""
    if not isinstance(content, list):
        return not content.strip() if isinstance(content, str) else not content
    return all(_kind(part) in _TEXTS and is_empty(part.get("text")) for part in content)


_CHECKS: Mapping[str, Callable[[Sequence[Values]], Iterator[BrokenRule]]] = {
    "openai": _check_openai,
    "responses": _check_responses,
    "anthropic": _check_anthropic,
}
