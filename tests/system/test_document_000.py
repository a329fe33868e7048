"""The JSON example of document 000 loads into a context that goes on: types, parents, times, batches, single pages."""

import json
from typing import Any

import pytest

import quire
from quire import ContentsPage, ContextSystem, DetailPage, InvalidOperation, InvalidValue, Segment, SegmentType

EXAMPLE: dict[str, Any] = {
    "segments": [
        {"id": "sys", "name": "System", "rootIndex": "sys-0", "permission": 0, "maxCapacity": 0},
        {"id": "usr", "name": "User", "rootIndex": "usr-0", "permission": 1, "maxCapacity": 4000},
    ],
    "pages": {
        "sys-0": {"type": "ContentsPage", "name": "System"},
        "sys-1": {"type": "DetailPage", "name": "System Prompt", "detail": "You are a careful travel agent."},
        "usr-0": {"type": "ContentsPage", "name": "User"},
        "usr-1": {"type": "DetailPage", "name": "Chat 1", "detail": "User: 你好\nAssistant: 你好！"},
    },
    "nextIndex": 5,
    "createdAt": "2025-02-06T10:00:00Z",
    "updatedAt": "2025-02-06T10:00:00Z",
}


def test_the_example_loads_into_a_context_that_goes_on() -> None:
    ctx = quire.open("memory:")
    ctx.pages.unmarshal(json.dumps(EXAMPLE))
    assert [segment.type for segment in ctx.pages.list_segments()] == [SegmentType.SYSTEM, SegmentType.USER]
    assert json.loads(ctx.pages.marshal())["createdAt"] == "2025-02-06T10:00:00.000Z"
    assert ctx.pages.get_page("sys-1").pinned
    assert ctx.pages.get_page("usr-1").parent == "usr-0"
    ctx.user("我想去西雅图。")
    ctx.assistant("When?")
    sent = ctx.render().openai()
    assert sent[0]["role"] == "system"
    assert "You are a careful travel agent." in sent[0]["content"]
    assert sent[-1] == {"role": "assistant", "content": "When?"}
    assert ctx.conversation.page_of(0) == "usr-6"
    assert ctx.check() == []


def test_a_segment_of_texts_gets_another_type() -> None:
    system = ContextSystem()
    system.add_segment(Segment(id="a"))
    system.add_segment(Segment(id="b"))
    system.create_detail_page("Prompt", "", "Be brief.", "a-0")
    system.update_segment("a", type=SegmentType.SYSTEM)
    system.update_segment("b", type=SegmentType.USER)
    system.update_segment("b", type=SegmentType.USER)
    assert [s.type for s in system.list_segments()] == [SegmentType.SYSTEM, SegmentType.USER]
    with pytest.raises(InvalidValue):
        system.update_segment("a", type=9)  # type: ignore[arg-type]


def test_a_type_is_refused_if_messages_would_be_in_a_wrong_segment() -> None:
    ctx = quire.open("memory:")
    with pytest.raises(InvalidOperation):
        quire.open("memory:").pages.update_segment("usr", type=SegmentType.CUSTOM)
    ctx.pages.update_segment("mem", type=SegmentType.USER)
    ctx.pages.update_segment("mem", type=SegmentType.CUSTOM)
    ctx.user("Hi")
    for segment, kind in (("usr", SegmentType.CUSTOM), ("mem", SegmentType.USER)):
        with pytest.raises(InvalidOperation):
            ctx.pages.update_segment(segment, type=kind)
    ctx.pages.update_segment("win", type=SegmentType.CUSTOM)
    assert ctx.check() == []


def test_a_single_page_goes_to_json_and_back() -> None:
    ctx = quire.open("memory:")
    ctx.user("Hi")
    index = ctx.pages.create_detail_page("Note", "summary", "text", "mem-0", meta={"a": [1, None]})
    for page, kind in ((ctx.pages.get_page(index), DetailPage), (ctx.pages.get_page("mem-0"), ContentsPage)):
        text = page.to_json()
        assert kind.from_json(text) == page
        assert {"type", "index", "createdAt", "createdSeq"} <= json.loads(text).keys()
    with pytest.raises(InvalidValue):
        ContentsPage.from_json(ctx.pages.get_page(index).to_json())
    with pytest.raises(InvalidValue):
        DetailPage.from_json("[1]")
