"""Answers of OpenAI chat completions, plain and as chunks
(https://developers.openai.com/api/docs/api-reference/chat/streaming)."""

import json
from collections.abc import Iterator

from tests.strict_provider.anthropic_answers import halve
from tests.strict_provider.replies import Fault, Reply
from tests.strict_provider.requests import Body, Problem, Request, State
from tests.strict_provider.tokens import count_text, split_request

_TEXTS = {
    429: "Rate limit reached for requests",
    500: "The server had an error while processing your request. Sorry about that!",
    529: "The engine is currently overloaded, please try again later",
}


def make_answer(request: Request, reply: Reply, state: State, number: int) -> Body:
    """Return the body of the answer. Chat completions does not show reasoning, but counts it."""
    message: Body = {"role": "assistant", "content": reply.text or None, "refusal": None, "annotations": []}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in reply.calls
        ]
    finish = "length" if reply.truncated else "tool_calls" if reply.calls else "stop"
    return {
        "id": f"chatcmpl-{number:04}",
        "object": "chat.completion",
        "created": 1,
        "model": request.body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": _usage(request, state, reply),
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _usage(request: Request, state: State, reply: Reply) -> Body:
    used = state.cache.use_steps(split_request(request))
    reasoning = sum(map(count_text, reply.thinking))
    said = [reply.text, *(call.name + json.dumps(call.arguments) for call in reply.calls)]
    output = reasoning + sum(map(count_text, said)) or 1
    return {
        "prompt_tokens": used.read + used.fresh,
        "completion_tokens": output,
        "total_tokens": used.read + used.fresh + output,
        "prompt_tokens_details": {"cached_tokens": used.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
    }


def make_events(request: Request, answer: Body) -> Iterator[tuple[str, Body]]:
    """Yield the chunks of the answer; they have no names. The usage comes if the request asks for it."""
    with_usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
    base = {**answer, "object": "chat.completion.chunk", **({"usage": None} if with_usage else {})}
    if not with_usage:
        del base["usage"]
    choice = answer["choices"][0]
    for delta in _deltas(choice["message"]):
        yield "", {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if with_usage:
        yield "", {**base, "choices": [], "usage": answer["usage"]}


def _deltas(message: Body) -> Iterator[Body]:
    yield {"role": "assistant", "content": "" if message["content"] is not None else None, "refusal": None}
    yield from ({"content": piece} for piece in halve(message["content"] or ""))
    for place, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield {"tool_calls": [{**call, "index": place, "function": {"name": name, "arguments": ""}}]}
        for piece in halve(arguments):
            yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def make_error(problem: Problem, number: int) -> Body:
    """Return the body of a refusal."""
    return {"error": {"message": problem.message, "type": problem.kind, "param": problem.param, "code": problem.code}}


def to_problem(fault: Fault) -> Problem:
    """Return the error of a fault."""
    is_limit = fault.status == 429
    kind = "requests" if is_limit else "server_error"
    code = "rate_limit_exceeded" if is_limit else None
    return Problem(fault.message or _TEXTS.get(fault.status, "Error"), None, code, kind, fault.status)
