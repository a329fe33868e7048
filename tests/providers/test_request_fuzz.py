"""Random conversations: every form of a view is legal, and a message's form never depends on later messages."""

from typing import Any

import pytest
from hypothesis import strategies as st

import quire
from quire import check_legal
from tests.providers.test_properties import HISTORIES, Value, check_always, histories
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


def test_every_form_of_any_conversation_is_legal(request: pytest.FixtureRequest) -> None:
    values = st.tuples(histories.map(lambda case: case[1]) | odd | mixed | broken, st.booleans())
    check_always(check_forms, values, usual=5, long=request.config.getoption("--long"))


def check_forms(case: tuple[list[Value], bool]) -> None:
    history, asked = case
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


def test_the_strict_provider_accepts_every_form(request: pytest.FixtureRequest) -> None:
    check_always(check_strictly, odd | broken, usual=5, long=request.config.getoption("--long"))


def check_strictly(history: list[Value]) -> None:
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
