"""A scripted client: it keeps a transcript, sends all of it with every request, and runs the tools that are called."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from tests.gateway.raw_upstream import Received, send

Api = Literal["anthropic", "chat", "responses"]
PATHS: Mapping[Api, str] = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
}
_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}
_TOOLS: Mapping[Api, Any] = {
    "anthropic": [{"name": "look", "description": "Look.", "input_schema": _SCHEMA}],
    "chat": [{"type": "function", "function": {"name": "look", "parameters": _SCHEMA}}],
    "responses": [{"type": "function", "name": "look", "parameters": _SCHEMA}],
}


class Client:
    """A client of one API with a session. `items` is its transcript."""

    def __init__(
        self, url: str, api: Api, headers: Mapping[str, str] | None = None, *, stream: bool = True, **fields: Any
    ) -> None:
        self.url = url
        self.api = api
        self.headers = [("content-type", "application/json"), *(headers or {}).items()]
        self.stream = stream
        self.items: list[dict[str, Any]] = []
        self.system = "You are a careful agent."
        self.fields = fields
        self.tools: Any = _TOOLS[api]
        self.received: list[Received] = []

    def body(self, items: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return a request with the transcript."""
        sent = self.items if items is None else items
        common = {"stream": self.stream, "tools": self.tools, **self.fields}
        match self.api:
            case "anthropic":
                own = {"max_tokens": 2048, "thinking": {"type": "adaptive"}, "system": self.system, "messages": sent}
                return {"model": "claude-opus-5", **own, **common}
            case "chat":
                return {"model": "gpt-5", "messages": [{"role": "system", "content": self.system}, *sent], **common}
            case _:
                own = {"instructions": self.system, "input": sent, "store": False}
                return {"model": "gpt-5", **own, "include": ["reasoning.encrypted_content"], **common}

    def request(self, items: list[dict[str, Any]] | None = None) -> Received:
        """Send the transcript, or other items."""
        body = json.dumps(self.body(items)).encode()
        got = send(self.url, "POST", PATHS[self.api], self.headers, body)
        self.received.append(got)
        return got

    def say(self, text: str) -> dict[str, Any]:
        """Add a user message, send the transcript, add the reply, and run tools until the model calls none."""
        self.items.append({"role": "user", "content": text})
        return self.run()

    def run(self) -> dict[str, Any]:
        """Send the transcript and answer calls until there is a reply without one."""
        while True:
            reply = self.take(self.request())
            results = self.results(reply)
            if not results:
                return reply
            self.items += results

    def take(self, got: Received) -> dict[str, Any]:
        """Add the reply in a response to the transcript."""
        assert got.status == 200, (got.status, got.body[:500])
        assert got.complete, got.body[-500:]
        reply = read_answer(self.api, got.body)
        if self.api == "anthropic":
            blocks = [{key: v for key, v in block.items() if v is not None} for block in reply["content"]]
            self.items.append({"role": "assistant", "content": blocks})
        elif self.api == "chat":
            self.items.append({key: v for key, v in reply["choices"][0]["message"].items() if v})
        else:
            self.items += reply["output"]
        return reply

    def results(self, reply: dict[str, Any]) -> list[dict[str, Any]]:
        """Run the tools that a reply calls, and return their results as items."""
        if self.api == "anthropic":
            calls = [block for block in reply["content"] if block["type"] == "tool_use"]
            blocks = [{"type": "tool_result", "tool_use_id": c["id"], "content": self.use(c["input"])} for c in calls]
            return [{"role": "user", "content": blocks}] if blocks else []
        if self.api == "chat":
            calls = reply["choices"][0]["message"].get("tool_calls") or []
            given = [(call["id"], self.use(json.loads(call["function"]["arguments"]))) for call in calls]
            return [{"role": "tool", "tool_call_id": name, "content": result} for name, result in given]
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        given = [(call["call_id"], self.use(json.loads(call["arguments"]))) for call in calls]
        return [{"type": "function_call_output", "call_id": name, "output": result} for name, result in given]

    def use(self, arguments: dict[str, Any]) -> str:
        """Return the result of the tool."""
        return f"Result for {arguments.get('query')}."


def read_answer(api: Api, body: bytes) -> dict[str, Any]:
    """Return the reply in a plain body, or in a whole stream."""
    if body.startswith(b"{"):
        plain: dict[str, Any] = json.loads(body)
        return plain
    events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    if api == "responses":
        (last,) = (event["response"] for event in events if event["type"] == "response.completed")
        return dict(last)
    return _join_blocks(events) if api == "anthropic" else _join_deltas(events)


def _join_blocks(events: list[dict[str, Any]]) -> dict[str, Any]:
    reply: dict[str, Any] = dict(events[0]["message"])
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "partial": ""})
        elif event["type"] == "content_block_delta":
            for name, value in event["delta"].items():
                key = "partial" if name == "partial_json" else name
                blocks[-1] |= {} if name == "type" else {key: (blocks[-1].get(key) or "") + value}
        elif event["type"] == "message_delta":
            reply["usage"] |= event.get("usage") or {}
    for block in blocks:
        partial = block.pop("partial")
        block |= {"input": json.loads(partial or "{}")} if block["type"] == "tool_use" else {}
    return {**reply, "content": blocks}


def _join_deltas(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        delta = dict(choice["delta"])
        for call in delta.pop("tool_calls", None) or ():
            known = calls.setdefault(call.pop("index"), {"function": {"arguments": ""}})
            given = call.pop("function", {})
            known["function"] |= {**given, "arguments": known["function"]["arguments"] + given.get("arguments", "")}
            known |= call
        text = (message.get("content") or "") + (delta.pop("content", None) or "")
        message |= {**delta, "content": text}
    usage = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
    message |= {"tool_calls": list(calls.values())} if calls else {}
    return {"choices": [{"message": message}], "usage": usage}
