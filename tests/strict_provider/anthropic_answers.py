"""Answers of Anthropic Messages, plain and as events (https://platform.claude.com/docs/en/build-with-claude/streaming)."""

import json
from collections.abc import Iterator

from tests.strict_provider.replies import Fault, Reply
from tests.strict_provider.requests import BINDING_BETA, Body, Problem, Request, State
from tests.strict_provider.signatures import Signer
from tests.strict_provider.thinking import judge_thinking
from tests.strict_provider.tokens import count_request, count_text, split_request

_KINDS = {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
_TEXTS = {429: "Number of requests has exceeded your rate limit.", 500: "Internal server error", 529: "Overloaded"}


def make_answer(request: Request, reply: Reply, state: State, number: int) -> Body:
    """Return the body of the answer. Its thinking is signed over the request."""
    judgement = judge_thinking(request, state)
    signer = Signer(request, state, judgement.last)
    content: list[Body] = [_think(text, signer) for text in reply.thinking]
    content += [{"type": "text", "text": reply.text, "citations": None}] if reply.text else []
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in reply.calls]
    stop = "max_tokens" if reply.truncated else "tool_use" if reply.calls else "end_turn"
    answer: Body = {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(request, state, reply),
    }
    if BINDING_BETA in request.betas:
        answer["input_transformations"] = [
            {"type": "thinking_dropped", "path": path, "reason": reason} for path, reason in judgement.dropped
        ]
    return answer


def _think(text: str, signer: Signer) -> Body:
    if not text:
        return {"type": "redacted_thinking", "data": signer.sign("")}
    return {"type": "thinking", "thinking": text, "signature": signer.sign(text)}


def _usage(request: Request, state: State, reply: Reply) -> Body:
    used = state.cache.use_markers(split_request(request))
    texts = [*reply.thinking, reply.text, *(call.name + json.dumps(call.arguments) for call in reply.calls)]
    return {
        "input_tokens": used.fresh,
        "cache_creation_input_tokens": used.written,
        "cache_read_input_tokens": used.read,
        "output_tokens": sum(map(count_text, texts)) or 1,
        "service_tier": "standard",
    }


def make_events(request: Request, answer: Body) -> Iterator[tuple[str, Body]]:
    """Yield the names and contents of the events of the answer."""
    usage = answer["usage"]
    start = {**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield "message_start", {"message": start}
    for place, block in enumerate(answer["content"]):
        yield "content_block_start", {"index": place, "content_block": _empty(block)}
        if place == 0:
            yield "ping", {}
        for delta in _deltas(block):
            yield "content_block_delta", {"index": place, "delta": delta}
        yield "content_block_stop", {"index": place}
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": delta, "usage": {key: usage[key] for key in usage if key != "service_tier"}}
    yield "message_stop", {}


def _empty(block: Body) -> Body:
    empty: Body = {"text": ""} if block["type"] == "text" else {"input": {}}
    if block["type"] == "thinking":
        empty = {"thinking": "", "signature": ""}
    return block if block["type"] == "redacted_thinking" else {**block, **empty}


def _deltas(block: Body) -> Iterator[Body]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in halve(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in halve(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            pieces = ["", *halve(json.dumps(block["input"]))]
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)


def halve(text: str) -> list[str]:
    """Return a text in two pieces, without empty ones."""
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


def count_tokens(request: Request) -> Body:
    """Return the answer of count_tokens."""
    return {"input_tokens": count_request(request)}


def make_error(problem: Problem, number: int) -> Body:
    """Return the body of a refusal."""
    error = {"type": problem.kind, "message": problem.message}
    return {"type": "error", "error": error, "request_id": f"req_{number:04}"}


def to_problem(fault: Fault) -> Problem:
    """Return the error of a fault."""
    message = fault.message or _TEXTS.get(fault.status, "Error")
    return Problem(message, kind=_KINDS.get(fault.status, "api_error"), status=fault.status)
