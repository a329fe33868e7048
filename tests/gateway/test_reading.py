"""Reading of requests and replies: known items are not decoded again, and a stream gives the same reply as a body."""

import gzip
import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

import quire
from quire.gateway import identity
from quire.gateway.identity import ItemReader
from quire.gateway.line import Line
from quire.gateway.replies import UndecodableBody, decode_body, read_reply
from quire.gateway.spans import replace_array, split_request


def _message(rng: Random) -> dict[str, Any]:
    text = rng.choice(["a", "bb", '{"role": "x"}, [', "], [", "é"])
    return {"role": rng.choice(["user", "assistant"]), "content": text * rng.randint(1, 3)}


def _change(rng: Random, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = messages[: rng.choice([len(messages), max(0, len(messages) - rng.randint(0, 3)), rng.randint(0, 20)])]
    return [*kept, *(_message(rng) for _ in range(rng.randint(0, 3)))]


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_with_a_memory_reads_the_same_items(seed: int) -> None:
    rng, reader, messages = Random(seed), ItemReader(), list[dict[str, Any]]()
    for _ in range(60):
        messages = _change(rng, messages)
        separators = rng.choice([(",", ":"), (", ", ": "), (" , ", ":"), (",\n", ":")])
        array = json.dumps(messages, separators=separators, ensure_ascii=False).encode()
        found = reader.read(array, "anthropic", "s")
        assert found == ItemReader().read(array, "anthropic", "s")
        assert [json.loads(item.raw) for item in found] == messages


def test_only_new_items_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []
    plain = identity.hash_item

    def count(value: Mapping[str, Any]) -> bytes:
        hashed.append(value)
        return plain(value)

    monkeypatch.setattr(identity, "hash_item", count)
    reader = ItemReader()
    messages = [{"role": "user", "content": f"message {n}"} for n in range(500)]
    for length in range(490, 500):
        sent = [*messages[: length - 1], {**messages[length - 1], "mark": True}]  # the last one changes in each request
        reader.read(json.dumps(sent).encode(), "anthropic", "s")
        reader.read(json.dumps(sent[:1]).encode(), "anthropic", "other")
        reader.read(b'[{"role":"user","content":"a title?"}]', "anthropic", "s")
    assert len(hashed) == 490 + 9 * 2 + 1 + 10


@pytest.mark.parametrize("array", [b"3", b"[1]", b"[", b'[{"a":1} 2]'])
def test_what_is_no_array_of_objects_is_refused(array: bytes) -> None:
    reader = ItemReader()
    reader.read(b'[{"a":1}]', "anthropic", "s")
    with pytest.raises(ValueError):  # noqa: PT011 - the words are those of msgspec
        reader.read(array, "anthropic", "s")


@pytest.mark.parametrize(
    "body", ['{"a":{"messages":ARRAY},"messages":ARRAY,"z":ARRAY}', '{"messages":[], "messages":ARRAY}']
)
def test_only_the_field_with_the_messages_is_replaced(body: str) -> None:
    array = '[{"role":"user","content":"\\"messages\\":[1]"}]'
    data = body.replace("ARRAY", array).encode()
    spans = split_request(data, "anthropic")
    assert spans is not None
    changed = replace_array(data, spans, [b"1"], "anthropic")
    assert changed is not None
    assert json.loads(changed) == {**json.loads(data), "messages": [1]}
    assert len(changed) == len(data) - len(array) + 3


CUSTOM = {"id": "call_1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
FUNCTION = {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [CUSTOM]},
        {"tool_calls": [FUNCTION, CUSTOM]},
        {"function_call": {"name": "read", "arguments": '{"a": 1}'}},
        {"content": "I read it.", "tool_calls": [FUNCTION]},
        {"refusal": "I cannot help with that."},
    ],
    ids=["custom", "function and custom", "function_call", "text and function", "refusal"],
)
def test_a_streamed_reply_of_chat_is_the_same_as_a_plain_one(message: dict[str, Any]) -> None:
    whole = {"role": "assistant", "content": None, **message}
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for field, value in message.items():
        if isinstance(value, str):
            deltas += [{field: value[:3]}, {field: value[3:]}]
        elif isinstance(value, dict):
            deltas += [{field: {**value, "arguments": ""}}, {field: {"arguments": value["arguments"]}}]
        else:
            for index, call in enumerate(value):
                kind = call["type"]
                name, (last, text) = call[kind]["name"], list(call[kind].items())[-1]
                deltas += [
                    {field: [{"index": index, "id": call["id"], "type": kind, kind: {"name": name, last: text[:2]}}]},
                    {field: [{"index": index, kind: {last: text[2:]}}]},
                ]
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    plain = json.dumps({"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]}).encode()
    replies = [read_reply(stream, "text/event-stream", "openai"), read_reply(plain, "application/json", "openai")]
    assert replies[0] == replies[1]
    for reply in replies:
        line = Line(quire.open("memory:"), "openai")
        assert reply is not None
        assert line.add_reply(reply, 0)
        assert not line.is_broken
        assert len(line.ctx.messages()) == 1


@pytest.mark.parametrize("empty", [{}, {"name": "", "arguments": ""}, {"name": None, "arguments": None}])
def test_an_empty_call_in_a_stream_is_no_call(empty: dict[str, Any]) -> None:
    custom = {"index": 0, "id": "c", "type": "custom", "function": empty, "custom": {"name": "p", "input": "q"}}
    deltas = [{"role": "assistant", "content": "hi", "function_call": empty}, {"tool_calls": [custom]}]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]} for delta in deltas]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    reply = read_reply(stream, "text/event-stream", "openai")
    assert reply is not None
    call = {"id": "c", "type": "custom", "custom": {"name": "p", "input": "q"}}
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "hi", "tool_calls": [call]}


def test_the_spacing_of_arguments_does_not_change_the_hash_of_a_call_in_the_old_form() -> None:
    one, two = ({"role": "assistant", "function_call": {"name": "f", "arguments": a}} for a in ('{"a": 1}', '{"a":1}'))
    assert identity.hash_item(one) == identity.hash_item(two)


EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"role": "assistant"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("kind", ["text/event-stream", "Text/Event-Stream; charset=utf-8"])
def test_all_forms_of_an_event_stream_are_read(end: str, mark: str, kind: str) -> None:
    stream = mark + "".join(f"event: {event['type']}{end}data: {json.dumps(event)}{end}{end}" for event in EVENTS)
    expected = {"role": "assistant", "content": [{"type": "text", "text": "hello"}]}
    assert read_reply(stream.encode(), kind, "anthropic") == expected


def test_a_gzip_body_may_have_several_members() -> None:
    data = gzip.compress(b'{"a"') + gzip.compress(b": 1}")
    assert decode_body(data, "gzip", 100) == b'{"a": 1}'
    assert decode_body(data + bytes(20), "gzip", 8) == b'{"a": 1}'
    for damaged, limit in ((data, 7), (data[:-3], 100), (data + b"more", 100)):
        with pytest.raises(UndecodableBody):
            decode_body(damaged, "gzip", limit)
