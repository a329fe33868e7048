"""Tools: their schemas, and their answers to any input of a model."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import ToolParam, ToolUseBlock
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageToolCall, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import TypeAdapter

import quire
from quire import Context, InvalidValue, Permission, VocabularyCounter
from quire.agent import AgentContext, Quota
from quire.agent.tool_table import TOOLS, openai_schema, parameter_schema
from quire.agent.tools import Tools
from tests.books import everything
from tests.talks import new_talk

LONGEST = 600
"""The limit of characters of an error: a model pays for them."""
MOST_TOKENS = 1_000


def talk() -> Context:
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.user("I want to fly to Seattle.")
    ctx.assistant("On which day?")
    return ctx


def tools_of(ctx: Context, *, manage: bool = False, **quota: int) -> Tools:
    return ctx.tools_of(ctx.as_agent(manage=manage, quota=Quota(**quota)))


# Schemas


def test_there_are_at_most_twelve_and_all_together_they_are_short() -> None:
    assert len(TOOLS) <= 12
    written = json.dumps([openai_schema(tool, tool.name) for tool in TOOLS], separators=(",", ":"))
    assert VocabularyCounter().count(written) <= MOST_TOKENS


def test_every_tool_and_every_parameter_says_what_it_is_for() -> None:
    for tool in TOOLS:
        assert len(tool.about) > 20
        for parameter in tool.parameters:
            assert parameter.about


def test_the_schemas_are_json_schema_of_the_plain_kind() -> None:
    kinds = {"string", "integer", "boolean", "array", "object"}
    for tool in TOOLS:
        schema = parameter_schema(tool)
        assert json.loads(json.dumps(schema)) == schema
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= schema["properties"].keys()
        for value in schema["properties"].values():
            assert value["type"] in kinds
            assert value.keys() <= {"type", "items", "enum", "description"}
            assert (value["type"] == "array") is ("items" in value)


def test_the_schemas_are_what_the_sdks_want() -> None:
    tools = tools_of(talk(), manage=True)
    for form, kind in (
        (tools.openai(), ChatCompletionToolParam),
        (tools.responses(), FunctionToolParam),
        (tools.anthropic(), ToolParam),
    ):
        for schema in form:
            TypeAdapter(kind).validate_python({"strict": False, **schema} if kind is FunctionToolParam else schema)
    assert [tool["name"] for tool in tools.mcp()] == tools.names()
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools.mcp())


def test_tools_can_be_narrowed_and_prefixed() -> None:
    ctx = talk()
    tools = tools_of(ctx).only("expand_details", "find")
    assert list(tools) == ["find", "expand_details"]
    assert "read_page" not in tools
    assert "There is no tool 'read_page'" in tools.call("read_page", {"page": "usr-1"})
    ours = tools.prefixed("quire_")
    assert list(ours) == ["quire_find", "quire_expand_details"]
    assert "Seattle" in ours.call("quire_find", {"query": "Seattle"})
    assert list(ours.only("quire_find")) == ["quire_find"]
    assert list(ours.prefixed("")) == ["find", "expand_details"]
    with pytest.raises(InvalidValue, match="no tool 'read_page'"):
        tools.only("read_page")
    with pytest.raises(InvalidValue, match="up to 32 letters"):
        tools.prefixed("no spaces")
    longest = tools_of(ctx, manage=True).prefixed("x" * 32)
    assert all(len(name) <= 64 for name in longest)  # the limit of the providers


def test_those_that_only_read_change_nothing() -> None:
    ctx = talk()
    tools = tools_of(ctx, manage=True)
    assert list(tools.reading()) == ["find", "read_page", "budget"]
    assert list(tools.prefixed("q_").reading()) == ["q_find", "q_read_page", "q_budget"]
    hints = {tool["name"]: tool["annotations"] for tool in tools.mcp()}
    assert [name for name, hint in hints.items() if hint["readOnlyHint"]] == list(tools.reading())
    assert hints["remove_page"]["destructiveHint"] is True
    before = ctx.seq
    for name, arguments in (("find", {"query": "Seattle"}), ("read_page", {"page": "usr-1"}), ("budget", {})):
        assert not tools.answer(name, arguments).failed
    assert ctx.seq == before


def test_an_answer_says_whether_it_is_a_refusal() -> None:
    tools = tools_of(talk())
    for name, arguments, failed in (
        ("read_page", {"page": "usr-1"}, False),
        ("find", {"query": "nowhere"}, False),
        ("read_page", {"page": "usr-99"}, True),
        ("read_page", "{", True),
        ("no_tool", {}, True),
        (None, None, True),
    ):
        answer = tools.answer(name, arguments)
        assert answer.failed is failed, answer
        assert answer.text == tools.call(name, arguments)


def test_a_call_is_made_again_while_others_write_in_between() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage)
    other = quire.open(storage)
    written: list[str] = []
    create = AgentContext.create_detail_page

    def interrupted(self: AgentContext, *arguments: Any) -> str:
        if len(written) < 5:
            other.refresh()
            written.append(other.pages.create_detail_page("theirs", "", "", "mem-0"))
        return create(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentContext, "create_detail_page", interrupted)
        assert ctx.tools.call("write_page", {"name": "mine", "text": "x"}) == "Wrote mem-6."


def test_all_pages_are_listed_so_many_at_a_time() -> None:
    ctx = talk()
    ctx.pages.add_segment(quire.Segment(id="vault", permission=Permission.PRIVATE))
    ctx.pages.create_detail_page("secret", "", "x", "vault-0")
    notes = [ctx.pages.create_detail_page(f"note {n}", "", "x", "mem-0") for n in range(5)]
    ctx.pages.archive(notes[1], cold=True)
    ctx.pages.remove_page(notes[4])
    ctx.conversation.delete(2)
    everything = [page.index for page in ctx.agent.list_pages()]
    assert everything == ["sys-0", "sys-1", "mem-0", *notes[:4], "usr-0", "usr-1", "win-0"]
    listed: list[str] = []
    while some := ctx.agent.list_pages(listed[-1] if listed else None, 3):
        listed += [page.index for page in some]
    assert listed == everything
    assert ctx.agent.list_pages(notes[4], 1)[0].index == "usr-0"  # the page is removed, and its position is still known
    for wrong in ("vault-0", "nowhere-1", "mem-01", ""):
        with pytest.raises(quire.NoSuchPage):
            ctx.agent.list_pages(wrong)


@pytest.mark.parametrize("form", ["openai", "responses", "anthropic"])
def test_a_name_that_is_used_twice_is_an_error(form: str) -> None:
    tools = tools_of(talk())
    mine = {"openai": {"type": "function", "function": {"name": "find"}}}.get(form, {"name": "find"})
    with pytest.raises(InvalidValue, match="Two tools have the name 'find'"):
        getattr(tools, form)([mine])
    both = getattr(tools.prefixed("quire_"), form)([mine])
    assert len(both) == len(list(tools)) + 1


def test_tools_that_would_only_refuse_are_not_given() -> None:
    ctx = talk()
    assert "segment" not in tools_of(ctx)
    assert "segment" in tools_of(ctx, manage=True)
    assert "window" not in tools_of(ctx)


def test_errors_call_the_tools_by_the_names_that_the_model_has() -> None:
    ctx = talk()
    ctx.pages.archive("usr-2")
    said = tools_of(ctx).prefixed("my_").call("my_hide_details", {"page": "usr-2"})
    assert said.startswith("InvalidOperation: ")
    assert "'usr-2'" in said


# Input of a model

_FUNCTION = {"name": "find", "arguments": '{"query": "Seattle"}'}
CALLS: dict[str, Any] = {
    "a name and JSON": ("find", '{"query": "Seattle"}'),
    "a name and a mapping": ("find", {"query": "Seattle"}),
    "bytes": ("find", b'{"query": "Seattle"}'),
    "a call of ours": (quire.ToolCall("1", "find", '{"query": "Seattle"}'),),
    "an OpenAI dict": (
        {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"query":"Seattle"}'}},
    ),
    "an OpenAI object": (
        ChatCompletionMessageToolCall.model_validate({"id": "1", "type": "function", "function": _FUNCTION}),
    ),
    "a Responses object": (
        ResponseFunctionToolCall(call_id="1", type="function_call", name="find", arguments='{"query": "Seattle"}'),
    ),
    "a Responses dict": (
        {"type": "function_call", "call_id": "1", "name": "find", "arguments": '{"query":"Seattle"}'},
    ),
    "an Anthropic block": (
        ToolUseBlock(id="1", type="tool_use", name="find", input={"query": "Seattle"}, caller=None),
    ),
    "an Anthropic dict": ({"type": "tool_use", "id": "1", "name": "find", "input": {"query": "Seattle"}},),
    "null for what was left out": ("find", {"query": "Seattle", "limit": None}),
    "a number as text": ("find", {"query": "Seattle", "limit": "5"}),
    "a number as a float": ("find", '{"query": "Seattle", "limit": 5.0}'),
}


@pytest.mark.parametrize("how", CALLS)
def test_a_call_is_understood_in_every_shape(how: str) -> None:
    said = tools_of(talk()).call(*CALLS[how])
    assert said.startswith("[usr-1] I want to fly to Seattle")


class Hostile:
    """An object that raises for every operation."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def nested(depth: int) -> object:
    value: object = "deep"
    for _ in range(depth):
        value = [value]
    return value


