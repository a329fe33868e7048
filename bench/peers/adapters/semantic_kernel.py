"""Semantic Kernel: a chat history that its truncation reducer cuts to a number of messages. Cut messages are lost."""

from typing import Any

from semantic_kernel.contents import (
    ChatHistoryTruncationReducer,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)
from semantic_kernel.contents.utils.author_role import AuthorRole

from bench.peers.peer import AwaitedPeer, Setting, call_of
from bench.traces import Values

THRESHOLD = 0.25
"""The share of the window by which the history can grow before it is cut."""


class Reduced(AwaitedPeer):
    """A history in memory, reduced before every call."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        above = int(setting.window * THRESHOLD)
        self._history = ChatHistoryTruncationReducer(
            target_count=setting.window - above, threshold_count=above, system_message=setting.prompt
        )

    def native(self, message: Values) -> Any:
        if message["role"] == "tool":
            answer = FunctionResultContent(
                id=message["tool_call_id"], name=message.get("name") or "tool", result=message["content"]
            )
            return ChatMessageContent(role=AuthorRole.TOOL, items=[answer])
        calls = message.get("tool_calls") or ()
        items: list[Any] = [TextContent(text=message["content"])] if message["content"] or not calls else []
        items += [FunctionCallContent(id=call["id"], **call["function"]) for call in calls]
        return ChatMessageContent(role=AuthorRole(message["role"]), items=items)

    def append(self, message: Any) -> None:
        self._history.add_message(message)

    def render(self) -> Any:
        self.wait(self._history.reduce())
        return list(self._history.messages)

    def chat(self, rendered: Any) -> list[Values]:
        return list(map(_message, rendered))


def _message(message: Any) -> Values:
    found: Values = {"role": message.role.value, "content": ""}
    for item in message.items:
        if isinstance(item, FunctionResultContent):
            return {"role": "tool", "tool_call_id": item.id, "content": item.result}
        if isinstance(item, FunctionCallContent):
            found.setdefault("tool_calls", []).append(call_of(item.name, item.id, item.arguments))
        else:
            found["content"] += item.text
    return found
