"""Names and ids that a provider refuses get another spelling, and a reply with that spelling finds the original."""

import re
from typing import Any

import pytest

import quire
from quire import Message, ToolCall, check_legal
from quire.providers import format_messages, format_request
from tests.providers.histories import Provider
from tests.providers.pairs import check_pairs, events

PROVIDERS: tuple[Provider, ...] = ("openai", "responses", "anthropic")
REFUSED = ("mcp.server/tool name", "工具", "x" * 65, "x" * 129, "a\nb", " ")
LONG_IDS = ("functions.f:0", "call|fc_" + "9" * 80, "c" * 41, "c" * 65, "標識")


def exchange(*ids: str, name: str = "f") -> list[Message]:
    calls = tuple(ToolCall(call, name) for call in ids)
    results = [Message(role="tool", tool_call_id=call, content=f"of {call}") for call in reversed(ids)]
    return [Message(role="assistant", tool_calls=calls), *results]


def ids_of(messages: list[Message], provider: Provider) -> list[str]:
    return [call_id for _, call_id in events(format_request(messages, provider), provider)]


def names_in(values: list[dict[str, Any]]) -> set[str]:
    return set(re.findall(r"'name': '([^']*)'", str(values)))


# Repeated ids


@pytest.mark.parametrize("provider", ["responses", "anthropic"])
def test_a_repeated_id_gets_a_number_with_its_result(provider: Provider) -> None:
    messages = exchange("a", "b") + exchange("a", "a_2") + exchange("b", "a")
    wanted = ["a", "b", "b", "a", "a_2", "a_2_2", "a_2_2", "a_2", "b_2", "a_3", "a_3", "b_2"]
    assert ids_of(messages, provider) == wanted
    assert ids_of(messages, "openai") == [i for _, i in events(format_messages(messages, "openai"), "openai")]


def test_a_result_for_a_numbered_id_finds_its_call() -> None:
    ctx = quire.open("memory:")
    for _ in range(2):
        ctx.user("Go")
        ctx.assistant(None, [ToolCall("a", "f")])
        sent = [block["id"] for m in ctx.render().anthropic()["messages"] for block in m["content"] if "input" in block]
        ctx.add({"role": "user", "content": [{"type": "tool_result", "tool_use_id": sent[-1], "content": "1"}]})
    assert sent == ["a", "a_2"]
    assert ctx.pending_calls() == []
    assert [message.tool_call_id for message in ctx.messages() if message.role == "tool"] == ["a", "a"]
    for unknown in ("a_3", "a_1", "a_02", "a_" + "9" * 5_000, "a_²"):
        with pytest.raises(quire.InvalidValue):
            ctx.tool_result(unknown, "1")


# Spellings


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_is_sent_in_another_spelling_and_comes_back_as_it_was(name: str, provider: Provider) -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    ctx.assistant(None, [ToolCall("a", name)])
    assert ctx.pending_calls() == [ToolCall("a", name)]
    ctx.tool_result("a", "1")
    view = ctx.render()
    form: Any = getattr(view, provider)()
    assert check_legal(form, provider) == []
    values = form["messages"] if provider == "anthropic" else form
    [sent] = names_in(values)
    assert (sent == name) is (provider == "anthropic" and name == "x" * 65)
    ctx.add(reply_with(sent, provider))
    assert [call.name for call in ctx.pending_calls()] == [name]
    ctx.tool_result("new", "2")
    again: Any = getattr(ctx.render(), provider)()
    assert names_in(again["messages"] if provider == "anthropic" else again) == {sent}
    assert check_legal(again, provider) == []


def reply_with(name: str, provider: Provider) -> dict[str, Any]:
    """Return an answer of a model that calls a tool, with a field that only its original has."""
    if provider == "anthropic":
        block = {"type": "tool_use", "id": "new", "name": name, "input": {}, "caller": {"type": "direct"}}
        return {"role": "assistant", "content": [block]}
    if provider == "responses":
        item = {"type": "function_call", "id": "fc_1", "call_id": "new", "name": name, "arguments": "{}"}
        return {"output": [item], "id": "resp_1", "model": "m"}
    call = {"id": "new", "type": "function", "function": {"name": name, "arguments": "{}"}, "x": 1}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("call_id", LONG_IDS)
def test_a_refused_id_is_sent_in_another_spelling_and_finds_its_call(call_id: str, provider: Provider) -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    ctx.assistant(None, [ToolCall(call_id, "f"), ToolCall(call_id[:-1] + "_", "f")])
    view: Any = getattr(ctx.render(), provider)()
    assert check_legal(view, provider) == []
    values = view["messages"] if provider == "anthropic" else view
    check_pairs(values, provider)
    sent = [i for kind, i in events(values, provider) if kind == "call"]
    assert len(set(sent)) == 2
    ctx.tool_result(sent[0], "1")
    assert [call.id for call in ctx.pending_calls()] == [call_id[:-1] + "_"]
    ctx.user("Well?")
    ctx.assistant("Hm.")
    ctx.tool_result(sent[1], "late")
    assert [m.tool_call_id for m in ctx.messages() if m.role == "tool"] == [call_id, call_id[:-1] + "_"]
    with pytest.raises(quire.InvalidOperation):
        ctx.tool_result(sent[1], "other")


