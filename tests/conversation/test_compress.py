"""Compressing messages: a summary takes their place, and they can be restored."""

import pytest

import quire
from quire import Context, DetailPage, InvalidOperation, InvalidValue
from quire.conversation import Modification
from quire.model.pages import Form, Mark
from tests.books import everything, refused
from tests.conversation.talks import (
    indices,
    names,
    new_talk,
    said,
    talk_of,
    texts,
    whole,
)


def summary_of(ctx: Context, done: Modification, number: int = 0) -> DetailPage:
    page = ctx.pages.get_page(done.summaries[number])
    assert isinstance(page, DetailPage)
    return page


def test_every_run_of_neighbours_leaves_a_summary_in_its_place() -> None:
    ctx = talk_of(*"abcdefg")
    done = ctx.conversation.compress([0, 1, 3, 5, 4])
    assert done.covered == (0, 1, 3, 4, 5)
    assert len(done.summaries) == 2
    assert names(ctx) == [done.summaries[0], "usr-3", done.summaries[1], "usr-7"]
    assert texts(ctx) == ["c", "g"]
    assert [summary_of(ctx, done, n).message_count for n in (0, 1)] == [2, 3]
    assert summary_of(ctx, done).form is Form.SUMMARY
    assert summary_of(ctx, done).name == "Summary of 2 messages"
    assert ctx.pages.detail(done.summaries[1]) == "User: d\nUser: e\nUser: f"
    assert ctx.check() == []


def test_messages_around_deleted_ones_are_one_run() -> None:
    ctx = talk_of(*"abc")
    ctx.conversation.delete(1)
    done = ctx.conversation.compress([0, 2])
    assert len(done.summaries) == 1
    assert ctx.pages.detail(done.summaries[0]) == "User: a\nUser: c"


def test_half_a_pair_is_compressed_whole_and_says_so() -> None:
    ctx = whole()
    done = ctx.conversation.compress([3])
    assert done.covered == (2, 3, 4)
    assert done.notes == ("A call and its results go together: messages 2, 4 too.",)
    assert "look_up" in ctx.pages.detail(done.summaries[0])
    assert indices(ctx) == [0, 1, 5, 6]


def test_a_given_summary_stands_as_it_is() -> None:
    ctx = talk_of("a", "b", "c")
    done = ctx.conversation.compress([0, 1], "They greeted.\nTwice.")
    assert ctx.pages.detail(done.summaries[0]) == "They greeted.\nTwice."
    assert summary_of(ctx, done).description == "They greeted. Twice."
    long = ctx.conversation.compress([2], "word " * 2_000)
    assert ctx.pages.detail(long.summaries[0]) == "word " * 2_000
    assert len(summary_of(ctx, long).description) <= 2_000


def test_one_summary_cannot_stand_for_two_runs() -> None:
    ctx = talk_of("a", "b", "c")
    with refused(ctx.pages, InvalidValue, "2 separate runs"):
        ctx.conversation.compress([0, 2], "both")


ENGLISH = (
    "I want to fly from JFK to Seattle on 2024-05-20. My budget is 1,250 dollars. "
    + "It was a long day and nothing much happened that anyone would care to hear about. " * 12
    + "See https://example.com/trip?id=7 and /var/log/app/error.log for the TimeoutError of reservation HAT136."
)
CHINESE = (
    "我想在2024-05-20从北京飞往西雅图。预算是8,500元。"
    + "今天天气很好，没有发生什么值得一提的事情，大家都在家里休息。" * 20
    + "请看 https://example.com/trip?id=7 和 /var/log/app/error.log，订单 HAT136 报了 TimeoutError。"
)


@pytest.mark.parametrize(
    ("text", "first", "facts"),
    [
        (ENGLISH, "User: I want to fly from JFK to Seattle on 2024-05-20.", ["1,250"]),
        (CHINESE, "User: 我想在2024-05-20从北京飞往西雅图。", ["8,500"]),
    ],
    ids=["english", "chinese"],
)
def test_a_summary_is_extracted_from_what_was_said(text: str, first: str, facts: list[str]) -> None:
    ctx = talk_of(text, "ok")
    done = ctx.conversation.compress([0, 1])
    detail = ctx.pages.detail(done.summaries[0])
    assert detail.startswith(first)
    assert len(detail) < len(text) / 2
    for fact in (*facts, "2024-05-20", "HAT136", "TimeoutError", "https://example.com/trip?id=7", "log/app/error.log"):
        assert fact in detail
    page = summary_of(ctx, done)
    assert page.description.startswith(first[:60])
    assert "\n" not in page.description
    assert [hit.index for hit in ctx.find("HAT136")] == [page.index, "usr-1"]


