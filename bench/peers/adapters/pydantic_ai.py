"""pydantic-ai: it has no store. The whole history is dumped as JSON, and a slice keeps the recent messages."""

import os
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from bench.peers.peer import Peer, Setting, call_of
from bench.traces import Values


class Dumped(Peer):
    """Both as its documentation shows."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._file = setting.folder / f"{setting.session}.json"
        self._messages: list[Any] = []
        if self._file.exists():
            self._messages = ModelMessagesTypeAdapter.validate_json(self._file.read_bytes())

    def native(self, message: Values) -> Any:
        if message["role"] == "user":
            return ModelRequest(parts=[UserPromptPart(content=message["content"])])
        if message["role"] == "tool":
            name = message.get("name") or "tool"
            answer = ToolReturnPart(tool_name=name, content=message["content"], tool_call_id=message["tool_call_id"])
            return ModelRequest(parts=[answer])
        parts: list[Any] = [TextPart(content=message["content"])] if message["content"] else []
        for call in message.get("tool_calls") or ():
            asked = call["function"]
            parts.append(ToolCallPart(tool_name=asked["name"], args=asked["arguments"], tool_call_id=call["id"]))
        return ModelResponse(parts=parts)

    def append(self, message: Any) -> None:
        self.fill([message])

    def fill(self, messages: Sequence[Any]) -> None:
        self._messages += messages
        new = self._file.with_suffix(".new")
        new.write_bytes(ModelMessagesTypeAdapter.dump_json(self._messages))
        os.replace(new, self._file)

    def render(self) -> Any:
        return self._messages[-self.setting.window :]

    def chat(self, rendered: Any) -> list[Values]:
        return [self.setting.system, *map(_message, rendered)]

    def stored(self) -> int:
        return len(ModelMessagesTypeAdapter.validate_json(self._file.read_bytes()))


def _message(message: Any) -> Values:
    first = message.parts[0] if message.parts else None
    if isinstance(first, UserPromptPart):
        return {"role": "user", "content": first.content}
    if isinstance(first, ToolReturnPart):
        return {"role": "tool", "tool_call_id": first.tool_call_id, "content": first.content}
    found: Values = {"role": "assistant", "content": ""}
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            found.setdefault("tool_calls", []).append(call_of(part.tool_name, part.tool_call_id, str(part.args)))
        else:
            found["content"] += part.content
    return found
