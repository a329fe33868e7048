"""Messages coming in: which page each one stands on, and how they are read back."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from quire import (
    Context,
    DetailPage,
    Form,
    InvalidOperation,
    InvalidValue,
    Lifecycle,
    Mark,
    MemoryStorage,
    Message,
    QuireError,
    ToolCall,
)
from quire.messages import Provider
from quire.providers import format_messages
from tests.books import everything, refused
from tests.conversation.talks import (
    called,
    calls,
    exchange,
    indices,
    names,
    new_talk,
    numbered,
    result,
    said,
    talk_of,
    texts,
)
from tests.providers.histories import ALL, ANTHROPIC, CASES, OPENAI, PNG


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


def test_a_prompt_set_late_still_stands_first() -> None:
    ctx = talk_of("a")
    ctx.system("late")
    assert numbered(ctx.messages()) == [(1, "system", "late"), (0, "user", "a")]


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


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "insert at 0"])
def test_a_later_system_message_stays_in_its_place(route: str) -> None:
    ctx = talk_of("a")
    ROUTES[route](ctx, said("system", "Be brief now."))
    ctx.user("b")
    assert numbered(ctx.messages()) == [(0, "user", "a"), (1, "system", "Be brief now."), (2, "user", "b")]
    page = leaf(ctx, "usr-2")
    assert (page.form, page.pinned, names(ctx, "sys-0")) == (Form.SYSTEM, False, [])


def test_a_later_system_message_can_be_inserted_first_without_becoming_the_prompt() -> None:
    ctx = talk_of("a")
    ctx.conversation.insert(said("system", "Be brief now."), at=0)
    assert numbered(ctx.messages()) == [(1, "system", "Be brief now."), (0, "user", "a")]
    assert names(ctx, "sys-0") == []


@pytest.mark.parametrize("bad", [None, 5, b"x", ["x"], "\ud800"], ids=repr)
def test_a_prompt_is_text(bad: Any) -> None:
    ctx = new_talk()
    with refused(ctx.pages, InvalidValue, "text"):
        ctx.system(bad)


@pytest.mark.parametrize("bad", ["", "  ", 5, "a\x00b", "x" * 201], ids=lambda value: repr(value)[:20])
def test_the_name_of_a_prompt_is_one_line(bad: Any) -> None:
    ctx = new_talk()
    with refused(ctx.pages, InvalidValue, "name"):
        ctx.system("x", name=bad)


# Exchanges


def test_every_message_without_calls_is_an_exchange_of_its_own() -> None:
    ctx = talk_of("a", "b")
    ctx.assistant("c")
    ctx.add(said("system", "d"))
    forms = [leaf(ctx, index).form for index in names(ctx)]
    assert forms == [Form.USER, Form.USER, Form.ASSISTANT, Form.SYSTEM]


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
    with refused(ctx.pages, InvalidOperation, "'c1'", "message 1", "replace"):
        ctx.tool_result("c1", "y")


def test_an_unknown_call_is_refused_and_the_error_names_those_that_wait() -> None:
    ctx = new_talk()
    with refused(ctx.pages, InvalidValue, "'c9'", "none"):
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
    with refused(ctx.pages, InvalidOperation, "message 6"):
        ctx.tool_result("call_0", "one more")


def test_an_answered_call_id_can_be_used_again() -> None:
    ctx = new_talk()
    for text in ("a", "b"):
        ctx.assistant(None, calls("call_0"))
        ctx.tool_result("call_0", text)
    assert texts(ctx) == ["", "a", "", "b"]


def test_an_exchange_out_of_the_conversation_takes_no_result_from_one_that_is_in() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("call_0"))
    with ctx.temporary():
        ctx.assistant(None, calls("call_0"))
    assert ctx.tool_result("call_0", "x") == 2
    assert indices(ctx) == [0, 2]
    assert ctx.pending_calls() == []
    ctx.tool_result("call_0", "for the other")
    assert ctx.conversation.mark_of(3) is Mark.ENDED


def test_calls_of_one_message_that_share_an_id_take_a_result_each() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c", "c"))
    assert [ctx.tool_result("c", "x"), ctx.tool_result("c", "y")] == [1, 2]
    assert ctx.pending_calls() == []


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


# An open exchange stays where it is

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
    with refused(ctx.pages, InvalidOperation, "results of 'c2'"):
        TOUCHES[touch](ctx, "usr-2")
    ctx.tool_result("c2", "y")
    TOUCHES[touch](ctx, "usr-2")
    assert ctx.check() == []


@pytest.mark.parametrize("touch", TOUCHES)
def test_so_is_a_folder_above_an_open_exchange(touch: str) -> None:
    ctx = talk_of("a", "b")
    folder = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-2"])
    ctx.conversation.insert(called("c1"), at=1)
    ctx.conversation.delete(1)
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    with refused(ctx.pages, InvalidOperation, "'c1'", repr(folder)):
        TOUCHES[touch](ctx, folder)


@pytest.mark.parametrize("edit", ["delete", "compress", "replace"])
@pytest.mark.parametrize("index", [1, 2])
def test_an_open_exchange_is_not_edited(edit: str, index: int) -> None:
    ctx = talk_of("a")
    ctx.assistant(None, calls("c1", "c2"))
    ctx.tool_result("c1", "x")
    new = [result("c1", "z") if index == 2 else said("assistant", "no calls")] if edit == "replace" else []
    with refused(ctx.pages, InvalidOperation, "'c2'"):
        getattr(ctx.conversation, edit)([index], *new)


# Shapes


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_a_history_added_at_once_goes_back_as_it_came(provider: Provider, name: str) -> None:
    history = copy.deepcopy(ALL[provider][name])
    ctx = new_talk()
    ctx.add(history)
    history.clear()
    assert format_messages(list(ctx.messages()), provider) == ALL[provider][name]
    assert [message.index for message in ctx.messages(all=True)] == list(range(len(ctx.messages(all=True))))
    assert ctx.check() == []


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


@pytest.mark.parametrize("bad", [None, 5, "text", b"x", [], {}, [[]], {"role": "user"}, {"role": "bot"}], ids=repr)
def test_what_is_no_message_is_refused(bad: Any) -> None:
    ctx = talk_of("a")
    with refused(ctx.pages, InvalidValue):
        ctx.add(bad)


@pytest.mark.parametrize(
    "bad",
    [
        Message(role="bot", content="x"),  # type: ignore[arg-type]
        Message(role="user", content=5),  # type: ignore[arg-type]
        Message(role="user", content="\ud800"),
        Message(role="user", content=[{"type": "text"}]),
        Message(role="user", content="x", tool_calls=(ToolCall("c", "f"),)),
        Message(role="assistant", tool_calls=("c",)),  # type: ignore[arg-type]
        Message(role="user", content="x", meta={"key": object()}),
    ],
    ids=["role", "number", "surrogate", "part", "user calls", "call", "meta"],
)
def test_a_message_of_ours_is_checked_too(bad: Message) -> None:
    ctx = talk_of("a")
    with refused(ctx.pages, InvalidValue):
        ctx.add(bad)


@pytest.mark.parametrize(
    ("call_id", "content"), [(5, "x"), (None, "x"), ("c1", None), ("c1", 5), ("c1", {"a": object()}), ("c1", "\udc00")]
)
def test_a_result_is_text_or_parts(call_id: Any, content: Any) -> None:
    ctx = talk_of("a")
    ctx.assistant(None, calls("c1"))
    if content is None:
        assert ctx.tool_result(call_id, content) == 2  # a tool that says nothing has answered
        return
    with refused(ctx.pages, InvalidValue):
        ctx.tool_result(call_id, content)


@pytest.mark.parametrize("bad", ["c1", 5, {"id": "c"}, [5], [None], [{"id": "c"}]], ids=repr)
def test_tool_calls_are_a_list_of_calls(bad: Any) -> None:
    ctx = talk_of("a")
    with refused(ctx.pages, InvalidValue):
        ctx.assistant("x", bad)


# What is handed out and what is handed in


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


# The sequence of messages


def test_messages_are_a_sequence() -> None:
    ctx = talk_of(*(f"m{n}" for n in range(600)))
    messages = ctx.messages()
    assert len(messages) == 600
    assert bool(new_talk().messages()) is False
    assert [messages[0].text, messages[-1].text, messages[599].index] == ["m0", "m599", 599]
    assert [message.text for message in messages[2:5]] == ["m2", "m3", "m4"]
    assert [message.text for message in messages[-2:]] == ["m598", "m599"]
    assert [message.index for message in messages[::-200]] == [599, 399, 199]
    assert messages[700:] == []
    assert [message.index for message in messages] == list(range(600))
    assert [message.index for message in reversed(messages)] == list(range(599, -1, -1))
    assert messages[3] in messages
    assert messages.index(messages[3]) == 3
    assert repr(messages) == "<600 messages>"
    for bad in (600, -601):
        with pytest.raises(IndexError):
            messages[bad]


def test_messages_are_equal_to_what_says_the_same() -> None:
    ctx, other = talk_of("a", "b"), talk_of("a", "b")
    assert ctx.messages() == other.messages() == list(ctx.messages())
    assert tuple(ctx.messages()) == ctx.messages()
    assert ctx.messages() != talk_of("a", "c").messages()
    assert ctx.messages() != talk_of("a").messages()
    assert ctx.messages() != "ab"
    assert ctx.messages(all=True) == ctx.messages()


def test_messages_keep_the_order_of_the_moment_they_were_looked_at() -> None:
    ctx = talk_of("a", "b")
    messages, unseen = ctx.messages(), ctx.messages()
    assert len(messages) == 2
    ctx.user("c")
    ctx.conversation.delete(0)
    assert [message.text for message in messages] == ["a", "b"]
    assert [message.text for message in unseen] == ["b", "c"]


def test_reading_one_message_of_many_reads_only_that_one() -> None:
    class Counted(MemoryStorage):
        reads = 0

        def get(self, context: str, family: Any, key: int) -> Any:
            self.reads += 1
            return super().get(context, family, key)

    storage = Counted()
    talk_of(*(f"m{n}" for n in range(500)), where=storage)
    messages = new_talk(storage).messages()
    assert len(messages) == 500
    storage.reads = 0
    assert messages[250].text == "m250"
    assert storage.reads < 5


def test_a_message_that_a_cleanup_destroyed_is_named_as_such() -> None:
    ctx = talk_of("a", "b")
    ctx.conversation.delete(0)
    messages = ctx.messages(all=True)
    assert len(messages) == 2
    ctx.conversation.cleanup()
    with pytest.raises(InvalidOperation, match="cleanup"):
        messages[0]
    assert messages[1].index == 0


def test_all_messages_are_given_by_index_marked_ones_too() -> None:
    ctx = new_talk()
    ctx.system("prompt")
    ctx.user("a")
    ctx.user("b")
    ctx.conversation.insert(said("user", "c"), at=1)
    ctx.conversation.delete(2)
    ctx.system("other prompt")
    assert numbered(ctx.messages(all=True)) == [
        (0, "system", "prompt"),
        (1, "user", "a"),
        (2, "user", "b"),
        (3, "user", "c"),
        (4, "system", "other prompt"),
    ]
    assert indices(ctx) == [4, 3, 1]
    assert ctx.conversation.message(2).text == "b"


# What happens to the pages of messages


def test_a_message_in_the_cold_archive_is_back_after_recall() -> None:
    ctx = talk_of("a", "b", "c")
    ctx.pages.archive("usr-2", cold=True)
    assert texts(ctx) == ["a", "c"]
    assert texts(ctx, all_of_them=True) == ["a", "b", "c"]
    assert ctx.conversation.mark_of(1) is Mark.NONE
    ctx.pages.recall("usr-2")
    assert texts(ctx) == ["a", "b", "c"]


@pytest.mark.parametrize("way", ["hide", "archive"])
def test_what_only_changes_the_view_leaves_the_messages(way: str) -> None:
    ctx = talk_of("a", "b", "c")
    getattr(ctx.pages, way)("usr-2")
    folder = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1", "usr-3"])
    ctx.pages.hide(folder)
    assert ctx.pages.get_page("usr-1").effective is Lifecycle.HOT_ARCHIVED
    assert texts(ctx) == ["a", "c", "b"]


def test_messages_stand_where_their_pages_stand() -> None:
    ctx = talk_of("a", "b", "c")
    ctx.pages.move_page("usr-3", "usr-0", before="usr-1")
    assert indices(ctx) == [2, 0, 1]
    moved = ctx.pages.move_page("usr-1", "mem-0")
    assert indices(ctx) == [2, 1]
    assert ctx.conversation.page_of(0) == moved["usr-1"]
    assert ctx.conversation.message(0).text == "a"
    ctx.pages.move_page(moved["usr-1"], "usr-0")
    assert indices(ctx) == [2, 1, 0]


def test_a_result_finds_its_exchange_wherever_that_moved() -> None:
    ctx = new_talk()
    ctx.assistant(None, calls("c1"))
    ctx.user("Go on.")
    ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1"])
    ctx.tool_result("c1", "in a folder")
    ctx.assistant(None, calls("c2"))
    ctx.close_calls()
    there = ctx.pages.move_page("usr-4", "mem-0")["usr-4"]
    ctx.tool_result("c2", "in another segment")
    assert ctx.conversation.page_of(4) == there
    back = ctx.pages.move_page(there, "usr-0")[there]
    assert texts(ctx) == ["", "in a folder", "Go on.", "", "in another segment"]
    assert ctx.pages.detail(back).endswith("Result of c2: in another segment")


def test_a_removed_message_is_out_until_the_removal_is_undone() -> None:
    ctx = talk_of("a", "b")
    ctx.pages.remove_page("usr-1")
    assert (texts(ctx), ctx.conversation.mark_of(0), ctx.conversation.page_of(0)) == (["b"], Mark.REMOVED, None)
    assert texts(ctx, all_of_them=True) == ["a", "b"]
    ctx.undo(ctx.seq)
    assert texts(ctx) == ["a", "b"]


def test_the_detail_of_an_exchange_is_not_set() -> None:
    ctx = new_talk()
    ctx.system("prompt")
    exchange(ctx, "c1")
    for index in ("sys-1", "usr-1"):
        with refused(ctx.pages, InvalidOperation, repr(index), "conversation.replace()"):
            ctx.pages.set_detail(index, "other")


def test_indices_never_shift() -> None:
    ctx = new_talk()
    ctx.system("prompt")
    exchange(ctx, "c1")
    ctx.user("a")
    known = {message.index: message.text for message in ctx.messages(all=True)}
    ctx.conversation.insert(said("user", "b"), at=1)
    ctx.conversation.delete(3)
    ctx.conversation.replace([1], [said("user", "c"), said("user", "d")])
    with ctx.temporary():
        ctx.user("e")
    ctx.rollback(ctx.seq - 3)
    ctx.user("f")
    now = {message.index: message.text for message in ctx.messages(all=True)}
    assert known.items() <= now.items()
    assert sorted(now) == list(range(len(now)))


def test_a_context_without_a_conversation_says_what_is_missing() -> None:
    ctx = new_talk(segments=[])
    for add in (ctx.user, ctx.system):
        with pytest.raises(QuireError, match=r"add_segment\(\)"):
            add("a")
    assert ctx.messages() == []
    assert ctx.pending_calls() == []


def test_the_anthropic_prompt_and_its_messages_keep_their_shapes() -> None:
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.add(ANTHROPIC["thinking and parallel calls"])
    assert format_messages(list(ctx.messages()), "anthropic") == ANTHROPIC["thinking and parallel calls"]


def test_a_dict_is_taken_as_json_where_a_tool_speaks() -> None:
    ctx = talk_of("a")
    ctx.assistant(None, [ToolCall("c1", "f", {"城市": 1})])  # type: ignore[arg-type]
    ctx.tool_result("c1", {"余票": 3})
    call, result = ctx.messages()[1:]
    assert call.tool_calls[0].arguments == '{"城市": 1}'
    assert result.content == '{"余票": 3}'
    assert format_messages([call], "openai")[0]["tool_calls"][0]["function"]["arguments"] == '{"城市": 1}'