def test_the_name_of_a_speaker_is_legal_for_chat() -> None:
    ctx = quire.open("memory:")
    ctx.system("Be kind.", name="house rules")
    ctx.add({"role": "user", "name": "Ada Lovelace <ada@example.com>", "content": "Hi"})
    ctx.add({"role": "user", "name": "张伟", "content": "Hi"})
    sent = ctx.render().openai()
    assert check_legal(sent, "openai") == []
    assert [m["name"] for m in sent if "name" in m] == ["house_rules", "Ada_Lovelace_ada@example.com_", "张伟"]


# Schemas of tools


def test_the_schemas_of_tools_get_the_same_spelling() -> None:
    ctx = quire.open("memory:")
    name = "mcp.server/tool name"
    chat: dict[str, Any] = {"type": "function", "function": {"name": name, "parameters": {}}}
    custom = {"type": "custom", "custom": {"name": name}}
    flat = {"type": "function", "name": name, "parameters": {}}
    spelled = str(ctx.tools.openai([chat])[-1]["function"]["name"])
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", spelled)
    assert ctx.tools.openai([custom])[-1] == {"type": "custom", "custom": {"name": spelled}}
    assert ctx.tools.responses([flat])[-1]["name"] == spelled
    assert ctx.tools.anthropic([{"name": name, "input_schema": {}}])[-1]["name"] == spelled
    assert ctx.tools.responses([{"type": "web_search"}])[-1] == {"type": "web_search"}
    assert chat["function"]["name"] == name
    assert len(ctx.tools.only().openai([chat])) == 1
    ctx.user("Go")
    ctx.add(reply_with(spelled, "openai"))  # the tool was never called before
    assert ctx.pending_calls()[0].name == name


# What messages bring along


def test_blanks_at_the_end_of_an_answer_are_not_sent_to_anthropic() -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    ctx.assistant("Well \n")
    ctx.add({"role": "assistant", "content": [{"type": "text", "text": "So  ", "citations": None}]})
    request = ctx.render().anthropic()
    assert check_legal(request, "anthropic") == []
    assert [m["content"] for m in request["messages"]][-2:] == [
        "Well",
        [{"type": "text", "text": "So", "citations": None}],
    ]
    assert ctx.messages()[1].content == "Well \n"


def test_cache_marks_of_messages_are_not_sent() -> None:
    mark = {"type": "ephemeral"}
    ctx = quire.open("memory:")
    ctx.add({"role": "system", "content": [{"type": "text", "text": "Be kind.", "cache_control": mark}]})
    for _ in range(6):
        ctx.add({"role": "user", "content": [{"type": "text", "text": "Go", "cache_control": mark}]})
        ctx.assistant("Yes.")
    view = ctx.render()
    assert check_legal(view.anthropic(), "anthropic") == []
    assert "cache_control" not in str(view.anthropic())
    assert check_legal(view.anthropic(cache=True), "anthropic") == []
    assert str(view.anthropic(cache=True)).count("cache_control") == 4


# Calls of OpenAI's own tools, and calls that were cut off


LOCAL_CALLS: list[dict[str, Any]] = [
    {"type": "local_shell_call", "id": "l", "action": {"type": "exec", "command": ["ls"]}, "status": "completed"},
    {"type": "shell_call", "action": {"commands": ["ls"]}, "status": "completed"},
    {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}, "status": "completed"},
    {"type": "tool_search_call", "execution": "client", "arguments": {}, "status": "completed"},
    {"type": "custom_tool_call", "name": "f", "input": "ls"},
]


@pytest.mark.parametrize("call", LOCAL_CALLS, ids=lambda call: str(call["type"]))
@pytest.mark.parametrize("result", [None, "Done."])
def test_a_call_of_a_local_tool_has_an_output_of_its_kind(call: dict[str, Any], result: str | None) -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    ctx.add({**call, "call_id": "c"})
    if result is not None:
        ctx.tool_result("c", result)
    _, _, sent, output = ctx.render().responses()
    assert sent == {**call, "call_id": "c"}
    assert check_legal([ASK_ITEM, sent, output], "responses") == []
    kind = "function_call" if call["type"] == "local_shell_call" else str(call["type"])
    assert output["type"] == ("tool_search_output" if kind == "tool_search_call" else f"{kind}_output")
    assert kind == "tool_search_call" or (result or "[no result]") in str(output["output"])


ASK_ITEM = {"role": "user", "content": "Go"}
