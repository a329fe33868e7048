"""Messages of LangChain and pydantic-ai are read; a dict of an unknown shape is refused; a new SDK item stays raw."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

import quire
from quire import InvalidValue
from quire.providers import format_messages, parse

TIME = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
UNKNOWN: list[dict[str, Any]] = [
    {"type": "nonsense"},
    {"type": "new_call", "call_id": "c1"},
    {"id": "x", "text": "Hi"},
    {"type": "human", "content": "Hi"},
    {"type": "human", "data": 3},
    {"type": "constructor", "id": ["HumanMessage"]},
    {"kind": "request"},
    {"kind": "other", "parts": []},
    {"type": "user", "message": {"role": "user", "content": "Hi"}},
]


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
def test_a_dict_of_an_unknown_shape_is_refused_with_its_place(value: dict[str, Any]) -> None:
    ctx = quire.open("memory:")
    with pytest.raises(InvalidValue):
        ctx.add(value)
    with pytest.raises(InvalidValue):
        ctx.add([{"role": "user", "content": "Hi"}, value])
    assert (ctx.seq, len(ctx.messages(all=True))) == (quire.open("memory:").seq, 0)


@pytest.mark.parametrize("value", UNKNOWN, ids=str)
def test_an_import_marks_an_unknown_shape_and_never_calls_it_an_assistant_message(value: dict[str, Any]) -> None:
    ctx = quire.open("memory:")
    report = ctx.import_messages([{"role": "user", "content": "Hi"}, value])
    assert report.marked == (1,)
    assert [finding.kind for finding in report.findings] == ["unreadable"]
    assert [message.role for message in ctx.messages()] == ["user"]


@pytest.mark.clients
def test_an_invalid_call_of_langchain_without_an_id_is_a_text_and_odd_arguments_are_texts() -> None:
    lc = pytest.importorskip("langchain_core.messages")
    broken = {"name": "book", "args": "{to: SEA", "id": None, "error": "no JSON", "type": "invalid_tool_call"}
    ctx = quire.open("memory:")
    ctx.user("Hi")
    ctx.add(lc.AIMessage("Wait.", invalid_tool_calls=[broken], additional_kwargs={"score": float("inf")}))
    assert (ctx.messages()[-1].tool_calls, ctx.messages()[-1].text) == (
        (),
        "Wait.\n[Invalid call of book: {to: SEA]",
    )
    ctx.add(lc.AIMessage("", tool_calls=[{"name": "book", "args": {"on": date(2026, 5, 20)}, "id": "c1"}]))
    assert ctx.messages()[-1].tool_calls[0].arguments == '{"on":"2026-05-20"}'
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(InvalidValue):
        ctx.add(lc.AIMessage.model_construct(content="", tool_calls=[{"name": "book", "args": endless, "id": "c2"}]))


@pytest.mark.clients
def test_an_item_of_a_new_type_stays_raw_with_its_provider_and_as_an_sdk_object() -> None:
    from openai.types.responses import ResponseReasoningItem

    item = {"type": "new_call", "id": "n1", "deep": {"er": [1, None]}}
    obj = ResponseReasoningItem.model_construct(id="r1", type="newest_thing", extra=1)
    for given, provider in ((item, "responses"), (obj, None)):
        messages = parse(given, provider)  # type: ignore[arg-type]
        assert [message.role for message in messages] == ["assistant"]
        [back] = format_messages(messages, "responses")
        assert back["type"] in ("new_call", "newest_thing")
    assert format_messages(parse(item, "responses"), "responses") == [item]
    ctx = quire.open("memory:")
    ctx.add([{"role": "user", "content": "Hi"}, item], provider="responses")
    assert ctx.import_messages([item], provider="responses").marked == ()
    with pytest.raises(InvalidValue):
        ctx.add(item, provider="gemini")  # type: ignore[arg-type]


@pytest.mark.clients
def test_langchain_messages_are_read_in_all_their_forms() -> None:
    lc = pytest.importorskip("langchain_core.messages")
    load = pytest.importorskip("langchain_core.load")
    call = {"name": "search", "args": {"city": "西雅图"}, "id": "c1", "type": "tool_call"}
    broken = {"name": "f", "args": "{", "id": "c2", "error": "no JSON", "type": "invalid_tool_call"}
    messages = [
        lc.SystemMessage("Be brief."),
        lc.HumanMessage(
            [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
            name="ada",
        ),
        lc.AIMessage([{"type": "text", "text": "I look."}], tool_calls=[call], invalid_tool_calls=[broken], id="run-1"),
        lc.ToolMessage("rain", tool_call_id="c1"),
        lc.ToolMessage("sun", tool_call_id="c2", status="error"),
        lc.ChatMessage("noted", role="assistant"),
        lc.RemoveMessage(id="run-1"),
    ]
    read = parse(messages)
    assert [message.role for message in read] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [message.text for message in read] == ["Be brief.", "Look", "I look.", "rain", "sun", "noted"]
    assert read[1].content[1] == {"type": "image", "url": "https://x/y.png"}  # type: ignore[index]
    assert read[1].name == "ada"
    assert [(c.id, c.name, c.arguments) for c in read[2].tool_calls] == [
        ("c1", "search", '{"city":"西雅图"}'),
        ("c2", "f", "{"),
    ]
    assert [message.tool_call_id for message in read[3:5]] == ["c1", "c2"]
    assert read[2].meta["id"] == "run-1"
    for form in (lc.messages_to_dict(messages), load.dumpd(messages), [m.model_dump() for m in messages]):
        assert parse(form) == read
        assert parse(json.loads(json.dumps(form))) == read
    ctx = quire.open("memory:")
    assert ctx.import_messages(messages).marked == ()
    assert len(ctx.messages()) == 6


@pytest.mark.clients
def test_pydantic_ai_messages_are_read_as_objects_and_as_json_with_their_times() -> None:
    pa = pytest.importorskip("pydantic_ai.messages")
    messages = [
        pa.ModelRequest(
            parts=[
                pa.SystemPromptPart("Be brief.", timestamp=TIME),
                pa.UserPromptPart(
                    ["Look", pa.BinaryContent(b"\xff\xfe\xfb" * 4, media_type="image/png")], timestamp=TIME
                ),
            ]
        ),
        pa.ModelResponse(
            parts=[pa.ThinkingPart("hm", signature="sig"), pa.TextPart("ok"), pa.ToolCallPart("f", {"a": 1}, "c1")],
            timestamp=TIME,
        ),
        pa.ModelRequest(parts=[pa.ToolReturnPart("f", {"r": 1}, "c1", timestamp=TIME)]),
        pa.ModelResponse(parts=[pa.TextPart("done")], timestamp=TIME, model_name="m"),
    ]
    read = parse(messages)
    assert [message.role for message in read] == ["system", "user", "assistant", "tool", "assistant"]
    assert [message.text for message in read] == ["Be brief.", "Look", "ok", '{"r":1}', "done"]
    assert [message.at for message in read] == [TIME] * 5
    assert read[1].content[1]["data"] == "//77//77//77//77"  # type: ignore[index]
    assert read[2].content[0] == {"type": "thinking", "text": "hm", "signature": "sig"}  # type: ignore[index]
    assert [(c.id, c.name, c.arguments) for c in read[2].tool_calls] == [("c1", "f", '{"a":1}')]
    assert parse(json.loads(pa.ModelMessagesTypeAdapter.dump_json(messages))) == read
    ctx = quire.open("memory:")
    ctx.import_messages(messages)
    assert [message.at for message in ctx.messages()] == [TIME] * 5
