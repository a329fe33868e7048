"""The context as a list of items."""

import pytest

import quire
from quire import InvalidValue, ToolCall


def test_items_are_listed_by_seq_with_their_types() -> None:
    ctx = quire.open("memory:")
    ctx.system("You are careful.")
    ctx.user("Hello")
    ctx.assistant("Let me see.", tool_calls=[ToolCall("c", "look")])
    ctx.tool_result("c", "Nothing there.")
    ctx.conversation.insert({"role": "user", "content": "Before that"}, at=1)
    found = [(item.type, item.content, item.obsolete) for item in ctx.items()]
    assert found == [
        ("System", "You are careful.", False),
        ("User", "Hello", False),
        ("Assistant", "Let me see.", False),
        ("User", "Before that", False),
    ]
    assert [item.seq for item in ctx.items()] == sorted(item.seq for item in ctx.items())


def test_the_id_of_an_item_is_the_index_of_its_page() -> None:
    ctx = quire.open("memory:")
    ctx.system("You are careful.")
    ctx.user("Hello")
    ctx.conversation.compress(1)
    assert [item.id for item in ctx.items()] == ["sys-1", "usr-1", "usr-2"]
    for item in ctx.items():
        assert ctx.pages.get_page(item.id).created_seq == item.seq


def test_what_an_edit_took_out_is_obsolete() -> None:
    ctx = quire.open("memory:")
    ctx.user("Hello")
    ctx.user("Again")
    ctx.conversation.delete(0)
    assert [item.obsolete for item in ctx.items()] == [True, False]
    assert [item.content for item in ctx.items(active=True)] == ["Again"]
    ctx.conversation.compress(1)
    assert [(item.type, item.content) for item in ctx.items(active=True)] == [("Summary", "User: Again")]


def test_only_true_or_false_say_which_items() -> None:
    with pytest.raises(InvalidValue):
        quire.open("memory:").items("yes")  # type: ignore[arg-type]
