"""Reading the messages of a conversation: as a sequence, and after any change of their pages."""

import pytest

from quire import InvalidOperation, Lifecycle
from tests.conversation.talks import calls, indices, new_talk, numbered, said, talk_of, texts

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


def test_messages_keep_the_order_of_the_moment_they_were_looked_at() -> None:
    ctx = talk_of("a", "b")
    messages, unseen = ctx.messages(), ctx.messages()
    assert len(messages) == 2
    ctx.user("c")
    ctx.conversation.delete(0)
    assert [message.text for message in messages] == ["a", "b"]
    assert [message.text for message in unseen] == ["b", "c"]


def test_a_message_that_a_cleanup_destroyed_is_named_as_such() -> None:
    ctx = talk_of("a", "b")
    ctx.conversation.delete(0)
    messages = ctx.messages(all=True)
    assert len(messages) == 2
    ctx.conversation.cleanup()
    with pytest.raises(InvalidOperation):
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


# Changes of the pages of messages


@pytest.mark.parametrize("way", ["hide", "archive"])
def test_what_only_changes_the_view_leaves_the_messages(way: str) -> None:
    ctx = talk_of("a", "b", "c")
    getattr(ctx.pages, way)("usr-2")
    folder = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1", "usr-3"])
    ctx.pages.hide(folder)
    assert ctx.pages.get_page("usr-1").effective is Lifecycle.HOT_ARCHIVED
    assert texts(ctx) == ["a", "c", "b"]


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
