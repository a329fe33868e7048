"""A local HTTP endpoint with the APIs of OpenAI and Anthropic, plain and streaming, that follows a script.

The script is a function: it takes the body of a request and returns the model's text and tool calls.
"""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

Body = dict[str, Any]


class Call(NamedTuple):
    """A tool call of the scripted model."""

    id: str
    name: str
    arguments: Body


class Reply(NamedTuple):
    """An answer of the scripted model; `billed` is the usage that it reports."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    billed: int = 0


Script = Callable[[Body], Reply]


class Endpoint:
    """The server. `script` can be changed at any time; `requests` has every request."""

    def __init__(self) -> None:
        self.script: Script = lambda _: Reply("ok")
        self.requests: list[Body] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, body: Body) -> tuple[str, bytes]:
        """Return the type and the bytes of an answer."""
        self.requests.append(body)
        said = self.script(body)
        number = len(self.requests)
        plain, events = _SHAPES[path]
        answer = plain(body, said, number)
        if not body.get("stream"):
            return "application/json", json.dumps(answer).encode()
        return "text/event-stream", "".join(events(answer, said)).encode()


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                kind, data = endpoint.reply(self.path.partition("?")[0], body)
                status = 200
            except Exception as error:
                kind, data, status = "application/json", json.dumps({"error": {"message": repr(error)}}).encode(), 400
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    return Handler


# OpenAI chat completions


def _chat(body: Body, said: Reply, number: int) -> Body:
    message: Body = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": []}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if said.calls else "stop", "logprobs": None}
    answer = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": body["model"]}
    usage = {"prompt_tokens": said.billed, "completion_tokens": 9, "total_tokens": said.billed + 9}
    return {**answer, "choices": [choice], **({"usage": usage} if said.billed else {})}


def _chat_events(answer: Body, said: Reply) -> Iterator[str]:
    base = {**answer, "object": "chat.completion.chunk"}
    usage = base.pop("usage", None)
    message = answer["choices"][0]["message"]
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(said.text)]
    for place, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "index": place, "function": {"name": name, "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": x}}]} for x in _pieces(arguments)]
    for delta in deltas:
        yield _event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    finish = answer["choices"][0]["finish_reason"]
    yield _event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        yield _event({**base, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


# OpenAI Responses


def _response(body: Body, said: Reply, number: int) -> Body:
    output: list[Body] = [{"type": "reasoning", "id": f"rs_{number}", "summary": []}]
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        output.append(
            {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant", "content": [part]}
        )
    for call in said.calls:
        arguments = json.dumps(call.arguments)
        named = {"call_id": call.id, "name": call.name, "arguments": arguments, "status": "completed"}
        output.append({"type": "function_call", "id": f"fc_{call.id}", **named})
    usage = {"input_tokens": said.billed, "output_tokens": 9, "total_tokens": said.billed + 9}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    answer = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
    }
    rest: Body = {
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return {**answer, **rest, "output": output, **({"usage": {**usage, **details}} if said.billed else {})}


def _response_events(answer: Body, said: Reply) -> Iterator[str]:
    number = 0
    begun = {**answer, "status": "in_progress", "output": []}
    yield _event({"type": "response.created", "response": begun, "sequence_number": number}, named=True)
    for place, item in enumerate(answer["output"]):
        number += 1
        added = {"type": "response.output_item.added", "item": item, "output_index": place}
        yield _event({**added, "sequence_number": number}, named=True)
        if item["type"] == "message":
            for piece in _pieces(said.text):
                delta = {"type": "response.output_text.delta", "delta": piece, "item_id": item["id"], "logprobs": []}
                yield _event(
                    {**delta, "output_index": place, "content_index": 0, "sequence_number": number}, named=True
                )
    yield _event({"type": "response.completed", "response": answer, "sequence_number": number + 1}, named=True)


# Anthropic messages


def _message(body: Body, said: Reply, number: int) -> Body:
    content: list[Body] = [{"type": "text", "text": said.text}] if said.text else []
    content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in said.calls]
    answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": content}
    stopped = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    return {**answer, **stopped, "usage": {"input_tokens": said.billed, "output_tokens": 9}}


def _message_events(answer: Body, said: Reply) -> Iterator[str]:
    begun = {**answer, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": begun}, named=True)
    for place, block in enumerate(answer["content"]):
        is_text = block["type"] == "text"
        empty = {**block, "text": ""} if is_text else {**block, "input": {}}
        yield _event({"type": "content_block_start", "index": place, "content_block": empty}, named=True)
        for piece in _pieces(block["text"] if is_text else json.dumps(block["input"])):
            delta = (
                {"type": "text_delta", "text": piece}
                if is_text
                else {"type": "input_json_delta", "partial_json": piece}
            )
            yield _event({"type": "content_block_delta", "index": place, "delta": delta}, named=True)
        yield _event({"type": "content_block_stop", "index": place}, named=True)
    stopped = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 9}}, named=True)
    yield _event({"type": "message_stop"}, named=True)


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


def _event(data: Body, *, named: bool = False) -> str:
    return (f"event: {data['type']}\n" if named else "") + f"data: {json.dumps(data)}\n\n"


_SHAPES: dict[str, tuple[Callable[[Body, Reply, int], Body], Callable[[Body, Reply], Iterator[str]]]] = {
    "/v1/chat/completions": (_chat, _chat_events),
    "/v1/responses": (_response, _response_events),
    "/v1/messages": (_message, _message_events),
}
