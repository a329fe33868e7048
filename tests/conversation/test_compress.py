"""Compressing messages: a summary takes their place, and they can be restored."""

import re

import pytest

from quire import Context, DetailPage, InvalidOperation
from quire.conversation import Modification
from quire.model.pages import Form, Mark
from tests.books import refused
from tests.conversation.talks import indices, names, talk_of, texts, whole


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


def test_summaries_come_in_the_order_of_the_messages_whatever_their_folders() -> None:
    ctx = talk_of("a", "b", "c")
    ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1"])
    done = ctx.conversation.compress([0, 2])
    assert [ctx.pages.detail(summary) for summary in done.summaries] == ["User: a", "User: c"]


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


def test_a_summary_of_many_messages_tells_the_first_and_the_last_in_their_order() -> None:
    ctx = talk_of(*(f"Step{number} " + "and so on " * 12 for number in range(80)))
    (summary,) = ctx.conversation.compress(range(80)).summaries
    told = [int(number) for number in re.findall(r"Step(\d+)", ctx.pages.detail(summary))]
    assert told == sorted(told)
    assert (told[0], told[-1], len(told) < 80) == (0, 79, True)


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
    with refused(ctx.pages, InvalidOperation, repr(summary)):
        ctx.conversation.delete(1)
    ctx.pages.unpin(summary)
    ctx.conversation.delete(1)
    assert names(ctx) == []
