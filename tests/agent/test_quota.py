"""Quotas of an agent, and the authors of pages."""

from typing import Any

import pytest

from quire import AgentContext, Context, InvalidValue, QuireError, Quota, QuotaExceeded, Tools
from tests.books import everything
from tests.talks import new_talk


def agent_with(ctx: Context, **quota: int) -> AgentContext:
    return ctx.as_agent(quota=Quota(**quota))


def test_pages_are_bounded_for_good() -> None:
    ctx = new_talk()
    agent = agent_with(ctx, pages=3)
    agent.create_detail_page("one", "", "", "mem-0")
    folder = agent.create_contents_page("two", "", "mem-0", ["mem-1"])
    last = agent.create_detail_page("three", "", "", folder)
    agent.remove_page(last)
    before = everything(ctx.pages)
    with pytest.raises(QuotaExceeded):
        agent.create_detail_page("four", "", "", "mem-0")
    assert everything(ctx.pages) == before
    again = agent_with(ctx, pages=4)  # the developer raises the limit
    again.create_detail_page("four", "", "", "mem-0")


def test_bytes_are_those_of_texts_names_and_summaries() -> None:
    ctx = new_talk()
    agent = agent_with(ctx, bytes=100)
    agent.create_detail_page("name", "about", "文" * 20, "mem-0")  # 4 + 5 + 60
    agent.update_page("mem-1", description="x" * 20)
    agent.update_page("mem-1", description="x" * 20)  # nothing new
    with pytest.raises(QuotaExceeded):
        agent.set_detail("mem-1", "x" * 12)
    with pytest.raises(QuotaExceeded):
        agent.update_page("mem-1", name="y" * 12)
    agent.set_detail("mem-1", "x" * 11)


def test_moving_hiding_and_archiving_add_nothing() -> None:
    ctx = new_talk()
    ctx.pages.create_detail_page("theirs", "", "text", "mem-0")
    agent = agent_with(ctx, pages=0, bytes=0)
    agent.hide_details("mem-1")
    agent.expand_details("mem-1")
    agent.move_page("mem-1", "win-0")
    agent.archive("win-1", cold=True)
    agent.recall("win-1")
    agent.remove_page("win-1")
    with pytest.raises(QuotaExceeded):
        agent.create_contents_page("mine", "", "mem-0")


def test_depth_is_bounded_by_every_way() -> None:
    ctx = new_talk()
    agent = agent_with(ctx, depth=2)
    outer = agent.create_contents_page("outer", "", "mem-0")
    inner = agent.create_contents_page("inner", "", outer)
    with pytest.raises(QuotaExceeded):
        agent.create_detail_page("deep", "", "", inner)
    other = agent.create_contents_page("other", "", "mem-0")
    agent.create_detail_page("leaf", "", "", other)
    with pytest.raises(QuotaExceeded):
        agent.move_page(other, outer)
    with pytest.raises(QuotaExceeded):
        agent.create_contents_page("around", "", "mem-0", [outer])
    assert ctx.check() == []


def test_a_step_back_gives_no_quota_back() -> None:
    ctx = new_talk()
    agent = agent_with(ctx, pages=1)
    agent.create_detail_page("one", "", "", "mem-0")
    ctx.undo(ctx.seq)
    with pytest.raises(QuotaExceeded):
        agent.create_detail_page("two", "", "", "mem-0")


def test_every_agent_has_its_own_quota_and_it_survives_the_handle() -> None:
    ctx = new_talk()
    ctx.as_agent("one", quota=Quota(pages=1)).create_detail_page("a", "", "", "mem-0")
    ctx.as_agent("two", quota=Quota(pages=1)).create_detail_page("b", "", "", "mem-0")
    again = new_talk(ctx.pages.storage, ctx.name)
    with pytest.raises(QuotaExceeded):
        again.as_agent("one", quota=Quota(pages=1)).create_detail_page("c", "", "", "mem-0")
    with pytest.raises(QuotaExceeded):
        ctx.fork("other").as_agent("two", quota=Quota(pages=1)).create_detail_page("c", "", "", "mem-0")


