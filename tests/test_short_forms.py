"""Short forms of `Context`: pages by name, documents, turns, edits, rollback before a message, and misspelt options."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import quire
from quire import (
    Context,
    InvalidOperation,
    InvalidValue,
    NoSuchPage,
    Permission,
    PermissionDenied,
    Segment,
    open_storage,
)
from quire.errors import UnknownOption


@pytest.fixture
def ctx() -> Iterator[Context]:
    with quire.open("memory:", budget=8_000) as opened:
        opened.system("You are careful.")
        yield opened


# Pages by name


def test_a_page_is_written_by_name(ctx: Context) -> None:
    index = ctx.write("port", "The replica listens on 5433.", summary="the replica")
    page = ctx.pages.get_page(index)
    assert (index, page.name, page.description, page.parent) == ("mem-1", "port", "the replica", "mem-0")
    assert ctx.write("port", "It listens on 5434.") == index
    assert (ctx.pages.detail(index), ctx.pages.get_page(index).description) == ("It listens on 5434.", "")
    seq = ctx.seq
    assert ctx.write("port", "It listens on 5434.") == index
    assert ctx.seq == seq
    assert ctx.write("host", "db-2") == "mem-2"


def test_a_page_is_written_to_a_folder_or_a_segment(ctx: Context) -> None:
    folder = ctx.pages.create_contents_page("servers", "", "mem")
    inside = ctx.write("port", "5433", folder)
    assert ctx.write("port", "5434") != inside
    assert [page.index for page in ctx.pages.children(folder)] == [inside]
    assert ctx.pages.detail(inside) == "5433"
    with pytest.raises(NoSuchPage):
        ctx.write("port", "5433", "nothing")


def test_write_leaves_folders_of_the_same_name_alone(ctx: Context) -> None:
    folder = ctx.pages.create_contents_page("port", "", "mem")
    page = ctx.write("port", "5433")
    assert page != folder
    assert ctx.write("port", "5434") == page


def test_the_id_of_a_segment_is_its_root(ctx: Context) -> None:
    ctx.pages.add_segment(Segment(id="mem-1"))
    first = ctx.pages.create_detail_page("a", "", "text", "mem")
    assert (first, ctx.pages.get_page(first).parent) == ("mem-1", "mem-0")
    with pytest.raises(InvalidOperation):
        ctx.pages.create_detail_page("b", "", "text", "mem-1")  # the page wins over the segment of this id
    folder = ctx.pages.create_contents_page("folder", "", "mem", [first])
    ctx.pages.move_page(first, "mem")
    assert [page.index for page in ctx.pages.children("mem")] == [folder, first]
    assert ctx.pages.child_count("mem") == 2
    ctx.pages.remove_segment("win")
    with pytest.raises(NoSuchPage):
        ctx.pages.create_detail_page("a", "", "text", "win")


def test_an_agent_names_a_segment_too_but_no_private_one(ctx: Context) -> None:
    ctx.pages.add_segment(Segment(id="sec", permission=Permission.PRIVATE))
    assert ctx.agent.create_detail_page("a", "", "text", "mem") == "mem-1"
    assert ctx.agent.create_contents_page("b", "", "mem") == "mem-2"
    assert [page.index for page in ctx.agent.children("mem")] == ["mem-1", "mem-2"]
    errors = []
    for segment in ("sec", "nil"):
        with pytest.raises(NoSuchPage) as caught:
            ctx.agent.create_detail_page("a", "", "text", segment)
        errors.append(str(caught.value).replace(segment, "…"))
    assert errors[0] == errors[1]
    with pytest.raises(PermissionDenied):
        ctx.agent.create_detail_page("a", "", "text", "sys")


def test_a_document_is_read_by_the_model_and_changed_by_the_developer(ctx: Context) -> None:
    index = ctx.document("Handbook", "Refunds take 30 days.", summary="rules")
    assert ctx.pages.segment_of(index).permission is Permission.READ_ONLY
    assert "Refunds take 30 days." in str(ctx.render().openai())
    for attempt in (
        lambda: ctx.agent.set_detail(index, "Refunds take 1 day."),
        lambda: ctx.agent.remove_page(index),
        lambda: ctx.agent.create_detail_page("Handbook", "", "mine", "docs"),
    ):
        with pytest.raises(PermissionDenied):
            attempt()
    assert ctx.document("Handbook", "Refunds take 40 days.") == index
    assert ctx.pages.detail(index) == "Refunds take 40 days."
    seq = ctx.seq
    ctx.document("Handbook", "Refunds take 40 days.")
    assert ctx.seq == seq


def test_a_document_is_pinned_and_unpinned(ctx: Context) -> None:
    index = ctx.document("Rules", "No refunds.", pinned=True)
    assert ctx.pages.get_page(index).pinned
    ctx.document("Rules", "No refunds.")
    assert not ctx.pages.get_page(index).pinned
    ctx.pin(index)
    assert ctx.pages.get_page(index).pinned
    ctx.unpin(index)
    assert not ctx.pages.get_page(index).pinned
    with pytest.raises(InvalidValue):
        ctx.document("Rules", "No refunds.", pinned="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("permission", [Permission.READ_WRITE, Permission.SYSTEM_MANAGED, Permission.PRIVATE])
def test_a_document_is_not_put_where_an_agent_can_change_it(ctx: Context, permission: Permission) -> None:
    ctx.pages.add_segment(Segment(id="docs", permission=permission))
    seq = ctx.seq
    with pytest.raises(InvalidOperation, match=permission.name):
        ctx.document("Rules", "No refunds.")
    assert ctx.seq == seq


# Messages


def test_a_turn_is_a_user_message_and_everything_up_to_the_next(ctx: Context) -> None:
    ctx.assistant("Welcome!")
    ctx.user("one")
    ctx.add({"role": "assistant", "content": None, "tool_calls": [CALL]})
    ctx.tool_result("c1", "sunny")
    ctx.assistant("It is sunny.")
    ctx.user("two")
    turns = [[message.index for message in turn] for turn in ctx.turns()]
    assert turns == [[2, 3, 4, 5], [6]]
    assert all(turn[0].role == "user" for turn in ctx.turns())


CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_a_rollback_before_a_message(ctx: Context) -> None:
    ctx.user("one")
    ctx.assistant("first answer")
    second = ctx.user("two")
    ctx.write("note", "written later")
    ctx.assistant("second answer")
    message = ctx.messages(all=True)[second]
    ctx.rollback(before=message)
    assert [message.text for message in ctx.messages()] == ["You are careful.", "one", "first answer"]
    assert list(ctx.pages.children("mem")) == []
    ctx.undo(ctx.seq)
    assert [message.text for message in ctx.messages()][-1] == "second answer"
    ctx.rollback(before=1)
    assert [message.text for message in ctx.messages()] == ["You are careful."]


def test_a_rollback_before_a_result_opens_its_call_again(ctx: Context) -> None:
    ctx.user("one")
    ctx.add({"role": "assistant", "content": None, "tool_calls": [CALL]})
    result = ctx.tool_result("c1", "sunny")
    ctx.rollback(before=result)
    assert [call.id for call in ctx.pending_calls()] == ["c1"]


def test_a_rollback_into_an_entry_is_refused_with_the_message_that_works(ctx: Context) -> None:
    ctx.add([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}])
    with pytest.raises(InvalidOperation):
        ctx.rollback(before=2)
    ctx.rollback(before=1)
    assert len(ctx.messages()) == 1


def test_a_rollback_before_a_message_that_follows_a_destroyed_one(ctx: Context) -> None:
    ctx.user("one")
    ctx.delete(ctx.user("two"))
    ctx.conversation.cleanup()
    ctx.rollback(before=ctx.user("three"))
    assert [message.text for message in ctx.messages()] == ["You are careful.", "one"]
    with pytest.raises(InvalidValue):
        ctx.rollback(before=1)


def test_a_rollback_needs_one_point(ctx: Context) -> None:
    ctx.checkpoint("here")
    for bad in ({}, {"to": "here", "before": 0}, {"before": 9}, {"before": -1}, {"before": "x"}):
        with pytest.raises(InvalidValue):
            ctx.rollback(**bad)


def test_messages_are_edited_where_they_are_added(ctx: Context) -> None:
    for text in ("one", "two", "three", "four"):
        ctx.user(text)
    ctx.delete(1)
    ctx.replace(2, {"role": "user", "content": "zwei"})
    ctx.compress([3, 4], "three and four")
    assert [message.text for message in ctx.messages()] == ["You are careful.", "zwei"]
    assert "three and four" in str(ctx.render().openai())


# An agent and the user's messages


def test_an_agent_removes_no_message_of_the_user(ctx: Context) -> None:
    ctx.user("Do not forget this.")
    ctx.assistant("I will not.")
    ctx.user("And this.")
    ctx.assistant("Noted.")
    ctx.conversation.compress([1, 2])
    summary = next(page.index for page in ctx.pages.children("usr") if page.name.startswith("Summary") or page.tokens)
    folder = ctx.pages.create_contents_page("chapter", "", "usr", ["usr-3", "usr-4"])
    before = list(ctx.messages(all=True)), ctx.seq
    for index in ("usr-3", folder, summary):
        for attempt in (lambda: ctx.agent.remove_page(index), lambda: ctx.agent.check_permission(index, "remove_page")):  # noqa: B023
            with pytest.raises(PermissionDenied):
                attempt()
        assert ctx.tools.call("remove_page", {"page": index}).startswith("PermissionDenied: ")
    assert (list(ctx.messages(all=True)), ctx.seq) == before
    assert ctx.agent.remove_page("usr-4") == 1  # the model's own message
    allowed = ctx.as_agent(remove_user_messages=True)
    assert allowed.remove_page("usr-3") == 1
    assert allowed.remove_page(summary) == 1


# Misspelt options


def calls(ctx: Context) -> dict[str, tuple[Callable[[], Any], str, str]]:
    library = quire.Library("memory:")
    return {
        "find": (lambda: ctx.find("x", sgement="mem"), "sgement", "segment"),  # type: ignore[call-arg]
        "pages.find": (lambda: ctx.pages.find("x", kin="leaf"), "kin", "kind"),  # type: ignore[call-arg]
        "agent.find": (lambda: ctx.agent.find("x", rol="user"), "rol", "role"),  # type: ignore[call-arg]
        "render": (lambda: ctx.render(recal=True), "recal", "recall"),  # type: ignore[call-arg]
        "RenderOptions": (lambda: quire.RenderOptions(budget=9), "budget", "max_tokens"),  # type: ignore[call-arg]
        "turn": (lambda: ctx.turn(wiat=1), "wiat", "wait"),  # type: ignore[call-arg]
        "history": (lambda: ctx.history(actr="x"), "actr", "actor"),  # type: ignore[call-arg]
        "audit": (lambda: ctx.audit("nowhere", actr="x"), "actr", "actor"),  # type: ignore[call-arg]
        "write": (lambda: ctx.write("a", "b", sumary="c"), "sumary", "summary"),  # type: ignore[call-arg]
        "open": (lambda: quire.open("memory:", bugdet=1), "bugdet", "budget"),  # type: ignore[call-arg]
        "Library": (lambda: quire.Library("memory:", redcat=None), "redcat", "redact"),  # type: ignore[call-arg]
        "Library.open": (lambda: library.open("a", bugdet=1), "bugdet", "budget"),  # type: ignore[call-arg]
        "Library.delete": (lambda: library.delete("a", srub=True), "srub", "scrub"),  # type: ignore[call-arg]
        "pages": (
            lambda: ctx.pages.create_detail_page("a", "", "b", "mem", pined=True),  # type: ignore[call-arg]
            "pined",
            "pinned",
        ),
        "conversation": (lambda: ctx.conversation.messages(al=True), "al", "all"),  # type: ignore[call-arg]
        "Segment": (lambda: Segment(id="x", permision=1), "permision", "permission"),  # type: ignore[call-arg]
        "Quota": (lambda: quire.Quota(page=1), "page", "pages"),  # type: ignore[call-arg]
        "Price": (lambda: quire.Price(wirte=1), "wirte", "write"),  # type: ignore[call-arg]
        "doctor": (lambda: quire.doctor("nowhere", repiar=True), "repiar", "repair"),  # type: ignore[call-arg]
        "backup": (lambda: quire.backup("a", "b", progres=print), "progres", "progress"),  # type: ignore[call-arg]
        "migrate": (lambda: quire.migrate("a", "b", replce=True), "replce", "replace"),  # type: ignore[call-arg]
        "open_storage": (lambda: open_storage("memory:", creat=False), "creat", "create"),  # type: ignore[call-arg]
        "windows.acting_as": (lambda: ctx.windows.acting_as("x", quotas=None), "quotas", "quota"),  # type: ignore[call-arg]
        "tools.call": (lambda: ctx.tools.call("find", argument={}), "argument", "arguments"),  # type: ignore[call-arg]
    }


@pytest.mark.parametrize("name", list(calls(quire.open("memory:"))))
def test_a_misspelt_option_is_named_with_what_was_meant(ctx: Context, name: str) -> None:
    call, option, meant = calls(ctx)[name]
    seq = ctx.seq
    with pytest.raises(UnknownOption) as caught:
        call()
    error = caught.value
    assert (error.code, error.option, error.suggestion) == ("unknown_option", option, meant)
    assert isinstance(error, TypeError)  # as Python's own error for this
    assert ctx.seq == seq


def test_a_misspelt_option_is_named_in_asyncio_too() -> None:
    async def work() -> None:
        async with quire.aio.open("memory:") as ctx:
            with pytest.raises(UnknownOption):
                await ctx.find("x", sgement="mem")  # type: ignore[call-arg]
            with pytest.raises(UnknownOption):
                ctx.turn(kep=True)  # type: ignore[call-arg]
            with pytest.raises(UnknownOption):
                await ctx.tools_of(ctx.agent, besides=True)  # type: ignore[call-arg]
            await ctx.user("one")
            assert await ctx.write("port", "5433") == "mem-1"
            assert await ctx.document("Rules", "No refunds.") == "docs-1"
            assert [[message.text for message in turn] for turn in await ctx.turns()] == [["one"]]
            await ctx.rollback(before=0)
            assert await ctx.messages() == []

    asyncio.run(work())


def test_the_values_print_in_a_line(ctx: Context) -> None:
    ctx.user("word " * 500)
    ctx.add({"role": "assistant", "content": None, "tool_calls": [CALL]})
    note = ctx.write("port " * 30, "5433")
    ctx.pages.hide(note)
    printed = [
        repr(value)
        for value in (
            *ctx.messages(),
            *ctx.pages.list_pages(),
            *ctx.pages.list_segments(),
            *ctx.history(),
            *ctx.find("word"),
            ctx,
            ctx.pages,
            ctx.conversation,
            ctx.agent,
            ctx.windows,
            ctx.render(),
            quire.Library("memory:"),
        )
    ]
    assert [line for line in printed if len(line) > 160 or "\n" in line or not line.startswith("<")] == []
    assert "<Message 2, assistant: weather(…)>" in printed
    assert repr(ctx.pages.get_page("mem-0")) == "<ContentsPage mem-0: 'Memory', 0 tokens>"
    assert repr(ctx.pages.get_page(note)).endswith(", 2 tokens, folded>")
    assert repr(ctx.pages.get_segment("sys")) == "<Segment 'sys': 'System', SYSTEM, READ_ONLY>"
