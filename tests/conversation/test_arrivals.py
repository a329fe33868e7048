"""Added messages and their pages."""

from collections.abc import Callable
from typing import Any

import pytest

from quire import Context, DetailPage, InvalidOperation, InvalidValue, ToolCall
from quire.model.pages import Form, Mark
from tests.books import everything, refused
from tests.conversation.talks import calls, names, new_talk, numbered, result, said, talk_of, texts


def leaf(ctx: Context, index: str) -> DetailPage:
    page = ctx.pages.get_page(index)
    assert isinstance(page, DetailPage)
    return page


# The system prompt


def test_the_same_prompt_again_changes_nothing() -> None:
    ctx = new_talk()
    assert ctx.system("Be careful.") == 0
    before = everything(ctx.pages)
    assert ctx.system("Be careful.") == 0
    assert everything(ctx.pages) == before
    page = leaf(ctx, "sys-1")
    assert (page.pinned, page.form, page.message_count) == (True, Form.SYSTEM, 1)
    assert ctx.pages.detail("sys-1") == "System: Be careful."


def test_another_text_replaces_the_prompt_on_its_page() -> None:
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.user("Hi")
    assert ctx.system("Be bold.") == 2
    assert numbered(ctx.messages()) == [(2, "system", "Be bold."), (1, "user", "Hi")]
    assert names(ctx, "sys-0") == ["sys-1"]
    assert ctx.conversation.mark_of(0) is Mark.REPLACED
    assert texts(ctx, all_of_them=True) == ["Be careful.", "Hi", "Be bold."]


def test_a_name_makes_a_further_prompt() -> None:
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.system("Today is Monday.", name="date")
    assert ctx.system("Today is Tuesday.", name="date") == 2
    assert texts(ctx) == ["Be careful.", "Today is Tuesday."]
    assert [page.name for page in ctx.pages.children("sys-0")] == ["System prompt", "date"]


