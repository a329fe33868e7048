"""Tokens of tool schemas."""

from typing import Any

import pytest

import quire
from quire import InvalidValue

PARAMETERS = {"type": "object", "properties": {"城市": {"type": "string", "description": "哪个城市"}}}
CHAT = {"type": "function", "function": {"name": "weather", "description": "天气预报", "parameters": PARAMETERS}}
ANTHROPIC = {"name": "weather", "description": "天气预报", "input_schema": PARAMETERS}


def test_every_shape_costs_about_the_same() -> None:
    responses = {"type": "function", **CHAT["function"]}  # type: ignore[dict-item]
    sizes = [quire.count_tools([tool]) for tool in (CHAT, ANTHROPIC, responses)]
    assert max(sizes) - min(sizes) < 8
    assert min(sizes) > 30


@pytest.mark.parametrize("bad", [None, 5, "tools", CHAT, [5], [{}], [{"description": "x"}], [None]])
def test_what_is_no_tool_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        quire.count_tools(bad)


def test_the_room_for_tools_is_kept_free() -> None:
    ctx = quire.open("memory:", budget=1_000)
    for turn in range(40):
        ctx.user(f"{turn} " + "word " * 30)
    tools = quire.count_tools([CHAT] * 5)
    assert ctx.render(reserve=tools).tokens + tools <= 1_000


_PARAMETERS = {"type": "object", "properties": {"flight": {"type": "string"}}}
_SHAPES: dict[str, dict[str, object]] = {
    "openai": {"type": "function", "function": {"name": "book", "description": "Book.", "parameters": _PARAMETERS}},
    "responses": {"type": "function", "name": "book", "description": "Book.", "parameters": _PARAMETERS},
    "anthropic": {"name": "book", "description": "Book.", "input_schema": _PARAMETERS},
}


@pytest.mark.parametrize("given", _SHAPES)
@pytest.mark.parametrize("wanted", _SHAPES)
def test_own_tools_are_listed_in_the_shape_of_the_provider(given: str, wanted: str) -> None:
    with quire.open("memory:") as ctx:
        assert getattr(ctx.tools, wanted)([_SHAPES[given]])[-1] == _SHAPES[wanted]


def test_a_tool_without_parameters_is_legal_and_other_tools_stay_or_are_refused() -> None:
    with quire.open("memory:") as ctx:
        bare = {"type": "function", "function": {"name": "ping"}}
        assert ctx.tools.anthropic([bare])[-1] == {
            "name": "ping",
            "input_schema": {"type": "object", "properties": {}},
        }
        hosted = {"type": "web_search_20250305", "name": "web_search"}
        assert ctx.tools.anthropic([hosted])[-1] is hosted
        with pytest.raises(quire.InvalidValue):
            ctx.tools.anthropic([{"type": "custom", "custom": {"name": "shell"}}])


@pytest.mark.parametrize("tools", [5, "find", {"name": "find"}])
def test_a_view_refuses_tools_that_are_not_a_list(tools: Any) -> None:
    with pytest.raises(quire.InvalidValue):
        quire.open("memory:").render(tools=tools)
