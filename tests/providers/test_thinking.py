"""Thinking is sent back only to its own model, in lists that are legal."""

from typing import Any

import pytest

import quire
from quire import InvalidValue
from tests.providers.histories import REASONING
from tests.providers.test_sdk import BLOCKS, OUTPUT, SENT_BACK, check_types, reply, response

pytestmark = pytest.mark.clients

SEALED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
CITED = {
    "type": "text",
    "text": "Paris.",
    "citations": [
        {
            "type": "char_location",
            "cited_text": "Paris",
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 5,
        }
    ],
}


def talk(*answers: Any) -> quire.View:
    """Return a view of a conversation: a model answers, its calls are answered, and the user continues."""
    ctx = quire.open("memory:")
    for answer in answers:
        ctx.user("去看看。")
        ctx.render()
        ctx.add(answer)
        for call in ctx.pending_calls():
            ctx.tool_result(call.id, "done")
    ctx.user("继续。")
    return ctx.render()


def sent(view: quire.View, model: str | None) -> list[dict[str, Any]]:
    """Return the form for Anthropic. Check that it is legal and has the correct types."""
    request = view.anthropic(model=model)
    assert quire.check_legal(request, "anthropic") == []
    messages: list[dict[str, Any]] = request["messages"]
    check_types(messages, "anthropic")
    return messages


def test_thinking_stays_for_its_own_model_by_any_of_its_names() -> None:
    view = talk(reply(*BLOCKS))
    for model in (None, "claude-opus-5", "claude-opus-5-20260101", "claude-opus-5-latest"):
        assert sent(view, model)[1]["content"] == SENT_BACK


def test_another_model_gets_the_rest_as_it_came() -> None:
    assert sent(talk(reply(*BLOCKS)), "claude-haiku-5")[1]["content"] == SENT_BACK[1:]
    kept = sent(talk(reply(BLOCKS[0], SEALED, CITED)), "claude-haiku-5")[1]["content"]
    assert kept == [CITED]  # blocks that only Anthropic knows are still there
    assert sent(talk(reply(BLOCKS[0], BLOCKS[3])), "claude-haiku-5")[1]["content"] == SENT_BACK[2:]


@pytest.mark.parametrize("model", [None, "claude-opus-5", "claude-haiku-5"])
def test_an_answer_of_nothing_but_thinking_is_left_out(model: str | None) -> None:
    view = talk(reply(BLOCKS[0], SEALED))
    assert {message["role"] for message in sent(view, model)} == {"user"}


UNSIGNED = [{"type": "thinking", "thinking": "Well"}, {"type": "thinking", "thinking": "Well", "signature": ""}]


@pytest.mark.parametrize("cut", [[BLOCKS[0]], [SEALED], [BLOCKS[0], SEALED], *([block] for block in UNSIGNED)])
def test_thinking_at_the_end_of_an_answer_is_left_out(cut: list[Any]) -> None:
    """A reply that the limit of tokens cuts off ends with thinking."""
    whole = talk({"role": "assistant", "content": [*SENT_BACK[:2], *cut]})
    assert sent(whole, None)[1]["content"] == SENT_BACK[:2]
    assert whole.tokens == talk({"role": "assistant", "content": SENT_BACK[:2]}).tokens
    calling = talk({"role": "assistant", "content": [*SENT_BACK, *cut]})
    assert sent(calling, None)[1]["content"] == SENT_BACK
    for view in (whole, calling):
        assert quire.check_legal(view.openai(), "openai") == []
        assert quire.check_legal(view.responses(), "responses") == []


@pytest.mark.parametrize("block", UNSIGNED)
def test_unsigned_thinking_is_left_out(block: dict[str, Any]) -> None:
    view = talk({"role": "assistant", "content": [block, *SENT_BACK]})
    assert sent(view, None)[1]["content"] == SENT_BACK


@pytest.mark.parametrize("before", [[], OUTPUT[1:2], OUTPUT[1:]])
def test_reasoning_that_nothing_follows_is_left_out(before: list[Any]) -> None:
    ctx = quire.open("memory:")
    ctx.user("Hi")
    ctx.add(response(*before, OUTPUT[0]))
    for call in ctx.pending_calls():
        ctx.tool_result(call.id, "1")
    for _ in range(2):
        items = ctx.render().responses()
        assert quire.check_legal(items, "responses") == []
        assert "reasoning" not in [item.get("type") for item in items]
        check_types(items, "responses")
        ctx.user("Continue.")
    assert "reasoning" in str([message.content for message in ctx.messages()])


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-2025-08-07", None])
def test_reasoning_stays_for_its_own_model(model: str | None) -> None:
    items = talk(response(*OUTPUT)).responses(model=model)
    assert items[2:6] == [REASONING, *OUTPUT[1:]]


def test_without_its_reasoning_nothing_refers_to_it() -> None:
    items = talk(response(*OUTPUT)).responses(model="gpt-6")
    assert [item.get("type", "message") for item in items] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert not any("id" in item for item in items)
    assert quire.check_legal(items, "responses") == []
    check_types(items, "responses")


@pytest.mark.parametrize("model", ["", 5, ["gpt-5"]])
def test_a_model_that_is_no_name_is_refused(model: Any) -> None:
    view = talk(reply(*BLOCKS))
    with pytest.raises(InvalidValue):
        view.anthropic(model=model)
    with pytest.raises(InvalidValue):
        view.responses(model=model)
