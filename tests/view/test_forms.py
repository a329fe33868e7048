"""The forms of a view match the providers' own types, for messages of every form."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

import quire
from quire import check_legal
from quire.model.messages import Message, Provider
from quire.providers import format_messages, format_request, legal_form, parse, parts
from quire.providers.responses import format as format_items
from tests.providers.histories import ALL, CASES
from tests.providers.test_sdk import BEYOND_THE_TYPES, check_types
from tests.view_laws.laws import Forms
from tests.view_laws.steps import new_walk

Values = dict[str, Any]


@pytest.mark.parametrize("budget", [100_000, 700])
@pytest.mark.parametrize(("provider", "name"), CASES)
def test_every_form_of_a_view_is_legal_and_fits_the_sdk_types(provider: Provider, name: str, budget: int) -> None:
    if (provider, name) in BEYOND_THE_TYPES:
        pytest.skip("the history itself goes beyond the types")
    ctx = quire.open("memory:", budget=budget)
    ctx.import_messages(ALL[provider][name])
    ctx.user("And now? " + "Please. " * 20)
    try:
        view = ctx.render()
    except quire.IrreducibleFloor:
        assert budget == 700
        return
    assert view.tokens <= budget
    check_types(view.openai(), "openai")
    check_types(view.responses(), "responses")
    check_types(view.anthropic()["messages"], "anthropic")
    assert check_legal(view.openai(), "openai") == []
    assert check_legal(view.responses(), "responses") == []
    assert check_legal(view.anthropic(), "anthropic") == []


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_what_a_caller_does_to_a_form_harms_no_later_one(provider: Provider, name: str) -> None:
    ctx = quire.open("memory:", budget=100_000)
    ctx.import_messages(ALL[provider][name])
    chat, request, items = ctx.render().openai(), ctx.render().anthropic(), ctx.render().responses()
    _spoil(ctx.render().openai())
    _spoil(ctx.render().responses())
    _spoil(ctx.render().anthropic(cache=True))
    assert ctx.render().openai() == chat
    assert ctx.render().anthropic() == request
    assert ctx.render().responses() == items == format_request(ctx.render().messages, "responses")
    assert request["messages"] == format_request(ctx.render().messages, "anthropic")
    assert all(type(message) is dict for message in [*chat, *request["messages"]])


def test_an_old_message_is_written_for_anthropic_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", budget=100_000)
    for turn in range(5):
        ctx.user(f"question {turn}")
        ctx.assistant(None, [{"id": f"c{turn}", "function": {"name": "look", "arguments": '{"a": [1, 2]}'}}])
        ctx.tool_result(f"c{turn}", "found")
    parsed: list[str] = []
    parse = parts.arguments_object

    def count_and_parse(text: str) -> Values:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(parts, "arguments_object", count_and_parse)
    ctx.render().anthropic()
    assert len(parsed) == 5
    ctx.user("more")
    ctx.render().anthropic()
    assert len(parsed) == 5


def _spoil(value: Any) -> None:
    """Empty everything in a value that can be emptied, from the inside out."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _spoil(inner)
        value.clear()


@pytest.mark.parametrize("shard", range(4))
def test_the_forms_of_random_states_fit_the_sdk_types_and_round_trip(shard: int) -> None:
    for number in range(shard, 32, 4):
        walk = new_walk(number)
        for _ in range(12):
            walk.step()
        try:
            view = walk.ctx.render()
        except quire.IrreducibleFloor:
            continue
        forms = Forms(view)
        if len(forms.anthropic) == 0:
            continue  # there are no messages yet
        check_types(forms.openai, "openai")
        check_types(forms.responses, "responses")
        check_types(forms.anthropic, "anthropic")
        check_round_trip(forms.openai, "openai")
        check_round_trip(forms.responses, "responses")
        prompt = [{"role": "system", "content": forms.prompt}] if forms.prompt else []
        check_round_trip([*prompt, *forms.anthropic], "anthropic", forms.anthropic)


def check_round_trip(sent: list[Values], provider: Provider, wanted: list[Values] | None = None) -> None:
    """Check that a form that is imported as a history gives the same form again, and needs no repair."""
    ctx = quire.open("memory:")
    report = ctx.import_messages(sent)
    assert {finding.kind for finding in report.findings} <= {"further system prompt", "late system message"}
    assert format_messages(list(ctx.messages()), provider) == (sent if wanted is None else wanted)


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
def test_a_call_in_the_old_form_is_a_tool_call_with_its_result(messages: list[Values], shown: str) -> None:
    for add in (quire.Context.add, quire.Context.import_messages):
        ctx = quire.open("memory:")
        ctx.user("Go")
        add(ctx, messages)
        view = ctx.render()
        calling, answer = view.openai()[-2:]
        assert [call["id"] for call in calling["tool_calls"]] == [answer["tool_call_id"]]
        assert (answer["role"], answer["content"]) == ("tool", shown)
        assert "function_call" not in calling
        assert check_legal(view.openai(), "openai") == []
        assert format_messages(list(ctx.messages()), "openai")[1:] == messages  # the record keeps the old form


def test_the_loop_over_pending_calls_answers_a_call_in_the_old_form() -> None:
    ctx = quire.open("memory:", budget=2_000)
    ctx.user("Go")
    ctx.add(CALLING)
    for call in ctx.pending_calls():
        ctx.tool_result(call.id, "rain " * 5_000)
    view = ctx.render()
    assert view.tokens <= 2_000
    assert check_legal(view.openai(), "openai") == []
    assert view.openai()[-1]["content"].startswith("rain")


