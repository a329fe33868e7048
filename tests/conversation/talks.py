"""Helpers for the tests of conversations: small conversations, and short ways to read them."""

from collections.abc import Iterable
from typing import Any

import quire
from quire import Context, MemoryStorage, ToolCall
from tests.books import WordCounter

Values = dict[str, Any]


def new_talk(where: Any = None, **options: Any) -> Context:
    """Return a context in memory, or at the given place."""
    return quire.open(MemoryStorage() if where is None else where, counter=WordCounter(), **options)


def talk_of(*texts: str, where: Any = None) -> Context:
    """Return a conversation of user messages."""
    ctx = new_talk(where)
    for text in texts:
        ctx.user(text)
    return ctx


def said(role: str, content: Any, **more: Any) -> Values:
    """Return a message as a dict."""
    return {"role": role, "content": content, **more}


def result(call_id: str, content: Any) -> Values:
    """Return a tool's result as a dict."""
    return said("tool", content, tool_call_id=call_id)


def calls(*ids: str) -> list[ToolCall]:
    """Return tool calls with these ids."""
    return [ToolCall(call_id, "look_up", '{"q": 1}') for call_id in ids]


def called(*ids: str, content: str | None = None) -> Values:
    """Return an assistant message with tool calls, as a dict."""
    function = {"name": "look_up", "arguments": '{"q": 1}'}
    return said("assistant", content, tool_calls=[{"id": i, "type": "function", "function": function} for i in ids])


def exchange(ctx: Context, *ids: str) -> int:
    """Add an exchange with a result for every call. Return the index of its first message."""
    first = ctx.assistant("Wait.", calls(*ids))
    for call_id in ids:
        ctx.tool_result(call_id, f"found {call_id}")
    return first


def texts(ctx: Context, *, all_of_them: bool = False) -> list[str]:
    """Return the texts of the messages, in order."""
    return [message.text for message in ctx.messages(all_of_them)]


def indices(ctx: Context) -> list[int]:
    """Return the indices of the messages in the conversation, in their order."""
    return [message.index for message in ctx.messages()]


def numbered(messages: Iterable[quire.Message]) -> list[tuple[int, str, str]]:
    """Return messages as (index, role, text)."""
    return [(message.index, message.role, message.text) for message in messages]


def names(ctx: Context, folder: str = "usr-0") -> list[str]:
    """Return the indices of a folder's pages."""
    return [page.index for page in ctx.pages.children(folder)]


def whole() -> Context:
    """Return a prompt (0), a question (1), an exchange with two calls (2, 3, 4), an answer (5), a question (6)."""
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.user("Where is HAT136?")
    exchange(ctx, "c1", "c2")
    ctx.assistant("In Paris.")
    ctx.user("Thanks.")
    return ctx
