"""Reading a conversation in parts, each from the end of the last one, at the cost of the part."""

import pytest

import quire
from quire import InvalidValue, MemoryStorage
from tests.books import WordCounter


def talking(turns: int = 30, storage: MemoryStorage | None = None) -> quire.Context:
    ctx = quire.open(storage or MemoryStorage(), budget=600, counter=WordCounter())
    ctx.system("小心。")
    for turn in range(turns):
        ctx.user(f"Question {turn} " + "and so on " * 5)
        ctx.assistant(None, [{"id": f"c{turn}", "function": {"name": "look", "arguments": "{}"}}])
        ctx.tool_result(f"c{turn}", f"result {turn} " + "word " * 20)
    return ctx


def parts(ctx: quire.Context, size: int) -> list[int]:
    found: list[int] = []
    while part := ctx.conversation.messages_after(found[-1] if found else None, size):
        assert len(part) <= size
        found += [message.index for message in part]
    return found


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_parts_together_are_the_conversation_folded_or_not(size: int) -> None:
    ctx = talking()
    everything = [message.index for message in ctx.messages()]
    assert parts(ctx, size) == everything
    ctx.render()
    ctx.conversation.insert({"role": "user", "content": "between"}, at=10)
    ctx.conversation.delete([20])
    in_place = [message.index for message in ctx.messages()]
    assert in_place != everything
    assert parts(ctx, size) == in_place
    assert [message.index for message in ctx.conversation.newest(size)] == in_place[-size:]


def test_a_place_that_is_gone_is_refused() -> None:
    ctx = talking(3)
    ctx.conversation.delete([1])
    with pytest.raises(InvalidValue):
        ctx.conversation.messages_after(1)
    with pytest.raises(InvalidValue):
        ctx.conversation.messages_after(99)
    with pytest.raises(InvalidValue):
        ctx.conversation.messages_after(limit=-1)


def test_the_messages_of_a_page() -> None:
    ctx = talking(2)
    page = ctx.conversation.page_of(2)
    assert page is not None
    assert [message.role for message in ctx.conversation.messages_on(page)] == ["assistant", "tool"]
    assert ctx.conversation.messages_on("mem-0") == []
