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


def test_given_types_and_parents_are_not_changed() -> None:
    form = json.loads(json.dumps(EXAMPLE))
    form["segments"][0]["type"] = 3
    form["segments"].append({"id": "talk", "type": 1})
    form["pages"]["talk-0"] = {"type": "ContentsPage", "name": "Talk", "children": []}
    form["pages"]["usr-2"] = {"type": "ContentsPage", "name": "Box", "children": ["usr-1"]}
    system = ContextSystem()
    system.unmarshal(json.dumps(form))
    assert [s.type for s in system.list_segments()] == [SegmentType.CUSTOM, SegmentType.CUSTOM, SegmentType.USER]
    assert system.get_page("usr-1").parent == "usr-2"
    form["pages"]["usr-1"]["parent"] = "usr-0"
    with pytest.raises(InvalidValue, match=r"usr-2.*children names 'usr-1', which has another parent"):
        system.unmarshal(json.dumps(form))


def test_open_batches_survive_the_document() -> None:
    ctx = quire.open("memory:")
    for n in range(3):
        ctx.user(f"before {n}")
    ctx.conversation.batch_start()
    ctx.user("inside 1")
    ctx.conversation.batch_start()
    ctx.user("inside 2")
    other = quire.open("memory:")
    other.pages.unmarshal(ctx.pages.marshal())
    assert other.conversation.mark_map() == ctx.conversation.mark_map()
    other.conversation.batch_end(1)
    assert [message.text for message in other.messages()] == ["before 0", "before 1", "before 2", "inside 1"]
    other.conversation.batch_end(0)
    assert [message.text for message in other.messages()] == ["before 0", "before 1", "before 2"]
    assert other.check() == []


def test_a_segment_of_texts_gets_another_type() -> None:
    system = ContextSystem()
    system.add_segment(Segment(id="a"))
    system.add_segment(Segment(id="b"))
    system.create_detail_page("Prompt", "", "Be brief.", "a-0")
    system.update_segment("a", type=SegmentType.SYSTEM)
    system.update_segment("b", type=SegmentType.USER)
    system.update_segment("b", type=SegmentType.USER)
    assert [s.type for s in system.list_segments()] == [SegmentType.SYSTEM, SegmentType.USER]
    with pytest.raises(InvalidValue, match="type is 9"):
        system.update_segment("a", type=9)  # type: ignore[arg-type]


def test_a_type_is_refused_if_messages_would_be_in_a_wrong_segment() -> None:
    ctx = quire.open("memory:")
    with pytest.raises(InvalidOperation, match="needs a USER segment"):
        quire.open("memory:").pages.update_segment("usr", type=SegmentType.CUSTOM)
    ctx.pages.update_segment("mem", type=SegmentType.USER)
    ctx.pages.update_segment("mem", type=SegmentType.CUSTOM)
    ctx.user("Hi")
    for segment, kind in (("usr", SegmentType.CUSTOM), ("mem", SegmentType.USER)):
        with pytest.raises(InvalidOperation, match="'usr-1' in segment 'usr' has messages"):
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
    with pytest.raises(InvalidValue, match="text is no ContentsPage as JSON"):
        ContentsPage.from_json(ctx.pages.get_page(index).to_json())
    with pytest.raises(InvalidValue, match="text is no DetailPage as JSON"):
        DetailPage.from_json("[1]")
