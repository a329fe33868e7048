"""How the bundled conversation is written down."""

import json
from collections.abc import Mapping

from quire import Message, ToolCall


def user(text: str) -> Message:
    """A message of the user's."""
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    """A message of the assistant's."""
    return Message(role="assistant", content=text)


def called(
    call_id: str, tool: str, arguments: Mapping[str, str], result: str, says: str | None = None
) -> tuple[Message, Message]:
    """A call of the assistant's with what the tool gave back."""
    call = ToolCall(call_id, tool, json.dumps(arguments, ensure_ascii=False))
    return (
        Message(role="assistant", content=says, tool_calls=(call,)),
        Message(role="tool", content=result.rstrip("\n"), tool_call_id=call_id),
    )
