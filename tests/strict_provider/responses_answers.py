"""Answers of OpenAI Responses, plain and as events
(https://developers.openai.com/api/docs/api-reference/responses-streaming)."""

import json
from collections.abc import Iterator
from itertools import pairwise

from tests.strict_provider.anthropic_answers import halve
from tests.strict_provider.chat_answers import make_error, to_problem
from tests.strict_provider.replies import Reply
from tests.strict_provider.requests import Body, Request, State
from tests.strict_provider.signatures import Signer
from tests.strict_provider.thinking import judge_thinking
from tests.strict_provider.tokens import count_text, split_request

__all__ = ["make_answer", "make_error", "make_events", "to_problem"]


def make_answer(request: Request, reply: Reply, state: State, number: int) -> Body:
    """Return the body of the answer, and remember its items. Reasoning is encrypted if the request asks for it."""
    output = list(_output(request, reply, state, number))
    for before, item in pairwise(output):
        if before["type"] == "reasoning":
            state.reasoning_of[item["id"]] = before["id"]
    if request.body.get("store", True):
        state.stored |= {item["id"]: item for item in output}
    body = request.body
    return {
        "id": f"resp_{number:04}",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "incomplete" if reply.truncated else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.truncated else None,
        "instructions": body.get("instructions"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "usage": _usage(request, state, reply),
    }


def _output(request: Request, reply: Reply, state: State, number: int) -> Iterator[Body]:
    signer = Signer(request, state, judge_thinking(request, state).last)
    encrypts = "reasoning.encrypted_content" in (request.body.get("include") or ())
    items = request.body["input"]
    if isinstance(items, list) and items[-1].get("type") == "compaction_trigger":  # Codex asks the API for a summary
        yield {"type": "compaction", "id": f"cmp_{number:04}", "encrypted_content": reply.text}
        return
    if reply.thinking:
        item: Body = {"type": "reasoning", "id": f"rs_{number:04}"}
        item["summary"] = [{"type": "summary_text", "text": text} for text in reply.thinking if text]
        yield {**item, **({"encrypted_content": signer.sign("".join(reply.thinking))} if encrypts else {})}
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{number:04}", "status": "completed", "role": "assistant"}
        yield {**message, "content": [part]}
    for place, call in enumerate(reply.calls):
        if isinstance(call.arguments, str):
            custom = {"type": "custom_tool_call", "id": f"ctc_{number:04}_{place}"}
            yield {**custom, "call_id": call.id, "name": call.name, "input": call.arguments}
            continue
        named = {"call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        named |= {"namespace": call.namespace} if call.namespace else {}
        yield {"type": "function_call", "id": f"fc_{number:04}_{place}", **named, "status": "completed"}


def _usage(request: Request, state: State, reply: Reply) -> Body:
    used = state.cache.use_steps(split_request(request))
    reasoning = sum(map(count_text, reply.thinking))
    said = [reply.text, *(call.name + json.dumps(call.arguments) for call in reply.calls)]
    output = reasoning + sum(map(count_text, said)) or 1
    return {
        "input_tokens": used.read + used.fresh,
        "input_tokens_details": {"cached_tokens": used.read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": used.read + used.fresh + output,
    }


def make_events(request: Request, answer: Body) -> Iterator[tuple[str, Body]]:
    """Yield the names and contents of the events of the answer."""
    for number, (name, event) in enumerate(_number_free_events(answer)):
        yield name, {**event, "sequence_number": number}


def _number_free_events(answer: Body) -> Iterator[tuple[str, Body]]:
    start = {**answer, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "response.created", {"response": start}
    yield "response.in_progress", {"response": start}
    for place, item in enumerate(answer["output"]):
        where = {"item_id": item["id"], "output_index": place}
        yield "response.output_item.added", {"output_index": place, "item": _empty(item)}
        yield from _parts(item, where)
        yield "response.output_item.done", {"output_index": place, "item": item}
    yield f"response.{answer['status']}", {"response": answer}


def _empty(item: Body) -> Body:
    match item["type"]:
        case "message":
            return {**item, "content": [], "status": "in_progress"}
        case "function_call":
            return {**item, "arguments": "", "status": "in_progress"}
        case "custom_tool_call":
            return {**item, "input": ""}
        case "compaction":
            return item
        case _:
            return {**item, "summary": []}


def _parts(item: Body, where: Body) -> Iterator[tuple[str, Body]]:
    match item["type"]:
        case "message":
            where, part = {**where, "content_index": 0}, item["content"][0]
            yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
            for piece in halve(part["text"]):
                yield "response.output_text.delta", {**where, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**where, "part": part}
        case "custom_tool_call":
            for piece in halve(item["input"]):
                yield "response.custom_tool_call_input.delta", {**where, "delta": piece}
            yield "response.custom_tool_call_input.done", {**where, "input": item["input"]}
        case "function_call":
            for piece in halve(item["arguments"]):
                yield "response.function_call_arguments.delta", {**where, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", {**where, **done}
        case "compaction":
            return
        case _:
            for n, part in enumerate(item["summary"]):
                place = {**where, "summary_index": n}
                yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
                for piece in halve(part["text"]):
                    yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
                yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
                yield "response.reasoning_summary_part.done", {**place, "part": part}
