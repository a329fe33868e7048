"""Reading the messages of a conversation: as a sequence, and after any change of their pages."""

from typing import Any

import pytest

from quire import InvalidOperation, Lifecycle, MemoryStorage, QuireError, ToolCall
from quire.model.pages import Mark
from quire.providers import format_messages
from tests.books import refused
from tests.conversation.talks import (
    calls,
    exchange,
    indices,
    new_talk,
    numbered,
    said,
    talk_of,
    texts,
)
from tests.providers.histories import ANTHROPIC

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


# Changes of the pages of messages


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
