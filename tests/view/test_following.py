"""A view compared with another one, and the positions of its parts in each provider's form."""

import pytest

import quire
from quire.model.messages import Provider
from tests.books import WordCounter


def talking() -> quire.Context:
    ctx = quire.open("memory:", budget=100_000, counter=WordCounter())
    ctx.system("你要小心。")
    for turn in range(4):
        ctx.user(f"Question {turn}")
        ctx.assistant(None, [{"id": f"c{turn}", "function": {"name": "look", "arguments": "{}"}}])
        ctx.tool_result(f"c{turn}", f"result {turn}")
    return ctx


def test_a_view_is_measured_against_the_one_that_is_given() -> None:
    ctx = talking()
    first = ctx.render(preview=True)
    ctx.user("more")
    second = ctx.render(preview=True).following(first)
    assert second.shared_prefix == first.tokens
    assert second.bill().why == "Only 1 new message at the end."
    ctx.conversation.replace([1], {"role": "user", "content": "Another question"})
    third = ctx.render(preview=True)
    assert third.following(second).shared_prefix < second.shared_prefix
    assert "Page" in third.following(second).bill().why
    assert third.following(third).shared_prefix == third.tokens
    assert third.following(third).openai() == third.openai()


@pytest.mark.parametrize("provider", ["openai", "responses", "anthropic"])
def test_every_part_begins_where_it_is_said_to(provider: Provider) -> None:
    ctx = talking()
    ctx.add([{"role": "user", "content": [{"type": "text", "text": "look"}]}])
    ctx.add({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}]})
    ctx.add(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "seen"},
                {"type": "text", "text": "unmistakable"},
            ],
        }
    )
    ctx.assistant("seen")
    ctx.add({"role": "system", "content": "a late rule"})
    ctx.user("the last question")
    view = ctx.render(preview=True)
    form = getattr(view, provider)()
    written = form["messages"] if provider == "anthropic" else form
    places = view.places(provider)
    assert len(places) == len(view.parts)
    for part, place in zip(view.parts, places, strict=True):
        text = part.messages[0].text
        if place < 0:
            assert provider == "anthropic"
            assert text in str(form["system"])
        elif text:
            assert text in str(written[place])
    assert max(places) < len(written)
