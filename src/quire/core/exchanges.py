"""Exchanges: the header fields that are derived from the messages of one exchange."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quire.core.plan import Plan
from quire.model.messages import Message, Role, count_message_tokens
from quire.model.pages import Form
from quire.model.text import clip_at_word, collapse_whitespace

FORMS: Final[Mapping[Role, Form]] = {
    "user": Form.USER,
    "assistant": Form.ASSISTANT,
    "system": Form.SYSTEM,
    "tool": Form.TOOL,
}
"""The form of an exchange by the role of its first message."""

_NAME_BYTES = 32  # every fork copies the name of an exchange: a few words are enough


def exchange_fields(plan: Plan, numbers: Sequence[int]) -> dict[str, Any]:
    """Return the header fields that are derived from the messages of an exchange."""
    messages = [plan.message(number).message for number in numbers]
    pending = [call.id for message in messages for call in message.tool_calls]
    for message in messages:
        if message.tool_call_id in pending:
            pending.remove(message.tool_call_id)
    return {
        "numbers": tuple(numbers),
        "messages": len(messages),
        "pending": tuple(pending),
        "tokens": sum(count_message_tokens(message, plan.count) for message in messages),
    }


def exchange_name(message: Message) -> str:
    """Return a few words that distinguish an exchange from others."""
    words = _first_words(message.text) or _first_words(", ".join(call.name for call in message.tool_calls))
    if not words and isinstance(message.content, list):
        words = _first_words(", ".join(str(part.get("type")) for part in message.content))
    data = (words or message.role).encode()
    if len(data) <= _NAME_BYTES:
        return words or message.role
    most = len(data[: _NAME_BYTES - 3].decode(errors="ignore"))
    return (clip_at_word(words, most) or words[:most]) + "…"


def _first_words(text: str) -> str:
    """Return the first words of a text, without line breaks and control characters."""
    most = 2 * _NAME_BYTES
    start = " ".join((clip_at_word(text, most) or text[:most]).split())
    return start if start.isprintable() else collapse_whitespace(start)
