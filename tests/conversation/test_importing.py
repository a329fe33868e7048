"""Importing whole histories, broken ones too: nothing is dropped, and every problem is reported."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from quire import Context, MemoryStorage, Message
from quire.conversation import ImportReport
from quire.model.pages import Mark
from quire.providers import format_messages
from tests.conversation.talks import called, indices, names, new_talk, result, said, texts

USER, REPLY = said("user", "Hi"), said("assistant", "Hello")


def imported(*history: Any) -> tuple[Context, ImportReport]:
    ctx = new_talk()
    report = ctx.import_messages(iter(history))
    assert ctx.check() == []
    assert report.messages == len(ctx.messages(all=True))
    assert len(ctx.messages()) + len(report.marked) == report.messages
    assert all(ctx.conversation.mark_of(index) is Mark.UNSHOWABLE for index in report.marked)
    return ctx, report


def kinds(report: ImportReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_a_sound_history_comes_in_whole_with_nothing_to_tell() -> None:
    history = [said("system", "Be careful."), USER, called("c1", "c2"), result("c2", "y"), result("c1", "x"), REPLY]
    ctx, report = imported(*history)
    assert report == ImportReport(messages=6, pages=4, first=0, last=5)
    assert format_messages(list(ctx.messages()), "openai") == history
    assert names(ctx, "sys-0") == ["sys-1"]
    assert [entry.operation for entry in ctx.history()] == ["create", "import_messages"]


# Broken histories


def test_a_result_without_a_call_is_kept_aside() -> None:
    ctx, report = imported(USER, result("c9", "lost"), REPLY)
    assert (report.marked, kinds(report)) == ((1,), ["orphaned result"])
    assert report.findings[0].index == 1
    assert "'c9'" in report.findings[0].text
    assert indices(ctx) == [0, 2]
    assert ctx.messages(all=True)[1].tool_call_id == "c9"
    assert ctx.find("lost") == []


def test_a_call_without_a_result_is_told() -> None:
    ctx, report = imported(USER, called("c1", "c2"), result("c2", "x"), USER, called("c3"))
    assert kinds(report) == ["call without result"] * 2
    assert [finding.index for finding in report.findings] == [1, 4]
    assert ["'c1'" in report.findings[0].text, "'c3'" in report.findings[1].text] == [True, True]
    assert report.marked == ()
    assert [call.id for call in ctx.pending_calls()] == ["c3"]


@pytest.mark.parametrize(("again", "kind"), [("x", "duplicate result"), ("y", "conflicting result")])
def test_a_second_result_is_kept_aside(again: str, kind: str) -> None:
    ctx, report = imported(USER, called("c1"), result("c1", "x"), result("c1", again), REPLY)
    assert (report.marked, kinds(report)) == ((3,), [kind])
    assert "message 2" in report.findings[0].text
    assert texts(ctx) == ["Hi", "", "x", "Hello"]
    assert ctx.messages(all=True)[3].text == again


@pytest.mark.parametrize("content", ["", " \n\t", None, [], [{"type": "text", "text": ""}]], ids=repr)
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_an_empty_message_is_kept_aside(role: str, content: Any) -> None:
    if content is None and role != "assistant":
        pytest.skip("not readable at all")
    ctx, report = imported(USER, said(role, content), REPLY)
    assert (report.marked, kinds(report), report.findings[0].index) == ((1,), ["empty"], 1)
    assert texts(ctx) == ["Hi", "Hello"]
    assert ctx.messages(all=True)[1].role == role


def test_a_second_system_message_is_told() -> None:
    ctx, report = imported(said("system", "one"), said("system", "two"), USER, said("system", "three"))
    assert kinds(report) == ["further system prompt"] * 2
    assert [finding.index for finding in report.findings] == [1, 3]
    assert texts(ctx) == ["one", "two", "Hi", "three"]
    assert (names(ctx, "sys-0"), names(ctx)) == (["sys-1", "sys-2"], ["usr-1", "usr-2"])


def nameless(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look_up", "arguments": "{}"}, **more}


OPENAI_WITHOUT_IDS = [
    USER,
    said("assistant", None, tool_calls=[nameless(), nameless(id=None), nameless(id="")]),
    said("tool", "1"),
    said("tool", "2", tool_call_id=None),
    said("tool", "3", tool_call_id=""),
]
ANTHROPIC_WITHOUT_IDS = [
    USER,
    said("assistant", [{"type": "tool_use", "name": "look_up", "input": {}} for _ in range(3)]),
    said("user", [{"type": "tool_result", "content": str(n)} for n in (1, 2, 3)]),
]
RESPONSES_WITHOUT_IDS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    *[{"type": "function_call", "name": "look_up", "arguments": "{}"}] * 3,
    *[{"type": "function_call_output", "output": str(n)} for n in (1, 2, 3)],
]


@pytest.mark.parametrize(
    "history",
    [OPENAI_WITHOUT_IDS, ANTHROPIC_WITHOUT_IDS, RESPONSES_WITHOUT_IDS],
    ids=["openai", "anthropic", "responses"],
)
def test_missing_ids_are_filled_in_and_told(history: list[dict[str, Any]]) -> None:
    before = json.dumps(history)
    ctx, report = imported(*history)
    assert kinds(report) == ["missing id"] * 6
    assert report.marked == ()
    messages = list(ctx.messages())
    made = [call.id for message in messages for call in message.tool_calls]
    assert len(set(made)) == 3
    assert all(made)
    assert [(message.tool_call_id, message.text) for message in messages if message.role == "tool"] == [
        (made[0], "1"),
        (made[1], "2"),
        (made[2], "3"),
    ]
    assert len(names(ctx)) == 2
    assert json.dumps(history) == before


def test_a_result_without_an_id_belongs_to_the_first_call_that_has_no_result() -> None:
    ctx, report = imported(USER, called("c1", "c2"), result("c1", "1"), said("tool", "2"))
    assert (report.marked, kinds(report)) == ((), ["missing id"])
    assert [(message.tool_call_id, message.text) for message in ctx.messages()[2:]] == [("c1", "1"), ("c2", "2")]


UNREADABLE: list[Any] = [
    None,
    5,
    "just text",
    b"bytes",
    {},
    {"role": "bot", "content": "x"},
    {"role": "user"},
    {"role": "user", "content": 5},
    {"content": "who said this?"},
    {"role": "assistant", "content": None, "tool_calls": "broken"},
    {"role": "assistant", "tool_calls": [{"id": "c"}]},
    {"role": "user", "content": [{"text": "no type"}]},
    {"role": "user", "content": "x", "score": float("nan")},
    {"role": "user", "content": "x", 5: "key"},
    {"role": "user", "content": object()},
    {"type": 5},
    Message(role="user", content=5),  # type: ignore[arg-type]
    said("user", [{"type": "tool_use", "id": "t1", "name": "n", "input": {}}]),
    said("user", [{"type": "thinking", "thinking": "x"}]),
    said("user", [{"type": "redacted_thinking", "data": ""}]),
    said("assistant", [{"type": "tool_result", "tool_use_id": "zz", "content": "x"}]),
    said("user", [{"type": "image_url", "image_url": {}}]),
    said("user", [{"type": "file"}]),
]


@pytest.mark.parametrize("item", UNREADABLE, ids=lambda item: repr(item)[:38])  # no address: each process has others
def test_what_cannot_be_read_is_kept_as_text(item: Any) -> None:
    ctx, report = imported(USER, item, REPLY)
    assert (report.marked, kinds(report)) == ((1,), ["unreadable"])
    finding = report.findings[0]
    assert (finding.item, finding.text.startswith("Kept as text: ")) == (1, True)
    assert texts(ctx) == ["Hi", "Hello"]
    kept = ctx.messages(all=True)[1]
    assert kept.text
    assert kept.meta["unreadable"]
    if isinstance(item, str):
        assert json.loads(kept.text) == item


# Streaming


def test_a_long_history_is_read_as_it_is_committed() -> None:
    read: list[int] = []
    progress: list[tuple[int, int, int]] = []
    storage = MemoryStorage()
    ctx, other = new_talk(storage), new_talk(storage)

    def history() -> Iterator[dict[str, Any]]:
        for n in range(750):
            read.append(n)
            yield said("user", f"question {n}")
            yield said("assistant", f"answer {n}")

    def watch(report: ImportReport) -> None:
        other.refresh()
        progress.append((report.messages, len(read), len(other.messages())))

    report = ctx.import_messages(history(), progress=watch)
    assert (report.messages, report.pages, report.first, report.last) == (1_500, 1_500, 0, 1_499)
    assert [taken for taken, _, _ in progress] == list(range(500, 1_501, 500))
    assert all(consumed <= taken // 2 + 1 for taken, consumed, _ in progress)
    assert all(stored == taken for taken, _, stored in progress)
    assert [message.text for message in ctx.messages()[1_498:]] == ["question 749", "answer 749"]


@pytest.mark.parametrize("items", [0, 3, 700])
def test_what_came_before_a_history_failed_stays(items: int) -> None:
    class Broken(Exception):
        pass

    def history() -> Iterator[dict[str, Any]]:
        for n in range(items):
            yield {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"{n}"}]}
        raise Broken

    ctx = new_talk()
    with pytest.raises(Broken):
        ctx.import_messages(history())
    assert texts(ctx) == [str(n) for n in range(items)]
    assert ctx.check() == []


def test_another_writer_may_speak_between_the_parts_of_an_import() -> None:
    storage = MemoryStorage()
    ctx, other = new_talk(storage), new_talk(storage)

    def interfere(report: ImportReport) -> None:
        if report.messages == 500:
            other.refresh()
            other.user("by the other")

    report = ctx.import_messages([USER] * 1_200, progress=interfere)
    assert (report.messages, report.pages, report.first, report.last) == (1_200, 1_200, 0, 1_200)
    assert [message.index for message in ctx.messages() if message.content == "by the other"] == [500]
    assert len(ctx.messages()) == 1_201
    assert ctx.check() == []
