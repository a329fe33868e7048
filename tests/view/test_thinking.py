"""Thinking goes back only after exactly what its model saw, and what a tail showed stays before its reply."""

from typing import Any

import pytest

import quire
from quire import Context, InvalidValue, View
from tests.strict_provider import Call, Reply, check_request
from tests.view_laws.walks import Model


def ask(ctx: Context, model: Model, said: str = "Yes.", calls: int = 0, **options: Any) -> View:
    """Let the model answer a view, which the strict provider accepts, with thinking and calls. Return the view."""
    view = ctx.render(**options)
    assert check_request("anthropic", model.ask(view, "anthropic"), model.state) is None
    used = tuple(Call(f"call_{model.answers}_{number}", "look", {}) for number in range(calls))
    ctx.add(model.answer(view, Reply(said, used, (f"Thought {model.answers}. " * 3,))), view=view)
    for call in ctx.pending_calls():
        ctx.tool_result(call.id, "found")
    return view


def thinking(ctx: Context, model: Model) -> int:
    """Return how many blocks of thinking the next request has; the strict provider accepts it."""
    body = model.ask(ctx.render(preview=True), "anthropic")
    assert check_request("anthropic", body, model.state) is None
    lists = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return sum(block["type"] == "thinking" for blocks in lists for block in blocks)


def test_thinking_stays_bound_when_a_developer_adds_a_page() -> None:
    storage, model = quire.MemoryStorage(), Model("anthropic")
    ctx = quire.open(storage, budget=1_500)
    ctx.pages.create_detail_page("Manual", "", "The pump has two valves. " * 5, "mem-0")
    while not list(ctx.history(operation="fold")):
        ctx.user("What about the pump? " * 8)
        ctx.render()
        ctx.assistant("The pump is fine. " * 8)
    ctx.user("And now?")
    ask(ctx, model)
    ctx.pages.create_detail_page("Note", "", "A new valve.", "mem-0")
    ctx = quire.open(storage)  # it draws everything
    ctx.user("Really?")
    assert thinking(ctx, model) == 1
    ctx.pages.set_detail("mem-1", "The pump has three valves. " * 5)  # it is before all replies
    assert thinking(ctx, model) == 0


def test_thinking_after_a_preview_is_not_bound_and_a_view_of_another_context_is_refused() -> None:
    ctx = quire.open("memory:", budget=8_000)
    ctx.user("Hello")
    blocks = [{"type": "thinking", "thinking": "x", "signature": "s"}, {"type": "text", "text": "Hi."}]
    reply = {"role": "assistant", "content": blocks}
    for wrong in (quire.open("memory:").render(), "view"):
        with pytest.raises(InvalidValue):
            ctx.add(reply, view=wrong)  # type: ignore[arg-type]
    assert len(ctx.messages()) == 1
    ctx.add(reply, view=ctx.render(preview=True))
    assert "signature" not in str(ctx.render().anthropic())


def test_one_answer_of_many_steps_keeps_all_its_thinking_and_what_the_tail_showed() -> None:
    ctx, model = quire.open("memory:", budget=20_000), Model("anthropic")
    ctx.pages.archive(ctx.pages.create_detail_page("Cellar", "", "The key of the cellar hangs at the door.", "mem-0"))
    ctx.user("Where is the key of the cellar?")
    before = ask(ctx, model, calls=1, recall=True)
    assert [part.kind for part in before.tail] == ["recalled"]
    for step in range(1, 10):
        assert thinking(ctx, model) == step
        view = ask(ctx, model, said="", calls=1, recall=True)
        assert (view.tail, view.fold) == ((), None)
        assert view.shared_prefix == before.tokens
        before = view
    assert sum("hangs at the door" in message.text for message in before.messages) == 1


def test_what_was_recalled_is_gone_when_its_page_is() -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("The key of the cellar hangs at the door.")
    ctx.assistant("Noted.")
    ctx.pages.archive("usr-1")
    ctx.user("Where is the key of the cellar?")
    ctx.render(recall=True)
    reply = ctx.assistant("It is there.")
    ctx.user("Again: where is the key of the cellar?")
    assert sum("hangs at the door" in message.text for message in ctx.render(recall=True).messages) == 1
    assert "hangs at the door" in str(ctx.conversation.prelude(reply))
    ctx.conversation.delete(0)
    assert "hangs at the door" not in str(ctx.render(recall=True).openai())
    done = ctx.conversation.cleanup()
    assert quire.open(ctx.pages.storage).conversation.prelude(done.renumbered[reply]) == []