@pytest.mark.parametrize("wrong", [5, Quota(pages=-1), Quota(calls=True), Quota(bytes=1.5)])  # type: ignore[arg-type]
def test_a_quota_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        new_talk().as_agent(quota=wrong)


# Calls in a turn


def calls_left(tools: Tools) -> int:
    """Return how many calls succeed until the limit."""
    for number in range(1_000):
        if tools.call("read_page", {"page": "usr-1"}).startswith("QuotaExceeded"):
            return number
    raise AssertionError("no limit")


def limited(ctx: Context, calls: int = 3) -> Tools:
    return ctx.tools_of(ctx.as_agent(quota=Quota(calls=calls), remove_user_messages=True))


def test_calls_are_bounded_until_the_user_speaks_again() -> None:
    ctx = new_talk()
    ctx.user("one")
    tools = limited(ctx)
    assert calls_left(tools) == 3
    ctx.assistant("still working")
    assert calls_left(tools) == 0
    ctx.user("two")
    assert calls_left(tools) == 3
    said = tools.call("read_page", {"page": "usr-1"})
    assert said == "QuotaExceeded: The limit is 3 tool calls in one turn. Answer the user with what you have."


def test_calls_that_fail_count_too() -> None:
    ctx = new_talk()
    ctx.user("one")
    tools = limited(ctx)
    for _ in range(3):
        assert tools.call("read_page", {"page": 5}).startswith("InvalidValue")
    assert calls_left(tools) == 0


def test_narrowed_and_renamed_tools_share_one_count() -> None:
    ctx = new_talk()
    ctx.user("one")
    tools = limited(ctx)
    tools.only("read_page").call("read_page", {"page": "usr-1"})
    tools.prefixed("a_").only("a_read_page").call("a_read_page", {"page": "usr-1"})
    assert calls_left(tools) == 1


def test_no_call_begins_a_new_turn() -> None:
    """Removing, grouping or archiving the user's messages does not make them new."""
    ctx = new_talk()
    for number in range(3):
        ctx.user(f"question {number}")
    tools = limited(ctx, calls=4)
    tools.call("remove_page", {"page": "usr-3"})
    tools.call("write_page", {"name": "gathered", "folder": "usr-0", "pages": ["usr-2"]})
    tools.call("archive", {"page": "usr-1", "cold": True})
    assert calls_left(tools) == 1


# Authors


def test_pages_carry_their_author_and_the_journal_the_actor() -> None:
    ctx = new_talk()
    theirs = ctx.pages.create_detail_page("theirs", "", "text", "mem-0")
    agent = ctx.as_agent("scout")
    mine = agent.create_detail_page("mine", "", "text", "mem-0")
    folder = agent.create_contents_page("folder", "", "mem-0", [theirs])
    assert [ctx.pages.get_page(page).author for page in (theirs, mine, folder)] == ["developer", "scout", "scout"]
    agent.update_page(theirs, name="renamed")
    assert ctx.pages.get_page(theirs).author == "developer"
    agent.set_detail(theirs, "the scout's words now")
    assert ctx.pages.get_page(theirs).author == "scout"
    agent.hide_details(mine)
    by_agent = [entry.operation for entry in ctx.history(actor="scout")]
    assert by_agent == ["create_detail_page", "create_contents_page", "update_page", "set_detail", "hide_details"]


def test_what_changes_nothing_is_no_entry() -> None:
    ctx = new_talk()
    agent = ctx.as_agent()
    page = agent.create_detail_page("mine", "about", "text", "mem-0")
    before = ctx.seq
    agent.update_page(page, name="mine", description="about")
    agent.set_detail(page, "text")
    agent.expand_details(page)
    agent.recall(page)
    agent.move_page(page, "mem-0")
    assert ctx.seq == before


def test_a_refused_call_is_no_entry() -> None:
    ctx = new_talk()
    ctx.system("Prompt.")
    before = everything(ctx.pages)
    for refused in (
        lambda: ctx.agent.update_page("sys-1", name="mine"),
        lambda: ctx.agent.hide_details("sys-0"),
        lambda: ctx.agent.add_segment("mine"),
    ):
        with pytest.raises(QuireError):
            refused()
    assert everything(ctx.pages) == before
