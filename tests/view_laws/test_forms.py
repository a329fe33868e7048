"""The forms of a view for histories of every shape: the caller's own, with calls in the old form and reasoning."""

from typing import Any

import pytest

import quire
from quire import View
from tests.providers.histories import ALL, CASES
from tests.view_laws.laws import Forms, check_shown, check_view
from tests.view_laws.walks import Model

Values = dict[str, Any]


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_what_a_caller_does_to_a_form_harms_no_later_one(provider: str, name: str) -> None:
    ctx = quire.open("memory:", budget=100_000)
    ctx.import_messages(ALL[provider][name])
    before = Forms(ctx.render()).text()
    for form in (ctx.render().openai(), ctx.render().responses(), ctx.render().anthropic(cache=True)):
        _spoil(form)
    assert Forms(ctx.render()).text() == before


def _spoil(value: Any) -> None:
    """Empty everything in a value that can be emptied, from the inside out."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _spoil(inner)
        value.clear()


CALLING: Values = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
FUNCTION: Values = {"role": "function", "name": "look", "content": "rain"}


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([CALLING], "[no result]"),
        ([CALLING, FUNCTION], "rain"),
        ([CALLING, {"role": "tool", "tool_call_id": "function_look", "content": "rain"}], "rain"),
    ],
)
@pytest.mark.parametrize("add", [quire.Context.add, quire.Context.import_messages])
def test_a_call_in_the_old_form_is_a_tool_call_with_its_result(add: Any, messages: list[Values], shown: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    add(ctx, messages)
    view = ctx.render()
    calling, answer = view.openai()[-2:]
    assert [call["id"] for call in calling["tool_calls"]] == [answer["tool_call_id"]]
    assert (answer["role"], answer["content"]) == ("tool", shown)
    assert "function_call" not in calling
    check_view(view, Forms(view), ctx.budget, Model("responses"))


def test_the_loop_over_pending_calls_answers_a_call_in_the_old_form() -> None:
    ctx = quire.open("memory:", budget=2_000)
    ctx.user("Go")
    ctx.add(CALLING)
    for call in ctx.pending_calls():
        ctx.tool_result(call.id, "rain " * 5_000)
    view = ctx.render()
    check_shown(ctx, view, 2_000)
    assert view.openai()[-1]["content"].startswith("rain")


@pytest.mark.parametrize("item_id", ["rs_1", 5])
def test_reasoning_with_one_id_in_two_exchanges_is_sent_once(item_id: object) -> None:
    ctx = quire.open("memory:", budget=100_000)
    for turn in range(2):
        ctx.user(f"question {turn}")
        ctx.render()
        ctx.add(_response(item_id, turn))
    ctx.user("And now?")
    assert len(_reasoning(ctx.render())) == 1


def _response(item_id: object, turn: int) -> Values:
    reasoning = {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": "e"}
    said = [{"type": "output_text", "text": f"answer {turn}", "annotations": []}]
    message = {"type": "message", "role": "assistant", "id": f"msg_{turn}", "content": said}
    response = {"id": f"resp_{turn}", "object": "response", "model": "gpt-5", "status": "completed"}
    return {**response, "output": [reasoning, message]}


def _reasoning(view: View) -> list[Values]:
    return [item for item in view.responses() if item.get("type") == "reasoning"]
