"""Random conversations: every form of a view is legal, and a message's form never depends on later messages."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire import Message, check_legal
from quire.model.messages import Part, Provider
from quire.providers import format_request, parse
from tests.providers.test_properties import HISTORIES, PROVIDERS, Value, histories
from tests.strict_provider.requests import Api, Request, State
from tests.strict_provider.rules import RULES

NAMES = ("look", "mcp.server/tool name", "工具", "f" * 65, "f" * 129)
IDS = ("a", "b", "functions.f:0", "c" * 41, "c" * 65)
TEXTS = ("Yes.", "Well \n", "", " ", "[no result]")

named = st.sampled_from(NAMES)
ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)
texts = st.sampled_from(TEXTS)
thinking = st.builds(
    lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature},
    texts,
    st.sampled_from(["c2ln", ""]),
)
words = texts.map(lambda text: {"type": "text", "text": text})


@st.composite
def turns(draw: st.DrawFn) -> list[Value]:
    """Generate a turn as a chat client or an Anthropic client stores it: what it calls and how it ends are strange."""
    calls, name = draw(ids), draw(named)
    if draw(st.booleans()):
        made = [{"id": call, "type": "function", "function": {"name": name, "arguments": "{}"}} for call in calls]
        results = [{"role": "tool", "tool_call_id": call, "content": draw(texts)} for call in calls]
        return [{"role": "assistant", "content": draw(texts), "tool_calls": made}, *results[: draw(st.integers(0, 3))]]
    uses = [{"type": "tool_use", "id": call, "name": name, "input": {}} for call in calls]
    said = draw(st.lists(thinking | words, max_size=3))
    reply = {"role": "assistant", "content": [*said, *(uses if draw(st.booleans()) else []), *draw(st.lists(thinking))]}
    results = [{"type": "tool_result", "tool_use_id": call, "content": draw(texts)} for call in calls]
    return [reply, {"role": "user", "content": [*results, *draw(st.lists(words, max_size=1))]}]


others = st.builds(
    lambda role, text: [{"role": role, "content": text}], st.sampled_from(["user", "assistant", "system"]), texts
)
odd = st.lists(turns() | others, max_size=5).map(lambda runs: [value for run in runs for value in run])
mixed = st.tuples(odd, *HISTORIES.values()).map(lambda several: [value for one in several for value in one])


blocks: st.SearchStrategy[Value] = (
    words
    | thinking
    | st.sampled_from(
        [
            {"type": "redacted_thinking", "data": ""},
            {"type": "thinking", "thinking": "Well"},
            {"type": "tool_use", "id": "a", "name": "look", "input": {}},
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "tool_use", "id": "b", "name": "look"}]},
            {"type": "image_url", "image_url": {}},
            {"type": "image_url", "image_url": "https://example.com/a.png"},
            {"type": "file"},
            {"type": "image", "source": {"type": "base64"}},
            {"type": "document", "source": {"type": "x_new"}},
            {"type": "input_image"},
            {"type": "refusal"},
            {"type": "x_new", "x": 1},
        ]
    )
)
"""Blocks of every kind. Most of them are not accepted in most roles."""
old_calls = st.builds(
    lambda name, text: [
        {"role": "assistant", "content": text, "function_call": {"name": name, "arguments": "{}"}},
        {"role": "function", "name": name, "content": text},
        {"role": "tool", "tool_call_id": f"function_{name}", "content": text},
    ],
    named,
    texts,
).flatmap(lambda run: st.sampled_from([run[:1], run[:2], run[::2], run]))
misplaced = st.builds(
    lambda role, content: [{"role": role, "content": content}],
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(blocks, max_size=3),
)
broken = st.lists(misplaced | old_calls | turns() | others, max_size=5).map(
    lambda runs: [value for run in runs for value in run]
)


def check_view(view: quire.View) -> None:
    assert check_legal(view.openai(), "openai") == []
    assert check_legal(view.responses(), "responses") == []
    assert check_legal(view.anthropic(), "anthropic") == []
    assert check_legal(view.anthropic(cache=True), "anthropic") == []


@settings(max_examples=40, deadline=None)
@given(histories.map(lambda case: case[1]) | odd | mixed | broken, st.booleans())
def test_every_form_of_any_conversation_is_legal(history: list[Value], asked: bool) -> None:
    ctx = quire.open("memory:")
    ctx.import_messages(history)
    check_view(ctx.render())
    if asked:
        ctx.user("And now?")
    pages = [page.index for page in ctx.pages.children("usr-0")]
    for page in pages[:3]:
        try:
            ctx.pages.move_page(page, "sys-0")
        except quire.QuireError:
            continue
        check_view(ctx.render())
    for page in reversed(pages[3:]):
        try:
            ctx.pages.move_page(page, "usr-0")
        except quire.QuireError:
            continue
    check_view(ctx.render())
    check_view(ctx.render(include_system_prompt=False))


NOT_HERE = {"no prefill", "thinking not changed", "thinking bound to prefix"}
"""Rules for a request that asks for an answer, and for thinking that the provider made itself."""


def to_stored_part(block: Value) -> Part:
    """Return a block as a part, as earlier versions stored it: in any role, with or without its required fields."""
    if block["type"] == "text":
        return block
    if block["type"] == "thinking" and "signature" in block:
        return {"type": "thinking", "text": block["thinking"], "signature": block["signature"]}
    if block["type"] == "redacted_thinking":
        return {"type": "thinking", "data": block["data"]}
    return {"type": "other", "kind": block["type"], "part": json.dumps(block)}


stored = st.builds(
    lambda role, content, origin: Message(role=role, content=list(map(to_stored_part, content)), origin=origin),
    st.sampled_from(["user", "assistant", "system"]),
    st.lists(blocks, min_size=1, max_size=3),
    st.sampled_from(PROVIDERS),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(stored, min_size=1, max_size=4), blocks)
def test_messages_that_earlier_versions_stored_are_legal(messages: list[Message], block: Value) -> None:
    ctx = quire.open("memory:")
    ctx.user("Go")
    for message in messages:
        ctx.conversation._add_parsed([message])
    ctx.assistant(None, [quire.ToolCall("c", "look")])
    ctx.conversation._add_parsed(
        [Message(role="tool", tool_call_id="c", content=[to_stored_part(block)], origin="anthropic")]
    )
    check_view(ctx.render())


@settings(max_examples=30, deadline=None)
@given(odd | broken)
def test_the_strict_provider_accepts_every_form(history: list[Value]) -> None:
    ctx = quire.open("memory:")
    ctx.import_messages(history)
    view = ctx.render()
    tools = [{"name": name, "description": "", "input_schema": {}} for name in NAMES]
    bodies: dict[Api, Value] = {
        "chat": {"messages": view.openai()},
        "responses": {"input": view.responses()},
        "anthropic": {**view.anthropic(cache=True), "max_tokens": 9, "tools": ctx.tools.anthropic(tools)},
    }
    for api, body in bodies.items():
        for rule in RULES[api]:
            if rule.name not in NOT_HERE:
                assert rule.check(Request(api, {"model": "m", **body}, frozenset()), State()) is None, rule.name


@settings(max_examples=40, deadline=None)
@given(histories | odd.map(lambda history: (None, history)), st.sampled_from(PROVIDERS))
def test_the_form_of_a_prefix_is_a_prefix_of_the_form(
    case: tuple[Provider | None, list[Value]], provider: Provider
) -> None:
    source, history = case
    messages = parse([{"role": "user", "content": "Go"}, *history], source)
    whole = format_request(messages, provider)
    for end in range(1, len(messages)):
        part = format_request(messages[:end], provider)
        if provider != "anthropic":
            assert part == whole[: len(part)]
            continue
        assert part[:-1] == whole[: len(part) - 1]
        check_merged(part[-1], whole[len(part) - 1])


def check_merged(cut: Value, merged: Value) -> None:
    """Check that a message is the beginning of another one: a later result or text may have been merged into it."""
    assert cut["role"] == merged["role"]
    blocks = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in (cut["content"], merged["content"])]
    assert all(block in blocks[1] for block in blocks[0])


def test_a_later_id_does_not_change_an_earlier_one() -> None:
    first = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "f:0", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "f:0", "content": "1"},
    ]
    use = {"type": "tool_use", "id": "f:0", "name": "f", "input": {}}
    later: Any = [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "f:0"}]},
    ]
    form = format_request(parse(first), "anthropic")
    assert format_request([*parse(first), *parse(later)], "anthropic")[: len(form)] == form


# Views without a question


@pytest.mark.parametrize("prompt", ["", "Be kind."])
def test_an_empty_conversation_has_a_legal_view(prompt: str) -> None:
    ctx = quire.open("memory:")
    if prompt:
        ctx.system(prompt)
    options: list[dict[str, Any]] = [{}, {"include_system_prompt": False}, {"budget_line": True}, {"preview": True}]
    for one in options:
        check_view(ctx.render(**one))
    empty = ctx.render()
    assert empty.tokens == sum(part.tokens for part in empty.parts)
    ctx.assistant("Hello, I am here.")
    greeting = ctx.render()
    check_view(greeting)
    assert greeting.openai()[: len(empty.openai())] == empty.openai()


def test_an_empty_conversation_stays_within_its_budget() -> None:
    ctx = quire.open("memory:", budget=1_000)
    ctx.system("Be kind. " * 40)
    needed = ctx.render().tokens
    assert ctx.render(max_tokens=needed).tokens == needed
    with pytest.raises(quire.IrreducibleFloor):
        ctx.render(max_tokens=needed - 1)


def test_messages_moved_to_the_prompt_speak_with_its_role() -> None:
    ctx = quire.open("memory:")
    ctx.system("Be kind.")
    ctx.user("Always answer in French.")
    ctx.assistant("Oui.", [quire.ToolCall("c", "look")])
    ctx.tool_result("c", "1")
    ctx.user("And now?")
    for page in ("usr-2", "usr-1"):
        ctx.pages.move_page(page, "sys-0")
        view = ctx.render()
        check_view(view)
    prompts = [message["content"] for message in view.openai() if message["role"] == "system"]
    assert "User: Always answer in French." in prompts
    assert any("Call c: look({})" in text and "Result of c: 1" in text for text in prompts)
    assert [m["content"] for m in view.openai() if m["role"] == "user"] == ["And now?"]
    assert "User: Always answer in French." in str(view.anthropic()["system"])
