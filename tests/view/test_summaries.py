"""What folds keep: protected pages, facts that lead back, removed words nowhere, the caller's summariser."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import CompressionConfig, ContentsPage, Context

SECRET = "HUNTER-77123"


def talk_on(ctx: Context, start: int, turns: int) -> int:
    """Continue the conversation with views. Return the number of folds."""
    folds = 0
    for turn in range(start, start + turns):
        ctx.user(f"Question {turn} about HAT{turn}. " + "I would like to know. " * 12)
        ctx.assistant(f"Answer {turn}: it is {turn + 5000}. " + "That is all. " * 12)
        folds += ctx.render().fold is not None
    return folds


def until_fold(ctx: Context, turn: int) -> int:
    """Continue until a view folds. Return the number of the next turn."""
    while not talk_on(ctx, turn, 1):
        turn += 1
    return turn + 1


# Facts


def test_a_fold_loses_no_fact_and_each_leads_back_to_its_page() -> None:
    ctx = quire.open("memory:", budget=1_500)
    told: list[Any] = []
    stop = ctx.on_fold(told.append)
    talk_on(ctx, 0, 60)
    assert len(told) > 1
    assert all(fold.saved > 0 for fold in told)
    for turn in range(0, 50, 7):
        hits = [hit.index for hit in ctx.find(f"HAT{turn}", limit=5)]
        assert str(ctx.conversation.page_of(2 * turn)) in hits
    stop()
    before = len(told)
    assert talk_on(ctx, 60, 60)
    assert len(told) == before


@pytest.mark.parametrize("said", ["It is in {}conf/values.toml and/or here.", "It is HAT{}136 and HAT{}13 and so on."])
def test_a_line_names_the_file_or_the_codes_that_a_long_answer_was_about(said: str) -> None:
    ctx = quire.open("memory:", budget=1_500)
    for name in "abcdefghijkl":
        ctx.user("Please tell me what you saw. " + "I would like to know. " * 6)
        ctx.assistant("It took a while. " * 9 + said.replace("{}", name) + " That is all." * 12)
        ctx.render()
    told = " ".join(page.description for page in ctx.pages.list_pages("usr")).replace(",", " ").split()
    facts = [fact for fact in ("{}conf/values.toml", "HAT{}136", "HAT{}13") if fact in said]
    assert [fact for fact in facts for name in "abcdef" if fact.replace("{}", name) not in told] == []


# Protected pages


def test_a_pinned_page_in_a_chapter_stays_shown() -> None:
    ctx = quire.open("memory:", budget=1_000)
    talk_on(ctx, 0, 30)
    chapter = next(page.index for page in ctx.pages.children("usr-0") if isinstance(page, ContentsPage))
    while isinstance(page := ctx.pages.children(chapter)[0], ContentsPage):
        chapter = page.index
    ctx.pages.pin(page.index)
    talk_on(ctx, 30, 20)
    assert ctx.why(page.index).shown == "whole"
    assert ctx.check() == []


def test_a_result_that_the_model_has_not_seen_is_not_folded() -> None:
    """Claude Code sends a system message after each result, or a reminder with it in one message."""
    ctx = quire.open("memory:", budget=900)
    ctx.user("Read the files.")
    for step in range(8):
        call = {"type": "tool_use", "id": f"toolu_{step}", "name": "read", "input": {}}
        text = f"the code of file {step} " + "word " * 250
        more = [{"type": "text", "text": "Be careful."}] if step % 2 else []
        ctx.add({"role": "assistant", "content": [call]})
        ctx.add(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": text}, *more]}
        )
        if not more:
            ctx.add({"role": "system", "content": f"{step} files are read."})
        view = ctx.render()
        assert f"the code of file {step} " in "".join(message.text for message in view.messages)
        assert ("Be careful." if more else f"{step} files are read.") in view.messages[-1].text
    assert list(ctx.history(operation="fold"))


# What leaves


def number_of(ctx: Context) -> int:
    return next(message.index for message in ctx.messages() if SECRET in message.text)


WAYS: dict[str, Callable[[Context], object]] = {
    "delete": lambda ctx: ctx.conversation.delete(number_of(ctx)),
    "replace": lambda ctx: ctx.conversation.replace(number_of(ctx), {"role": "user", "content": "Never mind"}),
    "purge": lambda ctx: ctx.pages.purge(str(ctx.conversation.page_of(number_of(ctx)))),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_taken_out_stands_in_no_line_and_undo_brings_it_back(way: str) -> None:
    ctx = quire.open("memory:", budget=1_500)
    talk_on(ctx, 0, 3)
    ctx.user(f"The code is {SECRET}, 别忘了。")
    talk_on(ctx, 3, 20)
    before = ctx.render().openai()
    assert SECRET in str(before)
    WAYS[way](ctx)
    assert SECRET not in str(ctx.render().openai())
    if way != "purge":
        ctx.undo(next(ctx.history(operation=way, reverse=True)))
        assert ctx.render().openai() == before
        WAYS[way](ctx)
    talk_on(ctx, 23, 15)
    assert SECRET not in str(ctx.render().openai())
    chapters = [page for page in ctx.pages.list_pages("usr") if isinstance(page, ContentsPage)]
    assert not any(SECRET in page.name + page.description for page in chapters)
    assert ctx.check() == []


def test_the_last_turn_comes_out_of_its_line_when_all_after_it_leaves() -> None:
    ctx = quire.open("memory:", budget=1_500)
    talk_on(ctx, 0, 20)
    messages = ctx.messages()
    assert messages[2].text not in str(ctx.render().openai())
    ctx.conversation.delete(range(4, len(messages)))
    assert [part["content"] for part in ctx.render().openai()[-2:]] == [message.text for message in messages[2:4]]
    assert ctx.check() == []


# The caller's summariser


def summarised(summariser: Any) -> tuple[Context, int]:
    """Return a conversation with one fold, after its summaries are written, and the number of the next turn."""
    config = CompressionConfig(summariser=summariser)
    ctx = quire.open("memory:", budget=1_500, key="amber-123", compression=config)
    turn = until_fold(ctx, 0)
    assert ctx.summarising is not None
    assert ctx.summarising.wait(20)
    return ctx, turn


def summaries(ctx: Context) -> list[str]:
    """Return the descriptions of the pages of the conversation."""
    return [page.description for page in ctx.pages.list_pages("usr")]


async def awaited(text: str, tokens: int) -> str:
    return "In short: a flight."


@pytest.mark.parametrize("summariser", [awaited, lambda text, tokens: "In short: a flight." + " word" * 500])
def test_its_text_takes_its_place_at_the_next_fold_and_nowhere_else(summariser: Any) -> None:
    ctx, turn = summarised(summariser)
    view, seq = ctx.render(), ctx.seq
    assert not any(text.startswith("In short") for text in summaries(ctx))
    lines = [page.index for page in view.pages if page.granularity == "line"]
    ctx.pages.update_page(lines[0], description="Mine.")
    until_fold(ctx, turn)
    found = [text for text in summaries(ctx) if text.startswith("In short")]
    assert found
    assert all(len(text) <= 2_000 for text in found)
    assert ctx.pages.get_page(lines[0]).description == "Mine."
    assert {entry.operation for entry in ctx.history(after=seq)} == {"update_page", "user", "assistant", "fold"}
    assert ctx.check() == []


@pytest.mark.parametrize(
    "given", [None, "", "  \n ", 5, ["text"], ConnectionError("no model"), asyncio.CancelledError()]
)
def test_what_is_no_summary_leaves_the_extracted_one(given: Any) -> None:
    def summarise(text: str, tokens: int) -> Any:
        if isinstance(given, BaseException):
            raise given
        return given

    ctx, turn = summarised(summarise)
    plain = quire.open("memory:", budget=1_500, key="amber-123")
    assert until_fold(plain, 0) == turn
    until_fold(ctx, turn)
    until_fold(plain, turn)
    assert summaries(ctx) == summaries(plain)
    assert ctx.summarising is not None
    assert bool(ctx.summarising.errors) == (given is not None and not isinstance(given, str))


def test_a_slow_one_makes_no_turn_wait_and_closing_does_not_either() -> None:
    go = threading.Event()
    ctx = quire.open(
        "memory:",
        budget=1_500,
        compression=CompressionConfig(summariser=lambda text, tokens: "Late." if go.wait(30) else None),
    )
    assert talk_on(ctx, 0, 30) > 1  # no summary arrived, and everything continued
    assert ctx.summarising is not None
    assert not ctx.summarising.wait(0)
    before = time.monotonic()
    ctx.close()
    assert time.monotonic() - before < 20
    go.set()
    assert ctx.summarising.wait(20)
    assert not ctx.summarising.errors