def test_parts_of_another_role_in_a_store_are_shown_as_marks() -> None:
    """Earlier versions stored such parts."""
    ctx = quire.open("memory:")
    said = {"type": "text", "text": "Hi"}
    use = {"type": "other", "kind": "tool_use", "part": '{"type":"tool_use","id":"t","name":"look","input":{}}'}
    thought = {"type": "thinking", "text": "Well", "signature": "c2ln"}
    image = {"type": "other", "kind": "image_url", "part": '{"type":"image_url","image_url":{}}'}
    ctx.conversation._add_parsed([Message(role="user", content=[said, use, thought], origin="anthropic")])
    ctx.conversation._add_parsed([Message(role="user", content=[thought], origin="anthropic")])
    ctx.conversation._add_parsed([Message(role="user", content=[said, image])])
    view = ctx.render()
    expected = [[said, {"type": "text", "text": "[tool_use]"}], [said, {"type": "text", "text": "[image_url]"}]]
    assert [m["content"] for m in view.openai() if isinstance(m["content"], list)] == expected
    assert [m["content"] for m in view.anthropic()["messages"] if isinstance(m["content"], list)] == expected
    assert view.tokens == sum(part.tokens for part in view.parts)


def test_ids_that_several_exchanges_have_are_still_made_distinct() -> None:
    ctx = quire.open("memory:", budget=100_000)
    for turn in range(3):
        ctx.user(f"question {turn}")
        ctx.add([{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}])
        ctx.add([{"type": "function_call_output", "call_id": "c1", "output": f"found {turn}"}])
    items = ctx.render().responses()
    calls = [item for item in items if item.get("type") == "function_call"]
    assert [call["call_id"] for call in calls] == ["c1", "c1_2", "c1_3"]
    assert [call.get("id") for call in calls] == ["fc_1", None, None]
    assert check_legal(items, "responses") == []


@pytest.mark.parametrize("item_id", ["rs_1", 5])
def test_reasoning_with_one_id_in_two_exchanges_is_sent_once(item_id: object) -> None:
    ctx = quire.open("memory:", budget=100_000)
    reasoning = {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": "e"}
    for turn in range(2):
        ctx.user(f"question {turn}")
        ctx.render()
        said = [{"type": "output_text", "text": f"answer {turn}", "annotations": []}]
        message = {"type": "message", "role": "assistant", "id": f"msg_{turn}", "content": said}
        response = {"id": f"resp_{turn}", "object": "response", "model": "gpt-5", "status": "completed"}
        ctx.add({**response, "output": [reasoning, message]})
    ctx.user("And now?")
    view = ctx.render()
    assert view.responses() == format_request(view.messages, "responses")
    assert len([item for item in view.responses() if item.get("type") == "reasoning"]) == 1


def test_an_old_message_is_written_for_responses_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", budget=100_000)
    written: list[int] = []

    def note_messages(messages: Sequence[quire.Message]) -> list[Values]:
        written.extend(message.index for message in messages)
        return format_items(messages)

    monkeypatch.setattr(legal_form, "format_items", note_messages)
    for turn in range(5):
        ctx.user(f"question {turn}")
        ctx.render().responses()
        ctx.assistant(f"answer {turn}")
        ctx.render().responses()
    assert [index for index in written if index >= 0] == list(range(10))


def test_calls_of_one_id_get_others_that_no_call_has() -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    ids = ["a", "a_2", "a", "call_1", ""]
    ctx.assistant(None, [quire.ToolCall(name, "f") for name in ids])
    view = ctx.render()
    calls = [call.id for message in view.messages for call in message.tool_calls]
    assert calls[:2] == ["a", "a_2"]
    assert len(set(calls)) == len(ids)
    assert check_legal(view.openai(), "openai") == []
    assert check_legal(view.responses(), "responses") == []
    assert check_legal(view.anthropic(), "anthropic") == []


def test_items_that_are_joined_equal_items_that_are_written_together() -> None:
    joined = 0
    for seed in range(400):
        chance = random.Random(seed)
        exchanges = [_random_exchange(chance) for _ in range(chance.randrange(1, 6))]
        messages = [message for exchange in exchanges for message in exchange]
        found = legal_form.join_items([legal_form.write_items(exchange) for exchange in exchanges])
        joined += found is not None
        assert found is None or found == format_request(messages, "responses"), seed
    assert 50 < joined < 350


def _random_exchange(chance: random.Random) -> list[quire.Message]:
    """Return the messages of one exchange with ids of which some are repeated, illegal or another kind's."""
    pool = range(chance.choice((1, 2, 12)))
    ids = [f"{start}{chance.choice(pool)}" for start in ("msg_", "fc_", "rs_", "__fake_id__", "x", "c", "an id ")]
    item_ids = [*ids, chance.choice(pool), str(chance.choice(pool))]  # a server may send a number
    items: list[Values] = []
    if chance.random() < 0.3:
        items.append({"type": "reasoning", "id": chance.choice(item_ids), "summary": []})
    if chance.random() < 0.7:
        said: list[Values] = [{"type": "output_text", "text": chance.choice(("", "Yes.")), "annotations": []}]
        items.append({"type": "message", "role": "assistant", "id": chance.choice(item_ids), "content": said})
    for _ in range(chance.randrange(3)):
        kind, field = chance.choice((("function_call", "arguments"), ("custom_tool_call", "input")))
        call = {"type": kind, "call_id": chance.choice(ids), "name": chance.choice(("f", "g h")), field: "{}"}
        items.append({**call, "id": chance.choice(item_ids)} if chance.random() < 0.5 else call)
    calls = [item for item in items if "call_id" in item]
    items += [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "found"} for call in calls]
    return parse(items or [{"role": "user", "content": "Go"}], "responses")
