"""A misspelt option of an adapter is an error at once, which names it and the accepted options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

import quire
from quire.adapters import anthropic, openai
from quire.adapters.langchain import QuireChatMessageHistory, QuireMiddleware
from quire.adapters.langgraph import QuireStore
from quire.adapters.openai_agents import QuireSession
from quire.adapters.pydantic_ai import QuireCapability

OPENED: dict[str, Callable[..., Any]] = {
    "langchain middleware": QuireMiddleware,
    "langchain history": lambda where, **options: QuireChatMessageHistory("s", where, **options),
    "langgraph": QuireStore,
    "openai-agents": lambda where, **options: QuireSession("s", where, **options),
    "pydantic-ai": QuireCapability,
    "library": lambda where, **options: quire.Library(where).open("s", **options),
}


@pytest.mark.parametrize("adapter", OPENED)
def test_an_option_that_there_is_not_is_named_with_those_there_are(adapter: str, tmp_path: Path) -> None:
    for where in (quire.MemoryStorage(), tmp_path / "new.db"):
        with pytest.raises(TypeError, match=r"'bugdet'.*budget, counter, "):
            OPENED[adapter](where, bugdet=8_000)


def test_an_option_of_render_that_there_is_not_is_told_before_the_turn() -> None:
    with pytest.raises(quire.InvalidValue, match=r"'recal'.*recall"):
        openai.TurnOptions(render={"recal": True})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize(
    ("more", "instead"),
    [
        ({"stream": True}, r"stream\("),
        ({"messages": []}, r"ctx\.user\("),
        ({"system": "Be brief."}, r"ctx\.system\("),
        ({"input": "你好"}, r"ctx\.user\("),
    ],
)
def test_what_a_turn_says_itself_is_refused_by_name(more: dict[str, Any], instead: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("Hello?")
    asked: dict[str, Any] = {"model": "m", **more}
    ours, theirs = OpenAI(api_key="none"), Anthropic(api_key="none")
    told = rf"^{next(iter(more))} .*{instead}"
    for ask in (openai.complete, openai.respond, lambda *args, **more: list(openai.stream(*args, **more))):
        with pytest.raises(quire.InvalidValue, match=told):
            ask(ours, ctx, **asked)
    with pytest.raises(quire.InvalidValue, match=told):
        anthropic.complete(theirs, ctx, **asked)


def test_a_namespace_that_is_a_text_is_refused() -> None:
    store = QuireStore(quire.MemoryStorage())
    for call in (
        lambda: store.put("users", "a", {"x": 1}),  # type: ignore[arg-type]
        lambda: store.get("users", "a"),  # type: ignore[arg-type]
        lambda: store.search("users"),  # type: ignore[arg-type]
        lambda: store.delete("users", "a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(quire.InvalidValue, match=r"namespace is 'users'; a tuple is needed, such as \('users',\)"):
            call()
    assert store.list_namespaces() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("requests", "x"),
        ("requests", 0),
        ("requests", True),
        ("wait", "x"),
        ("wait", -1),
        ("tools", "find"),
        ("render", 5),
        ("render", {"reserve": "x"}),
    ],
)
def test_a_wrong_option_of_a_turn_is_told_before_the_turn(field: str, value: Any) -> None:
    with pytest.raises(quire.InvalidValue) as error:
        openai.TurnOptions(**{field: value})
    assert error.value.argument in (field, "reserve")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"options": {"a": 1}}, r"^options is \{'a': 1\}; TurnOptions"),
        ({"options": ()}, r"^options is \(\); TurnOptions"),
        ({"tools": 5}, "^tools is 5; a list"),
        ({"tools": "xy"}, "^tools is 'xy'; a list"),
        ({"tools": [5]}, r"^tools\[0\] is 5; "),
        ({"tools": [test_what_a_turn_says_itself_is_refused_by_name, {}]}, r"^tools\[1\] is \{\}; "),
    ],
)
def test_a_wrong_argument_of_a_turn_is_named_as_it_was_given(given: dict[str, Any], told: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("Hello?")
    with pytest.raises(quire.InvalidValue, match=told):
        openai.complete(OpenAI(api_key="none"), ctx, model="m", **given)
    with pytest.raises(quire.InvalidValue, match=told):
        anthropic.complete(Anthropic(api_key="none"), ctx, model="m", max_tokens=10, **given)