ROUTES: dict[str, Callable[[Context, Any], Any]] = {
    "add": lambda ctx, message: ctx.add(message),
    "insert": lambda ctx, message: ctx.conversation.insert(message),
    "insert at 0": lambda ctx, message: ctx.conversation.insert(message, at=0),
    "import": lambda ctx, message: ctx.import_messages([message]),
    "modify": lambda ctx, message: ctx.conversation.modify([{"operation": "insert", "data": message}]),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_before_all_others_is_the_prompt(route: str, role: str) -> None:
    ctx = new_talk()
    ROUTES[route](ctx, said(role, "Be careful."))
    assert (names(ctx, "sys-0"), names(ctx)) == (["sys-1"], [])
    assert leaf(ctx, "sys-1").pinned
    assert ctx.system("Be careful.") == 0
    assert ctx.system("Be bold.") == 1
    assert texts(ctx) == ["Be bold."]


# Exchanges


def test_calls_stand_with_their_results_in_whatever_order_they_come() -> None:
    ctx = talk_of("a")
    assert ctx.assistant("Wait.", calls("c1", "c2", "c3")) == 1
    assert [call.id for call in ctx.pending_calls()] == ["c1", "c2", "c3"]
    assert ctx.tool_result("c3", "third") == 2
    assert [call.id for call in ctx.pending_calls()] == ["c1", "c2"]
    assert ctx.tool_result("c1", "first") == 3
    assert ctx.tool_result("c2", "second") == 4
    assert ctx.pending_calls() == []
    assert names(ctx) == ["usr-1", "usr-2"]
    assert leaf(ctx, "usr-2").message_count == 4
    assert [ctx.conversation.page_of(index) for index in range(1, 5)] == ["usr-2"] * 4


def test_an_exchange_reads_as_a_person_reads_it() -> None:
    ctx = new_talk()
    ctx.assistant("Wait.", [ToolCall("c1", "look_up", '{"q": 1}'), ToolCall("c2", "run", "ls", custom=True)])
    ctx.tool_result("c2", "a\nb")
    assert ctx.pages.detail("usr-1") == (
        'Assistant: Wait.\nCall c1: look_up({"q": 1})\nCall c2: run(ls)\nResult of c2: a\nb'
    )
    ctx.user([{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}])
    assert ctx.pages.detail("usr-2") == "User: Look:\n[image]"


def test_an_open_exchange_is_closed_by_the_next_message_and_still_takes_late_results() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1", "c2"))
    ctx.add(said("system", "not closed by this"))
    assert len(ctx.pending_calls()) == 2
    ctx.user("Never mind.")
    assert ctx.pending_calls() == []
    assert ctx.tool_result("c2", "late") == 3
    assert numbered(ctx.messages()) == [
        (0, "assistant", ""),
        (3, "tool", "late"),
        (1, "system", "not closed by this"),
        (2, "user", "Never mind."),
    ]


def test_the_same_result_again_is_the_same_message() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1", "c2"))
    ctx.tool_result("c1", "x")
    before = everything(ctx.pages)
    assert ctx.tool_result("c1", "x") == 1
    assert ctx.add(result("c1", "x")) == 1
    assert everything(ctx.pages) == before


def test_a_different_result_is_refused() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1"))
    ctx.tool_result("c1", "x")
    with refused(ctx.pages, InvalidOperation, "'c1'"):
        ctx.tool_result("c1", "y")


def test_an_unknown_call_is_refused_and_the_error_names_those_that_wait() -> None:
    ctx = new_talk()
    with refused(ctx.pages, InvalidValue, "'c9'"):
        ctx.tool_result("c9", "x")
    ctx.assistant(None, calls("c1", "c2"))
    with refused(ctx.pages, InvalidValue, "'c9'", "'c1', 'c2'"):
        ctx.tool_result("c9", "x")


def test_a_result_belongs_to_the_newest_exchange_that_awaits_it() -> None:
    ctx = new_talk()
    for _ in range(3):
        ctx.assistant(None, calls("call_0"))
        ctx.user("Go on.")
    assert [ctx.tool_result("call_0", text) for text in ("new", "older", "oldest")] == [6, 7, 8]
    roles = [(message.role, message.text) for message in ctx.messages() if message.role != "user"]
    said_by = [("assistant", ""), ("tool", "oldest"), ("assistant", ""), ("tool", "older")]
    assert roles == [*said_by, ("assistant", ""), ("tool", "new")]
    with refused(ctx.pages, InvalidOperation):
        ctx.tool_result("call_0", "one more")


def test_calls_can_be_given_up() -> None:
    ctx = talk_of("a")
    assert ctx.close_calls() == []
    ctx.assistant(None, calls("c1", "c2"))
    ctx.tool_result("c1", "x")
    assert [call.id for call in ctx.close_calls()] == ["c2"]
    assert ctx.pending_calls() == []
    ctx.pages.hide("usr-2")
    ctx.tool_result("c2", "late")
    assert texts(ctx) == ["a", "", "x", "late"]
    seq = ctx.seq
    assert ctx.close_calls() == []
    assert ctx.seq == seq


# An open exchange keeps its place

TOUCHES: dict[str, Callable[[Context, str], Any]] = {
    "hide": lambda ctx, index: ctx.pages.hide(index),
    "archive": lambda ctx, index: ctx.pages.archive(index),
    "archive cold": lambda ctx, index: ctx.pages.archive(index, cold=True),
    "move": lambda ctx, index: ctx.pages.move_page(index, "usr-0", before="usr-1"),
    "move away": lambda ctx, index: ctx.pages.move_page(index, "mem-0"),
    "remove": lambda ctx, index: ctx.pages.remove_page(index),
    "gather": lambda ctx, index: ctx.pages.create_contents_page("f", "", "usr-0", [index]),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_an_open_exchange_is_left_alone(touch: str) -> None:
    ctx = talk_of("a")
    ctx.assistant(None, calls("c1", "c2"))
    with refused(ctx.pages, InvalidOperation, "'c1', 'c2'", "'usr-2'"):
        TOUCHES[touch](ctx, "usr-2")
    ctx.tool_result("c1", "x")
    with refused(ctx.pages, InvalidOperation):
        TOUCHES[touch](ctx, "usr-2")
    ctx.tool_result("c2", "y")
    TOUCHES[touch](ctx, "usr-2")
    assert ctx.check() == []
