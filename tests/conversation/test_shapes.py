"""Messages in the forms of providers, their SDKs and callers: added, and returned unchanged."""

import copy

import pytest

from quire import InvalidValue, MemoryStorage, Message
from quire.providers import format_messages
from tests.books import everything, refused
from tests.conversation.talks import (
    called,
    calls,
    names,
    new_talk,
    result,
    said,
    talk_of,
    texts,
)
from tests.providers.histories import ALL, CASES, OPENAI, PNG, Provider

# Forms


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_a_history_added_at_once_goes_back_as_it_came(provider: Provider, name: str) -> None:
    history = copy.deepcopy(ALL[provider][name])
    ctx = new_talk()
    ctx.add(history)
    history.clear()
    assert format_messages(list(ctx.messages()), provider) == ALL[provider][name]
    assert [message.index for message in ctx.messages(all=True)] == list(range(len(ctx.messages(all=True))))
    assert ctx.check() == []


@pytest.mark.clients
def test_an_openai_sdk_message_comes_in() -> None:
    chat = pytest.importorskip("openai.types.chat")
    ctx = talk_of("Weather?")
    reply = chat.ChatCompletionMessage.model_validate({"refusal": None, **OPENAI["parallel calls"][1]})
    assert ctx.add(reply) == 1
    assert [call.id for call in ctx.pending_calls()] == ["call_1", "call_2"]
    for call in ctx.pending_calls():
        ctx.tool_result(call.id, "sunny")
    message = {"role": "assistant", "content": "Sunny.", "refusal": None}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    assert ctx.add(chat.ChatCompletion.model_validate(whole)) == 4
    assert texts(ctx) == ["Weather?", "", "sunny", "sunny", "Sunny."]


@pytest.mark.clients
def test_an_openai_response_comes_in() -> None:
    responses = pytest.importorskip("openai.types.responses")
    call = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}", "id": "fc_1"}
    words = {"type": "output_text", "text": "Wait.", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [words]}
    reply = responses.Response.model_construct(
        id="resp_1",
        model="m",
        object="response",
        output=[
            responses.ResponseOutputMessage.model_validate(message),
            responses.ResponseFunctionToolCall.model_validate(call),
        ],
    )
    ctx = talk_of("Weather?")
    assert ctx.add(reply) == 1
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    ctx.add({"type": "function_call_output", "call_id": "c1", "output": "sunny"})
    assert texts(ctx) == ["Weather?", "Wait.", "sunny"]
    assert names(ctx) == ["usr-1", "usr-2"]


@pytest.mark.clients
def test_an_anthropic_sdk_message_comes_in() -> None:
    types = pytest.importorskip("anthropic.types")
    ctx = talk_of("Weather?")
    blocks = [{"type": "text", "text": "Wait."}, {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}]
    reply = types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    )
    ctx.add(reply)
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}
    assert ctx.add(said("user", [answer, {"type": "text", "text": "And tomorrow?"}])) == 3
    assert texts(ctx) == ["Weather?", "Wait.", "sunny", "And tomorrow?"]
    assert names(ctx) == ["usr-1", "usr-2", "usr-3"]


def test_several_messages_are_added_together_or_not_at_all() -> None:
    ctx = talk_of("a")
    assert ctx.add([called("c1"), result("c1", "x"), said("user", "b")]) == 3
    with refused(ctx.pages, InvalidValue, "'c9'"):
        ctx.add([said("user", "c"), result("c9", "x")])
    with refused(ctx.pages, InvalidValue, "messages[1]"):
        ctx.add([said("user", "c"), 5])


# Isolation of returned and passed values


def test_multi_part_content_comes_back_whole() -> None:
    parts = [
        {"type": "text", "text": "看："},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    storage = MemoryStorage()
    ctx = new_talk(storage)
    ctx.user(parts)
    ctx.assistant(None, calls("c1"))
    ctx.tool_result("c1", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])
    for handle in (ctx, new_talk(storage)):
        back = format_messages(list(handle.messages()), "openai")
        assert back[0] == said("user", parts)
        assert back[2]["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def test_changing_a_message_in_hand_changes_nothing_stored() -> None:
    part = {"type": "text", "text": "a"}
    given = said("user", [part])
    own = Message(role="user", content=[{"type": "text", "text": "b"}], meta={"k": [1]})
    ctx = new_talk()
    ctx.add(given)
    ctx.add(own)
    before = everything(ctx.pages)
    part["text"] = "changed"
    given["content"].append(part)
    assert isinstance(own.content, list)
    own.content[0]["text"] = "changed"
    own.meta["k"].append(2)
    for message in (*ctx.messages(), ctx.conversation.message(1), ctx.messages(all=True)[0]):
        assert isinstance(message.content, list)
        message.content[0]["text"] = "changed"
        message.content.clear()
        message.meta["new"] = 1
    assert everything(ctx.pages) == before
    assert texts(ctx) == ["a", "b"]
    assert ctx.messages()[1].meta == {"k": [1]}