GARBAGE: dict[str, tuple[Any, ...]] = {
    "nothing": (None,),
    "a number": (7,),
    "a list": (["find"],),
    "an unknown name": ("drop_tables", {}),
    "an empty name": ("", {}),
    "a surrogate for a name": ("\ud800", {}),
    "a very long name": ("x" * 1_000_000, {}),
    "no JSON": ("find", "{query: Seattle}"),
    "half of JSON": ("find", '{"query": "Sea'),
    "a JSON list": ("find", "[1, 2]"),
    "deep JSON": ("find", "[" * 100_000),
    "a huge number": ("find", '{"query": "a", "limit": ' + "9" * 5_000 + "}"),
    "not a number": ("find", {"query": "a", "limit": math.nan}),
    "without end": ("find", '{"query": "a", "limit": Infinity}'),
    "a negative number": ("read_page", {"page": "usr-1", "start": -1}),
    "a boolean for a number": ("read_page", {"page": "usr-1", "start": True}),
    "a list for text": ("find", {"query": ["a", "b"]}),
    "no query": ("find", {}),
    "an argument too many": ("find", {"query": "a", "where": "here"}),
    "keys that are no text": ("find", {1: 2}),
    "bad bytes": ("find", b"\xff\xfe{"),
    "surrogates": ("find", {"query": "\udc00\ud800"}),
    "surrogates to write": ("write_page", {"name": "\udc00", "text": "x"}),
    "surrogates in a text": ("write_page", {"name": "a", "text": "\udc00"}),
    "a control character": ("write_page", {"name": "a\x00b", "text": "x"}),
    "deep values": ("write_page", {"name": "a", "pages": nested(10_000)}),
    "a long page": ("expand_details", {"page": "u" * 1_000_000}),
    "no page": ("expand_details", {"page": "usr-999"}),
    "a look-alike": ("hide_details", {"page": "USR-1"}),
    "a page of the prompt": ("write_page", {"page": "sys-1", "name": "mine"}),
    "a page into itself": ("move_page", {"page": "mem-0", "folder": "mem-0"}),
    "a hostile object": (Hostile(),),
    "hostile arguments": ("find", Hostile()),
    "a function that is no call": ({"function": 5},),
    "a nameless call": (SimpleNamespace(function=SimpleNamespace(arguments="{}")),),
    "a window without apps": ("window", {"do": "create", "id": "todo"}),
    "a name that is not one line too long": ("write_page", {"name": "n" * 100_000, "text": ""}),
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.filterwarnings("ignore")
def test_whatever_a_model_sends_it_gets_a_short_answer_and_nothing_changes(what: str) -> None:
    ctx = talk()
    before = everything(ctx.pages)
    said = tools_of(ctx).call(*GARBAGE[what])
    assert 0 < len(said) <= LONGEST
    assert said.encode("utf-8")
    assert everything(ctx.pages) == before


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(["usr-0", "usr-1", "mem-0", "sys-1", "sys-0", "find", "create", "add", "permit"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(sorted({parameter.name for tool in TOOLS for parameter in tool.parameters}))
arguments = st.dictionaries(fields, values, max_size=6) | values


@given(
    st.sampled_from([tool.name for tool in TOOLS if hasattr(AgentContext, "budget") or tool.name != "budget"]),
    arguments,
)
@settings(max_examples=100, deadline=None)
def test_nothing_raises_out_of_a_call(name: str, sent: Any) -> None:
    ctx = talk()
    tools = tools_of(ctx, manage=True)
    before = ctx.seq
    said = tools.call(name, sent)
    assert said.encode("utf-8")
    kind = said.partition(":")[0]
    assert kind != "InternalError", said
    if kind in vars(quire.errors):
        assert ctx.seq == before
        assert len(said) <= LONGEST
    assert ctx.check() == []


@given(st.binary(max_size=200) | st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_arguments_that_are_no_json_are_told_so(sent: Any) -> None:
    said = tools_of(talk()).call("remove_page", sent)
    assert said.startswith("InvalidValue: ")


def test_a_failure_of_ours_is_told_without_its_entrails(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tools_of(talk())

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret path")

    monkeypatch.setattr(tools._context.agent, "get_page", fail)
    said = tools.call("read_page", {"page": "usr-1"})
    assert said == "InternalError: the tool failed (ZeroDivisionError). Try something else."


def test_a_call_that_meets_another_writer_is_tried_once_more() -> None:
    ctx = talk()
    other = quire.open(ctx.pages.storage, ctx.name)
    tools = tools_of(ctx)
    other.pages.create_detail_page("first", "", "", "mem-0")
    assert tools.call("write_page", {"name": "second", "text": "x"}) == "Wrote mem-2."


# Reading


def test_a_long_page_is_read_piece_by_piece() -> None:
    ctx = talk()
    text = "".join(f"line {number}\n" for number in range(10_000))
    page = ctx.pages.create_detail_page("long", "", text, "mem-0")
    tools, found, start = tools_of(ctx), "", 0
    while True:
        said = tools.call("read_page", {"page": page, "start": start, "length": 1 << 40})
        body, _, foot = said.rpartition("\n[characters ")
        piece = "".join(line.removeprefix(" ") for line in body.splitlines(keepends=True))  # an answer is indented
        assert len(piece) <= 20_000
        found += piece
        if "Go on with" not in foot:
            break
        start = int(foot.partition("start=")[2].removesuffix(".]"))
    assert found == text
    assert "nothing from" in tools.call("read_page", {"page": page, "start": 1 << 40})


def test_a_large_folder_and_the_table_of_contents_come_in_pieces() -> None:
    ctx = talk()
    for number in range(95):
        ctx.pages.create_detail_page(f"note {number}", "about", "", "mem-0")
    for arguments in ({"page": "mem-0"}, {}):
        names, start = [], 0
        tools = tools_of(ctx)
        while True:
            lines = tools.call("read_page", {**arguments, "start": start}).splitlines()
            more = lines.pop() if lines[-1].startswith("…") else ""
            assert len(lines) <= 40
            names += [line.strip() for line in lines]
            if not more:
                break
            start = int(more.partition("start=")[2].removesuffix("."))
        assert [name for name in names if "note" in name] == [
            f"[mem-{number + 1} 0] note {number}: about" for number in range(95)
        ]
        assert len(set(names)) == len(names)


@pytest.mark.broad
def test_a_table_of_contents_of_a_deep_tree_is_no_deep_call() -> None:
    ctx = talk()
    parent = "mem-0"
    for number in range(1_200):
        parent = ctx.pages.create_contents_page(f"level {number}", "", parent)
    lines = AgentContext(ctx.pages).view()
    assert lines[-3].strip() != ""
    assert any(line.endswith("level 1199") for line in lines)


def test_an_archived_folder_is_one_line_of_the_contents() -> None:
    ctx = talk()
    folder = ctx.pages.create_contents_page("old", "", "mem-0")
    ctx.pages.create_detail_page("inside", "", "", folder)
    ctx.pages.archive(folder)
    lines = AgentContext(ctx.pages).view()
    assert any(line.endswith("[mem-1 1 page archived] old") for line in lines)
    assert not any("inside" in line for line in lines)


def test_recall_says_whether_a_page_is_in_the_window() -> None:
    ctx = quire.open("memory:")
    folder = ctx.agent.create_contents_page("旅行", "", "mem-0", [])
    page = ctx.agent.create_detail_page("Seat", "", "A window seat.", folder)
    for put_away in (page, folder):
        ctx.tools.call("archive", {"page": put_away})
        assert ctx.tools.call("recall", {"page": page}) == (
            f"{page} is in its place but not in your window; expand_details opens it there."
        )
        ctx.tools.call("expand_details", {"page": page})
    ctx.tools.call("archive", {"page": folder, "cold": True})
    assert ctx.tools.call("recall", {"page": page}) == f"{page} is back in its place."
    assert ctx.pages.get_page(page).effective is quire.Lifecycle.ACTIVE


def test_notes_go_where_the_agent_may_write() -> None:
    ctx = talk()
    tools = tools_of(ctx)
    assert tools.call("write_page", {"name": "A", "text": "x"}) == "Wrote mem-1."
    ctx.pages.set_segment_permission("mem", Permission.READ_ONLY)
    assert "There is no segment for your notes" in tools.call("write_page", {"name": "A", "text": "x"})


@pytest.mark.parametrize(
    ("beside", "argument"),
    [
        (5, "beside"),
        ("xy", "beside"),
        ({"name": "x"}, "beside"),
        ([5], "beside[0]"),
        ([{"name": "x"}, {}], "beside[1]"),
    ],
)
@pytest.mark.parametrize("form", ["openai", "responses", "anthropic"])
def test_tools_beside_that_are_no_tools_are_named(form: str, beside: Any, argument: str) -> None:
    tools = quire.open("memory:").tools
    with pytest.raises(quire.InvalidValue) as error:
        getattr(tools, form)(beside)
    assert str(error.value).startswith(f"{argument} is ")
