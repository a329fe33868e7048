"""Items of a transcript that an earlier request had are not decoded again, and the result is the same."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from quire.gateway import identity
from quire.gateway.identity import ItemReader
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