def test_a_long_run_makes_a_short_summary() -> None:
    ctx = new_talk()
    ctx.add([said("user", f"Message number {n} says: {ENGLISH}") for n in range(200)])
    done = ctx.conversation.compress(range(200))
    detail = ctx.pages.detail(done.summaries[0])
    assert len(detail) < 6_000
    assert "Message number 0 says" in detail
    assert "Message number 199 says" in detail
    assert len(summary_of(ctx, done).description) <= 500


@pytest.mark.parametrize("content", ["", " \n", "\x00\x1b[31m", "😀" * 500, "a\u2028b", "x" * 5_000])
def test_any_text_can_be_compressed(content: str) -> None:
    ctx = talk_of(content)
    done = ctx.conversation.compress(0)
    assert summary_of(ctx, done).description.isprintable()
    assert ctx.check() == []


def test_a_summary_is_made_anew_when_a_message_behind_it_is_deleted() -> None:
    ctx = talk_of("alpha", "beta", "gamma")
    done = ctx.conversation.compress([0, 1, 2], "a secret: beta")
    (summary,) = done.summaries
    assert ctx.conversation.delete(1).covered == (1,)
    assert ctx.pages.detail(summary) == "User: alpha\nUser: gamma"
    assert summary_of(ctx, done).name == "Summary of 2 messages"
    assert ctx.find("beta") == []
    ctx.conversation.delete(0)
    assert ctx.pages.detail(summary) == "User: gamma"
    ctx.conversation.delete(2)
    assert names(ctx) == []
    assert [ctx.conversation.mark_of(index) for index in range(3)] == [Mark.DELETED] * 3
    ctx.undo(ctx.seq)
    assert (names(ctx), ctx.pages.detail(summary)) == ([summary], "User: gamma")
    assert ctx.check() == []


def test_a_pinned_summary_goes_only_when_it_is_unpinned() -> None:
    ctx = talk_of("a", "b")
    (summary,) = ctx.conversation.compress([0, 1]).summaries
    ctx.pages.pin(summary)
    ctx.conversation.delete(0)
    with refused(ctx.pages, InvalidOperation, repr(summary), "unpin"):
        ctx.conversation.delete(1)
    ctx.pages.unpin(summary)
    ctx.conversation.delete(1)
    assert names(ctx) == []


@pytest.mark.parametrize("meanwhile", ["inserted between", "summary moved", "summary in a folder", "summary archived"])
def test_a_summary_knows_its_originals_whatever_came_between(meanwhile: str) -> None:
    ctx = talk_of("alpha", "beta", "gamma", "delta")
    (summary,) = ctx.conversation.compress([0, 1, 2]).summaries
    match meanwhile:
        case "inserted between":
            ctx.conversation.insert(said("user", "new"), at=1)
        case "summary moved":
            ctx.pages.move_page(summary, "usr-0")
        case "summary in a folder":
            ctx.pages.create_contents_page("chapter", "", "usr-0", [summary])
        case _:
            ctx.pages.archive(summary, cold=True)
    ctx.conversation.delete(0)
    assert ctx.pages.detail(summary) == "User: beta\nUser: gamma"
    ctx.conversation.delete([1, 2])
    assert summary not in [page.index for page in ctx.pages.list_pages("usr")]
    assert ctx.check() == []


def test_compressing_again_is_said_and_not_done_twice() -> None:
    ctx = talk_of("a", "b")
    ctx.conversation.compress([0, 1])
    before = everything(ctx.pages)
    done = ctx.conversation.compress([0])
    assert (done.covered, done.summaries, done.notes) == ((), (), ("Out of the conversation already: message 0.",))
    assert everything(ctx.pages) == before


def test_undoing_a_compression_brings_the_messages_back_to_their_places() -> None:
    ctx = talk_of("a", "b", "c", "d")
    before = list(ctx.messages())
    ctx.conversation.compress([1, 2])
    ctx.undo(ctx.seq)
    assert ctx.messages() == before
    assert ctx.check() == []


def test_the_summary_of_short_messages_is_much_shorter_and_keeps_their_facts() -> None:
    ctx = quire.open("memory:", budget=9_000)
    for n in range(10):
        ctx.user(f"Please book flight HAT{n} on 2024-05-{n + 1:02}. " + "I like a quiet seat. " * 5)
        ctx.assistant(f"Booked HAT{n}: confirmation Q{n:04}. " + "Anything else? " * 5)
    before = ctx.render().tokens
    summary = ctx.conversation.compress(range(18)).summaries[0]
    assert ctx.render().tokens < 0.6 * before
    text = ctx.pages.detail(summary)
    assert all(f"HAT{n}" in text for n in range(9))
    assert ctx.find("Q0004")
