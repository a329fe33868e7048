"""A stub of a model provider: an HTTP server that answers without a model, for tests and for work offline."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from quire.model.messages import Message, Provider
from quire.providers import format_messages, parse

_Body = dict[str, Any]
_Event = tuple[str, _Body]
_PATHS: Mapping[str, Provider] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai",
    "/v1/responses": "responses",
}
_SENTENCE = re.compile(r"[^\n。！!.？?]+[。！!.？?]?")
_WORD = re.compile(r"[A-Za-z0-9-]{3,}|[\u3040-\u9fff]")
_QUESTION = ("?", "？")


def quote_answer(messages: list[Message]) -> Message:
    """Answer a question with the sentence of the request that shares most words with it, and other messages briefly."""
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    newest = [message.text.strip() for message in messages[replies[-1] + 1 if replies else 0 :]]
    question = next((text for text in newest if text.endswith(_QUESTION)), None)
    if question is None:
        return Message(role="assistant", content="Noted.")
    texts = [message.text for message in messages]
    sentences = [part.strip() for text in texts for part in _SENTENCE.findall(text) if not part.endswith(_QUESTION)]
    asked = set(_WORD.findall(_SENTENCE.findall(question)[-1].lower()))  # a client may put its own text before it
    scores = {part: len(asked & set(_WORD.findall(part.lower()))) for part in reversed(sentences)}
    best = max(scores, key=lambda part: scores[part], default="")  # the newest of equal ones
    return Message(role="assistant", content=best.removeprefix("User: ") or "I do not know.")


class StubProvider:
    """A provider in a thread: Anthropic Messages, OpenAI chat completions and Responses, plain and streamed.

    `url` is the base URL for clients of Anthropic; clients of OpenAI add `/v1`. `answer` gets the messages of a request
    and returns the reply; by default it is `quote_answer`. `requests` has the body of every request.
    """

    def __init__(self, answer: Callable[[list[Message]], Message] = quote_answer) -> None:
        self.answer = answer
        self.requests: list[_Body] = []
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def respond(self, provider: Provider, body: _Body) -> list[_Event]:
        """Return the events of the answer to a request. The last one, with an empty name, is the whole answer."""
        self.requests.append(body)
        items = body.get("input" if provider == "responses" else "messages", [])
        messages = [Message(role="user", content=items)] if isinstance(items, str) else parse(items, provider)
        content = format_messages([self.answer(messages)], provider)
        return list(_EVENTS[provider](content, f"stub_{len(self.requests)}", body.get("model", "stub")))


def _anthropic_events(content: list[_Body], name: str, model: str) -> Iterator[_Event]:
    given = content[0]["content"]
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": name, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    yield "message_start", {"message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    for place, block in enumerate(blocks):
        is_text = block["type"] == "text"
        start = {**block, "text": ""} if is_text else {**block, "input": {}}
        delta = {"type": "text_delta", "text": block["text"]} if is_text else {}
        delta = delta or {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_start", {"index": place, "content_block": start}
        yield "content_block_delta", {"index": place, "delta": delta}
        yield "content_block_stop", {"index": place}
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}
    yield "", {**message, "content": blocks, "stop_reason": reason, "usage": usage}


def _chat_events(content: list[_Body], name: str, model: str) -> Iterator[_Event]:
    message, usage = content[0], {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    calls = [{**call, "index": place} for place, call in enumerate(message.get("tool_calls") or ())]
    answer = {"id": name, "created": 1, "model": model}
    chunk = {**answer, "object": "chat.completion.chunk"}
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    yield "", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    yield "", {**answer, "object": "chat.completion", "choices": [choice], "usage": usage}


def _responses_events(content: list[_Body], name: str, model: str) -> Iterator[_Event]:
    items = [
        {"id": f"{name}_{place}", "status": "completed", **(_to_output(item) if "role" in item else item)}
        for place, item in enumerate(content)
    ]
    answer = {"id": name, "object": "response", "created_at": 1, "model": model, "status": "completed"}
    answer |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": []}
    yield "response.created", {"response": {**answer, "status": "in_progress"}}
    for place, item in enumerate(items):
        parts: list[_Body] = item.get("content") or []
        start = {**item, "status": "in_progress", **({"content": []} if parts else {})}
        yield "response.output_item.added", {"output_index": place, "item": start}
        for number, part in enumerate(parts):
            at = {"item_id": item["id"], "output_index": place, "content_index": number}
            yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**at, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**at, "part": part}
        yield "response.output_item.done", {"output_index": place, "item": item}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
    yield "response.completed", {"response": {**answer, "output": items, "usage": usage}}
    yield "", {**answer, "output": items, "usage": usage}


def _to_output(message: _Body) -> _Body:
    """Return a message as an output item. Clients such as Codex display only this shape."""
    given = message["content"]
    texts = [given] if isinstance(given, str) else [part["text"] for part in given]
    parts: list[_Body] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts}


_EVENTS: Mapping[Provider, Callable[[list[_Body], str, str], Iterator[_Event]]] = {
    "anthropic": _anthropic_events,
    "openai": _chat_events,
    "responses": _responses_events,
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, stub: StubProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stub = stub


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        provider = _PATHS.get(self.path.partition("?")[0])
        if provider is None:
            self._send(404, "application/json", b'{"error": {"message": "The stub has no such path."}}')
            return
        *events, (_, answer) = self.server.stub.respond(provider, body)
        if not body.get("stream"):
            self._send(200, "application/json", json.dumps(answer).encode())
            return
        lines = [_line(name, {**event, "sequence_number": number}) for number, (name, event) in enumerate(events)]
        self._send(
            200, "text/event-stream", b"".join([*lines, *([b"data: [DONE]\n\n"] if provider == "openai" else [])])
        )

    def do_GET(self) -> None:
        """Answer the list of models, and 426 to a WebSocket."""
        is_socket = self.headers.get("upgrade", "").lower() == "websocket"
        self._send(426 if is_socket else 200, "application/json", b'{"object": "list", "data": []}')

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self.do_GET()

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _line(name: str, event: _Body) -> bytes:
    data = json.dumps({"type": name, **event} if name else event)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()
