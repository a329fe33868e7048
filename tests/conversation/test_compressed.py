"""Compressed messages: the view never grows, and the agent can find, read and open what a summary replaces."""

from collections.abc import Callable

import pytest

import quire
from quire import Context


def talk(words: list[str], budget: int = 8_000) -> Context:
    ctx = quire.open("memory:", budget=budget)
    for n, text in enumerate(words):
        (ctx.user if n % 2 == 0 else ctx.assistant)(text)
    return ctx


@pytest.mark.parametrize("text", ["hi", "ok, thanks", "Some longer words that say a little more than nothing at all."])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("first", [0, 1])
def test_compressing_messages_never_grows_the_view(text: str, count: int, first: int) -> None:
    ctx = talk([text] * 14)
    before = ctx.render(preview=True)
    ctx.conversation.compress(range(first, first + count))
    after = ctx.render(preview=True)
    assert after.tokens <= before.tokens
    assert not quire.check_legal(after.openai(), "openai")


def compressed() -> tuple[Context, str]:
    """Return a context with a compressed exchange about a biscuit, and the index of the summary."""
    ctx = talk(["Where is the tea? " * 30 + "I want a biscuit.", "It is in the kitchen. " * 30, "Thanks.", "Welcome."])
    page = ctx.conversation.compress([0, 1]).summaries[0]
    return ctx, page


def test_the_agent_reads_the_messages_behind_a_summary() -> None:
    ctx, summary = compressed()
    answer = ctx.tools.call("read_page", {"page": summary})
    assert "It summarises these pages:" in answer
    assert "[usr-1" in answer
    assert "[usr-2" in answer
    assert "biscuit" in ctx.tools.call("read_page", {"page": "usr-1", "start": 500})


@pytest.mark.parametrize("opened", ["summary", "original"])
def test_the_agent_opens_the_messages_until_the_next_fold(opened: str) -> None:
    ctx, summary = compressed()
    assert "biscuit" not in str(ctx.render().openai())
    ctx.agent.expand_details(summary if opened == "summary" else "usr-1")
    assert "biscuit" in str(ctx.render().openai())
    assert ctx.check() == []
    for _ in range(60):
        ctx.user("word " * 200)
        ctx.assistant("Noted.")
        ctx.render()
    assert "biscuit" not in str(ctx.render().openai())
    assert [message.index for message in ctx.messages()][:2] == [2, 3]


@pytest.mark.parametrize("operation", ["remove_page", "archive", "recall", "hide_details"])
def test_an_agent_cannot_change_compressed_messages(operation: str) -> None:
    ctx, _ = compressed()
    seq = ctx.seq
    change: Callable[[str], object] = getattr(ctx.agent, operation)
    with pytest.raises((quire.InvalidOperation, quire.PermissionDenied)):
        change("usr-1")
    with pytest.raises(quire.InvalidOperation):
        ctx.agent.update_page("usr-1", name="x")
    assert ctx.seq == seq
    assert ctx.check() == []


def test_a_cleanup_ends_it() -> None:
    ctx, summary = compressed()
    ctx.conversation.cleanup()
    assert ctx.agent.originals(summary) == []
    assert ctx.find("biscuit") == []
    assert "kitchen" in ctx.tools.call("read_page", {"page": summary})
