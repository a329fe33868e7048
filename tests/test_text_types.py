"""Text of a subclass of `str` is text at every entrance, and deep nesting is `InvalidValue` at every entrance."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import ContextSystem


class Word(StrEnum):
    HELLO = "hello"


class Markup(str):
    """Like `markupsafe.Markup`: it overrides what a program does with a text."""

    def __str__(self) -> str:
        return "escaped"

    def __format__(self, form: str) -> str:
        return "escaped"

    def __add__(self, other: str) -> "Markup":
        return Markup(f"escaped{other}")


class Array(str):
    """Like `numpy.str_`: a subclass without any change."""


KINDS: list[Callable[[str], str]] = [Markup, Array, lambda text: Word(text) if text == "hello" else Markup(text)]
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


@pytest.mark.parametrize("kind", KINDS, ids=["Markup", "numpy", "StrEnum"])
@pytest.mark.parametrize("scheme", ["memory", "file", "sqlite"])
def test_a_subclass_of_str_is_text(kind: Callable[[str], str], scheme: str, tmp_path: Path) -> None:
    hello = kind("hello")
    place = "memory:" if scheme == "memory" else f"{scheme}:{tmp_path / 'store'}"
    ctx = quire.open(Markup(place), kind("hello"), key=hello, preamble=kind("hello"))
    ctx.system(hello)
    ctx.user(hello)
    ctx.assistant(hello)
    ctx.add({Markup("role"): Markup("user"), "content": hello, "name": hello})
    ctx.add({"role": "user", "content": [{"type": Markup("text"), "text": hello}]})
    ctx.add({"role": "assistant", "content": None, "tool_calls": [CALL]})
    ctx.tool_result(kind("c1"), {hello: hello})
    ctx.conversation.import_messages([{"role": "user", "content": hello}])
    ctx.conversation.compress([1, 2], hello)
    ctx.pages.add_segment(quire.Segment(id=Markup("seg"), name=hello, description=hello))
    ctx.pages.create_detail_page(hello, hello, hello, Markup("mem-0"), meta={hello: [hello]})
    ctx.pages.update_page(Markup("mem-1"), name=hello, description=hello, meta={"a": {hello: hello}})
    ctx.pages.set_detail(Markup("mem-1"), hello)
    ctx.pages.acting_as(kind("bot")).update_segment("seg", name=hello)
    ctx.checkpoint(hello)
    ctx.rollback(hello)
    assert not ctx.tools.answer(Markup("write_page"), {"name": hello, "text": hello}).failed
    assert ctx.find(hello)
    page = ctx.pages.load_page("mem-1")
    stored = (page.name, page.description, ctx.pages.detail("mem-1"), ctx.pages.get_segment("seg").name, ctx.name)
    assert {type(text) for text in stored} == {str}
    assert set(stored) == {"hello"}
    assert page.meta == {"a": {"hello": "hello"}}
    assert {type(message.content) for message in ctx.messages(all=True)} <= {str, list, type(None)}
    assert "escaped" not in str(ctx.render().openai())
    assert ctx.check() == []
    if scheme != "memory":
        ctx.close()
        assert list(quire.Library(place).list()) == ["hello"]


def nested(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


DEEP = nested(5_000)
DEEP_TEXT = "[" * 50_000 + "]" * 50_000
ENTRANCES: dict[str, Callable[[quire.Context], object]] = {
    "user": lambda ctx: ctx.user(DEEP),
    "assistant": lambda ctx: ctx.assistant(DEEP),
    "a field of a message": lambda ctx: ctx.add({"role": "user", "content": "x", "more": DEEP}),
    "arguments": lambda ctx: ctx.assistant(None, [{"id": "c", "name": "f", "arguments": DEEP}]),
    "input": lambda ctx: ctx.add(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"q": DEEP}}]}
    ),
    "tool_result": lambda ctx: ctx.tool_result("c1", {"a": DEEP}),
    "parts of a result": lambda ctx: ctx.tool_result("c1", [{"type": "text", "text": "x", "more": DEEP}]),
    "replace": lambda ctx: ctx.conversation.replace(0, DEEP),
    "modify": lambda ctx: ctx.conversation.modify([{"operation": "insert", "indices": [0], "data": DEEP}]),
    "meta": lambda ctx: ctx.pages.create_detail_page("a", "", "", "mem-0", meta={"a": DEEP}),
    "update": lambda ctx: ctx.pages.update_page("mem-0", meta={"a": DEEP}),
    "unmarshal": lambda ctx: ctx.pages.unmarshal(DEEP_TEXT),
    "tools of a view": lambda ctx: ctx.render(tools=[{"name": "f", "input_schema": DEEP}]),
    "count_tools": lambda _: quire.count_tools([{"name": "f", "input_schema": DEEP}]),
    "find": lambda ctx: ctx.find(DEEP),
    "name": lambda ctx: ctx.pages.create_detail_page(DEEP, "", "", "mem-0"),
    "context": lambda _: ContextSystem(quire.MemoryStorage(), DEEP),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_deep_nesting_is_an_invalid_value(entrance: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("hello")
    ctx.add({"role": "assistant", "content": None, "tool_calls": [CALL]})
    before = ctx.seq
    with pytest.raises(quire.InvalidValue):
        ENTRANCES[entrance](ctx)
    assert ctx.seq == before


def test_deep_nesting_in_the_arguments_of_a_tool_is_answered() -> None:
    ctx = quire.open("memory:")
    for given in (DEEP_TEXT, {"name": DEEP, "text": "x"}, f'{{"name": {DEEP_TEXT}}}'):
        answer = ctx.tools.answer("write_page", given)
        assert answer.failed
        assert answer.text.startswith("InvalidValue")
